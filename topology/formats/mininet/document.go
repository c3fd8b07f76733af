package mininet

import (
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// document is what the stand-in reports (standin/mininet/snapshot.py). The program itself may have
// written it: every value is checked.
type document struct {
	Error       *message  `json:"error"`
	Python2     bool      `json:"python2"` // the error may be due to that
	Warnings    []message `json:"warnings"`
	Dropped     int       `json:"dropped"`
	Line        int       `json:"line"`
	Name        *string   `json:"name"`
	Subnet      string    `json:"subnet"`
	Datapath    string    `json:"datapath"`
	Controllers []string  `json:"controllers"`
	Nodes       []node    `json:"nodes"`
	Links       []link    `json:"links"`
}

// message is [line, text] or [line, text, hint].
type message struct {
	line int
	text string
	hint string
}

func (m *message) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&m.line, &m.text, &m.hint})
}

type node struct {
	Name        string      `json:"name"`
	Kind        string      `json:"kind"`
	Line        int         `json:"line"`
	Address     string      `json:"address"`
	IPs         []string    `json:"ips"`
	MAC         string      `json:"mac"`
	Loopback    []string    `json:"loopback"`
	Gateways    []string    `json:"gateways"`
	Routes      [][3]string `json:"routes"`     // to, via, device
	Masquerade  [][2]string `json:"masquerade"` // from, device
	Unaddressed bool        `json:"unaddressed"`
	NAT         bool        `json:"nat"`
	CPU         float64     `json:"cpu"`
	Cores       []int       `json:"cores"`
	Start       string      `json:"start"`
	Stop        string      `json:"stop"`
	Dirs        [][]string  `json:"dirs"`
	DPID        string      `json:"dpid"`
	Datapath    string      `json:"datapath"`
	Controllers []string    `json:"controllers"`
	FailMode    string      `json:"failMode"`
	Protocols   []string    `json:"protocols"`
	STP         bool        `json:"stp"`
}

type link struct {
	Line int   `json:"line"`
	Down bool  `json:"down"`
	Ends []end `json:"ends"`
}

// end has its impairment in Mininet's units: Mbit/s, microseconds, percent, packets.
type end struct {
	Node      string   `json:"node"`
	Interface string   `json:"interface"`
	Port      *int     `json:"port"`
	MAC       string   `json:"mac"`
	IPs       []string `json:"ips"`
	Bandwidth float64  `json:"bw"`
	Delay     float64  `json:"delay"`
	Jitter    float64  `json:"jitter"`
	Loss      float64  `json:"loss"`
	Queue     float64  `json:"max_queue_size"`
	ECN       bool     `json:"enable_ecn"`
	RED       bool     `json:"enable_red"`
}

// reader turns a document into a topology, and collects problems.
type reader struct {
	file     string
	line     int // of what is being read
	problems topology.Problems
}

func (r *reader) pos() topology.Position {
	return topology.Position{File: r.file, Line: max(0, r.line)}
}

func (r *reader) add(err error) {
	if err != nil {
		r.problems.Add(r.pos(), "", "%s", printable(err.Error()))
	}
}

func (d *document) topology(file string) (*topology.Topology, topology.Problems) {
	r := &reader{file: file}
	for _, w := range d.Warnings {
		r.problems.Warn(topology.Position{File: file, Line: max(0, w.line)}, printable(w.hint), "%s", printable(w.text))
	}
	if d.Dropped > 0 {
		r.problems.Warn(topology.Position{File: file}, "", "%d more calls are not honoured", d.Dropped)
	}
	if d.Error != nil {
		r.problems.Add(topology.Position{File: file, Line: max(0, d.Error.line)}, printable(d.Error.hint), "%s",
			printable(d.Error.text))
		return nil, r.problems
	}
	r.line = d.Line
	t := &topology.Topology{Datapath: r.datapath(d.Datapath), Controllers: d.Controllers, Pos: r.pos()}
	if slices.ContainsFunc(d.Nodes, func(n node) bool { return n.Kind == string(topology.Router) }) {
		t.Routes = topology.RoutesAsWritten // as in Mininet, which adds none
	}
	if d.Name != nil {
		t.Name = *d.Name
	}
	if d.Subnet != "" {
		var err error
		t.Subnet, err = netip.ParsePrefix(d.Subnet)
		r.add(err)
	}
	for _, n := range d.Nodes {
		t.Nodes = append(t.Nodes, r.node(n))
	}
	for _, l := range d.Links {
		if link := r.link(l); link != nil {
			t.Links = append(t.Links, link)
		}
	}
	if r.problems.Err() != nil {
		return nil, r.problems
	}
	return t, r.problems
}

func (r *reader) node(n node) *topology.Node {
	r.line = n.Line
	out := &topology.Node{
		Name: n.Name, Kind: r.kind(n.Kind), Address: n.Address, NAT: n.NAT, Start: n.Start, StartMayFail: n.Start != "",
		Stop: n.Stop, STP: n.STP, Addresses: r.prefixes(n.IPs), Unaddressed: n.Unaddressed &&
			len(n.IPs) == 0, Loopback: r.prefixes(n.Loopback), Datapath: r.datapath(n.Datapath),
		Controllers: n.Controllers, Cores: n.Cores, MAC: r.mac(n.MAC), Pos: r.pos(),
	}
	if out.Kind == topology.Router {
		out.Datapath = topology.Kernel
	}
	for _, g := range n.Gateways {
		a, err := netip.ParseAddr(g)
		if err != nil {
			r.problems.Add(r.pos(), "write 10.0.0.254", "%q is not a gateway's IP address", printable(g))
		}
		out.Gateways = append(out.Gateways, a)
	}
	for _, route := range n.Routes {
		var via netip.Addr
		if route[1] != "" || route[2] == "" {
			var err error
			if via, err = netip.ParseAddr(route[1]); err != nil {
				r.problems.Add(r.pos(), "write 10.0.0.254", "%q is not a router's IP address", printable(route[1]))
			}
		}
		out.Routes = append(out.Routes, topology.Route{To: r.prefix(route[0]), Via: via, Device: route[2]})
	}
	for _, m := range n.Masquerade {
		out.Masquerade = append(out.Masquerade, topology.Masquerade{Device: m[1]})
		if m[0] != "" {
			out.Masquerade[len(out.Masquerade)-1].From = r.prefix(m[0]).Masked()
		}
	}
	for _, d := range n.Dirs {
		if len(d) == 0 {
			r.problems.Add(r.pos(), "write privateDirs=['/var/run']", "%s: a private directory has no path",
				printable(n.Name))
			continue
		}
		dir := topology.PrivateDir{Path: d[0]}
		if len(d) > 1 {
			dir.Source = strings.ReplaceAll(d[1], "%(name)s", n.Name)
		}
		out.Dirs = append(out.Dirs, dir)
	}
	if n.CPU != 0 {
		if !(n.CPU > 0 && n.CPU <= 1) {
			r.problems.Add(r.pos(), "Mininet's cpu is a share of the machine: 0.25",
				"%s: cpu=%v is not between 0 and 1", printable(n.Name), n.CPU)
		}
		out.CPU.Share = topology.Fraction(n.CPU)
	}
	if n.DPID != "" {
		digits := strings.ReplaceAll(n.DPID, ":", "")
		d, err := topology.ParseDPID(strings.Repeat("0", max(0, 16-len(digits))) + digits)
		r.add(err)
		out.DPID = d
	}
	out.FailMode = topology.FailMode(n.FailMode)
	if n.FailMode != "" && out.FailMode != topology.Standalone && out.FailMode != topology.Secure {
		r.problems.Add(r.pos(), "write standalone or secure", "%s: there is no failMode %q", printable(n.Name),
			n.FailMode)
	}
	for _, p := range n.Protocols {
		out.OpenFlow = append(out.OpenFlow, r.openFlow(p))
	}
	return out
}

func (r *reader) link(l link) *topology.Link {
	r.line = l.Line
	if len(l.Ends) != 2 {
		r.problems.Add(r.pos(), "", "a link has %d ends", len(l.Ends))
		return nil
	}
	out := &topology.Link{Down: l.Down, Pos: r.pos()}
	var leaves [2]topology.Impairment
	for i, e := range l.Ends {
		out.Ends[i] = topology.Endpoint{Node: e.Node, Interface: e.Interface, Port: e.Port, MAC: r.mac(e.MAC),
			Addresses: r.prefixes(e.IPs)}
		leaves[i] = r.impairment(e)
	}
	out.Impairment = leaves[0]
	if leaves[1] != leaves[0] {
		out.Ends[1].Egress = &leaves[1]
	}
	return out
}

func (r *reader) impairment(e end) topology.Impairment {
	for _, v := range []float64{e.Bandwidth * 1e6, e.Delay * 1e3, e.Jitter * 1e3, e.Queue} {
		if !(v >= 0 && v < 1e17) {
			r.problems.Add(r.pos(), "", "link of %s: a value is out of range", printable(e.Node))
			return topology.Impairment{}
		}
	}
	if !(e.Loss >= 0 && e.Loss <= 100) {
		r.problems.Add(r.pos(), "", "link of %s: loss=%v is not a percentage", printable(e.Node), e.Loss)
	}
	i := topology.Impairment{
		Bandwidth: topology.Rate(math.Round(e.Bandwidth * 1e6)),
		Delay:     topology.Duration(math.Round(e.Delay * 1e3)),
		Jitter:    topology.Duration(math.Round(e.Jitter * 1e3)),
		Loss:      topology.FromPercent(e.Loss),
		Queue:     topology.Queue{Limit: int(e.Queue)},
	}
	if i.Bandwidth > 0 && (e.ECN || e.RED) {
		i.Queue = topology.MininetRED(e.ECN)
	}
	return i
}

func (r *reader) kind(s string) topology.Kind {
	switch k := topology.Kind(s); k {
	case topology.Host, topology.Switch, topology.Router, topology.Controller:
		return k
	}
	r.problems.Add(r.pos(), "", "%q is not a kind of node", s)
	return topology.Host
}

func (r *reader) datapath(s string) topology.Datapath {
	switch d := topology.Datapath(s); d {
	case "", topology.OVS, topology.Bridge:
		return d
	}
	r.problems.Add(r.pos(), "", "%q is not a datapath", s)
	return ""
}

func (r *reader) mac(s string) topology.MAC {
	if s == "" {
		return topology.MAC{}
	}
	if len(s) == 12 && !strings.ContainsAny(s, ":-") { // ifconfig, by which Mininet sets it, needs no colons
		s = s[:2] + ":" + s[2:4] + ":" + s[4:6] + ":" + s[6:8] + ":" + s[8:10] + ":" + s[10:]
	}
	m, err := topology.ParseMAC(s)
	r.add(err)
	return m
}

func (r *reader) prefix(s string) netip.Prefix {
	if !strings.Contains(s, "/") {
		s += "/8" // as Mininet does, whatever the address
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		r.problems.Add(r.pos(), "write 10.0.0.1/8", "%q is not an IP address", printable(s))
	}
	return p
}

func (r *reader) prefixes(list []string) []netip.Prefix {
	return lists.Map(list, r.prefix)
}

// openFlow reads "OpenFlow13" as "1.3".
func (r *reader) openFlow(s string) string {
	digits, ok := strings.CutPrefix(s, "OpenFlow")
	if !ok || len(digits) != 2 {
		r.problems.Add(r.pos(), "write OpenFlow13", "protocols=%q is not a version of OpenFlow", s)
		return ""
	}
	return digits[:1] + "." + digits[1:]
}
