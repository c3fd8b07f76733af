package packets

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Send asks for a stream of UDP packets of an exact rate.
type Send struct {
	To     netip.AddrPort `json:"to"`
	Stream uint16         `json:"stream"` // a number that tells it from others
	Size   int            `json:"size"`   // bytes of UDP payload, HeaderLen to MaxPayload
	Rate   float64        `json:"rate"`   // packets a second
	Count  int            `json:"count"`  // of packets; the stream lasts Count/Rate

	Port  uint16 `json:"port,omitempty"`  // from which it is sent; 0, or where another has it: any that is free
	Whole bool   `json:"whole,omitempty"` // a packet that is late is sent all the same, never given up

	// Uneven, of a stream that is Whole, sends each packet up to half an interval later than at an
	// exact rate, by a random sequence of the stream's number: streams of the same rate would else
	// meet at a common queue with every packet, or with none.
	Uneven bool `json:"uneven,omitempty"`

	With *Start `json:"-"` // it begins together with others; nil: by itself

	// Began is called directly before the sender is told to begin with what counts, and Ended once
	// it has said that all is sent. Where it fails Ended is called all the same, and nothing after
	// it. Both may be nil.
	Began, Ended func() `json:"-"`

	// The last packets may be of another size than the others: LargeLast of them carry Large bytes.
	Large     int `json:"large,omitempty"`
	LargeLast int `json:"large_last,omitempty"`
}

// around returns what to call before and after the stream: never both at once, and nothing after
// the end.
func (s *Send) around() (begin, end func()) {
	var turn sync.Mutex
	over := false
	call := func(f func(), last bool) func() {
		return func() {
			turn.Lock()
			defer turn.Unlock()
			if f != nil && !over {
				f()
			}
			over = over || last
		}
	}
	return call(s.Began, false), call(s.Ended, true)
}

// Limits of what may be asked for. Beyond them a number is a mistake, or does not fit into memory.
const (
	MaxRate  = 10e6
	MaxCount = 1 << 30
)

// Check says what cannot be sent.
func (s *Send) Check() error {
	switch {
	case s.Size < HeaderLen || s.Size > MaxPayload:
		return fmt.Errorf("a size of %d bytes: a packet's payload is %d (a frame of 64 bytes) to %d bytes", s.Size,
			HeaderLen, MaxPayload)
	case s.LargeLast < 0 || s.LargeLast > s.Count || s.LargeLast > 0 && (s.Large < s.Size || s.Large > MaxPayload):
		return fmt.Errorf("%d packets of %d bytes at the end of %d of %d bytes", s.LargeLast, s.Large, s.Count, s.Size)
	case !(s.Rate > 0) || s.Rate > MaxRate:
		return fmt.Errorf("a rate of %v packets/s: write more than 0 and at most 10 million", s.Rate)
	case s.Count < 1 || s.Count > MaxCount:
		return fmt.Errorf("%d packets: a stream has 1 to %d", s.Count, MaxCount)
	}
	return nil
}

// Sent is what became of it at the sender.
type Sent struct {
	Sent int `json:"sent"` // numbers 0 to Sent-1: what was offered to the kernel
	// Of Sent, what the kernel did not take: no route, a full queue of the device.
	Refused int `json:"refused"`
	// Packets that were never sent, because the sender was late by more than 5 ms.
	GivenUp int     `json:"given_up"`
	Error   string  `json:"error,omitempty"` // the first of Refused
	Began   int64   `json:"began"`           // nanoseconds since 1970
	Seconds float64 `json:"seconds"`         // from the first packet to the end of the last one's interval
	Lag     Lag     `json:"lag"`
	Ports   [2]int  `json:"ports"` // from which, and to which
}

// Rate is what the sender achieved, in packets/s.
func (s *Sent) Rate() float64 {
	if s.Seconds <= 0 {
		return 0
	}
	return float64(s.Sent) / s.Seconds
}

// Lag is how long after their time packets were sent, in seconds.
type Lag struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// lags collects lags; of quantiles it keeps every 64th at high rates.
type lags struct {
	kept  []float64
	every int
	n     int
	max   float64
}

func (l *lags) add(lag time.Duration) {
	l.max = max(l.max, lag.Seconds())
	if l.n++; l.n%l.every == 0 {
		l.kept = append(l.kept, lag.Seconds())
	}
}

func (l *lags) result() Lag {
	if len(l.kept) == 0 {
		return Lag{Max: l.max}
	}
	slices.Sort(l.kept)
	at := func(q float64) float64 { return l.kept[int(math.Ceil(q*float64(len(l.kept))))-1] }
	return Lag{P50: at(0.5), P99: at(0.99), Max: l.max}
}

// output is where a sender's packets go: the first n of a batch, whose numbers begin with first,
// stamped with the time. It returns how many were refused.
type output interface {
	send(first, n int, stamp int64) (refused int, err error)
}

// clock is a time that only goes on, and can be waited for.
type clock interface {
	now() time.Duration
	sleep(until time.Duration)
}

// monotonic is the machine's.
type monotonic struct{ start time.Time }

func (m monotonic) now() time.Duration { return time.Since(m.start) }

func (m monotonic) sleep(until time.Duration) {
	d := until - m.now()
	if d <= 0 {
		return
	}
	ts := unix.NsecToTimespec(min(d, looks).Nanoseconds())
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil) // the caller looks again
}

// drive sends slots when they are due until all are, or stop is set.
func drive(t timetable, c clock, out output, wall func() int64, stop *atomic.Bool) (s Sent, err error) {
	lag := lags{every: max(1, t.left()/100_000)}
	var first, end time.Duration
	for t.left() > 0 && !stop.Load() {
		now := c.now()
		n := t.due(now)
		if n == 0 {
			c.sleep(t.upcoming())
			continue
		}
		stamp := wall()
		if s.Began == 0 {
			s.Began, first = stamp, now
		}
		refused, err := out.send(s.Sent, n, stamp)
		if err != nil && s.Error == "" {
			s.Error = err.Error()
		}
		for i := range n {
			lag.add(t.late(now, i))
		}
		s.Sent += n
		s.Refused += refused
		t.sent(n)
		end = max(now, t.upcoming())
	}
	s.GivenUp, s.Lag, s.Seconds = t.givenUp(), lag.result(), (end - first).Seconds()
	if s.Sent > 0 && s.Refused == s.Sent {
		return s, fmt.Errorf("none of %d packets could be sent: %s", s.Sent, s.Error)
	}
	return s, nil
}

// udpOutput sends by a connected socket.
type udpOutput struct {
	Send
	fd int
	m  *messages
}

// openOutput opens a socket in the namespace of the calling thread.
func openOutput(s Send, batch int) (*udpOutput, error) {
	fd, err := openUDP(s.To.Addr().Is6())
	if err != nil {
		return nil, err
	}
	if s.LargeLast > 0 { // they find out how large packets may be, whatever others have told this kernel of the way
		if s.To.Addr().Is6() {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		} else {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		}
		if err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("send packets as they are: %w", err)
		}
	}
	if s.Port != 0 {
		_ = unix.Bind(fd, sockaddr(netip.AddrPortFrom(anyOf(s.To.Addr()), s.Port)))
	}
	if err := unix.Connect(fd, sockaddr(s.To)); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("no route to %s: %w", s.To.Addr(), err)
	}
	return &udpOutput{s, fd, newMessages(batch, max(s.Size, s.Large), 0)}, nil
}

// anyOf is the address that stands for all of a node's.
func anyOf(a netip.Addr) netip.Addr {
	if a.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

func (u *udpOutput) send(first, n int, stamp int64) (refused int, err error) {
	for i := range n {
		header{u.Stream, uint64(first + i), stamp}.put(u.m.payloads[i])
		u.m.vectors[i].SetLen(u.sizeOf(first + i))
	}
	for done := 0; done < n; {
		took, failure := u.m.send(u.fd, done, n)
		if told(failure) {
			took, failure = u.m.send(u.fd, done, n)
		}
		done += took
		if failure != nil {
			err = failure
			refused++
			done++
		}
	}
	return refused, err
}

// told says whether a failure may be about an earlier packet, which somebody on the way refused:
// the kernel says what it was told by ICMP to the next call, once, which sends nothing. What is
// refused here is gone: to send it again would hide that.
func told(failure error) bool {
	for _, by := range []error{unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET,
		unix.ENOPROTOOPT,
		unix.EPROTO, unix.EOPNOTSUPP, unix.EACCES, unix.EMSGSIZE} { // icmp_err_convert, icmpv6_err_convert
		if errors.Is(failure, by) {
			return true
		}
	}
	return false
}

// sizeOf is how much a packet carries.
func (s *Send) sizeOf(number int) int {
	if number >= s.Count-s.LargeLast {
		return max(s.Size, s.Large)
	}
	return s.Size
}

// run sends a stream from the namespace of the calling thread.
func (s Send) run(heard, stop *atomic.Bool) (Sent, error) {
	if err := s.Check(); err != nil {
		return Sent{}, err
	}
	p := &pace{rate: s.Rate, slots: s.Count}
	out, err := openOutput(s, p.batch())
	if err != nil {
		return Sent{Refused: s.Count, Error: err.Error()}, err
	}
	defer unix.Close(out.fd)
	from, _ := portOf(out.fd)
	out.greet(heard, stop)
	sent, err := s.drive(p, out, stop)
	sent.Ports = [2]int{from, int(s.To.Port())}
	return sent, err
}

func (s Send) drive(p *pace, out *udpOutput, stop *atomic.Bool) (Sent, error) {
	if s.Whole {
		return drive(s.times(p), precise(), out, wall, stop)
	}
	return drive(p, precise(), out, wall, stop)
}

// times is when the packets are due of a stream that is Whole.
func (s Send) times(p *pace) *times {
	all := &times{at: make([]time.Duration, s.Count)}
	random := rand.New(rand.NewPCG(uint64(s.Stream), 0))
	for i := range all.at {
		all.at[i] = p.at(i)
		if s.Uneven {
			all.at[i] += time.Duration(random.Float64() * float64(time.Second) / s.Rate / 2)
		}
	}
	return all
}

// Greetings go until one is heard, or for greetings. A network may be one in which nothing comes;
// in one that loses a packet in ten, three of the kernel's questions for a hardware address, one
// each second, are in vain once in 150 times, and five once in 4,000.
const (
	greetings = 5 * time.Second
	regreet   = 100 * time.Millisecond
)

// greet sends packets that do not count until the receiver has heard one, so that no packet of the
// stream waits for hardware addresses to be found, or for the entries of its flow.
func (u *udpOutput) greet(heard, stop *atomic.Bool) {
	for began := time.Now(); !heard.Load() && !stop.Load() && time.Since(began) < greetings; {
		header{u.Stream, greeting, wall()}.put(u.m.payloads[0])
		u.m.vectors[0].SetLen(u.Size)
		_, _ = u.m.send(u.fd, 0, 1)
		for again := time.Now().Add(regreet); !heard.Load() && !stop.Load() && time.Now().Before(again); {
			time.Sleep(time.Millisecond)
		}
	}
}

// precise makes the calling thread, which must be locked, wake up as soon as it can (the usual is
// up to 50 µs later), and starts a clock.
func precise() clock {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return monotonic{time.Now()}
}

// wall is the clock that the kernel stamps packets by.
func wall() int64 { return time.Now().UnixNano() }
