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

// mostWaiting limits the connections from another machine that wait to be accepted: a thousand
// switches may connect at once.
const mostWaiting = 4096

func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	silent := patience.Stream.Duration()
	c.KeepAliveInterval, c.ConnectionWriteTimeout, c.LogOutput = silent/2, silent, io.Discard
	c.AcceptBacklog, c.StreamOpenTimeout = mostWaiting, 0
	return c
}

// dialled multiplexes a connection at the end that initiated it, accepted at the other end. If
// connects is false, the other end may not open streams: the connection fails if it tries.
func dialled(conn io.ReadWriteCloser, connects bool) (*yamux.Session, error) {
	c := muxConfig()
	if !connects { // the remote program may hang without accepting a stream
		c.StreamOpenTimeout = patience.Answer.Duration()
	}
	return yamux.Client(watched{conn, &frames{connects: connects}}, c)
}

func accepted(conn io.ReadWriteCloser, c *yamux.Config) (*yamux.Session, error) {
	return yamux.Server(watched{conn, &frames{connects: true}}, c)
}

// Relay multiplexes many connections over one; it is the part of yamux that other packages need.
type Relay struct{ *yamux.Session }

// Dialled makes the initiating end of a relay, Accepted the other one.
func Dialled(conn net.Conn) (Relay, error) {
	s, err := dialled(conn, true)
	return Relay{s}, err
}

// Accepted makes the accepting end of a relay. A stream that only this end has closed is dropped
// after a while, as everything received on it is kept in memory.
func Accepted(conn net.Conn) (Relay, error) {
	c := muxConfig()
	c.StreamCloseTimeout = patience.Stream.Duration()
	s, err := accepted(conn, c)
	return Relay{s}, err
}

// watched is a connection that enforces limits on the other end beyond the protocol's.
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

// frames parses yamux frame headers: https://github.com/hashicorp/yamux/blob/master/spec.md
type frames struct {
	connects bool // the other end may open streams

	header [12]byte
	have   int    // bytes of the header
	skip   uint32 // bytes of data before the next header
	since  time.Time
	pings  int // since then
}

// mostPings limits the pings received per pingTime, in which two are usual: each answer occupies a
// goroutine of yamux's until the other end reads it.
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

// pipes combines two pipes into a connection. close must interrupt a pending Read: yamux waits for
// it, and so do yamux's streams.
type pipes struct {
	io.Reader
	io.Writer
	close func()
}

func (p pipes) Close() error {
	p.close()
	return nil
}
