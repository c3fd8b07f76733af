package dhcp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/topology"
)

// Identifier is what the server is called: the address that its answers come from, and that clients
// renew at (option 54). No address of a lab would do. The gateway's is a node's, which may serve
// DHCP itself; one of the client's network may be somebody's, and a /31 has none to spare. Of the
// link-local ones no host takes this by itself (RFC 3927, section 2.1), and it is not the one where
// guests look for a cloud's metadata.
//
// Where a guest's route to it leads does not matter, to the link or through a gateway: the server
// hears the request at the device on its way there, and answers ARP for the address. A client that
// needs a route and has none cannot renew, and asks all servers (rebinds) a minute later.
var Identifier = netip.MustParseAddr("169.254.255.67")

// Times of a lease. After the first, clients renew, so that they soon learn what Set has changed.
// If nobody answers (their gateway is down, say), they ask all servers after the second (rebind),
// and give up the address after the third. RFC 2131, section 4.4.5, requires this order. Clients
// that do not know options 58 and 59, such as udhcpc, renew after half of the third.
const (
	renewAfter  = 5 * time.Minute
	rebindAfter = 6 * time.Minute
	leaseTime   = time.Hour
)

// Lease is the configuration that the client of a device gets.
type Lease struct {
	MAC      topology.MAC // of the client, for which the lease is reserved
	Address  netip.Prefix // IPv4, with the length of its network
	Gateway  netip.Addr   // IPv4; invalid: there is none
	Routes   []Route      // in the order in which the client adds them, then the one to the gateway
	MTU      int          // bytes; 0: no option
	Hostname string       // empty: no option
	DNS      []netip.Addr // IPv4
}

// Route is a static route (RFC 3442).
type Route struct {
	To  netip.Prefix // IPv4
	Via netip.Addr   // IPv4; invalid: the destination is on the link
}

const (
	// largest is the IP packet that each client must take, in bytes (RFC 2131, section 2).
	largest = 576
	// longestID is how long a client's identifier (option 61) may be to be repeated in answers (RFC
	// 6842), in bytes. Those of RFC 4361 have 19 or 23.
	longestID = 32
	// room is what a lease's options may take of that: without the headers, the fixed fields, the
	// end option, the other options of an answer (message type, server, three times) and the
	// identifier.
	room = largest - 20 - 8 - 240 - 1 - 3 - 4*6 - (2 + longestID)

	leastMTU = 68 // RFC 2132, section 5.1
)

// Check says what of a lease cannot be expressed.
func (l Lease) Check() error {
	switch {
	case l.MAC == topology.MAC{} || l.MAC[0]&1 == 1:
		return fmt.Errorf("%s is not the MAC address of a client: give the one that the guest's interface has", l.MAC)
	case !l.Address.IsValid() || !l.Address.Addr().Is4():
		return fmt.Errorf("%s is not an address of IPv4 with the length of its network: DHCP tells nothing else",
			l.Address)
	case l.Gateway.IsValid() && !l.Gateway.Is4():
		return fmt.Errorf("gateway %s: DHCP tells only those of IPv4", l.Gateway)
	case l.MTU != 0 && (l.MTU < leastMTU || l.MTU > 1<<16-1):
		return fmt.Errorf("MTU %d: DHCP tells those from %d to %d bytes", l.MTU, leastMTU, 1<<16-1)
	case len(l.Hostname) > 255:
		return fmt.Errorf("a name of %d bytes: hosts' names have up to 255", len(l.Hostname))
	}
	for _, a := range l.DNS {
		if !a.Is4() {
			return fmt.Errorf("name server %s: DHCP tells only those of IPv4", a)
		}
	}
	vias := []netip.Addr{l.Address.Addr(), l.Gateway}
	for _, r := range l.Routes {
		if !r.To.IsValid() || !r.To.Addr().Is4() || r.Via.IsValid() && !r.Via.Is4() {
			return fmt.Errorf("route %s via %s: DHCP tells only those of IPv4", r.To, r.Via)
		}
		vias = append(vias, r.Via)
	}
	for _, a := range vias {
		if a == Identifier {
			return fmt.Errorf("%s is what the DHCP server of a guest is called: give the node another address", a)
		}
	}
	if n := size(l.options()); n > room {
		return fmt.Errorf("%d routes, %d name servers and the rest need %d bytes, %d fit into what each DHCP client takes: "+
			"leave some to the guest's own configuration", len(l.Routes), len(l.DNS), n, room)
	}
	return nil
}

// options returns a lease's options (RFC 2132), except for its times.
func (l Lease) options() (out layers.DHCPOptions) {
	add := func(kind layers.DHCPOpt, data []byte) {
		for len(data) > 255 { // goes on in the next of its kind (RFC 3396)
			out, data = append(out, layers.NewDHCPOption(kind, data[:255])), data[255:]
		}
		if len(data) > 0 {
			out = append(out, layers.NewDHCPOption(kind, data))
		}
	}
	add(layers.DHCPOptSubnetMask, net.CIDRMask(l.Address.Bits(), 32))
	if l.Address.Bits() < 31 { // RFC 3021: shorter networks have none
		add(layers.DHCPOptBroadcastAddr, lastOf(l.Address).AsSlice())
	}
	add(layers.DHCPOptClasslessStaticRoute, l.classless()) // before the gateway's option (RFC 3442)
	if l.Gateway.IsValid() {
		add(layers.DHCPOptRouter, l.Gateway.AsSlice())
	}
	var servers []byte
	for _, a := range l.DNS {
		servers = append(servers, a.AsSlice()...)
	}
	add(layers.DHCPOptDNS, servers)
	add(layers.DHCPOptHostname, []byte(l.Hostname))
	if l.MTU != 0 {
		add(layers.DHCPOptInterfaceMTU, binary.BigEndian.AppendUint16(nil, uint16(l.MTU)))
	}
	return out
}

// classless returns the option for routes, if there are any. Clients that read it ignore the router
// option, so it also contains the route to the gateway (RFC 3442).
func (l Lease) classless() (out []byte) {
	add := func(to netip.Prefix, via netip.Addr) {
		to = to.Masked()
		out = append(append(out, byte(to.Bits())), to.Addr().AsSlice()[:(to.Bits()+7)/8]...)
		if !via.IsValid() {
			via = netip.IPv4Unspecified()
		}
		out = append(out, via.AsSlice()...)
	}
	for _, r := range l.Routes {
		add(r.To, r.Via)
	}
	if len(l.Routes) > 0 && l.Gateway.IsValid() {
		add(netip.PrefixFrom(netip.IPv4Unspecified(), 0), l.Gateway)
	}
	return out
}

func lastOf(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	n := binary.BigEndian.Uint32(a[:]) | (1<<(32-p.Bits()) - 1)
	binary.BigEndian.PutUint32(a[:], n)
	return netip.AddrFrom4(a)
}

func size(options layers.DHCPOptions) (n int) {
	for _, o := range options {
		n += 2 + len(o.Data)
	}
	return n
}

func seconds(d time.Duration) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(d/time.Second))
}
