package routing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// ListenTCP opens a TCP port of a router, at one of its addresses or, with none, at all that it has
// now and later. The listener stays, over changes of the configuration too, as long as the router
// does. Packets come and go by the routes and links of the lab.
func (a *App) ListenTCP(dpid uint64, at netip.AddrPort) (net.Listener, error) {
	h, err := a.hold(dpid)
	if err != nil {
		return nil, err
	}
	full, protocol := fullAddress(at)
	l, err := gonet.ListenTCP(h.stack, full, protocol)
	if err != nil {
		h.release()
		return nil, err
	}
	return &heldListener{Listener: l, release: h.releaser(), host: h}, nil
}

// DialTCP connects a router to an address, from one of its own or, with none, from that of the
// interface which its route leads to.
func (a *App) DialTCP(ctx context.Context, dpid uint64, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	if to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port()); !to.Addr().IsValid() {
		return nil, errors.New("no address to connect to")
	}
	h, err := a.hold(dpid)
	if err != nil {
		return nil, err
	}
	if !from.IsValid() {
		from = h.sourceTo(to.Addr())
	}
	local, _ := fullAddress(netip.AddrPortFrom(from, 0))
	remote, protocol := fullAddress(to)
	c, err := gonet.DialTCPWithBind(ctx, h.stack, local, remote, protocol)
	if err != nil {
		h.release()
		return nil, err
	}
	return &heldConn{Conn: c, release: h.releaser()}, nil
}

// ListenUDP opens a UDP port of a router, as ListenTCP does; port 0: any that is free.
func (a *App) ListenUDP(dpid uint64, at netip.AddrPort) (net.PacketConn, error) {
	h, err := a.hold(dpid)
	if err != nil {
		return nil, err
	}
	full, protocol := fullAddress(at)
	c, err := gonet.DialUDP(h.stack, &full, nil, protocol)
	if err != nil {
		h.release()
		return nil, err
	}
	return &heldPackets{PacketConn: c, release: h.releaser()}, nil
}

// hold returns the stack of a router, which stays until it is released.
func (a *App) hold(dpid uint64) (*host, error) {
	for {
		n := a.node(dpid)
		if n == nil {
			return nil, fmt.Errorf("there is no router with the datapath id %016x", dpid)
		}
		n.mu.Lock()
		if n.gone {
			n.mu.Unlock()
			if a.ctx.Err() != nil {
				return nil, errors.New("the controller ends")
			}
			runtime.Gosched() // the configuration is changing
			continue
		}
		if n.host == nil {
			n.host = n.newHost()
		}
		h := n.host
		h.held.Add(1)
		n.mu.Unlock()
		return h, nil
	}
}

func (h *host) release() {
	if h.held.Add(-1) == 0 {
		h.idle.Reset(hostIdle)
	}
}

// releaser returns a function that releases the stack once, however often it is called.
func (h *host) releaser() func() { return sync.OnceFunc(h.release) }

// sourceTo is the address by which the router speaks to another.
func (h *host) sourceTo(to netip.Addr) netip.Addr {
	n := h.node.Load()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.net == nil {
		return netip.Addr{}
	}
	r := n.net.lookup(n.index, to)
	if r == nil || len(r.Hops) == 0 {
		return n.sourceOf(nil, to.Is4())
	}
	return n.sourceOf(n.itf[r.Hops[0].Port], to.Is4())
}

// fullAddress is an address in the words of the stack, and its protocol: without an address, both.
func fullAddress(a netip.AddrPort) (tcpip.FullAddress, tcpip.NetworkProtocolNumber) {
	out := tcpip.FullAddress{NIC: hostNIC, Port: a.Port()}
	if ip := a.Addr().Unmap(); ip.IsValid() && !ip.IsUnspecified() {
		out.Addr = netAddress(ip)
		if ip.Is4() {
			return out, header.IPv4ProtocolNumber
		}
	} else if ip.IsValid() && ip.Is4() {
		return out, header.IPv4ProtocolNumber
	}
	return out, header.IPv6ProtocolNumber
}

// heldListener, heldConn and heldPackets release the stack when they are closed.
type heldListener struct {
	net.Listener
	host    *host
	release func()
}

func (l *heldListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.host.held.Add(1)
	return &heldConn{Conn: c, release: l.host.releaser()}, nil
}

func (l *heldListener) Close() error {
	defer l.release()
	return l.Listener.Close()
}

type heldConn struct {
	net.Conn
	release func()
}

func (c *heldConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

type heldPackets struct {
	net.PacketConn
	release func()
}

func (c *heldPackets) Close() error {
	defer c.release()
	return c.PacketConn.Close()
}
