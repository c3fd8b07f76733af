// Package site reaches other machines on which labs may run: it reads the list of them, logs in
// over SSH as the user would, copies this program there, and starts it at the other end of the
// connection. It knows nothing of the labs themselves.
package site

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// List is the machines that a lab may run at, besides the one that holds its daemon.
type List struct {
	Machines []*Machine `json:"machines"`
	Carrier  string     `json:"carrier"` // of links between sites: the word of a Carrier

	// VLANs is the range of VLANs for links between machines that have none of their own.
	VLANs [2]uint16 `json:"vlans,omitzero"`

	// Wires are the cables between interfaces of the machines, if links are to use them.
	Wires []Wire `json:"wires,omitempty"`

	// Keep is how long a site keeps its part after the head is gone; 0: for ever.
	Keep topology.Duration `json:"keep"`
	Head Own               `json:"head,omitzero"`

	Provided *Provided `json:"provided,omitempty"` // machines that are made for the lab
}

// Own is what a list says about the head, the machine on which the list is read.
type Own struct {
	Only bool `json:"only,omitempty"` // the head runs no nodes
	// Address at which the other machines reach it; unset: the source of their SSH connections.
	Address netip.Addr `json:"address,omitzero"`
	NIC     string     `json:"nic,omitempty"` // interface that carries the VLANs; unset: the one with the address
	// The interfaces to bond, if there are several: see target/sites.
	Bond []string `json:"bond,omitempty"`
	// Interface by which a rack's devices reach the outside; unset: that of the default route.
	Outer string `json:"outer,omitempty"`
	Capacity
}

// Capacity is what placement knows about a machine.
type Capacity struct {
	Labels []string `json:"labels,omitempty"` // a node that requires one of them runs here
	Cores  float64  `json:"cores,omitempty"`  // available to the lab; 0: all that there are
}

// Machine is a machine reached over SSH. Unset fields are as in the user's ~/.ssh/config, or ssh's
// defaults.
type Machine struct {
	Name string `json:"name"`
	Host string `json:"host"` // a name, an address, or a Host of ~/.ssh/config
	User string `json:"user,omitempty"`
	Port int    `json:"port,omitempty"`
	Key  string `json:"key,omitempty"` // file of a private key
	// Host key to require, as in known_hosts: TYPE BASE64; unset: any known one.
	HostKey string     `json:"host_key,omitempty"`
	Address netip.Addr `json:"address,omitzero"` // at which the other machines reach it; unset: where SSH does
	NIC     string     `json:"nic,omitempty"`    // interface that carries the VLANs; unset: the one with the address
	VLAN    uint16     `json:"vlan,omitempty"`   // of its first link to the head; 0: one of the list's

	// Hosts is the maximum number of nodes, which must be hosts. If it is 1, the host is the
	// machine itself. 0: the machine takes nodes of any kind.
	Hosts int `json:"hosts,omitempty"`

	// Kind is the word of a DeviceKind for a device that becomes one switch and nothing else, or
	// empty for a machine that runs this program. Agent is the switch software, Ports are the
	// interfaces that may be its ports, by the device's own names.
	Kind  string   `json:"kind,omitempty"`
	Agent string   `json:"agent,omitempty"`
	Ports []string `json:"ports,omitempty"`
	Capacity

	Pos topology.Position `json:"-"`
}

// String returns the machine in the form USER@HOST:PORT.
func (m *Machine) String() string {
	s := m.Host
	if m.User != "" {
		s = m.User + "@" + s
	}
	if m.Port != 0 {
		s += ":" + strconv.Itoa(m.Port)
	}
	return s
}

// ssh returns the command by which a user logs in by hand.
func (m *Machine) ssh() string {
	to := *m
	if to.Port = 0; m.Port != 0 {
		return fmt.Sprintf("ssh -p %d %s", m.Port, &to)
	}
	return "ssh " + to.String()
}

// MaxMachines limits the machines of a list.
const MaxMachines = 256

// keep is the default of List.Keep: long enough to resume the lab, and not so long that people
// start to wonder what these machines are doing.
const keep = 10 * time.Minute

// maxVLAN is the highest VLAN ID (IEEE 802.1Q-2022, table 9-2).
const maxVLAN = 4094

// usualVLANs is the default of List.VLANs. They differ from the last octets of addresses, by which
// devices' VLANs are often numbered.
var usualVLANs = [2]uint16{1000, 1999}

var (
	userPattern  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)
	hostPattern  = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}|[A-Fa-f0-9:.]{0,45}(%[A-Za-z0-9_.-]{1,15})?)$|^::[A-Fa-f0-9:.]{0,45}$`)
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$`)
	labelPattern = namePattern
)

// CanName reports whether a machine may have this name.
func CanName(s string) bool { return namePattern.MatchString(s) && s != topology.Head }

// check checks the list as a whole.
func (l *List) check(p *topology.Problems) {
	seen, hosts, vlans := map[string]bool{topology.Head: true}, map[string]string{}, map[uint16]string{}
	for _, m := range l.Machines {
		switch {
		case m.Name == topology.Head:
			p.Add(m.Pos, "call it something else", "head is the machine that holds the lab's daemon")
		case seen[m.Name]:
			p.Add(m.Pos, "give each a name of its own", "two machines are called %s", m.Name)
		case hosts[m.String()] != "":
			p.Add(m.Pos, "name each machine once", "%s and %s are the same machine: %s", hosts[m.String()], m.Name, m)
		case m.VLAN != 0 && vlans[m.VLAN] != "":
			p.Add(m.Pos, "give each a VLAN of its own:  vlan: "+strconv.Itoa(int(m.VLAN%maxVLAN+1)),
				"%s and %s both have VLAN %d", vlans[m.VLAN], m.Name, m.VLAN)
		case m.VLAN >= l.VLANs[0] && m.VLAN <= l.VLANs[1]:
			p.Add(m.Pos, "set  vlans:  to others",
				"VLAN %d of %s is one of %d-%d, which are for links of machines without", m.VLAN, m.Name, l.VLANs[0],
				l.VLANs[1])
		// The guard of such a machine lets nothing else out; instances have networks for its links.
		case m.Hosts == 1 && !l.By().Tagged && l.Provided == nil:
			p.Add(m.Pos, "write  carrier: vlan,  or let hosts be namespaces there:  hosts: 2",
				"%s is to be a host itself (hosts: 1), and links of such machines are VLANs, not %s", m.Name, l.Carrier)
		}
		seen[m.Name], hosts[m.String()], vlans[m.VLAN] = true, m.Name, m.Name
	}
	if len(l.Machines) > MaxMachines {
		p.Add(topology.Position{}, "leave some out", "%d machines; a lab runs at no more than %d", len(l.Machines),
			MaxMachines)
	}
}

// Machine returns the machine with a name, or nil.
func (l *List) Machine(name string) *Machine {
	return lists.Find(l.Machines, func(m *Machine) bool { return m.Name == name })
}

// machineLists reads Trivet's own lists. It accepts any single file, so that errors refer to this
// format.
var machineLists = inYAML(func(*yamlfile.Value) bool { return true }, (*List).readYAML)

func (l *List) readYAML(root *yamlfile.Value, p *topology.Problems) {
	if root.Shape == yamlfile.List {
		l.readMachines(root, p)
		return
	}
	if root.Shape != yamlfile.Mapping {
		p.Add(root.Pos, "write  machines: {m1: user@host}", "a file of machines is a mapping or a list, not %s", root)
		return
	}
	var wires *yamlfile.Value
	for _, q := range root.Pairs {
		switch v := q.Value; q.Key.Text {
		case "machines":
			l.readMachines(v, p)
		case "vlans":
			l.VLANs = vlanRange(v, p)
		case "head":
			l.readHead(v, p)
		case "wires":
			wires = v
		default:
			if !l.Option(q, p) {
				p.Add(q.Key.Pos, "known are machines, carrier, head, keep, vlans, wires", "there is no key %q",
					q.Key.Text)
			}
		}
	}
	l.readWires(wires, p)
}

// Option reads a key that lists of any source may have, and reports whether it is one.
func (l *List) Option(q yamlfile.Pair, p *topology.Problems) bool {
	switch v := q.Value; q.Key.Text {
	case "carrier":
		if l.Carrier = v.Text; !slices.Contains(carrierWords(), v.Text) {
			p.Add(v.Pos, "choose "+choice(carrierWords()), "there is no carrier %q", v.Text)
		}
	case "keep":
		l.Keep = duration(v, p)
	default:
		return false
	}
	return true
}

func (l *List) readMachines(v *yamlfile.Value, p *topology.Problems) {
	switch v.Shape {
	case yamlfile.List:
		for _, item := range v.Items {
			if item.Shape != yamlfile.Scalar {
				p.Add(item.Pos, "write - user@host; options need a name: m1: {ssh: user@host, …}",
					"a machine in a list is user@host, not %s", item)
			} else if m := parseTarget(item.Text, item.Pos, p); m != nil {
				l.Machines = append(l.Machines, m)
			}
		}
	case yamlfile.Mapping:
		for _, q := range v.Pairs {
			if m := l.readMachine(q, p); m != nil {
				l.Machines = append(l.Machines, m)
			}
		}
	default:
		p.Add(v.Pos, "write  machines: {m1: user@host}", "machines is a mapping or a list, not %s", v)
	}
}

func (l *List) readMachine(q yamlfile.Pair, p *topology.Problems) *Machine {
	name, v := q.Key.Text, q.Value
	if !namePattern.MatchString(name) {
		p.Add(q.Key.Pos, "use letters, digits, '_', '.', '-', at most 40", "%q cannot be the name of a site", name)
		return nil
	}
	target := v
	if v.Shape == yamlfile.Mapping {
		target = v.Get("ssh")
	}
	m := &Machine{Host: name, Pos: q.Key.Pos}
	if target != nil && target.Shape != yamlfile.Nothing {
		if target.Shape != yamlfile.Scalar {
			p.Add(target.Pos, "write user@host", "a machine is reached at user@host, not at %s", target)
			return nil
		}
		if m = parseTarget(target.Text, target.Pos, p); m == nil {
			return nil
		}
	}
	m.Name = name
	if v.Shape != yamlfile.Mapping {
		return m
	}
	for _, o := range v.Pairs {
		switch o.Key.Text {
		case "ssh":
		case "key":
			m.Key = text(o.Value, p)
		case "address":
			m.Address = address(o.Value, p)
		case "nic":
			m.NIC = nic(o.Value, p)
		case "vlan":
			m.VLAN = vlan(o.Value, p)
		case "hosts":
			m.Hosts = HostCount(o.Value, p)
		case "kind", "agent", "ports":
			m.readDevice(o, p)
		default:
			if !m.Option(o, p) {
				p.Add(o.Key.Pos, "known are ssh, key, address, nic, vlan, hosts, kind, agent, ports, labels, cores",
					"machine %s: there is no option %q", name, o.Key.Text)
			}
		}
	}
	m.checkDevice(p)
	return m
}

// Reach reads how SSH reaches the machine: user@host:port.
func (m *Machine) Reach(v *yamlfile.Value, p *topology.Problems) {
	if at := parseTarget(text(v, p), v.Pos, p); at != nil {
		m.Host, m.User, m.Port = at.Host, at.User, at.Port
	}
}

// Option reads a key that machines of any source may have, and reports whether it is one.
func (c *Capacity) Option(o yamlfile.Pair, p *topology.Problems) bool {
	switch o.Key.Text {
	case "labels", "label":
		list := []*yamlfile.Value{o.Value}
		if o.Value.Shape == yamlfile.List {
			list = o.Value.Items
		}
		for _, v := range list {
			if s := text(v, p); labelPattern.MatchString(s) {
				c.Labels = append(c.Labels, s)
			} else {
				p.Add(v.Pos, "use letters, digits, '_', '.', '-'", "%q is not a label", s)
			}
		}
	case "cores":
		n, err := strconv.ParseFloat(o.Value.Text, 64)
		if o.Value.Shape != yamlfile.Scalar || err != nil || !(n > 0 && n <= 4096) {
			p.Add(o.Value.Pos, "write cores: 4", "%s is not a number of processors", o.Value)
		}
		c.Cores = n
	default:
		return false
	}
	return true
}

func (l *List) readHead(v *yamlfile.Value, p *topology.Problems) {
	switch {
	case v.Shape == yamlfile.Scalar && v.Text == "only":
		l.Head.Only = true
	case v.Shape == yamlfile.Mapping:
		for _, o := range v.Pairs {
			switch o.Key.Text {
			case "only":
				if l.Head.Only = o.Value.Text == "true"; !l.Head.Only && o.Value.Text != "false" {
					p.Add(o.Value.Pos, "write true or false", "head: only: %s", o.Value)
				}
			case "address":
				l.Head.Address = address(o.Value, p)
			case "nic":
				l.Head.NIC = nic(o.Value, p)
			default:
				if !l.Head.Option(o, p) {
					p.Add(o.Key.Pos, "known are only, address, nic, labels, cores", "head: there is no option %q",
						o.Key.Text)
				}
			}
		}
	default:
		p.Add(v.Pos, "write  head: only, or  head: {address: 10.5.0.1}", "head is what this machine does, not %s", v)
	}
}

// duration reads how long a machine keeps its part.
func duration(v *yamlfile.Value, p *topology.Problems) topology.Duration {
	d, err := topology.ParseDuration(v.Text)
	if v.Text == "forever" {
		d, err = 0, nil
	} else if err == nil && d < topology.Duration(time.Second) {
		err = topology.Mistaken("write 10m, or forever", "%s is too short", v)
	}
	if text, hint := "", ""; v.Shape != yamlfile.Scalar || err != nil {
		if err != nil {
			text, hint = topology.TextAndHint(err)
		}
		p.Add(v.Pos, cmp.Or(hint, "write 10m, or forever"), "keep: %s", cmp.Or(text, v.String()))
	}
	return d
}

func text(v *yamlfile.Value, p *topology.Problems) string {
	if v.Shape != yamlfile.Scalar {
		p.Add(v.Pos, "write a word", "a word is needed here, not %s", v)
		return ""
	}
	return v.Text
}

func address(v *yamlfile.Value, p *topology.Problems) netip.Addr {
	a, err := netip.ParseAddr(v.Text)
	if v.Shape != yamlfile.Scalar || err != nil || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
		p.Add(v.Pos, "write address: 10.5.0.2", "%s is not an address of a machine", v)
	}
	return a
}

// at is a line of a file.
func at(file string, line int) topology.Position {
	return topology.Position{File: file, Line: line, Column: 1}
}
