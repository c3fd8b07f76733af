package local

import (
	"cmp"
	"container/list"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// Limits on what the machine's UDP ports keep for their clients. A sender with ever new addresses
// only causes other clients to be connected again, from another port of the node's side.
const (
	mostClients  = 4096             // of a lab; a new one takes the place of the longest unused
	mostAnswers  = 16               // passed back at the same time: each takes a buffer
	clientIdle   = 90 * time.Second // after which a client without traffic is forgotten
	clientRest   = time.Second      // between two connections for a client
	mostDatagram = 1 << 16
)

// clients are the clients of all UDP ports of a lab.
type clients struct {
	most    int
	buffers chan []byte // of mostDatagram bytes each; nil until first needed

	mu   sync.Mutex
	used list.List // of *passage, the most recently used first
}

func newClients(most int) *clients {
	all := &clients{most: most, buffers: make(chan []byte, mostAnswers)}
	for range mostAnswers {
		all.buffers <- nil
	}
	return all
}

// datagrams is an open UDP port that leads to a node. Each client has a socket of its own in the
// node's network, so that the node's program can tell clients apart, and its answers reach the
// right one.
type datagrams struct {
	*net.UDPConn
	dial func(first []byte) (*net.UDPConn, error) // connects to the node, and sends it a datagram

	keep, rest time.Duration // clientIdle, clientRest
	all        *clients

	// Guarded by all.mu.
	clients    map[client]*passage
	generation int // of the node: see forget
	closed     bool
}

// client is a sender, and the machine's address that it has sent to: answers come from there.
type client struct {
	from netip.AddrPort
	at   netip.Addr
}

// passage is a client's connection to the node, or records that nobody listened there.
type passage struct {
	*net.UDPConn // nil: nobody listens

	of     *datagrams
	client client
	made   time.Time

	// Guarded by clients.mu.
	used  time.Time
	place *list.Element // in clients.used; nil: forgotten
}

func (all *clients) listen(at netip.AddrPort) (*datagrams, error) {
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
	return &datagrams{UDPConn: conn, keep: clientIdle, rest: clientRest, all: all, clients: map[client]*passage{}}, nil
}

// Close closes the port and forgets its clients.
func (d *datagrams) Close() error {
	err := d.UDPConn.Close()
	d.all.mu.Lock()
	d.closed = true
	d.all.mu.Unlock()
	d.forget()
	return err
}

// forget closes all clients' connections, as the node has been replaced; they are connected again
// when needed. A connection that is just being made may lead to the old node, and is not kept.
func (d *datagrams) forget() {
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	d.generation++
	for _, p := range d.clients {
		p.drop()
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
		if err != nil { // the error of an undelivered answer
			continue
		}
		d.pass(client{from, sentTo(from, control[:m])}, buffer[:n])
	}
}

// sentTo returns the machine's address that a datagram was sent to; the zero Addr if unknown.
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

// answersFrom returns the control message that sets the source of an answer to the address that the
// client has sent to.
func (c client) answersFrom() []byte {
	switch {
	case c.at.Is4():
		return (&ipv4.ControlMessage{Src: c.at.AsSlice()}).Marshal()
	case c.at.Is6():
		return (&ipv6.ControlMessage{Src: c.at.AsSlice()}).Marshal()
	}
	return nil
}

// pass passes a datagram on to the node. If nobody listens there it is lost, as on any network, and
// so is what the client sends within the next clientRest.
func (d *datagrams) pass(c client, datagram []byte) {
	p, generation := d.passage(c)
	if p != nil && p.UDPConn != nil {
		if _, err := p.Write(datagram); err == nil {
			return
		}
	}
	if p != nil && time.Since(p.made) < d.rest {
		return
	}
	now := time.Now()
	conn, err := d.dial(datagram) // also if the last one was refused: another program may listen
	if err != nil {
		conn = nil
	}
	d.enter(&passage{UDPConn: conn, of: d, client: c, made: now, used: now}, generation)
}

// enter replaces the client's last connection, unless the node has been replaced meanwhile.
func (d *datagrams) enter(p *passage, generation int) {
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	if d.closed || d.generation != generation {
		p.drop()
		return
	}
	if last := d.clients[p.client]; last != nil {
		last.drop()
	}
	if d.all.used.Len() >= d.all.most {
		d.all.used.Back().Value.(*passage).drop()
	}
	p.place = d.all.used.PushFront(p)
	if d.clients[p.client] = p; p.UDPConn == nil {
		p.rest()
		return
	}
	go d.answers(p)
}

func (d *datagrams) passage(c client) (p *passage, generation int) {
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	if p = d.clients[c]; p != nil && p.UDPConn != nil {
		p.use()
	}
	return p, d.generation
}

// use marks a connection as just used. The caller holds the clients' lock.
func (p *passage) use() {
	if p.used = time.Now(); p.place != nil {
		p.of.all.used.MoveToFront(p.place)
	}
}

// drop closes and forgets a connection. The caller holds the clients' lock.
func (p *passage) drop() {
	if p.UDPConn != nil {
		p.Close()
	}
	if p.place != nil {
		p.of.all.used.Remove(p.place)
		p.place = nil
		delete(p.of.clients, p.client)
	}
}

// rest closes a connection that was refused, and forgets it after clientRest, when the client may
// have another one.
func (p *passage) rest() {
	if p.UDPConn != nil {
		p.Close()
	}
	time.AfterFunc(p.of.rest-time.Since(p.made), func() {
		p.of.all.mu.Lock()
		defer p.of.all.mu.Unlock()
		p.drop()
	})
}

// idle returns for how long a client is still kept; if that is over, it forgets the client.
func (d *datagrams) idle(p *passage, answered bool) time.Duration {
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	if answered {
		p.use()
	}
	left := d.keep - time.Since(p.used)
	if left <= 0 {
		p.drop()
	}
	return left
}

// answers passes back what the node sends, until the client is idle or nobody listens any more.
func (d *datagrams) answers(p *passage) {
	defer p.rest()
	raw, err := p.SyscallConn()
	if err != nil {
		return
	}
	control := p.client.answersFrom()
	for answered := false; ; {
		left := d.idle(p, answered)
		if left <= 0 || p.SetReadDeadline(time.Now().Add(left)) != nil {
			return
		}
		if answered, err = d.answer(p, raw, control); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// answer passes one datagram of the node back; it takes a buffer only once the datagram has
// arrived.
func (d *datagrams) answer(p *passage, raw syscall.RawConn, control []byte) (answered bool, err error) {
	var buffer []byte
	var n int
	failed := raw.Read(func(fd uintptr) bool {
		if buffer = <-d.all.buffers; buffer == nil {
			buffer = make([]byte, mostDatagram)
		}
		for {
			if n, err = unix.Read(int(fd), buffer); err != unix.EINTR {
				break
			}
		}
		if err == unix.EAGAIN {
			d.all.buffers <- buffer
			buffer = nil
		}
		return err != unix.EAGAIN
	})
	if buffer != nil {
		defer func() { d.all.buffers <- buffer }()
	}
	if failed != nil || err != nil {
		return false, cmp.Or(failed, err)
	}
	_, _, lost := d.WriteMsgUDPAddrPort(buffer[:n], control, p.client.from)
	return lost == nil, nil
}

// datagramsTo are nodes whose programs are not reached by UDP in the usual way, at the loopback
// device or the addresses of the node's network.
type datagramsTo interface {
	DatagramsTo(*topology.Node) netip.Addr
}

// sendNode connects to a UDP port of a node and sends it a datagram: only after that does it show
// whether somebody listens at an address in the calling thread's network namespace.
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

// refused returns the pending error of a socket, such as that nobody listens.
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

// sendFirst connects to an address and sends a datagram; the error says if that was refused.
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
