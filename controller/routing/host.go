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
// made when the first comes and dropped when none has come for a while and no socket is open, so
// that ten thousand routers cost nothing.
//
// It has one interface, without a link layer, and all addresses on it: where its answers go, the
// router's routes say.
type host struct {
	stack  *stack.Stack
	link   *channel.Endpoint
	cancel context.CancelFunc
	node   atomic.Pointer[node] // the router, as the app keeps it now
	has    map[netip.Addr]bool  // addresses; the node's mu must be held
	held   atomic.Int32         // by sockets
	idle   *time.Timer
}

const (
	hostIdle  = time.Minute
	hostQueue = 512
	hostNIC   = 1
)

// toHost gives a packet to the router's stack. mu must be held.
func (n *node) toHost(p ipPacket) {
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
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(append([]byte(nil), p.data...))})
	h := n.host
	n.mu.Unlock() // the answer may come before this returns
	h.link.InjectInbound(kind, pkt)
	pkt.DecRef()
	n.mu.Lock()
}

func (n *node) newHost() *host {
	ctx, cancel := context.WithCancel(context.Background())
	h := &host{cancel: cancel, has: map[netip.Addr]bool{}, link: channel.New(hostQueue, uint32(n.mtus[0]), ""), stack: stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})}
	h.stack.CreateNIC(hostNIC, h.link)
	h.serve(n)
	h.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: hostNIC}, {Destination: header.IPv6EmptySubnet, NIC: hostNIC}})
	h.idle = time.AfterFunc(hostIdle, h.end)
	n.app.done.Go(func() { h.speak(ctx) })
	return h
}

// end drops a stack that nobody uses.
func (h *host) end() {
	n := h.node.Load()
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case h.node.Load() != n: // it has gone over to another just now
		h.idle.Reset(hostIdle)
	case n.host != h:
	case h.held.Load() > 0:
		h.idle.Reset(hostIdle)
	default:
		h.close()
		n.host = nil
	}
}

// serve makes the stack that of a router, whose addresses it has from now on. What sockets do goes
// on as long as their addresses are among them.
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
		if h.has[a] {
			continue
		}
		protocol := tcpip.ProtocolAddress{Protocol: header.IPv6ProtocolNumber, AddressWithPrefix: netAddress(a).WithPrefix()}
		if a.Is4() {
			protocol.Protocol = header.IPv4ProtocolNumber
		}
		h.stack.AddProtocolAddress(hostNIC, protocol, stack.AddressProperties{})
		h.has[a] = true
	}
}

func netAddress(a netip.Addr) tcpip.Address {
	if a.Is4() {
		return tcpip.AddrFrom4(a.As4())
	}
	return tcpip.AddrFrom16(a.As16())
}

// speak sends what the stack has to say.
func (h *host) speak(ctx context.Context) {
	for {
		pkt := h.link.ReadContext(ctx)
		if pkt == nil {
			return
		}
		b := pkt.ToView().AsSlice()
		packet := append([]byte(nil), b...)
		pkt.DecRef()
		n := h.node.Load()
		n.mu.Lock()
		if len(packet) >= 20 && etherTypeOf(packet) == openflow.EthTypeIPv4 || len(packet) >= 40 {
			n.originate(packet)
		}
		n.mu.Unlock()
	}
}

func (h *host) close() {
	h.idle.Stop()
	h.cancel()
	h.link.Close()
	h.stack.Destroy()
}
