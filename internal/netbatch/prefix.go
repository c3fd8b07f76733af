package netbatch

import (
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Prefix converts a network, or an address and its network, from package netlink's form; false if
// there is none.
func Prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}

// Routes lists the routes of a family in some tables, in the thread's namespace.
func Routes(family int, tables []int) ([]netlink.Route, error) {
	if slices.Equal(tables, []int{unix.RT_TABLE_MAIN}) {
		return netlink.RouteList(nil, family)
	}
	all, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	return slices.DeleteFunc(all, func(r netlink.Route) bool {
		return !slices.Contains(tables, r.Table) || r.Type == unix.RTN_LOCAL || r.Type == unix.RTN_BROADCAST
	}), err
}
