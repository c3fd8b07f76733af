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

func muxConfig(waiting int) *yamux.Config {
	c := yamux.DefaultConfig()
	silent := patience.Stream.Duration()
	c.KeepAliveInterval, c.ConnectionWriteTimeout, c.LogOutput = silent/2, silent, io.Discard
	c.AcceptBacklog, c.StreamOpenTimeout = waiting, 0
	return c
}

// dialled makes the end of many connections within one that asked for that one; of the other end's
// so many may wait. accepted makes the other end.
func dialled(conn io.ReadWriteCloser, waiting int) (*yamux.Session, error) {
	return yamux.Client(asked{conn, &pings{}}, muxConfig(waiting))
}

func accepted(conn io.ReadWriteCloser) (*yamux.Session, error) {
	return yamux.Server(asked{conn, &pings{}}, muxConfig(mostWaiting))
}

// Relay is the part of yamux that others need: many connections within one.
type Relay struct{ *yamux.Session }

// Dialled makes the end of a relay that asked for the connection; Accepted makes the other.
func Dialled(conn net.Conn) (Relay, error) {
	s, err := dialled(conn, mostWaiting)
	return Relay{s}, err
}

// Accepted makes the end of a relay that was asked for the connection.
func Accepted(conn net.Conn) (Relay, error) {
	s, err := accepted(conn)
	return Relay{s}, err
}

// asked is a connection whose other end may not ask for a sign of life without end: each answer
// waits, in a goroutine of yamux's, until the other end reads it.
type asked struct {
	io.ReadWriteCloser
	pings *pings
}

func (a asked) Read(b []byte) (int, error) {
	n, err := a.ReadWriteCloser.Read(b)
	if wrong := a.pings.look(b[:n], time.Now()); wrong != nil {
		return 0, wrong
	}
	return n, err
}

// pings counts those among frames: https://github.com/hashicorp/yamux/blob/master/spec.md
type pings struct {
	header [12]byte
	have   int    // bytes of the header
	skip   uint32 // bytes of data that come first
	since  time.Time
	seen   int // since then
}

// mostPings is how many signs of life may be asked for in a time in which two are usual.
const mostPings, pingTime = 1000, 10 * time.Second

func (p *pings) look(b []byte, now time.Time) error {
	const data, ping, syn = 0, 2, 1
	for len(b) > 0 {
		if p.skip > 0 {
			n := min(len(b), int(p.skip))
			b, p.skip = b[n:], p.skip-uint32(n)
			continue
		}
		n := copy(p.header[p.have:], b)
		b, p.have = b[n:], p.have+n
		if p.have < len(p.header) {
			return nil
		}
		p.have = 0
		switch kind, flags := p.header[1], binary.BigEndian.Uint16(p.header[2:]); {
		case kind == data:
			p.skip = binary.BigEndian.Uint32(p.header[8:])
		case kind == ping && flags&syn != 0:
			if now.Sub(p.since) > pingTime {
				p.since, p.seen = now, 0
			}
			if p.seen++; p.seen > mostPings {
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
