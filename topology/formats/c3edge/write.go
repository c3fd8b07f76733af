package c3edge

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// writer makes a file from a topology. Routers, controllers and real interfaces have no place in
// the format.
type writer struct {
	t         *topology.Topology
	addresses map[string]string // of controllers, by name
	nodes     map[string]bool   // the hosts and switches
	used      map[netip.Addr]bool
	dpids     map[topology.DPID]bool
	out       bytes.Buffer
}

func encode(t *topology.Topology) []byte {
	w := &writer{t: t, addresses: map[string]string{}, nodes: map[string]bool{}, used: map[netip.Addr]bool{},
		dpids: map[topology.DPID]bool{}}
	var hosts, switches []*topology.Node
	for _, n := range t.Nodes {
		switch n.Kind {
		case topology.Host:
			hosts = append(hosts, n)
			w.nodes[n.Name] = true
		case topology.Switch:
			switches = append(switches, n)
			w.nodes[n.Name] = true
			w.dpids[n.DPID] = true
		case topology.Controller:
			w.addresses[n.Name] = n.Address
		}
	}
	kept := foreign(t.Foreign)
	within, _ := kept["emu"].(map[string]any)
	delete(kept, "emu")
	w.kept("", kept)
	w.line("emu:")
	w.hosts(hosts)
	w.switches(switches)
	w.links()
	w.kept("  ", within)
	return w.out.Bytes()
}

func (w *writer) line(s string) { w.out.WriteString(s + "\n") }

// text writes a key whose value is read as text; start is the indentation.
func (w *writer) text(start, key, value string) {
	w.line(yamlfile.Line(start, key, yamlfile.Quote(value)))
}

// head writes the key of a list or mapping with n elements, which follow.
func (w *writer) head(key string, n int, empty string) {
	if n > 0 {
		empty = ""
	}
	w.line(yamlfile.Line("  ", key, empty))
}

// kept writes keys without a meaning.
func (w *writer) kept(start string, kept map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(kept)) {
		w.line(yamlfile.Line(start, k, yamlfile.Flow(kept[k])))
	}
}

// foreign returns a copy of what was kept.
func foreign(all map[string]any) map[string]any {
	kept, _ := all[name].(map[string]any)
	return maps.Clone(kept)
}

func (w *writer) hosts(hosts []*topology.Node) {
	w.head("hosts", len(hosts), "{}")
	addresses := w.hostAddresses(hosts)
	for i, n := range hosts {
		w.line(yamlfile.Line("    ", n.Name, ""))
		b := addresses[i].As4()
		w.text("      ", "ip", fmt.Sprintf("%d.%d/%d", b[2], b[3], network.Bits()))
		if n.Device != "" {
			w.text("      ", "node", n.Device)
		}
		w.kept("      ", foreign(n.Foreign))
	}
}

// hostAddresses returns an address in the network for each host: its own or, if that is outside,
// the one with the same last bytes, or else a free one.
func (w *writer) hostAddresses(hosts []*topology.Node) []netip.Addr {
	given := map[string][]netip.Prefix{}
	for _, l := range w.t.Links {
		for _, e := range l.Ends {
			given[e.Node] = append(given[e.Node], e.Addresses...)
		}
	}
	out := make([]netip.Addr, len(hosts))
	take := func(i int, a netip.Addr) {
		b := a.As4()
		a = netip.AddrFrom4([4]byte{10, 0, b[2], b[3]})
		if last := uint16(b[2])<<8 | uint16(b[3]); last != 0 && last != 0xffff && !w.used[a] {
			out[i], w.used[a] = a, true
		}
	}
	each := func(inside bool) {
		for i, n := range hosts {
			for _, p := range append(slices.Clone(given[n.Name]), n.Addresses...) {
				if p.Addr().Is4() && network.Contains(p.Addr()) == inside && !out[i].IsValid() {
					take(i, p.Addr())
				}
			}
		}
	}
	each(true)
	each(false)
	next := uint32(network.Addr().As4()[0])<<24 | 1<<8 | 1
	for i := range hosts {
		for ; !out[i].IsValid() && next < 0x0a00ffff; next++ {
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], next)
			take(i, netip.AddrFrom4(b))
		}
		if !out[i].IsValid() {
			out[i] = netip.AddrFrom4([4]byte{10, 0, 255, 254}) // more hosts than addresses
		}
	}
	return out
}

func (w *writer) switches(switches []*topology.Node) {
	w.head("switches", len(switches), "{}")
	dpids := w.switchDPIDs(switches)
	for i, n := range switches {
		w.line(yamlfile.Line("    ", n.Name, ""))
		if d := dpids[i]; d > 1<<62 { // too large for some programs
			w.text("      ", "dpid", "0x"+d.String())
		} else {
			w.line(yamlfile.Line("      ", "dpid", strconv.FormatUint(uint64(d), 10)))
		}
		if ctrl := w.controllers(n); ctrl != "" {
			w.text("      ", "ctrl", ctrl)
		}
		w.kept("      ", foreign(n.Foreign))
	}
}

// switchDPIDs assigns datapath ids as topology.Resolve does, because C3-Edge needs one for each
// switch: the first number in the name, or the lowest free one.
func (w *writer) switchDPIDs(switches []*topology.Node) []topology.DPID {
	resolved, _ := topology.Resolve(w.t,
		topology.Defaults{Datapath: topology.Embedded, Controller: topology.ControllerTrivet})
	assigned := map[string]topology.DPID{}
	if resolved != nil {
		for _, n := range resolved.Nodes {
			assigned[n.Name] = n.DPID
		}
	}
	out := make([]topology.DPID, len(switches))
	next := topology.DPID(1)
	for i, n := range switches {
		d := cmp.Or(n.DPID, assigned[n.Name])
		for ; d == 0 || d != n.DPID && resolved == nil && w.dpids[d]; next++ {
			d = next
		}
		w.dpids[d] = true
		out[i] = d
	}
	return out
}

// controllers lists the addresses of a switch's controllers.
func (w *writer) controllers(n *topology.Node) string {
	chosen := n.Controllers
	if len(chosen) == 0 {
		chosen = w.t.Controllers
	}
	var out []string
	for _, c := range chosen {
		if a := w.addresses[c]; a != "" {
			c = a
		}
		if topology.CheckControllerAddress(c) == nil {
			out = append(out, c)
		}
	}
	return strings.Join(out, " ")
}

func (w *writer) links() {
	links := slices.DeleteFunc(slices.Clone(w.t.Links), func(l *topology.Link) bool {
		return !w.nodes[l.Ends[0].Node] || !w.nodes[l.Ends[1].Node]
	})
	w.head("links", len(links), "[]")
	for _, l := range links {
		src := 0
		netem := func(end int) bool { im := l.Egress(end); return im.Delay+im.Jitter > 0 || im.Loss > 0 }
		if !netem(0) && netem(1) {
			src = 1
		}
		w.text("    - ", "src", l.Ends[src].Node)
		w.text("      ", "dest", l.Ends[1-src].Node)
		im := l.Egress(src)
		add := func(key string, value fmt.Stringer, set bool) {
			if set {
				w.text("      ", key, value.String())
			}
		}
		add("bw", im.Bandwidth, im.Bandwidth > 0)
		add("delay", im.Delay, im.Delay > 0)
		add("jitter", im.Jitter, im.Jitter > 0)
		add("loss", im.Loss, im.Loss > 0)
		if a, b := l.Ends[0], l.Ends[1]; a.Interface == directDevice(a.Node, b.Node) &&
			b.Interface == directDevice(b.Node, a.Node) {
			w.line(yamlfile.Line("      ", "uncontrolled", "true"))
		}
		w.kept("      ", foreign(l.Foreign))
	}
}
