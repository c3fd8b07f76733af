package routerd

import (
	"cmp"
	"net/netip"
	"slices"

	"trivet.dev/trivet/topology"
)

// Protocol is a routing protocol as daemons speak it.
type Protocol struct {
	Name   string // as in topology.Protocol
	Daemon string // of FRR: "ripd"; "": FRR does not speak it

	// Routers returns what the routers of a resolved topology are told that speak it, by name.
	Routers func(t *topology.Topology) map[string]Speaker
}

// Speaker is what the daemons of a router are told of a protocol.
type Speaker interface {
	// Refuse says what a family's daemons cannot do of it.
	Refuse(f *Family, problems *topology.Problems)
	// FRR is the configuration of the protocol's daemon.
	FRR() string
	// BIRD is what BIRD's configuration has of it, and the sources of the routes that it finds, for
	// the kernel: RTS_RIP.
	BIRD() (sources []string, config string)
	// RouterID is the router's id, of which BIRD has one for all protocols. Not valid: any will do.
	RouterID() netip.Addr
}

// Spoken is what a router's daemons are told, by protocol.
type Spoken []spoken

type spoken struct {
	Protocol
	Speaker
}

// protocols are in the order of their names.
var protocols []Protocol

// RegisterProtocol makes it known how daemons speak a protocol. It must be called in an init
// function.
func RegisterProtocol(p Protocol) {
	protocols = append(protocols, p)
	slices.SortFunc(protocols, func(a, b Protocol) int { return cmp.Compare(a.Name, b.Name) })
}

// SpokenIn returns what the routers of a resolved topology are told, by name.
func SpokenIn(t *topology.Topology) map[string]Spoken {
	out := map[string]Spoken{}
	for _, p := range protocols {
		for router, s := range p.Routers(t) {
			out[router] = append(out[router], spoken{p, s})
		}
	}
	return out
}

// Refuses says what a topology asks of its routers that their daemons cannot do.
func Refuses(t *topology.Topology) (problems topology.Problems) {
	all := SpokenIn(t)
	for _, n := range t.Nodes {
		f := Of(n.Datapath)
		if f == nil {
			continue
		}
		for _, p := range n.Speaks() {
			if !slices.ContainsFunc(protocols, func(known Protocol) bool { return known.Name == p.Name }) {
				problems.Add(n.Pos, "make it a routing node", "router %s: %s does not speak %s", n.Name, f.Name,
					p.Title)
			}
		}
		for _, s := range all[n.Name] {
			s.Refuse(f, &problems)
		}
	}
	return problems
}

// daemonsOf are the daemons that a family has for protocols.
func (f *Family) daemonsOf(all []Protocol) (names []string) {
	for _, p := range all {
		if f == frr && p.Daemon != "" {
			names = append(names, p.Daemon)
		}
	}
	return names
}
