package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// published are the machine's ports that lead to nodes. They close with the lab's process, and open
// again when another process resumes the lab.
type published struct {
	mu   sync.Mutex
	open map[topology.Opening]*listener

	passing, dialling chan struct{} // semaphores: see mostPassed
	senders           *clients
}

// listener is an open port, and its current destination.
type listener struct {
	io.Closer // a net.Listener, or datagrams
	to        topology.Port
	at        string // the node
}

// publish opens the ports that nodes ask for, and closes those that none asks for any more. If one
// cannot be opened, nothing changes. Ports of dropped nodes then lead to the nodes made in their
// place.
func (l *Lab) publish(t *topology.Topology, dropped []*topology.Node) error {
	p := &l.published
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[topology.Opening]*listener{}
	}
	wanted := map[topology.Opening]*topology.Node{}
	for _, n := range t.Nodes {
		for _, port := range n.Ports {
			wanted[port.Listen()] = n
		}
	}
	var closed []topology.Opening // first: a new one may be the same port at another address
	for at, has := range p.open {
		if wanted[at] == nil {
			has.Close()
			closed = append(closed, at)
		}
	}
	made := map[topology.Opening]*listener{}
	for at, n := range wanted {
		if p.open[at] != nil {
			continue
		}
		open, err := p.listen(at)
		if err == nil {
			made[at] = &listener{Closer: open}
			continue
		}
		err = fmt.Errorf("%s %s: ports: open %s of the machine: %w", n.Kind, n.Name, at, err)
		for _, m := range made {
			m.Close()
		}
		for _, at := range closed {
			again, e := p.listen(at)
			if err = errors.Join(err, e); e == nil {
				p.open[at].Closer = again
				l.lead(p.open[at])
			}
		}
		return err
	}
	for _, at := range closed {
		delete(p.open, at)
	}
	maps.Copy(p.open, made)
	for _, n := range t.Nodes {
		for _, port := range n.Ports {
			has := p.open[port.Listen()]
			other := has.to != port || has.at != n.Name ||
				slices.ContainsFunc(dropped, func(d *topology.Node) bool { return d.Name == n.Name })
			has.to, has.at = port, n.Name
			if d, ok := has.Closer.(*datagrams); ok && other {
				d.forget()
			}
		}
	}
	for _, m := range made {
		l.lead(m)
	}
	return nil
}

// listen opens a port for the family of its address only.
func (p *published) listen(at topology.Opening) (io.Closer, error) {
	switch {
	case at.UDP:
		return p.senders.listen(at.AddrPort)
	case at.Addr().Is4():
		return net.Listen("tcp4", at.AddrPort.String())
	}
	return net.Listen("tcp6", at.AddrPort.String())
}

// lead starts passing on what arrives at a port. The caller holds the lock of the ports.
func (l *Lab) lead(from *listener) {
	switch open := from.Closer.(type) {
	case *datagrams:
		open.dial = func(first []byte) (*net.UDPConn, error) {
			to, node := l.leadsTo(from)
			return l.sendNode(node, to, first)
		}
		go open.serve()
	case net.Listener:
		go l.accept(from, open)
	}
}

// leadsTo returns the current destination of a port.
func (l *Lab) leadsTo(from *listener) (port uint16, node string) {
	l.published.mu.Lock()
	defer l.published.mu.Unlock()
	return from.to.Node, from.at
}

// mostPassed is how many connections a lab passes on at a time, and mostDialled how many of them
// wait for a program in a node: each of these takes a thread.
const mostPassed, mostDialled = 4096, 64

// accept passes on connections to a port until it is closed.
func (l *Lab) accept(from *listener, tcp net.Listener) {
	for {
		conn, err := tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files are open
			time.Sleep(100 * time.Millisecond)
			continue
		}
		to, node := l.leadsTo(from)
		l.published.passing <- struct{}{}
		go func() {
			defer func() { <-l.published.passing }()
			l.passOn(conn.(*net.TCPConn), node, to)
		}()
	}
}

// passOn passes a connection on to a port of a node: on its loopback device, else at its first
// address, as not all programs listen at both.
func (l *Lab) passOn(from *net.TCPConn, node string, port uint16) {
	defer from.Close()
	l.published.dialling <- struct{}{}
	to, err := l.dialNode(node, port)
	<-l.published.dialling
	if err != nil {
		_ = from.SetLinger(0) // a reset says that nobody listens
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	for _, way := range [2][2]*net.TCPConn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			_ = way[1].CloseWrite()
		})
	}
	both.Wait()
}

func (l *Lab) dialNode(node string, port uint16) (conn *net.TCPConn, err error) {
	n, addresses, err := l.reachedAt(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := patience.Published.Context(context.Background())
	defer cancel()
	for _, a := range addresses {
		err = l.onNodeThread(n, func() error {
			var dialer net.Dialer
			c, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String())
			if err == nil {
				conn = c.(*net.TCPConn)
			}
			return err
		})
		if err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// reachedAt are the addresses at which a node's programs are looked for, from its own network.
func (l *Lab) reachedAt(node string) (n *topology.Node, addresses []netip.Addr, err error) {
	t := l.Topology()
	if n = t.Node(node); n == nil {
		return nil, nil, fmt.Errorf("there is no node %s any more", node)
	}
	addresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	for _, p := range topology.AddressesOf(t, n) {
		addresses = append(addresses, p.Addr())
	}
	return n, addresses, nil
}

// closePorts closes all.
func (l *Lab) closePorts() {
	l.published.mu.Lock()
	defer l.published.mu.Unlock()
	for _, m := range l.published.open {
		m.Close()
	}
}
