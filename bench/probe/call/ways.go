package call

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/words"
)

// pattern is content of which no part is like another.
func pattern(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(rand.Uint32())})
	_, _ = r.Read(b)
	return b
}

// stream calls by TCP: a handshake, a pattern there and back, and an end on both sides.
func (s *server) stream(ctx context.Context, c Call) Outcome {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if c.Segment > 0 {
			err = raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, c.Segment)
			})
		}
		return err
	}}
	conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(c.To, c.TCP).String())
	if err != nil {
		return failed(ctx, err, "no connection")
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	sent := pattern(min(c.Bytes, mostBytes))
	go func() {
		head := binary.BigEndian.AppendUint32([]byte(s.hello.Token), uint32(len(sent)))
		_, err := conn.Write(append(head, sent...))
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			_ = tcp.CloseWrite()
		}
	}()
	head := make([]byte, len(s.hello.Token)+1)
	if _, err := io.ReadFull(conn, head); err != nil {
		return failed(ctx, err, "a connection, but no answer over it")
	}
	name := make([]byte, head[len(head)-1])
	if _, err := io.ReadFull(conn, name); err != nil {
		return failed(ctx, err, "a connection, but no answer over it")
	}
	if o, wrong := s.other(head, name, c); wrong {
		return o
	}
	got := make([]byte, len(sent))
	n, err := io.ReadFull(conn, got)
	switch {
	case !bytes.Equal(got[:n], sent[:n]):
		return Outcome{Why: "what comes back is not what was sent"}
	case err != nil:
		return failed(ctx, err, fmt.Sprintf("the stream stops after %d of %d bytes", n, len(sent)))
	}
	if n, err := conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return failed(ctx, err, "the stream does not end")
	}
	return Outcome{OK: true}
}

// other says whether somebody else answers.
func (s *server) other(head, name []byte, c Call) (Outcome, bool) {
	switch {
	case string(head[:len(s.hello.Token)]) != s.hello.Token:
		return Outcome{Why: "something else answers"}, true
	case string(name) != c.Name:
		return Outcome{By: words.Printable(string(name)), Why: "another answers"}, true
	}
	return Outcome{}, false
}

// payload is what a packet of UDP carries.
const payload = 400

// datagram calls by UDP, again and again from the same port.
func (s *server) datagram(ctx context.Context, c Call) Outcome {
	conn, err := net.Dial("udp", netip.AddrPortFrom(c.To, c.UDP).String())
	if err != nil {
		return failed(ctx, err, "")
	}
	defer conn.Close()
	content := pattern(payload)
	packet := append([]byte(s.hello.Token), content...)
	answer := make(chan Outcome, 1)
	go func() {
		buf := make([]byte, 1<<16)
		head := len(s.hello.Token) + 1
		for {
			n, err := conn.Read(buf)
			switch {
			case errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed):
				return
			case err != nil: // an error that came back; it may be one of a router that is just beginning
				time.Sleep(10 * time.Millisecond)
				continue
			case n < head || n < head+int(buf[head-1]):
				continue
			}
			name, rest := buf[head:head+int(buf[head-1])], buf[head+int(buf[head-1]):n]
			o, wrong := s.other(buf[:head], name, c)
			if !wrong {
				if o.OK = bytes.Equal(rest, content); !o.OK {
					o.Why = "what comes back is not what was sent"
				}
			}
			answer <- o
			return
		}
	}()
	return again(ctx, c, answer, func() error { _, err := conn.Write(packet); return err })
}

// again sends until there is an answer, at first often.
func again(ctx context.Context, c Call, answer <-chan Outcome, send func() error) Outcome {
	wait := time.NewTimer(0)
	defer wait.Stop()
	next := 50*time.Millisecond + c.Longer/2
	slowest := (brief + c.Longer) / time.Duration(max(1, c.Sends))
	var err error
	for sent := 0; ; {
		select {
		case o := <-answer:
			return o
		case <-ctx.Done():
			return failed(ctx, err, "")
		case <-wait.C:
			if sent < c.Sends {
				err = send()
				if errors.Is(err, unix.ECONNREFUSED) { // of the packet before
					err = send()
				}
				sent++
			}
			wait.Reset(next)
			next = max(50*time.Millisecond, min(2*next, slowest))
		}
	}
}

// failed is an outcome in words: what the kernel says of it, or what there was of an answer.
func failed(ctx context.Context, err error, nothing string) Outcome {
	var errno unix.Errno
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return Outcome{Why: "it has no route there"}
	case errors.Is(err, unix.EHOSTUNREACH):
		return Outcome{Why: "the next hop cannot be reached"}
	case errors.Is(err, unix.ECONNREFUSED):
		return Outcome{Why: "refused"}
	case errors.Is(err, unix.ECONNRESET):
		return Outcome{Why: "reset"}
	case ctx.Err() == nil && errors.As(err, &errno):
		return Outcome{Why: errno.Error()}
	}
	return Outcome{Why: nothing}
}
