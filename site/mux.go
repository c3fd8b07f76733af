package site

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"

	"trivet.dev/trivet/internal/patience"
)

// mostWaiting is how many connections of another machine may wait to be accepted: a thousand
// switches may connect at once.
const mostWaiting = 4096

func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	silent := patience.Stream.Duration()
	c.KeepAliveInterval, c.ConnectionWriteTimeout, c.LogOutput = silent/2, silent, io.Discard
	c.AcceptBacklog, c.StreamOpenTimeout = mostWaiting, 0
	return c
}

// dialled makes the end of many connections within one that asked for that one, accepted the other
// end. One to which nothing connects ends where the other end tries.
func dialled(conn io.ReadWriteCloser, connects bool) (*yamux.Session, error) {
	c := muxConfig()
	if !connects { // a program that takes no connection hangs
		c.StreamOpenTimeout = patience.Answer.Duration()
	}
	return yamux.Client(watched{conn, &frames{connects: connects}}, c)
}

func accepted(conn io.ReadWriteCloser, c *yamux.Config) (*yamux.Session, error) {
	return yamux.Server(watched{conn, &frames{connects: true}}, c)
}

// Relay is the part of yamux that others need: many connections within one.
type Relay struct{ *yamux.Session }

// Dialled makes the end of a relay that asked for the connection; Accepted makes the other.
func Dialled(conn net.Conn) (Relay, error) {
	s, err := dialled(conn, true)
	return Relay{s}, err
}

// Accepted makes the end of a relay that was asked for the connection. What it has closed and the
// other end has not is not kept for long: all that has come of it is kept, too.
func Accepted(conn net.Conn) (Relay, error) {
	c := muxConfig()
	c.StreamCloseTimeout = patience.Stream.Duration()
	s, err := accepted(conn, c)
	return Relay{s}, err
}

// watched is a connection whose other end may not do all that the protocol lets it.
type watched struct {
	io.ReadWriteCloser
	frames *frames
}

func (w watched) Read(b []byte) (int, error) {
	n, err := w.ReadWriteCloser.Read(b)
	if wrong := w.frames.look(b[:n], time.Now()); wrong != nil {
		return 0, wrong
	}
	return n, err
}

// frames looks at those of yamux: https://github.com/hashicorp/yamux/blob/master/spec.md
type frames struct {
	connects bool // the other end may

	header [12]byte
	have   int    // bytes of the header
	skip   uint32 // bytes of data that come first
	since  time.Time
	pings  int // since then
}

// mostPings is how many signs of life may be asked for in a time in which two are usual: each
// answer waits, in a goroutine of yamux's, until the other end reads it.
const mostPings, pingTime = 1000, 10 * time.Second

func (f *frames) look(b []byte, now time.Time) error {
	const data, ping, syn = 0, 2, 1
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(len(b), int(f.skip))
			b, f.skip = b[n:], f.skip-uint32(n)
			continue
		}
		n := copy(f.header[f.have:], b)
		b, f.have = b[n:], f.have+n
		if f.have < len(f.header) {
			return nil
		}
		f.have = 0
		kind, flags := f.header[1], binary.BigEndian.Uint16(f.header[2:])
		if kind == data {
			f.skip = binary.BigEndian.Uint32(f.header[8:])
		}
		switch {
		case kind != ping && flags&syn != 0 && !f.connects:
			return errors.New("it connects to this machine, which serves nothing")
		case kind == ping && flags&syn != 0:
			if now.Sub(f.since) > pingTime {
				f.since, f.pings = now, 0
			}
			if f.pings++; f.pings > mostPings {
				return errors.New("it asks for signs of life without end")
			}
		}
	}
	return nil
}

// pipes are a connection of two. Its close must end a read under way: yamux waits for that, and its
// streams for yamux.
type pipes struct {
	io.Reader
	io.Writer
	close func()
}

func (p pipes) Close() error {
	p.close()
	return nil
}
