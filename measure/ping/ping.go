// Package ping sends ICMP echo requests and measures round trip times.
package ping

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Pinger sends ICMP echo requests from one host. It holds a socket in the namespace in which it
// was opened. It is safe for concurrent use.
type Pinger struct {
	file *os.File
	v6   bool

	mu      sync.Mutex
	waiting map[uint16]*echo
	next    uint16
}

type echo struct {
	sent  time.Time
	reply chan time.Duration
}

// Open opens a Pinger in the network namespace of the calling thread. It uses ICMP datagram
// sockets, for which the kernel matches replies.
func Open(v6 bool) (*Pinger, error) {
	family, proto := unix.AF_INET, unix.IPPROTO_ICMP
	if v6 {
		family, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return nil, fmt.Errorf("open an ICMP socket: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20)
	p := &Pinger{file: os.NewFile(uintptr(fd), "icmp"), v6: v6, waiting: map[uint16]*echo{}}
	go p.receive()
	return p, nil
}

// Whole sets the don't-fragment flag on IPv4 requests, regardless of the path MTU that the kernel
// has learned (RFC 1191).
func (p *Pinger) Whole() error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = conn.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	})
	return errors.Join(err, set)
}

// Close ends the pinger.
func (p *Pinger) Close() error { return p.file.Close() }

// MaxSize is the maximum payload of an echo request, in bytes.
const MaxSize = 65507

// Ping sends one echo request with size bytes of payload, and waits for the reply until ctx ends.
// The round trip time ends when the kernel has received the reply. An error in sending, such as a
// missing route, is returned at once.
func (p *Pinger) Ping(ctx context.Context, to netip.Addr, size int) (rtt time.Duration, err error) {
	e, done, err := p.begin(to, size)
	defer done()
	if err != nil {
		return 0, err
	}
	select {
	case rtt := <-e.reply:
		return rtt, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Arrives sends one echo request with size bytes of payload, and reports whether a reply comes
// within while, or else before the reply to an empty request sent then. This allows for a busy
// machine, on which this process may not run for an unknown time.
func (p *Pinger) Arrives(ctx context.Context, to netip.Addr, size int, while time.Duration) bool {
	e, done, err := p.begin(to, size)
	defer done()
	if err != nil {
		return false
	}
	select {
	case <-e.reply:
		return true
	case <-ctx.Done():
		return false
	case <-time.After(while):
	}
	_, _ = p.Ping(ctx, to, 0)
	select {
	case <-e.reply:
		return true
	default:
		return false
	}
}

// begin sends an echo request, whose reply is expected until done is called. The caller must call
// done, even after an error.
func (p *Pinger) begin(to netip.Addr, size int) (e *echo, done func(), err error) {
	e = &echo{reply: make(chan time.Duration, 1)}
	p.mu.Lock()
	p.next++
	seq := p.next
	p.waiting[seq] = e
	p.mu.Unlock()
	done = func() {
		p.mu.Lock()
		delete(p.waiting, seq)
		p.mu.Unlock()
	}
	msg := make([]byte, 8+size)
	msg[0] = 8 // echo request (RFC 792)
	if p.v6 {
		msg[0] = 128 // RFC 4443, section 4.1
	}
	binary.BigEndian.PutUint16(msg[6:], seq)
	return e, done, p.send(e, to, msg)
}

func (p *Pinger) send(e *echo, to netip.Addr, msg []byte) error {
	var sa unix.Sockaddr = &unix.SockaddrInet4{}
	if p.v6 {
		sa = &unix.SockaddrInet6{Addr: to.As16()}
	} else {
		sa = &unix.SockaddrInet4{Addr: to.As4()}
	}
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	err = conn.Write(func(fd uintptr) bool {
		p.mu.Lock()
		e.sent = time.Now()
		p.mu.Unlock()
		sendErr = unix.Sendto(int(fd), msg, 0, sa)
		return sendErr != unix.EAGAIN
	})
	if err == nil {
		err = sendErr
	}
	return err
}

func (p *Pinger) receive() {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	buf, oob := make([]byte, 65536), make([]byte, 128)
	for {
		var n, oobn int
		var recvErr error
		err := conn.Read(func(fd uintptr) bool {
			n, oobn, _, _, recvErr = unix.Recvmsg(int(fd), buf, oob, 0)
			return recvErr != unix.EAGAIN
		})
		if err != nil {
			return // closed
		}
		if recvErr != nil || n < 8 {
			continue
		}
		p.answer(buf[:n], received(oob[:oobn]))
	}
}

func (p *Pinger) answer(msg []byte, at time.Time) {
	if kind := msg[0]; kind != 0 && kind != 129 { // echo reply
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.waiting[binary.BigEndian.Uint16(msg[6:])]; e != nil {
		select {
		case e.reply <- max(0, at.Sub(e.sent.Round(0))): // wall clock against wall clock
		default: // a duplicate
		}
	}
}

// received returns the kernel's receive timestamp (SO_TIMESTAMPNS), or the current time.
func received(oob []byte) time.Time {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err == nil {
		for _, m := range msgs {
			if m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
				ts := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
				return time.Unix(ts.Unix())
			}
		}
	}
	return time.Now().Round(0)
}

// Options configure pings.
type Options struct {
	Count    int           // per pair; at least 1
	Size     int           // bytes of payload
	Interval time.Duration // between two requests of a pair; 0: each waits for the previous reply
	Timeout  time.Duration // for each reply
	Unpaced  bool          // for Pairs: all pairs start at once
	Heard    func(Heard)   // called for each request and reply, possibly concurrently; may be nil
}

// Heard reports a request that was sent, numbered from 1, or its reply.
type Heard struct {
	Seq   int
	Reply bool
	RTT   time.Duration
}

func (o Options) heard(h Heard) {
	if o.Heard != nil {
		o.Heard(h)
	}
}

// PairResult is the result of pinging one pair.
type PairResult struct {
	From     string    `json:"from"`
	To       string    `json:"to"`
	Sent     int       `json:"sent"`
	Received int       `json:"received"`
	RTT      []float64 `json:"rtt_ms,omitempty" doc:"Round trip times of the replies, in milliseconds, in the order sent"`
	Error    string    `json:"error,omitempty"`
}

// PingPair pings one pair: a request every Interval, whether or not the last one was answered;
// without an interval, each request waits for the previous reply or its timeout.
func (p *Pinger) PingPair(ctx context.Context, to netip.Addr, o Options) (r PairResult) {
	type outcome struct {
		rtt time.Duration
		err error
	}
	outcomes := make([]outcome, o.Count)
	var group sync.WaitGroup
	for i := range outcomes {
		if ctx.Err() != nil {
			break
		}
		r.Sent++
		o.heard(Heard{Seq: i + 1})
		answered := make(chan struct{})
		group.Go(func() {
			defer close(answered)
			one, cancel := context.WithTimeout(ctx, o.Timeout)
			defer cancel()
			if outcomes[i].rtt, outcomes[i].err = p.Ping(one, to, o.Size); outcomes[i].err == nil {
				o.heard(Heard{Seq: i + 1, Reply: true, RTT: outcomes[i].rtt})
			}
		})
		if i+1 == o.Count {
			break
		}
		next := answered
		if o.Interval > 0 {
			next = nil
		}
		select {
		case <-next:
		case <-after(o.Interval):
		case <-ctx.Done():
		}
	}
	group.Wait()
	for _, got := range outcomes[:r.Sent] {
		switch {
		case got.err == nil:
			r.Received++
			r.RTT = append(r.RTT, float64(got.rtt)/1e6)
		case !errors.Is(got.err, context.DeadlineExceeded) && !errors.Is(got.err, context.Canceled):
			r.Error = got.err.Error()
		}
	}
	return r
}

// after is time.After; without a duration it returns nil, which never receives.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

// Summary describes round trip times, in milliseconds.
type Summary struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Mean   float64 `json:"mean"`
	Max    float64 `json:"max"`
	SD     float64 `json:"sd" doc:"Standard deviation of the sample"`
}

// Summarize describes a sample; nil: it is empty.
func Summarize(ms []float64) *Summary {
	if len(ms) == 0 {
		return nil
	}
	sorted := slices.Clone(ms)
	slices.Sort(sorted)
	n := len(sorted)
	s := &Summary{Min: sorted[0], Max: sorted[n-1], Median: (sorted[(n-1)/2] + sorted[n/2]) / 2}
	for _, v := range sorted {
		s.Mean += v / float64(n)
	}
	for _, v := range sorted {
		s.SD += (v - s.Mean) * (v - s.Mean)
	}
	s.SD = math.Sqrt(s.SD / float64(max(1, n-1)))
	return s
}
