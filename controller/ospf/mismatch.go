package ospf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	engine "trivet.dev/trivet/routing/ospf"
)

// Mismatch is a parameter that a router and another one must agree on, and do not.
type Mismatch struct {
	What   string    `json:"what" doc:"area, subnet, network mask, hello, dead, stub area, authentication type, authentication key, MTU, network type, router id"`
	Theirs string    `json:"theirs"`
	Ours   string    `json:"ours"`
	Last   time.Time `json:"last" doc:"When it was last received"`
	Text   string    `json:"text" doc:"All of it as a sentence, with what to do"`
}

// mismatch describes a mismatch of the engine in terms of the topology.
func (n *network) mismatch(name string, m engine.Mismatch) Mismatch {
	differs := fmt.Sprintf("%s %s, here %s", m.What, m.Theirs, m.Ours)
	switch m.What {
	case engine.SameRouterID:
		differs = fmt.Sprintf("the router id %v, which %s has", m.Neighbor, n.nameOf(m.Neighbor))
	case engine.DifferAuthKey: // it is said which key
		differs = fmt.Sprintf("%s, here %s", m.Theirs, m.Ours)
	}
	text := fmt.Sprintf("%s hears %v with %s: %s", name, m.From, differs, cure(m))
	return Mismatch{What: string(m.What), Theirs: m.Theirs, Ours: m.Ours, Last: m.Last, Text: text}
}

// cure says how to resolve a mismatch.
func cure(m engine.Mismatch) string {
	seconds := strings.ReplaceAll(m.Theirs, " ", "")
	switch m.What {
	case engine.DifferArea:
		return fmt.Sprintf("set `ospf: area %s` on this link, or area %s there", m.Theirs, m.Ours)
	case engine.DifferSubnet:
		return "give one of them an address in the other's subnet; here it is the `address` of this end of the link"
	case engine.DifferMask:
		return fmt.Sprintf("write the `address` of this end of the link with that mask, or set the mask %s there",
			m.Ours)
	case engine.DifferHello:
		return fmt.Sprintf("set `ospf: {hello: %s}` on this link, or %s there", seconds, m.Ours)
	case engine.DifferDead:
		return fmt.Sprintf("set `ospf: {dead: %s}` on this link, or %s there", seconds, m.Ours)
	case engine.DifferStub:
		if m.Theirs == "yes" {
			return fmt.Sprintf("write `areas: {%v: stub}` in the router's `ospf`, or make the area an ordinary one there", m.Interface.Area().ID())
		}
		return "take `stub` from the area here, or make the area a stub there"
	case engine.DifferAuthType, engine.DifferAuthKey:
		return "set the `ospf: {auth: …}` of this link to the type, key and id that are set there"
	case engine.DifferMTU:
		return fmt.Sprintf("set an MTU of %s there, for OSPF at least (`ip mtu %[1]s`)", m.Ours)
	case engine.DifferNetwork:
		return fmt.Sprintf("set `ospf: {network: %s}` on this link, or %s there; else they can be Full and have no routes", m.Theirs, m.Ours)
	case engine.SameRouterID:
		return "give one of them another: `router_id` in the router's `ospf`, or there"
	}
	return ""
}

// quiet is how long the same mismatch is not logged again; maxLogged limits how many are
// remembered, so that forged packets do not fill the log.
const (
	quiet     = 10 * time.Minute
	maxLogged = 20
)

// logMismatch logs a new mismatch.
func (n *network) logMismatch(now time.Time, m engine.Mismatch) {
	p := n.portOf(m.Interface)
	if p == nil {
		return
	}
	x := n.mismatch(p.Name, m)
	maps.DeleteFunc(n.logged, func(_ string, at time.Time) bool { return now.Sub(at) >= quiet })
	if _, ok := n.logged[x.Text]; ok || len(n.logged) >= maxLogged {
		return
	}
	n.logged[x.Text] = now
	n.log.Warn("ospf: "+x.Text, "router", p.router.Name, "neighbor", m.Neighbor)
}

// portOf returns the port of an engine's interface; nil: it is gone.
func (n *network) portOf(e *engine.Interface) *port {
	r := n.byID[e.Router().ID()]
	if r == nil {
		return nil
	}
	for _, p := range slices.Concat(r.ports, r.virtual) {
		if p.engine == e {
			return p
		}
	}
	return nil
}

// heard adds mismatches to a port's neighbours, and the routers that are no neighbours because of
// one.
func (n *network) heard(p *port, list []Neighbor) []Neighbor {
	for _, m := range p.engine.Mismatches() {
		i := slices.IndexFunc(list, func(x Neighbor) bool { return x.Address == m.From })
		if i < 0 {
			i = len(list)
			list = append(list, Neighbor{Router: p.router.Name, Interface: p.Name, Area: p.engine.Area().ID(),
				RouterID: m.Neighbor,
				Address:  m.From, State: engine.NeighborDown.String()})
			if m.What != engine.SameRouterID {
				list[i].Neighbor = n.nameOf(m.Neighbor)
			}
		}
		list[i].Mismatches = append(list[i].Mismatches, n.mismatch(p.Name, m))
	}
	return list
}
