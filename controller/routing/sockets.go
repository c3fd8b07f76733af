package routing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// ListenTCP listens on a TCP port of a router, at one of its addresses or, with none, at all that
// it has now and later. The listener lasts as long as the router, across changes of the
// configuration. Packets take the routes and links of the lab.
//
// A link-local address of IPv6 has the interface as its zone, by name or by number of the port:
// fe80::1%r1-eth1 (RFC 4007). Addresses that sockets return have zones, too.
func (a *App) ListenTCP(dpid uint64, at netip.AddrPort) (net.Listener, error) {
	h, err := a.hold(dpid)
	if err != nil {
		return nil, err
	}
	full, protocol, err := h.fullAddress(at)
	if err != nil {
		h.release()
		return nil, err
	}
	l, err := gonet.ListenTCP(h.stack, full, protocol)
	if err != nil {
		h.release()
		return nil, err
	}
	return &heldListener{Listener: l, release: h.releaser(), host: h}, nil
}

// DialTCP connects from a router to an address, with one of the router's own as source or, with
// none, that of the outgoing interface.
func (a *App) DialTCP(ctx context.Context, dpid uint64, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	if to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port()); !to.Addr().IsValid() {
		return nil, errors.New("no address to connect to")
	}
	h, err := a.hold(dpid)
	if err != nil {
		return nil, err
	}
	c, err := h.dialTCP(ctx, from, to)
	if err != nil {
		h.release()
		return nil, err
	}
	return &heldConn{Conn: c, host: h, release: h.releaser()}, nil
}

func (h *host) dialTCP(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	remote, protocol, err := h.fullAddress(to)
	if err != nil {
		return nil, err
	}
	if !from.IsValid() {
		from = h.sourceTo(to.Addr())
	}
	local, _, err := h.fullAddress(netip.AddrPortFrom(from, 0))
	if err != nil {
		return nil, err
	}
	if local.NIC != remote.NIC {
		return nil, fmt.Errorf("%v and %v are not at one link", from, to.Addr())
	}
	return gonet.DialTCPWithBind(ctx, h.stack, local, remote, protocol)
}

// ListenUDP listens on a UDP port of a router, as ListenTCP does; port 0: any free one.
func (a *App) ListenUDP(dpid uint64, at netip.AddrPort) (net.PacketConn, error) {
	h, err := a.hold(dpid)
	if err != nil {
		return nil, err
	}
	c, err := h.listenUDP(at)
	if err != nil {
		h.release()
		return nil, err
	}
	return c, nil
}

func (h *host) listenUDP(at netip.AddrPort) (net.PacketConn, error) {
	full, protocol, err := h.fullAddress(at)
	if err != nil {
		return nil, err
	}
	c := &heldPackets{host: h, from: new(lastRead), release: h.releaser()}
	var wq waiter.Queue
	ep, bad := h.stack.NewEndpoint(udp.ProtocolNumber, protocol, &wq)
	if bad == nil {
		if full.NIC == hostNIC && full.Addr.Len() == 0 {
			full.NIC = 0 // link-local ones, too
		}
		if bad = ep.Bind(full); bad != nil {
			ep.Close()
		}
	}
	if bad != nil {
		return nil, fmt.Errorf("UDP port %d at %v: %s", at.Port(), at.Addr(), bad)
	}
	c.from.Endpoint = ep
	c.UDPConn = gonet.NewUDPConn(&wq, c.from)
	return c, nil
}

// hold returns the stack of a router, which is kept until it is released.
func (a *App) hold(dpid uint64) (*host, error) {
	for {
		n := a.node(dpid)
		if n == nil {
			return nil, fmt.Errorf("there is no router with the datapath id %016x", dpid)
		}
		n.mu.Lock()
		if !n.gone {
			if n.host == nil {
				n.host = n.newHost()
			}
			h := n.host
			h.held.Add(1)
			n.mu.Unlock()
			return h, nil
		}
		n.mu.Unlock()
		if a.ctx.Err() != nil {
			return nil, errors.New("the controller is shutting down")
		}
		a.changing() // until the node of the new configuration has taken over
	}
}

// changing waits for a change of the configuration to end.
func (a *App) changing() {
	a.mu.Lock()
	defer a.mu.Unlock()
}

func (h *host) release() {
	if h.held.Add(-1) == 0 {
		h.idle.Reset(hostIdle)
	}
}

// releaser returns a function that releases the stack; further calls do nothing.
func (h *host) releaser() func() { return sync.OnceFunc(h.release) }

// sourceTo returns the source address that the router uses towards another.
func (h *host) sourceTo(to netip.Addr) netip.Addr {
	n := h.lock()
	defer n.mu.Unlock()
	if f := n.zone(to.Zone()); isLinkLocal(to) && f != nil {
		return f.at(linkLocal(f.MAC))
	}
	if n.net == nil {
		return netip.Addr{}
	}
	r := n.net.lookup(n.index, to)
	if r == nil || len(r.Hops) == 0 {
		return n.sourceOf(nil, to.Is4())
	}
	return n.sourceOf(n.itf[r.Hops[0].Port], to.Is4())
}

// zone returns the interface that a zone names; nil: there is none.
func (n *node) zone(name string) *Interface {
	for _, f := range n.itf {
		if f.Name == name || strconv.FormatUint(uint64(f.Port), 10) == name {
			return f
		}
	}
	return nil
}

// fullAddress converts an address for the stack, with its protocol; no address means both
// protocols.
func (h *host) fullAddress(a netip.AddrPort) (out tcpip.FullAddress, protocol tcpip.NetworkProtocolNumber, err error) {
	out = tcpip.FullAddress{NIC: hostNIC, Port: a.Port()}
	ip := a.Addr().Unmap()
	switch {
	case ip.IsValid() && isLinkLocal(ip):
		n := h.lock()
		defer n.mu.Unlock()
		f := n.zone(ip.Zone())
		if f == nil || !n.v6 || n.gone {
			return out, protocol, fmt.Errorf("%v: router %s has no such interface with IPv6; write one behind %%: fe80::1%%%s-eth0", ip, n.Name, n.Name)
		}
		h.port(n, f)
		out.NIC = nicOf(f.Port)
	case ip.Zone() != "":
		return out, protocol, fmt.Errorf("%v: only link-local addresses of IPv6 have a zone", ip)
	}
	if ip.IsValid() && !ip.IsUnspecified() {
		out.Addr = netAddress(ip)
	}
	if ip.IsValid() && ip.Is4() {
		return out, header.IPv4ProtocolNumber, nil
	}
	return out, header.IPv6ProtocolNumber, nil
}

// zoneAt returns the zone for an interface of the stack; "": none.
func (h *host) zoneAt(id tcpip.NICID) string {
	n := h.lock()
	defer n.mu.Unlock()
	if p := h.ports[uint32(id-hostNIC)]; id > hostNIC && p != nil {
		return p.name
	}
	return ""
}

// zoneOf returns the zone of one of the router's link-local addresses.
func (h *host) zoneOf(own net.IP) string {
	a, _ := netip.AddrFromSlice(own)
	n := h.node.Load()
	if f := n.local[a]; f != nil && isLinkLocal(a) { // which does not change
		return f.Name
	}
	return ""
}

// heldListener, heldConn and heldPackets release the stack when closed, and return addresses with
// zones.
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
	return &heldConn{Conn: c, host: l.host, release: l.host.releaser()}, nil
}

func (l *heldListener) Addr() net.Addr { return l.host.zoned(l.Listener.Addr(), l.Listener.Addr()) }

func (l *heldListener) Close() error {
	defer l.release()
	return l.Listener.Close()
}

type heldConn struct {
	net.Conn
	host    *host
	release func()
}

func (c *heldConn) LocalAddr() net.Addr { return c.host.zoned(c.Conn.LocalAddr(), c.Conn.LocalAddr()) }

func (c *heldConn) RemoteAddr() net.Addr {
	return c.host.zoned(c.Conn.RemoteAddr(), c.Conn.LocalAddr())
}

func (c *heldConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// zoned returns an address with the zone of the router's own address on the same link.
func (h *host) zoned(a, own net.Addr) net.Addr {
	t, ok := a.(*net.TCPAddr)
	o, has := own.(*net.TCPAddr)
	if !ok || !has {
		return a
	}
	return &net.TCPAddr{IP: t.IP, Port: t.Port, Zone: h.zoneOf(o.IP)}
}

// heldPackets is a UDP socket. Reads are serialized, because the sender's zone is not returned with
// what was read but recorded beside it.
type heldPackets struct {
	*gonet.UDPConn
	host    *host
	release func()

	reading sync.Mutex
	from    *lastRead
}

// lastRead is an endpoint that records on which interface the last packet read arrived.
type lastRead struct {
	tcpip.Endpoint
	nic tcpip.NICID
}

func (l *lastRead) Read(w io.Writer, o tcpip.ReadOptions) (tcpip.ReadResult, tcpip.Error) {
	r, err := l.Endpoint.Read(w, o)
	l.nic = r.RemoteAddr.NIC
	return r, err
}

func (c *heldPackets) ReadFrom(b []byte) (int, net.Addr, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	n, from, err := c.UDPConn.ReadFrom(b)
	if u, ok := from.(*net.UDPAddr); ok && u.IP.IsLinkLocalUnicast() {
		u.Zone = c.host.zoneAt(c.from.nic)
	}
	return n, from, err
}

func (c *heldPackets) WriteTo(b []byte, to net.Addr) (int, error) {
	u, ok := to.(*net.UDPAddr)
	if !ok || u.Zone == "" {
		return c.UDPConn.WriteTo(b, to)
	}
	full, _, err := c.host.fullAddress(u.AddrPort())
	if err != nil {
		return 0, err
	}
	n, bad := c.from.Write(bytes.NewReader(b), tcpip.WriteOptions{To: &full})
	if bad != nil {
		return int(n), fmt.Errorf("to %v: %s", to, bad)
	}
	return int(n), nil
}

func (c *heldPackets) LocalAddr() net.Addr {
	a := c.UDPConn.LocalAddr()
	if u, ok := a.(*net.UDPAddr); ok {
		u.Zone = c.host.zoneOf(u.IP)
	}
	return a
}

func (c *heldPackets) Close() error {
	defer c.release()
	return c.UDPConn.Close()
}
