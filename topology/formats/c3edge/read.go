package c3edge

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// reader makes a topology from a file.
type reader struct {
	yamlfile.Values
	t            *topology.Topology
	uncontrolled []*topology.Link
}

// Read makes a topology from a C3-Edge emulation file.
func Read(file string, data []byte, _ formats.Options) (*topology.Topology, topology.Problems) {
	// Such files may contain more for Ansible, which uses tags.
	root, problems := yamlfile.Dialect{Tags: true}.Parse(file, data)
	r := &reader{Values: yamlfile.Values{Problems: problems},
		t: &topology.Topology{Pos: topology.Position{File: file, Line: 1, Column: 1}}}
	if root == nil {
		return nil, r.Problems
	}
	var emu *yamlfile.Value
	for _, e := range r.Mapping(root, "file") {
		switch e.Key.Text {
		case "emu":
			emu = e.Value
		case "emu_public_gateway":
			r.Warn(e.Key, "give the lab a way out with a NAT router", "emu_public_gateway has no effect")
			r.Keep(r.foreign(&r.t.Foreign), e)
		default:
			r.Warn(e.Key, "", "%q is not part of the emulation and has no effect", formats.Clip(e.Key.Text))
			r.Keep(r.foreign(&r.t.Foreign), e)
		}
	}
	if emu == nil {
		r.Bad(root, "write emu: with hosts, switches and links below", "there is no emu")
		return nil, r.Problems
	}
	r.emulation(emu)
	return r.t, r.Problems
}

func (r *reader) emulation(emu *yamlfile.Value) {
	for _, e := range r.Mapping(emu, "emu") {
		switch e.Key.Text {
		case "hosts":
			for _, h := range r.Mapping(e.Value, "hosts") {
				r.host(h)
			}
		case "switches":
			for _, s := range r.Mapping(e.Value, "switches") {
				r.swtch(s)
			}
		case "links":
			for _, l := range r.List(e.Value, "links") {
				r.link(l)
			}
		default:
			kept := r.foreign(&r.t.Foreign)
			if kept["emu"] == nil { // at the top level emu itself is never kept, so its key is free for this
				kept["emu"] = map[string]any{}
			}
			r.unknown(e, kept["emu"].(map[string]any), "emu", "hosts", "switches", "links")
		}
	}
	for _, l := range r.uncontrolled {
		r.direct(l)
	}
	if len(r.t.Nodes) == 0 && r.Problems.Err() == nil {
		r.Bad(emu, "write hosts: and switches:", "the emulation has no nodes")
	}
}

// text returns a scalar as written.
func (r *reader) text(v *yamlfile.Value, what string) (string, bool) {
	switch {
	case v.Shape != yamlfile.Scalar:
		r.Bad(v, "write one word or number", "%s: %s is not a single value", what, v)
		return "", false
	case strings.Contains(v.Text, "{{"):
		r.Bad(v, "write the value itself", "%s: %s is an Ansible template", what, v)
		return v.Text, false
	}
	return v.Text, true
}

// unknown warns about a key that has no effect, and keeps it.
func (r *reader) unknown(e yamlfile.Pair, kept map[string]any, subject string, known ...string) {
	r.Warn(e.Key, topology.DidYouMean(e.Key.Text, known), "%s: %q is unknown and has no effect", subject,
		formats.Clip(e.Key.Text))
	r.Keep(kept, e)
}

// foreign returns the map in which keys without a meaning are kept.
func (r *reader) foreign(all *map[string]any) map[string]any {
	if *all == nil {
		*all = map[string]any{name: map[string]any{}}
	}
	return (*all)[name].(map[string]any)
}

func (r *reader) host(h yamlfile.Pair) {
	n := r.t.AddNode(topology.Host, h.Key.Text)
	n.Pos = h.Key.Pos
	subject := "host " + formats.Clip(h.Key.Text)
	given := false
	for _, e := range r.Mapping(h.Value, subject) {
		switch e.Key.Text {
		case "ip":
			given = true
			if s, ok := r.text(e.Value, subject+": ip"); ok {
				r.address(n, e.Value, s)
			}
		case "node":
			if e.Value.Shape == yamlfile.Scalar && !strings.Contains(e.Value.Text, "{{") {
				n.Device = e.Value.Text
				break
			}
			r.Warn(e.Value, "", "%s: node %s is for Ansible: only a rack uses it", subject, e.Value)
			r.Keep(r.foreign(&n.Foreign), e)
		case "mac":
			r.Warn(e.Key, "", "%s: mac has no effect: the MAC is derived from ip", subject)
			r.Keep(r.foreign(&n.Foreign), e)
		default:
			r.unknown(e, r.foreign(&n.Foreign), subject, "ip", "node")
		}
	}
	if !given {
		r.Bad(h.Key, "write ip: 1.100/16", "%s has no ip", subject)
	}
}

// address reads an address in the network, given as its last two bytes or in full.
func (r *reader) address(n *topology.Node, at *yamlfile.Value, s string) {
	subject := "host " + formats.Clip(n.Name)
	digits, length, hasLength := strings.Cut(strings.TrimSpace(s), "/")
	bytes := strings.Split(digits, ".")
	if len(bytes) != 2 && len(bytes) != 4 || hasLength && length != "16" {
		r.Bad(at, "write 1.100/16, which is 10.0.1.100/16", "%s: ip %q is not an address of the emulation", subject,
			formats.Clip(s))
		return
	}
	a, err := netip.ParseAddr("10.0." + strings.Join(bytes[len(bytes)-2:], "."))
	if err != nil || a == network.Addr() || a == netip.AddrFrom4([4]byte{10, 0, 255, 255}) {
		r.Bad(at, "write 1.100/16, which is 10.0.1.100/16", "%s: ip %q is not an address of the emulation", subject,
			formats.Clip(s))
		return
	}
	if len(bytes) == 4 && digits != a.String() {
		r.Warn(at, "", "%s: ip %s: only the last two bytes count: it becomes %s", subject, formats.Clip(digits), a)
	}
	n.Addresses = []netip.Prefix{netip.PrefixFrom(a, network.Bits())}
	n.MAC = topology.AddressMAC(a)
}

func (r *reader) swtch(s yamlfile.Pair) {
	n := r.t.AddNode(topology.Switch, s.Key.Text)
	n.Pos = s.Key.Pos
	n.Controllers, n.FailMode = []string{topology.ControllerNone}, topology.Standalone
	subject := "switch " + formats.Clip(s.Key.Text)
	for _, e := range r.Mapping(s.Value, subject) {
		switch e.Key.Text {
		case "dpid":
			s, ok := r.text(e.Value, subject+": dpid")
			d, err := topology.ParseDPID(s)
			if ok && err != nil {
				r.Bad(e.Value, "", "%s: %s", subject, err)
			}
			n.DPID = d
		case "ctrl":
			if s, ok := r.text(e.Value, subject+": ctrl"); ok && strings.TrimSpace(s) != "" {
				n.Controllers, n.FailMode = strings.Fields(s), topology.Secure
				for _, c := range n.Controllers {
					if err := topology.CheckControllerAddress(c); err != nil {
						r.Bad(e.Value, "", "%s: %s", subject, err)
					}
				}
			}
		default:
			r.unknown(e, r.foreign(&n.Foreign), subject, "dpid", "ctrl")
		}
	}
}

func (r *reader) link(at *yamlfile.Value) {
	l := &topology.Link{Pos: at.Pos}
	entries := r.Mapping(at, "link")
	for _, e := range entries {
		switch e.Key.Text {
		case "src":
			l.Ends[0].Node, _ = r.text(e.Value, "link: src")
		case "dest":
			l.Ends[1].Node, _ = r.text(e.Value, "link: dest")
		}
	}
	if l.Ends[0].Node == "" || l.Ends[1].Node == "" {
		r.Bad(at, "write src: bs1 and dest: mobile1", "the link is missing an end")
		return
	}
	if len(entries) > 0 {
		l.Pos = entries[0].Key.Pos
	}
	r.t.Links = append(r.t.Links, l)
	subject := "link " + formats.Clip(l.Name())
	for _, e := range entries {
		r.setting(l, e, subject)
	}
	if netem := l.Impairment; netem.Delay+netem.Jitter > 0 || netem.Loss > 0 {
		l.Ends[0].Egress, l.Impairment = &netem, topology.Impairment{Bandwidth: netem.Bandwidth}
	}
}

var linkKeys = []string{"src", "dest", "delay", "jitter", "loss", "bw", "bandwidth", "uncontrolled"}

func (r *reader) setting(l *topology.Link, e yamlfile.Pair, subject string) {
	if !slices.Contains(linkKeys, e.Key.Text) {
		r.unknown(e, r.foreign(&l.Foreign), subject, linkKeys...)
		return
	}
	s, ok := r.text(e.Value, subject+": "+e.Key.Text)
	if !ok || e.Key.Text == "src" || e.Key.Text == "dest" {
		return
	}
	bare := func(unit string) string { // the unit of a number that has none
		if _, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil {
			return strings.TrimSpace(s) + unit
		}
		return s
	}
	var err error
	switch e.Key.Text {
	case "uncontrolled":
		if s == "true" {
			r.uncontrolled = append(r.uncontrolled, l)
		} else if s != "false" {
			err = topology.Mistaken("write true or false", "%q is neither true nor false", formats.Clip(s))
		}
	case "delay":
		l.Delay, err = topology.ParseDuration(bare("us"))
	case "jitter":
		l.Jitter, err = topology.ParseDuration(bare("us"))
	case "loss":
		l.Loss, err = topology.ParseFraction(bare("%"))
	case "bw", "bandwidth":
		l.Bandwidth, err = topology.ParseRate(bare("mbit"))
	}
	if err != nil {
		r.Bad(e.Value, "", "%s: %s: %s", subject, e.Key.Text, err)
	}
}

// direct makes a link one that goes past all switches: each host reaches the other's address
// through an interface of its own.
func (r *reader) direct(l *topology.Link) {
	var ends [2]*topology.Node
	for i := range ends {
		if ends[i] = r.t.Node(l.Ends[i].Node); ends[i] == nil {
			return // reported elsewhere
		}
		if ends[i].Kind != topology.Host || len(ends[i].Addresses) == 0 {
			r.Problems.Add(l.Pos, "leave uncontrolled out, or link two hosts",
				"link %s: an uncontrolled link joins two hosts: a switch controls what it forwards",
				formats.Clip(l.Name()))
			return
		}
	}
	for i, n := range ends {
		l.Ends[i].Interface = directDevice(n.Name, ends[1-i].Name)
		n.Routes = append(n.Routes, topology.Route{To: hostPrefix(ends[1-i]), Device: l.Ends[i].Interface})
	}
}

// directDevice names a host's interface that leads straight to another.
func directDevice(host, other string) string { return topology.DeviceName(host + "-" + other) }

func hostPrefix(n *topology.Node) netip.Prefix {
	a := n.Addresses[0].Addr()
	return netip.PrefixFrom(a, a.BitLen())
}
