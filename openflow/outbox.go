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

// An Outbox sends messages over a connection by a goroutine of its own, which runs Run. So nobody
// waits for a peer that does not read: what is sent to it waits, in its order, up to a limit of who
// sends. The connection ends with ErrNotReading where that is exceeded, or where the peer takes
// nothing for WriteTime.
type Outbox struct {
	Sent func(n int) // told how many bytes the connection has taken, if it is set before the first are added

	conn net.Conn
	raw  syscall.RawConn // nil: it is no socket

	mu      sync.Mutex // of what follows
	work    sync.Cond  // for Run
	drained sync.Cond  // for Wait
	buf     []byte
	spare   []byte
	counted int  // of the bytes in buf those that have a limit
	writing bool // Run is
	held    bool // what is added waits for Release, but for great amounts
	until   time.Time
	closed  bool
	err     error
}

// WriteTime is how long a peer may take nothing of what is sent to it; drainTime how long after
// Close.
const (
	WriteTime = 10 * time.Second
	drainTime = time.Second
)

// ErrNotReading is that the other end of a connection does not take what is sent to it.
var ErrNotReading = errors.New("the peer does not read")

// NewOutbox returns an Outbox for a connection, which it closes in the end.
func NewOutbox(conn net.Conn) *Outbox {
	o := &Outbox{conn: conn}
	o.work.L, o.drained.L = &o.mu, &o.mu
	if socket, ok := conn.(syscall.Conn); ok {
		o.raw, _ = socket.SyscallConn()
	}
	return o
}

// Add adds a message, of a multipart reply all its parts; it never waits for the peer. most is how
// many bytes that were added with such a limit may wait (0: there is none). The error is that the
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

// Hold keeps what is added until Release, so that it goes out together.
func (o *Outbox) Hold() {
	o.mu.Lock()
	o.held = true
	o.mu.Unlock()
}

// Release lets go what waits. The error is that the connection has ended.
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

// direct writes as much as the socket takes at once, which is all but seldom: it saves waking Run.
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

// Waiting is how many bytes wait, without what is being written.
func (o *Outbox) Waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.buf)
}

// Wait waits until no more than that many bytes wait, or the connection has ended, and returns how
// long it took.
func (o *Outbox) Wait(room int) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	start := time.Now()
	for len(o.buf) > room && !o.closed && o.err == nil {
		o.drained.Wait()
	}
	return time.Since(start)
}

// Close lets Run send what waits, for a second at most, and end.
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

// Err is why nothing can be sent any more; nil: it can, or it has all been sent.
func (o *Outbox) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Run sends until Close, or until the connection fails, and closes it.
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
			o.spare = nil // a great amount was the exception
		}
		o.mu.Unlock()
	}
}

// take waits for something to send and returns it; nil: there will be nothing.
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

// deadline says until when a part is to be taken. The error is why it need not be sent.
func (o *Outbox) deadline() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && !o.closed {
		o.err = o.conn.SetWriteDeadline(time.Now().Add(WriteTime))
	}
	return o.err
}

// end takes down why something could not be sent.
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

// fail ends the connection without waiting for anything; Run closes it. mu must be held.
func (o *Outbox) fail(err error) error {
	o.err, o.buf, o.spare = err, nil, nil
	_ = o.conn.SetWriteDeadline(time.Unix(1, 0))
	o.work.Signal()
	o.drained.Broadcast()
	return err
}
