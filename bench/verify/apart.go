package verify

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/probe/call"
	"trivet.dev/trivet/topology"
)

// mostApart is how many pairs of nodes in different VLANs are tried.
const mostApart = 200

// callApart has nodes call those from which VLANs separate them: no answer may come, by any
// protocol. Each is called only once, as a single answer is wrong already.
func (v *verifier) callApart(ctx context.Context) error {
	pairs := v.pairsApart(ctx)
	if err := v.callAll(ctx, pairs, 0); err != nil {
		return err
	}
	for _, p := range pairs {
		if c := p.calls[0]; c.ok || c.failed > 0 {
			v.result.Apart.add(answered(p, c))
		}
	}
	return nil
}

// answered says which answers came; "" if none did.
func answered(p *pair, c *calling) string {
	var by []string
	for _, o := range []struct {
		name string
		*call.Outcome
	}{{"icmp", c.last.ICMP}, {"tcp", c.last.TCP}, {"udp", c.last.UDP}} {
		if o.Outcome != nil && o.OK {
			by = append(by, o.name)
		}
	}
	if len(by) == 0 {
		return ""
	}
	return fmt.Sprintf("%s gets answers from %s at %s (%s), which is in another VLAN", p.from, p.to, c.To,
		strings.Join(by, ", "))
}

// pairsApart chooses pairs of nodes with addresses in one subnet but in different VLANs, even if
// all links were up and no spanning tree blocked any.
func (v *verifier) pairsApart(ctx context.Context) (out []*pair) {
	vlans := topology.VLANPorts(v.t)
	networks := map[string]int{} // of a node: its links, those with several VLANs counted twice
	for _, l := range v.t.Links {
		for i, e := range l.Ends {
			if networks[e.Node]++; vlans[l][1-i].Trunk != "" {
				networks[e.Node]++
			}
		}
	}
	if len(vlans) == 0 ||
		slices.ContainsFunc(v.t.Nodes, func(n *topology.Node) bool { return v.mayJoin(n, networks[n.Name]) }) {
		return nil
	}
	promise := v.whole().promise()
	at := map[netip.Prefix][]place{} // by subnet: its addresses, with their segments
	shares := func(from, owner string) bool {
		return slices.ContainsFunc(promise.at[from], func(i iface) bool {
			return slices.ContainsFunc(promise.at[owner], func(k iface) bool { return i.segment == k.segment })
		})
	}
	owner := map[place]string{}
	for _, name := range v.ends {
		for _, i := range promise.at[name] {
			for _, a := range i.all {
				if p := (place{i.segment, a.Addr()}); !a.Addr().IsLinkLocalUnicast() {
					at[a.Masked()], owner[p] = append(at[a.Masked()], p), name
				}
			}
		}
	}
	each := 1 + mostApart/max(1, len(v.ends)) // per node, so that all nodes are tried
	for n, from := range v.ends {
		if ctx.Err() != nil || len(out) >= mostApart {
			break
		}
		found := 0
		for _, i := range promise.at[from] {
			for _, a := range i.all {
				list := at[a.Masked()]
				for k := 0; k < len(list) && found < each; k++ {
					p := list[(n+k)%len(list)]
					to := owner[p]
					if p.segment == i.segment || to == from || shares(from, to) ||
						!promise.keptFrom(from, p.address, to) {
						continue
					}
					one := call.Call{To: p.address, Name: to, Bytes: leastStream, Sends: 2, Sources: 1}
					out = append(out, &pair{from: from, to: to, calls: []*calling{{Call: one}}})
					found++
				}
			}
		}
	}
	return out[:min(len(out), mostApart)]
}

// whole returns the network with all of its links up, and none blocked by spanning trees.
func (v *verifier) whole() *network {
	info := v.info
	info.Topology = info.Topology.Clone()
	for _, l := range info.Topology.Links {
		l.Down = false
	}
	info.Wires = slices.Clone(info.Wires)
	for i := range info.Wires {
		info.Wires[i].Blocked = false
	}
	return newNetwork(info)
}

// mayJoin says whether a node may pass frames from one VLAN to another, by its programs or its
// controller.
func (v *verifier) mayJoin(n *topology.Node, networks int) bool {
	switch n.Kind {
	case topology.Switch:
		return v.foreign(n)
	case topology.Host, topology.Router:
		return networks > 1 && (v.foreign(n) || n.Start != "" || n.Inside() != "" || len(n.Config) > 0)
	}
	return false
}

// keptFrom says whether packets of a node to an address cannot arrive: by all of its routes the
// node would look for the address in a segment in which nobody has it, as its owner is in another
// segment.
func (p *promise) keptFrom(from string, to netip.Addr, owner string) bool {
	steps := p.steps(from, to)
	return len(steps) > 0 && p.has(owner, to) && !slices.ContainsFunc(steps, func(s step) bool {
		return s.known || s.next != to || len(p.owners[place{s.out.segment, to}]) > 0
	})
}
