package routerd

import (
	"net/netip"
	"slices"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

func init() {
	RegisterProtocol(Protocol{Name: topology.SourceOSPF, Daemon: "ospfd",
		Routers: func(t *topology.Topology) map[string]Speaker {
			out := map[string]Speaker{}
			for _, r := range topology.OSPFOf(t) {
				out[r.Node.Name] = ospfSpeaker{&r}
			}
			return out
		}})
}

type ospfSpeaker struct{ *topology.OSPFRouter }

func (s ospfSpeaker) RouterID() netip.Addr { return s.OSPFRouter.RouterID }

// auths returns all kinds of authentication that a router uses.
func auths(r *topology.OSPFRouter) (out []topology.OSPFAuthType) {
	for _, i := range r.Interfaces {
		out = append(out, i.Auth.Type)
	}
	for _, v := range r.VirtualLinks {
		out = append(out, v.Auth.Type)
	}
	return out
}

// rulesOf returns the router's rules of redistribution for a source.
func rulesOf(r *topology.OSPFRouter, source string) []topology.OSPFRedistribute {
	return lists.Filter(r.Redistribute, func(d topology.OSPFRedistribute) bool { return d.Source == source })
}

// ownDefault is the rule by which a router announces a default route.
func ownDefault(r *topology.OSPFRouter) (topology.OSPFRedistribute, bool) {
	i := slices.IndexFunc(r.Redistribute, func(d topology.OSPFRedistribute) bool {
		return d.Source != topology.SourceConnected && d.Matches(netip.PrefixFrom(netip.IPv4Unspecified(), 0), 0)
	})
	if i < 0 || r.Redistribute[i].Deny {
		return topology.OSPFRedistribute{}, false
	}
	return r.Redistribute[i], true
}
