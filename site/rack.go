package site

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// A rack is another form of a list of machines: a gateway, which is the head and runs all nodes
// that are not hosts, and devices, each of which is a host, or a switch if it is of a DeviceKind.
// Links are carried by VLANs or wires.

var racks = inYAML(func(root *yamlfile.Value) bool {
	return root != nil && (root.Get("devices") != nil || root.Get("gateway") != nil)
}, (*List).readRack)

func (l *List) readRack(root *yamlfile.Value, p *topology.Problems) {
	var wires *yamlfile.Value
	for _, q := range root.Pairs {
		switch v := q.Value; q.Key.Text {
		case "gateway":
			l.readGateway(v, p)
		case "devices":
			l.readMachines(v, p)
		case "keep":
			l.Keep = duration(v, p)
		case "vlans":
			l.VLANs = vlanRange(v, p)
		case "wires":
			wires = v
		default:
			p.Add(q.Key.Pos, "known are gateway, devices, wires, keep, vlans", "there is no key %q in a rack",
				q.Key.Text)
		}
	}
	if root.Get("gateway") == nil {
		p.Add(root.Pos, "add the interface to which the devices are connected:  gateway: {inner: eth1}",
			"the rack has no gateway")
	}
	l.readWires(wires, p)
	l.fillRack(p)
}

// fillRack sets the defaults of a rack and its devices.
func (l *List) fillRack(p *topology.Problems) {
	l.Carrier = vlans.Word
	for _, m := range l.Machines {
		if !m.Configured() {
			m.Hosts = cmp.Or(m.Hosts, 1)
		}
		if m.VLAN == 0 {
			m.VLAN = lastOctet(m, p)
		}
	}
}

// lastOctet returns the default VLAN of a device: the last octet of its address.
func lastOctet(m *Machine, p *topology.Problems) uint16 {
	at := m.Address
	if !at.IsValid() {
		at, _ = netip.ParseAddr(m.Host)
	}
	if !at.Unmap().Is4() {
		p.Add(m.Pos, fmt.Sprintf("write  %s: {ssh: %s, vlan: 101}", m.Name, m),
			"%s has no VLAN: it is the last octet of an IPv4 address, or given", m.Name)
		return 0
	}
	id := uint16(at.Unmap().As4()[3])
	if id < 2 { // VLAN 1 is what switches call untagged frames
		p.Add(m.Pos, "give it one:  vlan: 101", "%s cannot have the VLAN %d", m.Name, id)
	}
	return id
}

func (l *List) readGateway(v *yamlfile.Value, p *topology.Problems) {
	if v.Shape != yamlfile.Mapping {
		p.Add(v.Pos, "write  gateway: {inner: eth1}", "a gateway is a mapping, not %s", v)
		return
	}
	for _, o := range v.Pairs {
		switch o.Key.Text {
		case "ssh":
			if o.Value.Text != "local" {
				p.Add(o.Value.Pos, "run trivet on the gateway, and write  ssh: local  or nothing",
					"the gateway is the machine that this is run on, not %s", o.Value)
			}
		case "inner":
			l.Head.NIC, l.Head.Bond = nics(o.Value, p)
		case "outer":
			l.Head.Outer = nic(o.Value, p)
		case "address":
			l.Head.Address = address(o.Value, p)
		default:
			if !l.Head.Option(o, p) {
				p.Add(o.Key.Pos, "known are ssh, inner, outer, address, labels, cores",
					"gateway: there is no option %q", o.Key.Text)
			}
		}
	}
	if v.Get("inner") == nil {
		p.Add(v.Pos, "add it:  gateway: {inner: eth1}",
			"the gateway lacks inner, the interface to which the devices are connected")
	}
}

// nicPattern matches names of interfaces (dev_valid_name in net/core/dev.c), without characters
// that are special to shells.
var nicPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}$`)

func nic(v *yamlfile.Value, p *topology.Problems) string {
	if v.Shape == yamlfile.List {
		p.Add(v.Pos, "name one", "one interface is needed here, not several")
		return ""
	}
	s := text(v, p)
	if v.Shape == yamlfile.Scalar && !nicPattern.MatchString(s) {
		p.Add(v.Pos, "write its name: eth1", "%q is not an interface", s)
	}
	return s
}

// BondName is the interface in which a lab bonds several; only one lab can have it.
const BondName = "trivet-bond"

// nics reads the gateway's inner interface; several are to be bonded.
func nics(v *yamlfile.Value, p *topology.Problems) (string, []string) {
	if v.Shape != yamlfile.List {
		return nic(v, p), nil
	}
	var out []string
	for _, item := range v.Items {
		if s := nic(item, p); slices.Contains(out, s) {
			p.Add(item.Pos, "name each once", "%s is there twice", s)
		} else {
			out = append(out, s)
		}
	}
	switch len(out) {
	case 0:
		p.Add(v.Pos, "write its name: eth1", "inner names no interface")
		return "", nil
	case 1:
		return out[0], nil
	}
	return BondName, out
}

func vlan(v *yamlfile.Value, p *topology.Problems) uint16 {
	n, err := strconv.Atoi(v.Text)
	if v.Shape != yamlfile.Scalar || err != nil || n < 2 || n > maxVLAN {
		p.Add(v.Pos, fmt.Sprintf("VLANs are 2 to %d (1 is what switches call untagged frames)", maxVLAN),
			"%s is not a VLAN", v)
		return 0
	}
	return uint16(n)
}

func vlanRange(v *yamlfile.Value, p *topology.Problems) (r [2]uint16) {
	from, to, _ := strings.Cut(v.Text, "-")
	for i, s := range []string{from, cmp.Or(to, from)} {
		part := *v
		part.Text = strings.TrimSpace(s)
		if r[i] = vlan(&part, p); r[i] == 0 {
			return usualVLANs
		}
	}
	if r[0] > r[1] {
		p.Add(v.Pos, "write the smaller one first", "%s holds no VLAN", v)
	}
	return r
}

// MaxHosts limits the hosts on a machine.
const MaxHosts = 1024

// HostCount reads the maximum number of hosts on a machine; see Machine.Hosts.
func HostCount(v *yamlfile.Value, p *topology.Problems) int {
	n, err := strconv.Atoi(v.Text)
	if v.Shape != yamlfile.Scalar || err != nil || n < 1 || n > MaxHosts {
		p.Add(v.Pos,
			fmt.Sprintf("hosts: 1 makes the machine itself the host, hosts: 4 makes room for four; at most %d",
				MaxHosts), "%s is not a number of hosts", v)
	}
	return n
}

// TakesHosts reports whether some machines are for hosts only, as a rack's devices are.
func (l *List) TakesHosts() bool {
	return slices.ContainsFunc(l.Machines, func(m *Machine) bool { return m.Hosts > 0 })
}

// NICOf returns the interface that carries a site's VLANs; empty: the one with its address.
func (l *List) NICOf(site string) string {
	if site == topology.Head {
		return l.Head.NIC
	}
	return l.Machine(site).NIC
}
