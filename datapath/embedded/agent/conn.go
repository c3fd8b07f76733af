package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"trivet.dev/trivet/internal/accept"
	"trivet.dev/trivet/openflow"
)

const (
	handshakeTime = 10 * time.Second // for a peer to say HELLO
	writeTime     = 10 * time.Second // for a peer to take what it is sent
	asyncRoom     = 1 << 20          // bytes that wait to be sent, above which packets are dropped
	replyRoom     = 8 << 20          // and above which nothing more is read
)

// Meet speaks with a controller at the other end of a connection until it ends; the error is why.
func (a *Agent) Meet(conn net.Conn) error { return a.meet(conn, true, nil) }

func (a *Agent) meet(conn net.Conn, controls bool, up func(*Session)) error {
	defer conn.Close()
	reader, writer := openflow.NewReader(conn, 0), openflow.NewWriter(conn)
	if err := greet(conn, reader, writer); err != nil {
		return err
	}
	c := &connPeer{conn: conn, wake: make(chan struct{}, 1)}
	c.drained.L = &c.mu
	s := a.join(c, controls)
	if s == nil {
		return errors.New("the switch is gone")
	}
	defer s.Close()
	if up != nil {
		up(s)
	}
	done := make(chan struct{})
	go func() { defer close(done); c.write() }()
	err := c.read(s, reader, a.opt.Inactivity)
	s.Close()
	<-done
	if c.failed != nil && !errors.Is(c.failed, net.ErrClosed) {
		return c.failed
	}
	return err
}

// greet says HELLO and finds a version in common (section 6.3.1).
func greet(conn net.Conn, r *openflow.Reader, w *openflow.Writer) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	own := &openflow.Hello{Versions: openflow.Versions(openflow.Version)}
	sent := make(chan error, 1) // both may say HELLO before they listen
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

// connPeer is a controller behind a connection. What it is sent gathers while it is written to.
type connPeer struct {
	conn   net.Conn
	failed error // of the writer; read when that is done

	mu      sync.Mutex
	drained sync.Cond
	buf     []byte
	spare   []byte
	closed  bool
	dropped uint64
	wake    chan struct{}
}

// Reply is of Peer.
func (c *connPeer) Reply(m openflow.Message) {
	c.mu.Lock()
	if reply, ok := m.(*openflow.MultipartReply); ok {
		c.buf = reply.AppendParts(c.buf)
	} else {
		c.buf = m.AppendTo(c.buf)
	}
	c.mu.Unlock()
	c.stir()
}

// Asynchronous is of Peer.
func (c *connPeer) Asynchronous(m openflow.Message) {
	c.mu.Lock()
	if _, isPacket := m.(*openflow.PacketIn); isPacket && len(c.buf) > asyncRoom {
		c.dropped++
	} else {
		c.buf = m.AppendTo(c.buf)
	}
	c.mu.Unlock()
	c.stir()
}

// Closed is of Peer.
func (c *connPeer) Closed() {
	c.mu.Lock()
	c.closed = true
	c.drained.Broadcast()
	c.mu.Unlock()
	c.stir()
}

func (c *connPeer) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write sends what gathers until the session is closed, and then what is left.
func (c *connPeer) write() {
	defer c.conn.Close()
	for range c.wake {
		for {
			c.mu.Lock()
			out, closed := c.buf, c.closed
			c.buf, c.spare = c.spare[:0], nil
			c.drained.Broadcast()
			c.mu.Unlock()
			if len(out) == 0 && closed {
				return
			}
			if len(out) == 0 {
				c.spare = out // what is gathered in is another room than what is sent
				break
			}
			if c.failed = c.send(out); c.failed != nil {
				return
			}
			if c.spare = out[:0]; cap(out) > asyncRoom {
				c.spare = nil // a great reply was the exception
			}
		}
	}
}

func (c *connPeer) send(b []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}

// wait waits until there is room for replies, and returns how long it took.
func (c *connPeer) wait() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := time.Now()
	for len(c.buf) > replyRoom && !c.closed {
		c.drained.Wait()
	}
	return time.Since(start)
}

// read handles messages until the connection ends. A silent peer is asked whether it lives (section 6.3.4); parts of a message that does
// not end are no sign of it.
func (c *connPeer) read(s *Session, r *openflow.Reader, inactivity time.Duration) error {
	asked := false
	for until := time.Now().Add(inactivity); ; {
		until = until.Add(c.wait())
		if err := c.conn.SetReadDeadline(until); err != nil {
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

// Close stops listening, and waits until it has.
func (l *listener) Close() {
	l.Listener.Close()
	<-l.done
}

// Serve takes connections of programs that look in, like ovs-ofctl, until the listener is closed or the
// agent is. They may do all that a controller may, but are none: they are sent no packets before they
// have asked for them by SET_CONFIG, and a switch that only they are connected to is without control.
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
	for {
		conn, err := accept.Next(in, nil)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		a.group.Go(func() { _ = a.meet(conn, false, nil) })
	}
}

// Dial connects by a target's network and address, from the network that the thread is in.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: handshakeTime, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
}
