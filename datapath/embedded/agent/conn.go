package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/net/netutil"

	"trivet.dev/trivet/internal/accept"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
)

const (
	asyncRoom  = 1 << 20  // bytes waiting to be sent, above which packets are dropped
	replyRoom  = 8 << 20  // and above which nothing more is read
	maxLookers = 64       // concurrent connections to a listener; others wait
	asyncMost  = 16 << 20 // of messages that must not be dropped, above which the connection ends
)

// Meet serves a controller at the other end of a connection until it ends; the error says why.
func (a *Agent) Meet(conn net.Conn) error { return a.meet(conn, true, nil) }

func (a *Agent) meet(conn net.Conn, controls bool, up func(*Session)) error {
	defer conn.Close()
	reader, writer := openflow.NewReader(conn, 0), openflow.NewWriter(conn)
	if err := greet(conn, reader, writer); err != nil {
		return err
	}
	c := &connPeer{openflow.NewOutbox(conn)}
	s := a.join(c, controls)
	if s == nil {
		return errors.New("the switch is gone")
	}
	defer s.Close()
	if up != nil {
		up(s)
	}
	done := make(chan struct{})
	go func() { defer close(done); c.Run() }()
	err := c.read(conn, s, reader, a.opt.Inactivity)
	s.Close()
	<-done
	if why := c.Err(); errors.Is(why, openflow.ErrNotReading) {
		err = why
	}
	return err
}

// greet exchanges HELLO and negotiates the version (section 6.3.1).
func greet(conn net.Conn, r *openflow.Reader, w *openflow.Writer) error {
	if err := conn.SetDeadline(time.Now().Add(patience.OpenFlow.Duration())); err != nil {
		return err
	}
	own := &openflow.Hello{Versions: openflow.Versions(openflow.Version)}
	sent := make(chan error, 1) // both ends may send HELLO before they read
	go func() { sent <- errors.Join(w.Write(own), w.Flush()) }()
	m, err := r.Read()
	if err := errors.Join(<-sent, err); err != nil {
		return err
	}
	hello, ok := m.(*openflow.Hello)
	if !ok {
		return errors.New("the first message is " + m.Type().String() + ", not HELLO")
	}
	if _, err := openflow.Negotiate(own, hello); err != nil {
		var answer *openflow.Error
		if errors.As(err, &answer) {
			err = errors.Join(err, w.Write(answer), w.Flush())
		}
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// connPeer is a controller behind a connection. Messages are queued for a writer; the switch never
// waits for it.
type connPeer struct{ *openflow.Outbox }

// Reply implements Peer.
func (c *connPeer) Reply(m openflow.Message) { _ = c.Add(m, 0) }

// Asynchronous implements Peer.
func (c *connPeer) Asynchronous(m openflow.Message) {
	if _, isPacket := m.(*openflow.PacketIn); isPacket && c.Waiting() > asyncRoom {
		return
	}
	_ = c.Add(m, asyncMost)
}

// Closed implements Peer.
func (c *connPeer) Closed() { c.Close() }

// read handles messages until the connection ends. A silent peer is sent an echo request (section
// 6.3.4); parts of an unfinished message do not count as a sign of life.
func (c *connPeer) read(conn net.Conn, s *Session, r *openflow.Reader, inactivity time.Duration) error {
	asked := false
	for until := time.Now().Add(inactivity); ; {
		until = until.Add(c.Wait(replyRoom))
		if err := conn.SetReadDeadline(until); err != nil {
			return err
		}
		b, err := r.Next()
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked, until = true, time.Now().Add(inactivity)
			c.Reply(&openflow.EchoRequest{})
			continue
		case errors.As(err, &timeout) && timeout.Timeout():
			return errors.New("no sign of life")
		case errors.Is(err, io.EOF):
			return errors.New("closed by the controller")
		case err != nil:
			return err
		}
		if !openflow.IsPart(b) {
			asked, until = false, time.Now().Add(inactivity)
		}
		m, err := openflow.Decode(b)
		var malformed *openflow.DecodeError
		if errors.As(err, &malformed) {
			c.Reply(malformed.Reply(b))
			continue
		}
		s.Handle(m)
	}
}

type listener struct {
	net.Listener
	done chan struct{}
}

// Close closes the listener, and waits until it has ended.
func (l *listener) Close() {
	l.Listener.Close()
	<-l.done
}

// Serve accepts connections of management programs such as ovs-ofctl, until the listener or the
// agent is closed. They may do everything that a controller may, but do not count as controllers:
// they are sent no packets before they have asked for them by SET_CONFIG, and a switch connected to
// none but them is without a controller.
func (a *Agent) Serve(in net.Listener) error {
	l := &listener{in, make(chan struct{})}
	defer close(l.done)
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return in.Close()
	}
	a.listeners = append(a.listeners, l)
	a.mu.Unlock()
	few := netutil.LimitListener(in, maxLookers)
	for {
		conn, err := accept.Next(few, nil)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		a.group.Go(func() { _ = a.meet(conn, false, nil) })
	}
}

// Dial connects to a target's network and address, from the thread's network namespace.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: patience.OpenFlow.Duration(), KeepAlive: 30 * time.Second}).DialContext(ctx, network,
		address)
}
