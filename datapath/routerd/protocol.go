package routerd

import (
	"cmp"
	"net/netip"
	"slices"

	"trivet.dev/trivet/topology"
)

// Protocol is the configuration of a routing protocol for routing daemons.
type Protocol struct {
	Name   string // as in topology.Protocol
	Daemon string // of FRR: "ripd"; "": FRR does not speak it

	// Routers returns, by name, the configurations of those routers of a resolved topology that
	// speak it.
	Routers func(t *topology.Topology) map[string]Speaker
}

// Speaker is the configuration of a protocol for a router's daemons.
type Speaker interface {
	// Refuse reports what a family's daemons cannot do.
	Refuse(f *Family, problems *topology.Problems)
	// FRR returns the configuration of the protocol's daemon.
	FRR() string
	// BIRD returns the protocol's part of BIRD's configuration, and the sources of its routes, for
	// the kernel protocol's filter: RTS_RIP.
	BIRD() (sources []string, config string)
	// RouterID is the router's id; BIRD has only one for all protocols. Not valid: any will do.
	RouterID() netip.Addr
}

// Spoken are the configurations for a router's daemons, by protocol.
type Spoken []spoken

type spoken struct {
	Protocol
	Speaker
}

// protocols are in the order of their names.
var protocols []Protocol

// RegisterProtocol registers a protocol. It must be called in an init function.
func RegisterProtocol(p Protocol) {
	protocols = append(protocols, p)
	slices.SortFunc(protocols, func(a, b Protocol) int { return cmp.Compare(a.Name, b.Name) })
}

// SpokenIn returns the configurations for the routers of a resolved topology, by name.
func SpokenIn(t *topology.Topology) map[string]Spoken {
	out := map[string]Spoken{}
	for _, p := range protocols {
		for router, s := range p.Routers(t) {
			out[router] = append(out[router], spoken{p, s})
		}
	}
	return out
}

// Refuses reports settings of a topology's routers that their daemons cannot implement.
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

// daemonsOf returns a family's daemons for protocols.
func (f *Family) daemonsOf(all []Protocol) (names []string) {
	for _, p := range all {
		if f == frr && p.Daemon != "" {
			names = append(names, p.Daemon)
		}
	}
	return names
}
