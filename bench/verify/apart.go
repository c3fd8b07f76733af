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

// mostApart is how many pairs in different VLANs are tried.
const mostApart = 200

// callApart has nodes call those that VLANs keep from them: no answer may come, by any protocol. It
// is tried once, as an answer that comes once is one too many.
func (v *verifier) callApart(ctx context.Context) error {
	pairs := v.pairsApart()
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

// answered says which answers came; "": none.
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
	return fmt.Sprintf("%s gets answers from %s at %s (%s), which is in another VLAN", p.from, p.to, c.To, strings.Join(by, ", "))
}

// pairsApart chooses pairs of nodes that have addresses in one subnet, in different VLANs.
func (v *verifier) pairsApart() (out []*pair) {
	if len(topology.VLANPorts(v.t)) == 0 || slices.ContainsFunc(v.t.Nodes, v.mayJoin) {
		return nil
	}
	promise := v.promise()
	for k := 1; k < len(v.ends) && len(out) < mostApart; k++ {
		for i, from := range v.ends {
			to := v.ends[(i+k)%len(v.ends)]
			for _, a := range topology.AddressesOf(v.t, v.nodes[to]) {
				if !a.Addr().IsLinkLocalUnicast() && promise.keptFrom(from, a.Addr(), to) {
					one := call.Call{To: a.Addr(), Name: to, Bytes: leastStream, Sends: 2, Sources: 1}
					out = append(out, &pair{from: from, to: to, calls: []*calling{{Call: one}}})
					break
				}
			}
		}
	}
	return out[:min(len(out), mostApart)]
}

// mayJoin says whether a node may pass frames from one VLAN on to another by what runs in it.
func (v *verifier) mayJoin(n *topology.Node) bool {
	return len(v.leaving[n.Name]) > 1 && (n.Start != "" || n.Inside() != "" || len(n.Config) > 0 || n.RoutingNode() && v.foreign(n))
}

// keptFrom says whether packets of a node to an address cannot arrive: by all of its routes it
// would ask for the address where nobody has it, as its owner is in another segment.
func (p *promise) keptFrom(from string, to netip.Addr, owner string) bool {
	steps := p.steps(from, to)
	return len(steps) > 0 && p.has(owner, to) && !slices.ContainsFunc(steps, func(s step) bool {
		return s.known || s.next != to || len(p.owners[place{s.out.segment, to}]) > 0
	})
}
