package routing

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"trivet.dev/trivet/openflow"
)

// host is the TCP/IP stack of a router, for packets to its own addresses and for sockets. It is
// made on the first packet or socket, and dropped when it has been idle for a while and has no
// sockets, so that ten thousand routers cost nothing.
//
// It has one interface, without a link layer, with all addresses except link-local ones; what it
// sends follows the router's routes. A port gets an interface of its own, for its link-local
// address, when that is first used: what leaves by it goes to a neighbour there.
type host struct {
	stack *stack.Stack
	ctx   context.Context
	end   context.CancelFunc
	node  atomic.Pointer[node] // the router's current state
	held  atomic.Int32         // number of sockets that hold it
	idle  *time.Timer

	// Guarded by the node's mu.
	link  *channel.Endpoint
	has   map[netip.Addr]bool
	ports map[uint32]*hostPort
}

// hostPort is the stack's interface for a port's link-local address.
type hostPort struct {
	link *channel.Endpoint
	mac  openflow.MAC // from which the address is derived
	name string
}

const (
	hostIdle  = time.Minute
	hostQueue = 512
	hostNIC   = 1
)

// nicOf is the stack's interface for a port.
func nicOf(port uint32) tcpip.NICID { return hostNIC + tcpip.NICID(port) }

// toHost passes a packet that has arrived on an interface to the router's stack. mu must be held.
func (n *node) toHost(f *Interface, p ipPacket) {
	if n.gone {
		return
	}
	if n.host == nil {
		n.host = n.newHost()
	}
	n.host.idle.Reset(hostIdle)
	kind := header.IPv4ProtocolNumber
	if !p.v4 {
		kind = header.IPv6ProtocolNumber
	}
	link := n.host.link
	if isLinkLocal(p.dst) {
		link = n.host.port(n, f).link
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(append([]byte(nil),
		p.data...))})
	n.mu.Unlock() // the answer may come before this returns
	link.InjectInbound(kind, pkt)
	pkt.DecRef()
	n.mu.Lock()
}

func (n *node) newHost() *host {
	h := &host{has: map[netip.Addr]bool{}, ports: map[uint32]*hostPort{}, stack: stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4,
			icmp.NewProtocol6},
	})}
	h.ctx, h.end = context.WithCancel(context.Background())
	h.node.Store(n)
	h.link = h.newLink(hostNIC, uint32(n.mtus[0]), func(now *node, packet []byte) { now.originate(packet) })
	h.serve(n)
	h.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: hostNIC},
		{Destination: header.IPv6EmptySubnet, NIC: hostNIC}})
	h.idle = time.AfterFunc(hostIdle, h.drop)
	return h
}

// newLink adds an interface to the stack; send is called with what leaves by it, with the node's mu
// held.
func (h *host) newLink(id tcpip.NICID, mtu uint32, send func(n *node, packet []byte)) *channel.Endpoint {
	link := channel.New(hostQueue, mtu, "")
	h.stack.CreateNIC(id, link)
	h.node.Load().app.done.Go(func() { h.speak(link, send) })
	return link
}

// port returns the interface for a port's link-local address.
func (h *host) port(n *node, f *Interface) *hostPort {
	if p := h.ports[f.Port]; p != nil {
		return p
	}
	number := f.Port
	p := &hostPort{mac: f.MAC, name: f.Name}
	p.link = h.newLink(nicOf(number), uint32(f.MTU), func(n *node, packet []byte) {
		if at := n.itf[number]; at != nil {
			to, _ := netip.AddrFromSlice(packet[24:40])
			// It stays on the link.
			if _, own := n.local[to]; !own && (isLinkLocal(to) || to.IsMulticast() || at.reaches(to)) {
				n.sendOnLink(at, packet)
			}
		}
	})
	h.add(nicOf(number), linkLocal(f.MAC))
	// Neighbours that use another address get an answer, too: a host does so while its own
	// link-local address is tentative (RFC 4862, section 5.4).
	h.stack.AddRoute(tcpip.Route{Destination: header.IPv6EmptySubnet, NIC: nicOf(number)})
	h.ports[number] = p
	return p
}

// drop drops a stack that is not in use.
func (h *host) drop() {
	n := h.node.Load()
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case h.node.Load() != n: // another node has just taken it over
		h.idle.Reset(hostIdle)
	case n.host != h:
	case h.held.Load() > 0:
		h.idle.Reset(hostIdle)
	default:
		h.close()
		n.host = nil
	}
}

// lock returns the router's current node, with its mu held.
func (h *host) lock() *node {
	for {
		n := h.node.Load()
		n.mu.Lock()
		if h.node.Load() == n {
			return n
		}
		n.mu.Unlock()
	}
}

// serve attaches the stack to a router, whose addresses it has from now on. Sockets continue as
// long as their addresses remain. The node's mu must be held.
func (h *host) serve(n *node) {
	h.node.Store(n)
	h.link.SetMTU(uint32(n.mtus[0]))
	for a := range h.has {
		if _, own := n.local[a]; !own {
			h.stack.RemoveAddress(hostNIC, netAddress(a))
			delete(h.has, a)
		}
	}
	for a := range n.local {
		if !h.has[a] && !isLinkLocal(a) {
			h.add(hostNIC, a)
			h.has[a] = true
		}
	}
	for number, p := range h.ports {
		if f := n.itf[number]; f != nil && n.v6 && f.MAC == p.mac && f.Name == p.name {
			p.link.SetMTU(uint32(f.MTU))
			continue
		}
		h.stack.RemoveNIC(nicOf(number))
		p.link.Close()
		delete(h.ports, number)
	}
}

func (h *host) add(id tcpip.NICID, a netip.Addr) {
	protocol := tcpip.ProtocolAddress{Protocol: header.IPv6ProtocolNumber,
		AddressWithPrefix: netAddress(a).WithPrefix()}
	if a.Is4() {
		protocol.Protocol = header.IPv4ProtocolNumber
	}
	h.stack.AddProtocolAddress(id, protocol, stack.AddressProperties{})
}

func netAddress(a netip.Addr) tcpip.Address {
	if a.Is4() {
		return tcpip.AddrFrom4(a.As4())
	}
	return tcpip.AddrFrom16(a.As16())
}

// speak sends the packets that the stack emits on an interface.
func (h *host) speak(link *channel.Endpoint, send func(n *node, packet []byte)) {
	for {
		pkt := link.ReadContext(h.ctx)
		if pkt == nil {
			return
		}
		b := pkt.ToView().AsSlice()
		packet := append([]byte(nil), b...)
		pkt.DecRef()
		n := h.lock()
		if len(packet) >= 20 && etherTypeOf(packet) == openflow.EthTypeIPv4 || len(packet) >= 40 {
			send(n, packet)
		}
		n.mu.Unlock()
	}
}

func (h *host) close() {
	h.idle.Stop()
	h.end()
	h.link.Close()
	for _, p := range h.ports {
		p.link.Close()
	}
	h.stack.Destroy()
}
