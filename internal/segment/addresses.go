package segment

import (
	"net"
	"net/netip"
)

// Addresses lists the IPv4 addresses of an interface, with their networks.
func Addresses(nic string) (out []netip.Prefix) {
	dev, err := net.InterfaceByName(nic)
	if err != nil {
		return nil
	}
	list, _ := dev.Addrs()
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			out = append(out, p)
		}
	}
	return out
}
