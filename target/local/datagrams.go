package local

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// Limits on what a UDP port of the machine keeps for its clients. Whoever sends from ever new
// addresses has others asked anew, from another port, and no more.
const (
	mostClients  = 1024             // of a port, of which the one unused for the longest makes room
	clientIdle   = 90 * time.Second // after which a client is forgotten that neither sends nor is sent to
	mostDatagram = 1 << 16
)

// datagrams are an open UDP port that leads to a node. Each client has a socket of its own in the
// node's network, so that the node's program can tell clients apart and what it answers finds the
// one that has asked.
type datagrams struct {
	*net.UDPConn
	dial func(first []byte) (*net.UDPConn, error) // connects to the node, and sends it a datagram

	most int           // mostClients
	keep time.Duration // clientIdle

	mu      sync.Mutex
	clients map[client]*passage
	closed  bool
}

// client is who sends, and the address of the machine to which: answers come from there.
type client struct {
	from netip.AddrPort
	at   netip.Addr
}

// passage is a client's connection to the node.
type passage struct {
	*net.UDPConn
	used time.Time // guarded by datagrams.mu
}

func listenDatagrams(at netip.AddrPort) (*datagrams, error) {
	network := "udp6"
	if at.Addr().Is4() {
		network = "udp4"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	if at.Addr().Is4() {
		err = ipv4.NewPacketConn(conn).SetControlMessage(ipv4.FlagDst, true)
	} else {
		err = ipv6.NewPacketConn(conn).SetControlMessage(ipv6.FlagDst, true)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &datagrams{UDPConn: conn, most: mostClients, keep: clientIdle, clients: map[client]*passage{}}, nil
}

// Close closes the port and forgets its clients.
func (d *datagrams) Close() error {
	err := d.UDPConn.Close()
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.forget()
	return err
}

// forget has all clients connected anew: the node is another one.
func (d *datagrams) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c, p := range d.clients {
		p.Close()
		delete(d.clients, c)
	}
}

// serve passes on what comes until the port is closed.
func (d *datagrams) serve() {
	buffer, control := make([]byte, mostDatagram), make([]byte, 128)
	for {
		n, m, _, from, err := d.ReadMsgUDPAddrPort(buffer, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of an answer that could not be delivered
			continue
		}
		d.pass(client{from, sentTo(from, control[:m])}, buffer[:n])
	}
}

// sentTo is the address of the machine that a datagram was sent to; not valid: unknown.
func sentTo(from netip.AddrPort, control []byte) netip.Addr {
	var to net.IP
	if from.Addr().Is4() {
		var m ipv4.ControlMessage
		if m.Parse(control) == nil {
			to = m.Dst
		}
	} else {
		var m ipv6.ControlMessage
		if m.Parse(control) == nil {
			to = m.Dst
		}
	}
	a, _ := netip.AddrFromSlice(to)
	return a
}

// answersFrom is what has an answer come from the address that the client has sent to.
func (c client) answersFrom() []byte {
	switch {
	case c.at.Is4():
		return (&ipv4.ControlMessage{Src: c.at.AsSlice()}).Marshal()
	case c.at.Is6():
		return (&ipv6.ControlMessage{Src: c.at.AsSlice()}).Marshal()
	}
	return nil
}

// pass passes a datagram on. One that nobody takes is lost, as on any network.
func (d *datagrams) pass(c client, datagram []byte) {
	if p := d.passage(c); p != nil {
		if _, err := p.Write(datagram); err == nil {
			return
		}
		d.drop(c, p) // nobody listens there any more: perhaps elsewhere
	}
	conn, err := d.dial(datagram)
	if err != nil {
		return
	}
	p := &passage{conn, time.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		conn.Close()
		return
	}
	if len(d.clients) >= d.most {
		d.makeRoom()
	}
	d.clients[c] = p
	go d.answers(c, p)
}

func (d *datagrams) passage(c client) *passage {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.clients[c]
	if p != nil {
		p.used = time.Now()
	}
	return p
}

// makeRoom forgets the client that was unused for the longest. The lock is held.
func (d *datagrams) makeRoom() {
	var oldest client
	var last *passage
	for c, p := range d.clients {
		if last == nil || p.used.Before(last.used) {
			oldest, last = c, p
		}
	}
	last.Close()
	delete(d.clients, oldest)
}

func (d *datagrams) drop(c client, p *passage) {
	p.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clients[c] == p {
		delete(d.clients, c)
	}
}

// idle is for how long a client is still kept.
func (d *datagrams) idle(p *passage, answered bool) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if answered {
		p.used = time.Now()
	}
	return d.keep - time.Since(p.used)
}

// answers passes back what the node sends, until the client is idle.
func (d *datagrams) answers(c client, p *passage) {
	defer d.drop(c, p)
	buffer, control := make([]byte, mostDatagram), c.answersFrom()
	for answered := false; ; {
		left := d.idle(p, answered)
		if left <= 0 || p.SetReadDeadline(time.Now().Add(left)) != nil {
			return
		}
		n, err := p.Read(buffer)
		if answered = err == nil; answered {
			_, _, err = d.WriteMsgUDPAddrPort(buffer[:n], control, c.from)
			answered = err == nil
			continue
		}
		if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
			return // nobody listens there any more, or the client is forgotten
		}
	}
}

// datagramsTo are nodes whose programs are not reached by UDP as those of others are, at the
// loopback device of their network or at their addresses.
type datagramsTo interface {
	DatagramsTo(*topology.Node) netip.Addr
}

// sendNode connects to a UDP port of a node and sends it a datagram. Whether somebody listens at an
// address of the network that the calling thread is in shows as soon as one was sent.
func (l *Lab) sendNode(node string, port uint16, first []byte) (conn *net.UDPConn, err error) {
	n, addresses, err := l.reachedAt(node)
	if err != nil {
		return nil, err
	}
	if to, ok := l.nodesOf(n).(datagramsTo); ok {
		addresses = []netip.Addr{to.DatagramsTo(n)}
	}
	err = l.onNodeThread(n, func() (err error) {
		for _, a := range addresses {
			if conn, err = sendFirst(netip.AddrPortFrom(a, port), first); err == nil {
				return nil
			}
		}
		return err
	})
	return conn, err
}

// refused returns what a socket has been told, as that nobody listens.
func refused(conn *net.UDPConn) (err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		if code, e := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); e != nil {
			err = e
		} else if code != 0 {
			err = unix.Errno(code)
		}
	})
	return errors.Join(failed, err)
}

// sendFirst connects to an address, sends a datagram, and says if that is refused.
func sendFirst(to netip.AddrPort, first []byte) (*net.UDPConn, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	if _, err = conn.Write(first); err == nil {
		err = refused(conn)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
