package delayline

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

const full = 1514 // bytes of a full frame

// sim drives a queue in simulated time. Frames carry their number, so that order and
// content can be checked.
type sim struct {
	t      *testing.T
	queue  *Queue
	budget *atomic.Int64
	now    time.Duration
	pushed uint64
	last   uint64 // number of the last frame that arrived, plus 1
	seen   time.Duration
	wild   bool // frames may be damaged, come twice, and overtake each other
}

const simBudget = 64 << 20

func newSim(t *testing.T, i topology.Impairment) *sim {
	s := &sim{t: t, budget: new(atomic.Int64)}
	s.budget.Store(simBudget)
	s.queue = NewQueue(i, NewPool(s.budget), 7)
	return s
}

func (s *sim) push(size int) {
	b := make([]byte, size)
	binary.LittleEndian.PutUint64(b, s.pushed)
	b[size-1] = byte(s.pushed)
	s.pushed++
	s.queue.Push(s.now, b, Traffic{Packets: 1, Bytes: uint64(size)})
}

// pop waits for the next frame and returns its number and arrival; ok is false if the queue is
// empty. It checks that frames arrive whole, in order, and never before the time given by Next.
func (s *sim) pop() (number uint64, arrived time.Duration, ok bool) {
	for {
		next, more := s.queue.Next()
		if !more {
			return 0, 0, false
		}
		if next-1 > s.now {
			if _, _, at, early := s.queue.Pop(next - 1); early {
				s.t.Fatalf("a frame arrived at %v, before %v", at, next)
			}
		}
		s.now = max(s.now, next)
		bytes, size, arrived, ok := s.queue.Pop(s.now)
		if !ok {
			continue // the queue had not drawn the jitter yet
		}
		if arrived < s.seen {
			s.t.Fatalf("a frame arrived at %v after one at %v", arrived, s.seen)
		}
		if s.seen = arrived; s.wild {
			return 0, arrived, true
		}
		number = binary.LittleEndian.Uint64(bytes)
		if bytes[len(bytes)-1] != byte(number) || (size.Packets == 1 && int(size.Bytes) != len(bytes)) {
			s.t.Fatalf("frame %d is damaged", number)
		}
		if number+1 <= s.last {
			s.t.Fatalf("frame %d arrived after frame %d", number, s.last-1)
		}
		s.last = number + 1
		return number, arrived, true
	}
}

func (s *sim) drain() (arrivals []time.Duration) {
	for {
		_, at, ok := s.pop()
		if !ok {
			return arrivals
		}
		arrivals = append(arrivals, at)
	}
}

func ms(v float64) topology.Duration { return topology.Duration(v * float64(time.Millisecond)) }

// TestSerialisation proves that a busy queue sends exactly at the bandwidth: frame k arrives when
// all bits up to its last have been sent, to the nanosecond, even if a bit does not take a whole
// number of nanoseconds.
func TestSerialisation(t *testing.T) {
	for _, rate := range []topology.Rate{1_000, 9_999_991, 1e9, 40e9} {
		s := newSim(t, topology.Impairment{Bandwidth: rate, Queue: topology.Queue{Limit: 10_000}})
		var bits float64
		var want []time.Duration
		for k := range 5000 {
			size := 60 + k*7%(full-60)
			s.push(size)
			bits += float64(8 * size)
			want = append(want, time.Duration(bits*1e9/float64(rate)))
		}
		got := s.drain()
		if len(got) != len(want) {
			t.Fatalf("%v: %d frames, want %d", rate, len(got), len(want))
		}
		for k := range got {
			if d := got[k] - want[k]; d < -1 || d > 1 {
				t.Fatalf("%v: frame %d at %v, want %v", rate, k, got[k], want[k])
			}
		}
	}
}

// TestDelay proves that a frame in an idle queue takes its sending time plus the delay, and that
// idle time earns no credit for later.
func TestDelay(t *testing.T) {
	s := newSim(t, topology.Impairment{Bandwidth: 8e6, Delay: ms(20)})
	for k := range 100 {
		s.now = time.Duration(k) * time.Second
		start := s.now
		s.push(1000) // 1 ms
		if _, at, _ := s.pop(); at != start+21*time.Millisecond {
			t.Fatalf("frame %d after %v, want 21ms", k, at-start)
		}
	}
}

// TestLoss proves that there are as many losses as configured (within 4 standard deviations), that
// they do not come in pairs more often than by chance, that all are counted, and that equal seeds
// draw equal losses.
func TestLoss(t *testing.T) {
	const n, p = 200_000, 0.02
	var lost [2][]bool
	for round := range lost {
		s := newSim(t, topology.Impairment{Loss: p})
		lost[round] = make([]bool, n)
		for k := range n {
			s.now += time.Microsecond
			s.push(100)
			number, _, ok := s.pop()
			if ok && number != uint64(k) {
				t.Fatalf("frame %d came for %d", number, k)
			}
			lost[round][k] = !ok
		}
		if c := s.queue.Counters(s.now); c.Lost.Packets+c.Out.Packets != n || c.Lost.Bytes+c.Out.Bytes != n*100 {
			t.Errorf("counters %+v do not add up to %d", c, n)
		}
	}
	count, pairs := 0, 0
	for k, l := range lost[0] {
		if l != lost[1][k] {
			t.Fatalf("equal seeds differ at frame %d", k)
		}
		if l {
			count++
			if k > 0 && lost[0][k-1] {
				pairs++
			}
		}
	}
	within := func(what string, got int, p float64) {
		mean, sd := n*p, math.Sqrt(n*p*(1-p))
		if math.Abs(float64(got)-mean) > 4*sd {
			t.Errorf("%d %s, want %.0f ± %.0f", got, what, mean, 4*sd)
		}
	}
	within("losses", count, p)
	within("pairs of losses", pairs, p*p)
}

// TestJitter proves the mean and the standard deviation of the delay for packets too far apart to
// wait for each other, and that a delay is never negative.
func TestJitter(t *testing.T) {
	const n = 20_000
	moments := func(i topology.Impairment) (mean, sd float64) {
		s := newSim(t, i)
		var sum, squares float64
		for range n {
			s.now += 10 * time.Second
			start := s.now
			s.push(100)
			_, at, _ := s.pop()
			v := (at - start).Seconds() * 1000
			if v < 0 {
				t.Fatalf("delay %v ms", v)
			}
			sum, squares = sum+v, squares+v*v
		}
		mean = sum / n
		return mean, math.Sqrt(squares/n - mean*mean)
	}
	near := func(what string, got, want, tolerance float64) {
		if math.Abs(got-want) > tolerance {
			t.Errorf("%s %.3f ms, want %.3f ± %.3f", what, got, want, tolerance)
		}
	}
	mean, sd := moments(topology.Impairment{Delay: ms(100), Jitter: ms(10)})
	near("mean", mean, 100, 4*10/math.Sqrt(n))
	near("standard deviation", sd, 10, 4*10/math.Sqrt(2*n))
	// Truncated at 0 with mean 0: half the delays are 0, the others half a normal distribution.
	mean, _ = moments(topology.Impairment{Jitter: ms(10)})
	near("mean of the truncated", mean, 10/math.Sqrt(2*math.Pi), 4*10/math.Sqrt(n))
}

// TestOrder proves that closely spaced packets do not overtake each other, however much their
// delays vary (pop checks it), and that none is missing.
func TestOrder(t *testing.T) {
	s := newSim(t, topology.Impairment{Delay: ms(10), Jitter: ms(10), Queue: topology.Queue{Limit: 1 << 20}})
	for range 10_000 {
		s.now += 10 * time.Microsecond
		s.push(200)
	}
	if got := len(s.drain()); got != 10_000 {
		t.Errorf("%d frames, want 10000", got)
	}
}

// TestLimit proves that packets beyond the limit are dropped (at the tail) and counted; that with a
// bandwidth packets on their way take no room in the queue, and that without one they do.
func TestLimit(t *testing.T) {
	s := newSim(t, topology.Impairment{Bandwidth: 8e6, Delay: ms(1000), Queue: topology.Queue{Limit: 10}})
	for range 100 {
		s.push(1000)
	}
	if c := s.queue.Counters(s.now); c.Overflowed.Packets != 90 {
		t.Errorf("%d overflowed, want 90", c.Overflowed.Packets)
	}
	for range 1000 { // at the bandwidth: one is sent by the time the next arrives
		s.now += time.Millisecond
		s.push(1000)
	}
	waiting, flying := s.queue.Len(s.now)
	if c := s.queue.Counters(s.now); c.Overflowed.Packets != 90 || waiting != (Traffic{Packets: 10, Bytes: 10_000}) || flying.Packets < 900 {
		t.Errorf("%d overflowed, %+v waiting, %+v flying; want 90, 10, 1000", c.Overflowed.Packets, waiting, flying)
	}
	s = newSim(t, topology.Impairment{Delay: ms(1000), Queue: topology.Queue{Limit: 10}})
	for range 100 {
		s.push(1000)
	}
	if got := len(s.drain()); got != 10 {
		t.Errorf("%d arrived, want 10", got)
	}
}

// TestSuperPacket proves that a super-packet takes the time and the room of all its segments.
func TestSuperPacket(t *testing.T) {
	s := newSim(t, topology.Impairment{Bandwidth: 1e9, Queue: topology.Queue{Limit: 100}})
	size := Traffic{Packets: 45, Bytes: 45 * 1000}
	for range 3 {
		s.queue.Push(s.now, make([]byte, 44_000), size)
	}
	c := s.queue.Counters(s.now)
	if c.Overflowed != size || c.In.Packets != 3*45 {
		t.Errorf("%+v overflowed of %+v, want the third", c.Overflowed, c.In)
	}
	if _, _, at, ok := s.queue.Pop(time.Second); !ok || at != 360*time.Microsecond {
		t.Errorf("arrived at %v, want 360µs", at)
	}
}

// TestSet proves that a change does not affect packets on their way, that waiting packets are sent
// at the new bandwidth, less the part of the first that was already sent, and that order is kept.
func TestSet(t *testing.T) {
	s := newSim(t, topology.Impairment{Bandwidth: 8e6, Delay: ms(100)})
	for range 4 {
		s.push(1000) // 1 ms each
	}
	s.now = 1500 * time.Microsecond // the first flies, the second is half sent
	s.queue.Set(s.now, topology.Impairment{Bandwidth: 4e6, Delay: ms(1)})
	want := []time.Duration{101 * time.Millisecond, 101 * time.Millisecond, 101 * time.Millisecond, 101 * time.Millisecond}
	for k, at := range s.drain() { // sent at 1, 2.5, 4.5 and 6.5 ms; none overtakes the first
		if at != want[k] {
			t.Errorf("frame %d at %v, want %v", k, at, want[k])
		}
	}

	s = newSim(t, topology.Impairment{Bandwidth: 8e6})
	for range 4 {
		s.push(1000)
	}
	s.now = 1500 * time.Microsecond
	s.queue.Set(s.now, topology.Impairment{Bandwidth: 4e6, Delay: ms(1)})
	want = []time.Duration{1000, 3500, 5500, 7500}
	for k, at := range s.drain() {
		if at != want[k]*time.Microsecond {
			t.Errorf("slower: frame %d at %v, want %v", k, at, want[k]*time.Microsecond)
		}
	}

	s = newSim(t, topology.Impairment{Bandwidth: 1})
	for range 4 {
		s.push(1000)
	}
	s.now = time.Second
	s.queue.Set(s.now, topology.Impairment{Delay: ms(1)})
	for k, at := range s.drain() { // and not hours later
		if at != 1001*time.Millisecond {
			t.Errorf("unlimited: frame %d at %v, want 1.001s", k, at)
		}
	}
}

// TestDown proves that a line that is down drops and counts what it holds and what arrives, and
// that it carries again once it is up.
func TestDown(t *testing.T) {
	s := newSim(t, topology.Impairment{Bandwidth: 8e6, Delay: ms(1.5)})
	for range 3 {
		s.push(1000)
	}
	s.now = 2 * time.Millisecond
	s.queue.Up(s.now, false)
	s.push(1000)
	if c := s.queue.Counters(s.now); c.Cleared.Packets != 4 {
		t.Errorf("%d cleared, want 4", c.Cleared.Packets)
	}
	if _, ok := s.queue.Next(); ok || s.budget.Load() != simBudget {
		t.Error("it still holds something")
	}
	s.queue.Up(s.now, true)
	s.push(1000)
	if got := len(s.drain()); got != 1 {
		t.Errorf("%d arrived, want 1", got)
	}
}

// TestMemory proves that packets beyond the budget are dropped and counted, and that memory is
// returned.
func TestMemory(t *testing.T) {
	s := newSim(t, topology.Impairment{Delay: ms(1000), Queue: topology.Queue{Limit: 1 << 20}})
	for range 2 * simBudget / full {
		s.push(full)
	}
	c := s.queue.Counters(s.now)
	if min := uint64(simBudget / full * 9 / 10); c.NoMemory.Packets == 0 || c.In.Packets-c.NoMemory.Packets < min {
		t.Errorf("%+v: want at least %d held and some dropped", c, min)
	}
	s.drain()
	if s.budget.Load() != simBudget {
		t.Errorf("%d bytes did not come back", simBudget-s.budget.Load())
	}
}
