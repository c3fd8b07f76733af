package sites

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// Ports of encrypted networks: each has one of its own, the same at all its sites.
const (
	firstSecurePort = 51820 // WireGuard's own
	securePorts     = 1024
)

// secured makes the ends of an encrypted network between sites: each knows all others. Its keys are
// new, and end with the network.
func secured(names []string, address func(of, from string) netip.Addr) (map[string]*local.Secure, error) {
	port := firstSecurePort + rand.IntN(securePorts)
	out := map[string]*local.Secure{}
	for i, name := range names {
		key, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			return nil, err
		}
		// Addresses that carriers use among themselves (RFC 6598): nobody else sees these.
		inner := netip.AddrFrom4([4]byte{100, 64, byte((i + 1) >> 8), byte(i + 1)})
		out[name] = &local.Secure{Key: key, Port: port, Address: inner}
	}
	for _, name := range names {
		for _, far := range names {
			if far != name {
				out[name].Peers = append(out[name].Peers, local.SecurePeer{Key: out[far].Key.PublicKey(), Address: out[far].Address,
					Endpoint: netip.AddrPortFrom(address(far, name), uint16(port))})
			}
		}
	}
	return out, nil
}

// within is an address function for tunnels within an encrypted network.
func within(ends map[string]*local.Secure) func(of, from string) netip.Addr {
	return func(of, _ string) netip.Addr { return ends[of].Address }
}

// names are those of all sites, the head first.
func (l *Lab) names() []string {
	var out []string
	for _, m := range l.state.Sites.Sites() {
		out = append(out, m.Name)
	}
	return slices.Insert(out, 0, topology.Head)
}
