package sites

import (
	"math/rand/v2"
	"net/netip"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// secured returns the ends of an encrypted network between sites: each knows all others, and starts
// the handshakes with those after it. Its keys are new, and end with the network. It uses one of
// the ports alone, the same at all its sites.
func secured(names []string, address func(of, from string) netip.Addr, ports [2]int) (map[string]*lab.Secure, error) {
	port := ports[0] + rand.IntN(ports[1]-ports[0]+1)
	out := map[string]*lab.Secure{}
	for i, name := range names {
		key, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			return nil, err
		}
		// Addresses that carriers use internally (RFC 6598): nobody else sees them.
		inner := netip.AddrFrom4([4]byte{100, 64, byte((i + 1) >> 8), byte(i + 1)})
		out[name] = &lab.Secure{Key: key, Port: port, Address: inner}
	}
	for i, name := range names {
		for k, far := range names {
			if far != name {
				out[name].Peers = append(out[name].Peers,
					lab.SecurePeer{Key: out[far].Key.PublicKey(), Address: out[far].Address, Calls: i < k,
						Endpoint: netip.AddrPortFrom(address(far, name), uint16(port))})
			}
		}
	}
	return out, nil
}

// within returns the address function for tunnels in an encrypted network.
func within(ends map[string]*lab.Secure) func(of, from string) netip.Addr {
	return func(of, _ string) netip.Addr { return ends[of].Address }
}

// namesOf returns the names of all sites of a list, the head first.
func namesOf(list *site.List) []string {
	out := []string{topology.Head}
	for _, m := range list.Sites() {
		out = append(out, m.Name)
	}
	return out
}
