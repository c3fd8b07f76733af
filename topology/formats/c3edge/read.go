package c3edge

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// reader makes a topology from a file.
type reader struct {
	document
	t *topology.Topology
}

// Read makes a topology of a C3-Edge emulation file.
func Read(file string, data []byte, _ formats.Options) (*topology.Topology, topology.Problems) {
	r := &reader{document: document{file: file}, t: &topology.Topology{Pos: topology.Position{File: file, Line: 1, Column: 1}}}
	root := r.parse(data)
	if root == nil {
		return nil, r.problems
	}
	var emu ast.Node
	for _, e := range r.mapping(root, "file") {
		switch e.key {
		case "emu":
			emu = e.value
		case "emu_public_gateway":
			r.warn(e.at, "give the lab a way out with a NAT router", "emu_public_gateway has no effect")
			r.keep(r.foreign(&r.t.Foreign), e)
		default:
			r.warn(e.at, "", "%q is not part of the emulation and has no effect", clip(e.key))
			r.keep(r.foreign(&r.t.Foreign), e)
		}
	}
	if emu == nil {
		r.bad(root, "write emu: with hosts, switches and links below", "there is no emu")
		return nil, r.problems
	}
	r.emulation(emu)
	return r.t, r.problems
}

func (r *reader) emulation(emu ast.Node) {
	for _, e := range r.mapping(emu, "emu") {
		switch e.key {
		case "hosts":
			for _, h := range r.mapping(e.value, "hosts") {
				r.host(h)
			}
		case "switches":
			for _, s := range r.mapping(e.value, "switches") {
				r.swtch(s)
			}
		case "links":
			for _, l := range r.list(e.value, "links") {
				r.link(l)
			}
		default:
			kept := r.foreign(&r.t.Foreign)
			if kept["emu"] == nil { // at the top, emu itself is never kept
				kept["emu"] = map[string]any{}
			}
			r.unknown(e, kept["emu"].(map[string]any), "emu", "hosts", "switches", "links")
		}
	}
	if len(r.t.Nodes) == 0 {
		r.bad(emu, "write hosts: and switches:", "the emulation has no nodes")
	}
}

// unknown warns of a key that has no effect, and keeps it.
func (r *reader) unknown(e entry, kept map[string]any, subject string, known ...string) {
	r.warn(e.at, topology.DidYouMean(e.key, known), "%s: %q is unknown and has no effect", subject, clip(e.key))
	r.keep(kept, e)
}

// foreign returns where keys without a meaning are kept.
func (r *reader) foreign(all *map[string]any) map[string]any {
	if *all == nil {
		*all = map[string]any{name: map[string]any{}}
	}
	return (*all)[name].(map[string]any)
}

func (r *reader) keep(kept map[string]any, e entry) {
	budget := maxKept
	v := r.plain(e.value, &budget)
	if budget < 0 {
		r.warn(e.at, "", "%q is too large to be kept", clip(e.key))
		return
	}
	kept[e.key] = v
}

func (r *reader) host(h entry) {
	n := r.t.AddNode(topology.Host, h.key)
	n.Pos = r.pos(h.at)
	subject := "host " + clip(h.key)
	given := false
	for _, e := range r.mapping(h.value, subject) {
		switch e.key {
		case "ip":
			given = true
			if s, ok := r.text(e.value, subject+": ip"); ok {
				r.address(n, e.value, s)
			}
		case "node":
			n.Device, _ = r.text(e.value, subject+": node")
		case "mac":
			r.warn(e.at, "", "%s: the MAC follows from ip, mac has no effect", subject)
			r.keep(r.foreign(&n.Foreign), e)
		default:
			r.unknown(e, r.foreign(&n.Foreign), subject, "ip", "node")
		}
	}
	if !given {
		r.bad(h.at, "write ip: 1.100/16", "%s has no ip", subject)
	}
}

// address reads the last two bytes of an address of the network, or all four.
func (r *reader) address(n *topology.Node, at ast.Node, s string) {
	subject := "host " + clip(n.Name)
	digits, length, hasLength := strings.Cut(strings.TrimSpace(s), "/")
	bytes := strings.Split(digits, ".")
	if len(bytes) != 2 && len(bytes) != 4 || hasLength && length != "16" {
		r.bad(at, "write 1.100/16, which is 10.0.1.100/16", "%s: ip %q is no address of the emulation", subject, clip(s))
		return
	}
	a, err := netip.ParseAddr("10.0." + strings.Join(bytes[len(bytes)-2:], "."))
	if err != nil || a == network.Addr() || a == netip.AddrFrom4([4]byte{10, 0, 255, 255}) {
		r.bad(at, "write 1.100/16, which is 10.0.1.100/16", "%s: ip %q is no address of the emulation", subject, clip(s))
		return
	}
	if len(bytes) == 4 && digits != a.String() {
		r.warn(at, "", "%s: of ip %s only the last two bytes count: it becomes %s", subject, clip(digits), a)
	}
	n.Addresses = []netip.Prefix{netip.PrefixFrom(a, network.Bits())}
	n.MAC = macOf(a)
}

func (r *reader) swtch(s entry) {
	n := r.t.AddNode(topology.Switch, s.key)
	n.Pos = r.pos(s.at)
	n.Controllers, n.FailMode = []string{topology.ControllerNone}, topology.Standalone
	subject := "switch " + clip(s.key)
	for _, e := range r.mapping(s.value, subject) {
		switch e.key {
		case "dpid":
			s, ok := r.text(e.value, subject+": dpid")
			d, err := topology.ParseDPID(s)
			if ok && err != nil {
				r.bad(e.value, "", "%s: %s", subject, err)
			}
			n.DPID = d
		case "ctrl":
			if s, ok := r.text(e.value, subject+": ctrl"); ok && strings.TrimSpace(s) != "" {
				n.Controllers, n.FailMode = strings.Fields(s), topology.Secure
				for _, c := range n.Controllers {
					if err := topology.CheckControllerAddress(c); err != nil {
						r.bad(e.value, "", "%s: %s", subject, err)
					}
				}
			}
		default:
			r.unknown(e, r.foreign(&n.Foreign), subject, "dpid", "ctrl")
		}
	}
}

func (r *reader) link(at ast.Node) {
	l := &topology.Link{Pos: r.pos(at)}
	entries := r.mapping(at, "link")
	for _, e := range entries {
		switch e.key {
		case "src":
			l.Ends[0].Node, _ = r.text(e.value, "link: src")
		case "dest":
			l.Ends[1].Node, _ = r.text(e.value, "link: dest")
		}
	}
	if l.Ends[0].Node == "" || l.Ends[1].Node == "" {
		r.bad(at, "write src: bs1 and dest: mobile1", "the link lacks an end")
		return
	}
	if len(entries) > 0 {
		l.Pos = r.pos(entries[0].at)
	}
	r.t.Links = append(r.t.Links, l)
	subject := "link " + clip(l.Name())
	for _, e := range entries {
		r.setting(l, e, subject)
	}
}

var linkKeys = []string{"src", "dest", "delay", "jitter", "loss", "bw", "bandwidth"}

func (r *reader) setting(l *topology.Link, e entry, subject string) {
	if !slices.Contains(linkKeys, e.key) {
		r.unknown(e, r.foreign(&l.Foreign), subject, linkKeys...)
		return
	}
	s, ok := r.text(e.value, subject+": "+e.key)
	if !ok || e.key == "src" || e.key == "dest" {
		return
	}
	bare := func(unit string) string { // the unit of a number that has none
		if _, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil {
			return strings.TrimSpace(s) + unit
		}
		return s
	}
	var err error
	switch e.key {
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
		r.bad(e.value, "", "%s: %s: %s", subject, e.key, err)
	}
}
