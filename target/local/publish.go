package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// published are the machine's ports that lead to nodes. They end with the lab's process, and are
// there again once another one has resumed the lab.
type published struct {
	mu   sync.Mutex
	open map[netip.AddrPort]*listener

	passing, dialling chan struct{} // one for each connection: see mostPassed
}

// listener is an open port, and where its connections go now.
type listener struct {
	net.Listener
	to topology.Port
	at string // the node
}

// publish opens the ports of nodes that are not open, and closes those of no node any more. Nothing
// is changed if one cannot be opened.
func (l *Lab) publish(t *topology.Topology) error {
	p := &l.published
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[netip.AddrPort]*listener{}
	}
	wanted := map[netip.AddrPort]*topology.Node{}
	for _, n := range t.Nodes {
		for _, port := range n.Ports {
			wanted[port.Listen()] = n
		}
	}
	var closed []netip.AddrPort // first: a new one may be the same port at another address
	for at, has := range p.open {
		if wanted[at] == nil {
			has.Close()
			closed = append(closed, at)
		}
	}
	made := map[netip.AddrPort]*listener{}
	for at, n := range wanted {
		if p.open[at] != nil {
			continue
		}
		tcp, err := listen(at)
		if err == nil {
			made[at] = &listener{Listener: tcp}
			continue
		}
		err = fmt.Errorf("%s %s: ports: open %s of the machine: %w", n.Kind, n.Name, at, err)
		for _, m := range made {
			m.Close()
		}
		for _, at := range closed {
			again, e := listen(at)
			if err = errors.Join(err, e); e == nil {
				p.open[at].Listener = again
				go l.accept(p.open[at], again)
			}
		}
		return err
	}
	for _, at := range closed {
		delete(p.open, at)
	}
	for at, m := range made {
		p.open[at] = m
		go l.accept(m, m.Listener)
	}
	for _, n := range t.Nodes {
		for _, port := range n.Ports {
			has := p.open[port.Listen()]
			has.to, has.at = port, n.Name
		}
	}
	return nil
}

// listen opens a port for the family of its address only.
func listen(at netip.AddrPort) (net.Listener, error) {
	if at.Addr().Is4() {
		return net.Listen("tcp4", at.String())
	}
	return net.Listen("tcp6", at.String())
}

// mostPassed is how many connections a lab passes on at a time, and mostDialled how many of them
// wait for a program in a node: each of these takes a thread.
const mostPassed, mostDialled = 4096, 64

// accept passes on what comes to a port until that is closed.
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
		l.published.mu.Lock()
		to, node := from.to, from.at
		l.published.mu.Unlock()
		l.published.passing <- struct{}{}
		go func() {
			defer func() { <-l.published.passing }()
			l.passOn(conn.(*net.TCPConn), node, to.Node)
		}()
	}
}

// passOn connects a connection to a port of a node: of its loopback device, else of its first
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
	t := l.Topology()
	n := t.Node(node)
	if n == nil {
		return nil, fmt.Errorf("there is no node %s any more", node)
	}
	addresses := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	for _, p := range topology.AddressesOf(t, n) {
		addresses = append(addresses, p.Addr())
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

// closePorts closes all.
func (l *Lab) closePorts() {
	l.published.mu.Lock()
	defer l.published.mu.Unlock()
	for _, m := range l.published.open {
		m.Close()
	}
}
