package topology

import (
	"net/netip"
	"slices"
	"time"

	"trivet.dev/trivet/internal/disjoint"
)

// longestDead returns the longest time for which a router with daemons may still be electing a
// designated router (RFC 2328, section 9.4: it waits for RouterDeadInterval); 0 if there is none.
func longestDead(t *Topology) (longest time.Duration) {
	for _, r := range OSPFOf(t) {
		for _, i := range r.Interfaces {
			if r.Node.Datapath.Linux() && !i.Passive {
				longest = max(longest, i.Dead)
			}
		}
	}
	return longest
}

// ospfReach lists, by router, the networks to which OSPF should bring routes: for each router with
// daemons, all networks of the routers that it is connected to; for routing nodes next to such
// routers, those of the daemons, as routing nodes share their routes among themselves anyway.
// Routers are connected if their active interfaces are up in one network, and their settings let
// them become neighbours.
func ospfReach(t *Topology) map[string][]netip.Prefix {
	routers := OSPFOf(t)
	joined := disjoint.Sets[int]{}
	first := map[ospfNetwork]int{}
	daemons := map[ospfNetwork]bool{}
	for n, r := range routers {
		for _, i := range r.Interfaces {
			if i.Passive || i.Link.Down {
				continue
			}
			at := networkOf(i)
			daemons[at] = daemons[at] || r.Node.Datapath.Linux()
			if other, ok := first[at]; ok {
				joined.Join(n, other)
			} else {
				first[at] = n
			}
		}
	}
	networks, behind := map[int][]netip.Prefix{}, map[int][]netip.Prefix{} // of all routers, and of those with daemons
	for n, r := range routers {
		for _, i := range r.Interfaces {
			if i.Link != nil && !i.Link.Down {
				networks[joined.Of(n)] = append(networks[joined.Of(n)], i.Addresses[0].Masked())
				if r.Node.Datapath.Linux() {
					behind[joined.Of(n)] = append(behind[joined.Of(n)], i.Addresses[0].Masked())
				}
			}
		}
	}
	out := map[string][]netip.Prefix{}
	for n, r := range routers {
		beside := slices.ContainsFunc(r.Interfaces,
			func(i OSPFInterface) bool { return !i.Passive && !i.Link.Down && daemons[networkOf(i)] })
		switch {
		case r.Node.Datapath.Linux():
			out[r.Node.Name] = networks[joined.Of(n)]
		case beside:
			out[r.Node.Name] = behind[joined.Of(n)]
		}
	}
	return out
}

// ospfNetwork is what neighbours have to agree on.
type ospfNetwork struct {
	network netip.Prefix
	area    AreaID
	kind    OSPFNetwork
	timers  [2]time.Duration
	auth    OSPFAuth
}

func networkOf(i OSPFInterface) ospfNetwork {
	return ospfNetwork{i.Addresses[0].Masked(), i.Area, i.Network, [2]time.Duration{i.Hello, i.Dead}, i.Auth}
}
