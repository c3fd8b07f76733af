package c3edge

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"trivet.dev/trivet/topology"
)

// writer makes a file from a topology. Routers, controllers and real interfaces
// have no place in it.
type writer struct {
	t         *topology.Topology
	addresses map[string]string // of controllers, by name
	nodes     map[string]bool   // the hosts and switches
	used      map[netip.Addr]bool
	dpids     map[topology.DPID]bool
}

func encode(t *topology.Topology) ([]byte, error) {
	w := &writer{t: t, addresses: map[string]string{}, nodes: map[string]bool{}, used: map[netip.Addr]bool{}, dpids: map[topology.DPID]bool{}}
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
	emu := yaml.MapSlice{
		{Key: "hosts", Value: w.hosts(hosts)},
		{Key: "switches", Value: w.switches(switches)},
		{Key: "links", Value: w.links()},
	}
	out := append(sorted(kept), yaml.MapItem{Key: "emu", Value: append(emu, sorted(within)...)})
	return yaml.MarshalWithOptions(out, yaml.Indent(2), yaml.IndentSequence(true))
}

// foreign returns a copy of what was kept.
func foreign(all map[string]any) map[string]any {
	kept, _ := all[name].(map[string]any)
	return maps.Clone(kept)
}

func sorted(kept map[string]any) (out yaml.MapSlice) {
	for _, k := range slices.Sorted(maps.Keys(kept)) {
		out = append(out, yaml.MapItem{Key: k, Value: kept[k]})
	}
	return out
}

func (w *writer) hosts(hosts []*topology.Node) yaml.MapSlice {
	addresses := w.hostAddresses(hosts)
	out := yaml.MapSlice{}
	for i, n := range hosts {
		b := addresses[i].As4()
		host := yaml.MapSlice{{Key: "ip", Value: fmt.Sprintf("%d.%d/%d", b[2], b[3], network.Bits())}}
		if n.Device != "" {
			host = append(host, yaml.MapItem{Key: "node", Value: n.Device})
		}
		out = append(out, yaml.MapItem{Key: n.Name, Value: append(host, sorted(foreign(n.Foreign))...)})
	}
	return out
}

// hostAddresses returns an address of the network for each host: its own, or
// where that lies elsewhere the one with the same last bytes, or a free one.
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

func (w *writer) switches(switches []*topology.Node) yaml.MapSlice {
	out := yaml.MapSlice{}
	dpids := w.switchDPIDs(switches)
	for i, n := range switches {
		sw := yaml.MapSlice{{Key: "dpid", Value: dpids[i]}}
		if ctrl := w.controllers(n); ctrl != "" {
			sw = append(sw, yaml.MapItem{Key: "ctrl", Value: ctrl})
		}
		out = append(out, yaml.MapItem{Key: n.Name, Value: append(sw, sorted(foreign(n.Foreign))...)})
	}
	return out
}

// switchDPIDs assigns as topology.Resolve does, because C3-Edge needs one for each
// switch: the first number in the name, or the lowest that is free.
func (w *writer) switchDPIDs(switches []*topology.Node) []any {
	resolved, _ := topology.Resolve(w.t, topology.Defaults{Datapath: topology.Embedded, Controller: topology.ControllerTrivet})
	assigned := map[string]topology.DPID{}
	if resolved != nil {
		for _, n := range resolved.Nodes {
			assigned[n.Name] = n.DPID
		}
	}
	out := make([]any, len(switches))
	next := topology.DPID(1)
	for i, n := range switches {
		d := cmp.Or(n.DPID, assigned[n.Name])
		for ; d == 0 || d != n.DPID && resolved == nil && w.dpids[d]; next++ {
			d = next
		}
		w.dpids[d] = true
		out[i] = uint64(d)
		if d > 1<<62 {
			out[i] = "0x" + d.String()
		}
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

func (w *writer) links() []yaml.MapSlice {
	out := []yaml.MapSlice{}
	for _, l := range w.t.Links {
		if !w.nodes[l.Ends[0].Node] || !w.nodes[l.Ends[1].Node] {
			continue
		}
		link := yaml.MapSlice{{Key: "src", Value: l.Ends[0].Node}, {Key: "dest", Value: l.Ends[1].Node}}
		im := l.Impairment
		if l.Ends[0].Egress != nil && l.Ends[1].Egress != nil {
			im = *l.Ends[0].Egress
		}
		add := func(key, value string, set bool) {
			if set {
				link = append(link, yaml.MapItem{Key: key, Value: value})
			}
		}
		add("bw", im.Bandwidth.String(), im.Bandwidth > 0)
		add("delay", im.Delay.String(), im.Delay > 0)
		add("jitter", im.Jitter.String(), im.Jitter > 0)
		add("loss", im.Loss.String(), im.Loss > 0)
		out = append(out, append(link, sorted(foreign(l.Foreign))...))
	}
	return out
}
