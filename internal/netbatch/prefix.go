package netbatch

import (
	"net"
	"net/netip"
)

// Prefix is what package netlink calls a network, or an address and its network; false: there is
// none.
func Prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}
