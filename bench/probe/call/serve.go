package call

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"trivet.dev/trivet/internal/fib"
	"trivet.dev/trivet/internal/patience"
)

// mostBytes is how long a stream may be.
const mostBytes = 1 << 20

// atOnce is how many calls a program makes at the same time.
const atOnce = 64

// Serve answers the calls of others, and makes those that lines of its input ask for, until its
// input ends.
func Serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	var h Hello
	if !lines.Scan() {
		return errors.New("a caller reads its name from standard input")
	}
	if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
		return fmt.Errorf("a caller is told its name by a line of JSON: %w", err)
	}
	s := &server{hello: h}
	listens, err := s.listen()
	if err != nil {
		return err
	}
	answers := json.NewEncoder(out)
	if err := answers.Encode(listens); err != nil {
		return err
	}
	echoes := [2]*echoes{openEchoes(false), openEchoes(true)}
	for lines.Scan() {
		var calls []Call
		if err := json.Unmarshal(lines.Bytes(), &calls); err != nil {
			return fmt.Errorf("calls are told by a line of JSON: %w", err)
		}
		if err := answers.Encode(s.try(calls, echoes)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// brief is how long a brief call waits: TCP, and hosts that ask for a neighbour's address, try
// again after a second.
const brief = 1500 * time.Millisecond

// server is a program in a node.
type server struct{ hello Hello }

// try makes calls.
func (s *server) try(calls []Call, echoes [2]*echoes) []Answer {
	out := make([]Answer, len(calls))
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, c := range calls {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			out[i] = s.call(c, echoes[family(c.To)])
		})
	}
	group.Wait()
	return out
}

func family(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}

// call calls in all ways at once.
func (s *server) call(c Call, by *echoes) (a Answer) {
	ctx, cancel := patience.Reply.Longer(c.Longer).Context(context.Background())
	if c.Brief { // however busy the machine is
		ctx, cancel = context.WithTimeout(ctx, brief+c.Longer)
	}
	defer cancel()
	by.forget(c.To)
	var group sync.WaitGroup
	group.Go(func() { a.ICMP = by.call(ctx, c) })
	if c.TCP != 0 {
		group.Go(func() { a.TCP = s.severally(ctx, c, s.stream) })
	}
	if c.UDP != 0 {
		group.Go(func() { a.UDP = s.severally(ctx, c, s.datagram) })
	}
	group.Wait()
	for proto, o := range map[byte]*Outcome{1: a.ICMP, 6: a.TCP, 17: a.UDP} {
		if o != nil && !o.OK && o.By == "" {
			if e, ok := by.errorFor(c.To, proto); ok {
				o.From, o.Why = e.from, e.says
			}
		}
	}
	if a.OK() {
		return a
	}
	if way, err := fib.To(c.To); err == nil {
		a.Way = way
	}
	if c.Trace > 0 && !a.ICMP.OK {
		a.Hops = by.trace(c)
	}
	return a
}

// severally calls from several ports, all of which must get an answer: routers choose among equal
// paths by ports.
func (s *server) severally(ctx context.Context, c Call, one func(context.Context, Call) Outcome) *Outcome {
	outcomes := make([]Outcome, max(1, c.Sources))
	var group sync.WaitGroup
	for i := range outcomes {
		group.Go(func() { outcomes[i] = one(ctx, c) })
	}
	group.Wait()
	var bad Outcome
	failed := 0
	for _, o := range outcomes {
		if !o.OK {
			failed++
			bad = o
		}
	}
	switch {
	case failed == 0:
		return &Outcome{OK: true}
	case failed < len(outcomes) && bad.By == "":
		bad.Why = strings.TrimSpace(fmt.Sprintf("%s from %d of %d ports", bad.Why, failed, len(outcomes)))
	}
	return &bad
}

// listen listens for both families.
func (s *server) listen() (l Listens, err error) {
	for v6 := range 2 {
		suffix := []string{"4", "6"}[v6]
		for _, port := range []uint16{s.hello.Port, 0} {
			at := ":" + strconv.Itoa(int(port))
			if t, err := net.Listen("tcp"+suffix, at); err == nil {
				l.TCP[v6] = uint16(t.Addr().(*net.TCPAddr).Port)
				go s.accept(t)
				break
			}
		}
		for _, port := range []uint16{s.hello.Port, 0} {
			at := ":" + strconv.Itoa(int(port))
			if u, err := net.ListenPacket("udp"+suffix, at); err == nil {
				l.UDP[v6] = uint16(u.LocalAddr().(*net.UDPAddr).Port)
				go s.datagrams(u, v6 == 1)
				break
			}
		}
	}
	if l == (Listens{}) {
		return l, errors.New("it can listen at no port")
	}
	return l, nil
}

// What goes over a stream or in a packet: the token; in a stream how many bytes follow; the bytes.
// The answer: the token, the length of the name and the name; the same bytes.

// answer is how an answer begins.
func (s *server) answer() []byte {
	b := append([]byte(s.hello.Token), byte(len(s.hello.Name)))
	return append(b, s.hello.Name...)
}

func (s *server) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go s.echo(conn)
	}
}

// longestStream is when a stream is given up by who answers: who calls waits for less.
const longestStream = 5 * time.Minute

func (s *server) echo(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(longestStream))
	head := make([]byte, len(s.hello.Token)+4)
	if _, err := io.ReadFull(conn, head); err != nil || string(head[:len(s.hello.Token)]) != s.hello.Token {
		return
	}
	n := binary.BigEndian.Uint32(head[len(s.hello.Token):])
	if n > mostBytes {
		return
	}
	if _, err := conn.Write(s.answer()); err != nil {
		return
	}
	if _, err := io.CopyN(conn, conn, int64(n)); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, conn) // until the caller has closed its end
}

// datagrams answers packets from the address to which each came.
func (s *server) datagrams(conn net.PacketConn, v6 bool) {
	buf := make([]byte, 1<<16)
	token := s.hello.Token
	reply := func(n int) []byte {
		if n < len(token) || string(buf[:len(token)]) != token {
			return nil
		}
		return append(s.answer(), buf[len(token):n]...)
	}
	if v6 {
		p := ipv6.NewPacketConn(conn)
		_ = p.SetControlMessage(ipv6.FlagDst, true)
		for {
			n, at, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			if b := reply(n); b != nil && at != nil {
				_, _ = p.WriteTo(b, &ipv6.ControlMessage{Src: at.Dst}, from)
			}
		}
	}
	p := ipv4.NewPacketConn(conn)
	_ = p.SetControlMessage(ipv4.FlagDst, true)
	for {
		n, at, from, err := p.ReadFrom(buf)
		if err != nil {
			return
		}
		if b := reply(n); b != nil && at != nil {
			_, _ = p.WriteTo(b, &ipv4.ControlMessage{Src: at.Dst}, from)
		}
	}
}
