package packets

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// looks is how often those who wait look whether they are to stop.
const looks = 50 * time.Millisecond

// Receive asks to receive a stream.
type Receive struct {
	V6     bool   `json:"v6,omitempty"`
	Stream uint16 `json:"stream"`
	Count  int    `json:"count"`            // packets at most
	Sample int    `json:"sample,omitempty"` // delays to keep, about; where fewer come, all
	Record bool   `json:"record,omitempty"` // keep the time of each packet
	Raw    bool   `json:"raw,omitempty"`    // tap the stream at the receiver's devices, too
	Port   uint16 `json:"port,omitempty"`   // on which to receive; 0, or where another has it: any that is free
}

// MaxRecord is the longest stream of which the time of each packet is kept.
const MaxRecord = 4_000_000

// Received is what came of it.
type Received struct {
	Tally
	Dropped int         `json:"dropped"` // packets that did not fit into the receiver's socket
	Foreign int         `json:"foreign"` // packets to the same port that are none of the stream
	Late    int         `json:"late"`    // packets that the kernel did not stamp, but the receiver, when it saw them
	TTL     map[int]int `json:"ttl"`     // packets by the TTL or hop limit with which they came; copies count
	Record  *Record     `json:"record,omitempty"`
	Tapped  *Tapped     `json:"tapped,omitempty"`
}

// Record has an entry for each number of a stream.
type Record struct {
	Sent  []int64 `json:"sent"`  // nanoseconds since 1970; 0: it did not come
	Delay []int64 `json:"delay"` // nanoseconds
}

// ending is what a receiver is told while it runs: how many packets were sent, and how long to wait
// for one of them after the last that came.
type ending struct {
	Sent  int           `json:"sent"`
	Quiet time.Duration `json:"quiet_ns"`
}

// receiver receives a stream.
type receiver struct {
	Receive
	fd, port int
	tap      *tap // nil: none
	got      Received
	ttl      [256]int
	heard    func() // called when a greeting has come
}

// open opens the socket in the namespace of the calling thread.
func (r Receive) open() (*receiver, error) {
	if r.Count < 1 || r.Count > MaxCount || r.Record && r.Count > MaxRecord {
		return nil, fmt.Errorf("%d packets: too few or too many to receive", r.Count)
	}
	fd, port, err := openReceiver(r.V6, r.Port)
	if errors.Is(err, unix.EADDRINUSE) {
		fd, port, err = openReceiver(r.V6, 0)
	}
	if err != nil {
		return nil, err
	}
	one := &receiver{Receive: r, fd: fd, port: port, heard: func() {},
		got: Received{Tally: *newTally(r.Count, r.Sample), TTL: map[int]int{}}}
	if r.Record {
		one.got.Record = &Record{make([]int64, r.Count), make([]int64, r.Count)}
	}
	if r.Raw {
		if one.tap, err = (Tap{First: r.Stream, Count: 1}).open(); err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	return one, nil
}

// run receives until end says that all has been sent, and all of it has come or nothing comes any
// more; or until stop.
func (r *receiver) run(end *atomic.Pointer[ending], stop *atomic.Bool) (*Received, error) {
	defer unix.Close(r.fd)
	tapped := r.listen()
	m := newMessages(maxReceive, HeaderLen, 128)
	last := time.Now()
	for !stop.Load() {
		n, err := m.receive(r.fd)
		if err != nil {
			_, _ = tapped()
			return nil, fmt.Errorf("receive: %w", err)
		}
		for i := range n {
			r.take(m, i)
		}
		e := end.Load()
		if n > 0 || e == nil {
			last = time.Now()
		}
		if e != nil && (r.got.Received >= e.Sent || time.Since(last) > e.Quiet) {
			break
		}
	}
	r.got.Tally.end()
	r.got.Dropped = socketDrops(r.fd)
	for ttl, n := range r.ttl {
		if n > 0 {
			r.got.TTL[ttl] = n
		}
	}
	var err error
	r.got.Tapped, err = tapped()
	return &r.got, err
}

// listen runs the receiver's tap, if it has one, until end.
func (r *receiver) listen() (end func() (*Tapped, error)) {
	if r.tap == nil {
		return func() (*Tapped, error) { return nil, nil }
	}
	var stop atomic.Bool
	var got *Tapped
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = r.tap.run(&stop)
	}()
	return func() (*Tapped, error) {
		stop.Store(true)
		<-done
		return got, err
	}
}

// maxReceive is the most packets that are received by one system call.
const maxReceive = 64

// take counts a packet.
func (r *receiver) take(m *messages, i int) {
	h, ok := parseHeader(m.payload(i))
	a := m.ancillary(i)
	if ok && h.stream == r.Stream && h.number == greeting {
		r.heard()
		return
	}
	if !ok || h.stream != r.Stream || h.number >= uint64(r.Count) {
		r.got.Foreign++
		return
	}
	if a.received == 0 {
		a.received = wall()
		r.got.Late++
	}
	r.ttl[a.ttl&0xff]++
	r.got.add(h.number, h.sent, a.received, m.size(i))
	if record := r.got.Record; record != nil && record.Sent[h.number] == 0 {
		record.Sent[h.number], record.Delay[h.number] = h.sent, a.received-h.sent
	}
}
