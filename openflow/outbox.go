package openflow

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An Outbox queues messages for a connection, and sends them from a goroutine of its own, which
// must call Run. So senders never wait for a peer that does not read. If the queue exceeds a
// sender's limit, or the peer accepts nothing for WriteTime, the connection ends with
// ErrNotReading. An Outbox is safe for concurrent use.
type Outbox struct {
	Sent func(n int) // called with the number of bytes that the connection has accepted; to be set before the first Add

	conn net.Conn
	raw  syscall.RawConn // nil: not a socket

	mu      sync.Mutex // guards what follows
	work    sync.Cond  // wakes Run
	drained sync.Cond  // wakes Wait
	buf     []byte
	spare   []byte
	counted int  // bytes in buf that were added with a limit
	writing bool // Run is writing
	held    bool // small amounts wait for Release
	until   time.Time
	closed  bool
	err     error
}

// WriteTime is how long a peer may accept no data; drainTime is how long sending may go on after
// Close, in all.
const (
	WriteTime = 10 * time.Second
	drainTime = time.Second
)

// ErrNotReading means that the peer does not read what is sent to it.
var ErrNotReading = errors.New("the peer does not read")

// NewOutbox returns an Outbox for a connection, which Run closes in the end.
func NewOutbox(conn net.Conn) *Outbox {
	o := &Outbox{conn: conn}
	o.work.L, o.drained.L = &o.mu, &o.mu
	if socket, ok := conn.(syscall.Conn); ok {
		o.raw, _ = socket.SyscallConn()
	}
	return o
}

// Add queues a message, or all parts of a multipart reply; it never waits for the peer. most limits
// the queued bytes of messages added with a limit; 0: this one has none. An error means that the
// connection has ended, or that the message is too long.
func (o *Outbox) Add(m Message, most int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	before := len(o.buf)
	if reply, ok := m.(*MultipartReply); ok {
		o.buf = reply.AppendParts(o.buf)
	} else {
		o.buf = m.AppendTo(o.buf)
	}
	if len(o.buf) == before {
		return fmt.Errorf("openflow: %v is longer than %d bytes", m.Type(), MaxLength)
	}
	if most > 0 {
		if o.counted += len(o.buf) - before; o.counted > most {
			return o.fail(fmt.Errorf("%w: more than %d MiB are queued for it", ErrNotReading, most>>20))
		}
	}
	if !o.held || len(o.buf) >= chunkLen {
		o.work.Signal()
	}
	return nil
}

// Hold delays sending until Release, so that messages are sent together.
func (o *Outbox) Hold() {
	o.mu.Lock()
	o.held = true
	o.mu.Unlock()
}

// Release sends what is queued. An error means that the connection has ended.
func (o *Outbox) Release() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
	if len(o.buf) > 0 {
		o.direct()
	}
	if len(o.buf) > 0 {
		o.work.Signal()
	}
	return o.err
}

// direct writes as much as the socket accepts at once, usually everything, which saves waking Run.
// mu must be held.
func (o *Outbox) direct() {
	if o.raw == nil || o.writing || o.closed || o.err != nil {
		return
	}
	n := 0
	if err := o.raw.Control(func(fd uintptr) { n, _ = unix.Write(int(fd), o.buf) }); err != nil || n <= 0 {
		return // Run will say why
	}
	o.told(n)
	o.buf = o.buf[:copy(o.buf, o.buf[n:])]
	o.counted = min(o.counted, len(o.buf))
}

func (o *Outbox) told(n int) {
	if o.Sent != nil {
		o.Sent(n)
	}
}

// Waiting returns the number of queued bytes, without those being written.
func (o *Outbox) Waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.buf)
}

// Wait waits until at most room bytes are queued, or the connection has ended, and returns how long
// that took.
func (o *Outbox) Wait(room int) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	start := time.Now()
	for len(o.buf) > room && !o.closed && o.err == nil {
		o.drained.Wait()
	}
	return time.Since(start)
}

// Close makes Run send what is queued, for at most a second, and then end.
func (o *Outbox) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.closed, o.held, o.until = true, false, time.Now().Add(drainTime)
	_ = o.conn.SetWriteDeadline(o.until)
	o.work.Signal()
	o.drained.Broadcast()
}

// Err returns why nothing can be sent any more; nil: it can, or everything was sent before Close.
func (o *Outbox) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Run sends messages until Close is called or the connection fails, and then closes the connection.
func (o *Outbox) Run() {
	defer o.conn.Close()
	for out := o.take(); out != nil; out = o.take() {
		for rest := out; len(rest) > 0; {
			part := rest[:min(len(rest), chunkLen)]
			rest = rest[len(part):]
			if o.deadline() != nil {
				return
			}
			n, err := o.conn.Write(part)
			o.told(n)
			if err != nil {
				o.end(err)
				return
			}
		}
		o.mu.Lock()
		o.writing = false
		if o.spare = out[:0]; cap(out) > 4*chunkLen {
			o.spare = nil // do not keep an unusually large buffer
		}
		o.mu.Unlock()
	}
}

// take waits for data to send and returns it; nil: there will be none.
func (o *Outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && (len(o.buf) == 0 || o.held && len(o.buf) < chunkLen) {
		if o.closed {
			return nil
		}
		o.work.Wait()
	}
	if o.err != nil {
		return nil
	}
	out := o.buf
	o.buf, o.spare, o.counted, o.writing = o.spare[:0], nil, 0, true
	o.drained.Broadcast()
	return out
}

// deadline sets the deadline for the next write. An error means that there is nothing left to do.
func (o *Outbox) deadline() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && !o.closed {
		o.err = o.conn.SetWriteDeadline(time.Now().Add(WriteTime))
	}
	return o.err
}

// end records a failed write.
func (o *Outbox) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) && !o.closed {
		err = fmt.Errorf("%w: it has accepted nothing for %v", ErrNotReading, WriteTime)
	}
	if o.err == nil {
		_ = o.fail(err)
	}
}

// fail ends the connection without waiting; Run closes it. mu must be held.
func (o *Outbox) fail(err error) error {
	o.err, o.buf, o.spare = err, nil, nil
	_ = o.conn.SetWriteDeadline(time.Unix(1, 0))
	o.work.Signal()
	o.drained.Broadcast()
	return err
}
