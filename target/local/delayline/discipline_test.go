package delayline

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

func managedBy(t *testing.T, text string) topology.Queue {
	t.Helper()
	q, err := topology.ParseQueue(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// load drives a queue of full frames that take 1 ms each, in simulated time.
type load struct {
	*sim
	sent map[int]time.Duration // by number
}

const frameTime = time.Millisecond

func newLoad(t *testing.T, text string) *load {
	return &load{newSim(t, topology.Impairment{Bandwidth: full * 8 * 1000, Queue: managedBy(t, text)}), map[int]time.Duration{}}
}

func (l *load) send(flow int, ecn byte) {
	n := len(l.sent)
	l.sent[n] = l.now
	l.queue.Push(l.now, udp(full, flow, n, ecn), Traffic{Packets: 1, Bytes: full})
}

// until receives all that has arrived by a time, and goes there.
func (l *load) until(at time.Duration, each func(b []byte, waited time.Duration)) {
	for {
		next, ok := l.queue.Next()
		if !ok || next > at {
			l.now = at
			return
		}
		l.now = max(l.now, next)
		if b, _, arrived, ok := l.queue.Pop(l.now); ok && each != nil {
			each(b, arrived-l.sent[numberOf(b)]-frameTime)
		}
	}
}

// TestCoDelLaw proves that CoDel drops nothing before packets have waited for longer than the
// target for an interval, and then when the control law says: the next after the interval divided
// by the square root of how many there were (RFC 8289, section 5.3).
func TestCoDelLaw(t *testing.T) {
	l := newLoad(t, "codel,target=5ms,interval=100ms,limit=100000")
	var drops []time.Duration
	for l.now < 2*time.Second { // twice what the link takes
		l.send(1, 0)
		l.until(l.now+frameTime/2, nil)
		for range int(l.queue.Counters(l.now).Dropped.Packets) - len(drops) {
			drops = append(drops, l.now)
		}
	}
	// The wait grows by half of the time: it is 5 ms after 10.
	if want := 110 * time.Millisecond; len(drops) < 20 || drops[0] < want || drops[0] > want+2*frameTime {
		t.Fatalf("drops at %v; the first should be at %v", drops[:min(len(drops), 3)], want)
	}
	at := drops[0]
	for n := 1; n < len(drops); n++ {
		at += time.Duration(float64(100*time.Millisecond) / math.Sqrt(float64(n)))
		if off := drops[n] - at; off < -frameTime || off > 2*frameTime {
			t.Fatalf("drop %d is at %v, want %v", n, drops[n], at)
		}
	}
}

// TestNoNeedToDrop proves that bursts that the link can take are left alone by each discipline,
// also such that are longer than what may wait for long.
func TestNoNeedToDrop(t *testing.T) {
	for _, text := range []string{"codel", "fq_codel", "pie", "red", "codel,ecn", "red,ecn"} {
		l := newLoad(t, text)
		for l.now < 5*time.Second {
			for range 40 {
				l.send(1, 2)
			}
			l.until(l.now+90*time.Millisecond, nil)
		}
		l.until(l.now+time.Second, nil)
		if c := l.queue.Counters(l.now); c.Out != c.In || c.Marked.Packets > 0 {
			t.Errorf("%s: %+v", text, c)
		}
	}
}

// TestFQCoDel proves that beside a flow that sends twice what the link takes one that sends little
// waits for no more than the packets in front of it in its turn, though both share a queue of CoDel
// else; and that each flow's packets stay in order.
func TestFQCoDel(t *testing.T) {
	for _, c := range []struct {
		queue string
		thin  bool // it waits for little
	}{{"fq_codel", true}, {"codel", false}, {"1000", false}} {
		l := newLoad(t, c.queue)
		last, longest, came := map[int]int{}, time.Duration(0), 0
		for n := 0; l.now < 5*time.Second; n++ {
			l.send(1, 0)
			if n%20 == 0 {
				l.send(2, 0)
			}
			l.until(l.now+frameTime/2, func(b []byte, waited time.Duration) {
				if f, n := flowOf(b), numberOf(b); n < last[f] {
					t.Fatalf("%s: packet %d of flow %d after packet %d", c.queue, n, f, last[f])
				} else if last[f] = n; f == 2 {
					longest, came = max(longest, waited), came+1
				}
			})
		}
		if thin := longest <= 3*frameTime; thin != c.thin || c.thin && came < 495 {
			t.Errorf("%s: of a thin flow %d packets came, the longest wait was %v", c.queue, came, longest)
		}
	}
}

// TestFQCoDelLimit proves that when all queues together are too long the longest is shortened, and
// that it counts as full.
func TestFQCoDelLimit(t *testing.T) {
	l := newLoad(t, "fq_codel,limit=100,target=10s,interval=10s")
	l.send(2, 0)
	l.send(2, 0)
	for range 500 {
		l.send(1, 0)
	}
	waiting, _ := l.queue.Len(l.now)
	thin := 0
	l.until(10*time.Second, func(b []byte, _ time.Duration) {
		if flowOf(b) == 2 {
			thin++
		}
	})
	if c := l.queue.Counters(l.now); waiting.Packets > 101 || waiting.Packets < 40 || thin != 2 || c.Overflowed.Packets == 0 || c.Dropped.Packets > 0 {
		t.Errorf("%d wait, %d of the thin flow came, %+v", waiting.Packets, thin, c)
	}
}

// TestRED proves that the share of packets that RED drops is none below min, grows with the
// average between min and max as it should, with marks at even distances (2p/(1+p), as a distance
// is equally likely up to 1/p), and is all above max; and that the average follows the queue, and
// forgets it while it is empty.
func TestRED(t *testing.T) {
	for _, c := range []struct{ average, least, most float64 }{
		{9_000, 0, 0},
		{15_000, 0.0488 * 0.9, 0.0488 * 1.1}, // p = 2.5 %
		{20_000, 0.0952 * 0.9, 0.0952 * 1.1}, // 5 %
		{29_000, 0.1735 * 0.9, 0.1735 * 1.1}, // 9.5 %
		{30_000, 1, 1},
	} {
		l := newLoad(t, "red,min=10000,max=30000,limit=100000,probability=10%")
		r := l.queue.waiting.(*red)
		r.average, r.bytes = c.average, c.average
		dropped := 0
		const n = 20_000
		for range n {
			if r.admit(0, nil, Traffic{Packets: 1, Bytes: full}) == discard {
				dropped++
			}
		}
		if share := float64(dropped) / n; share < c.least || share > c.most {
			t.Errorf("an average of %.0f: %.4f are dropped, want %.4f to %.4f", c.average, share, c.least, c.most)
		}
	}
	l := newLoad(t, "red,limit=100000")
	r := l.queue.waiting.(*red)
	for range 30 {
		l.send(1, 0)
	}
	if r.average <= 0 || r.average >= r.bytes {
		t.Errorf("the average of up to %.0f bytes is %.0f", r.bytes, r.average)
	}
	grown := r.average
	l.until(100*time.Millisecond, nil)
	l.send(1, 0)
	if r.average >= grown/2 {
		t.Errorf("after 70 idle packets' time the average of %.0f is %.0f", grown, r.average)
	}
}

// TestPIE proves that PIE keeps the wait near its target under a load of a fifth more than the link
// takes, by dropping that much, and that it lets a burst pass first.
func TestPIE(t *testing.T) {
	l := newLoad(t, "pie,target=15ms,limit=100000")
	var waits []time.Duration
	for l.now < 60*time.Second {
		l.send(1, 0)
		l.until(l.now+frameTime*10/12, func(_ []byte, waited time.Duration) {
			if l.now > 40*time.Second {
				waits = append(waits, waited)
			}
		})
		if l.now < pieBurst-15*time.Millisecond && l.queue.Counters(l.now).Dropped.Packets > 0 {
			t.Fatalf("a packet is dropped at %v", l.now)
		}
	}
	var sum time.Duration
	for _, w := range waits {
		sum += w
	}
	if mean := sum / time.Duration(len(waits)); mean < 10*time.Millisecond || mean > 20*time.Millisecond {
		t.Errorf("packets wait for %v on average, not for 15 ms", mean)
	}
	if c := l.queue.Counters(l.now); c.Overflowed.Packets > 0 || math.Abs(float64(c.Dropped.Packets)/float64(c.In.Packets)-1./6) > 0.02 {
		t.Errorf("%+v", c)
	}
}

// TestECN proves of each discipline that under load packets of senders that understand marks are
// marked where others are dropped, that both are told from each other packet by packet, and that
// without ecn both are dropped.
func TestECN(t *testing.T) {
	for _, c := range []struct {
		queue string
		marks bool
	}{{"codel,ecn,limit=100000", true}, {"codel,limit=100000", false}, {"fq_codel,limit=100000", true}, {"fq_codel,noecn,limit=100000", false},
		{"red,ecn,limit=1000000,max=60000,min=20000", true}, {"red", false}, {"pie,ecn,limit=100000", true}, {"pie,limit=100000", false}} {
		l := newLoad(t, c.queue)
		marked, unmarked := 0, map[byte]int{}
		for n := 0; l.now < 5*time.Second; n++ {
			l.send(1+n%2, byte(n%2)*2) // flow 2 understands marks
			l.until(l.now+frameTime*9/10, func(b []byte, _ time.Duration) {
				p := b[vnetLen+ethernetLen:]
				if checksum(p[:ipv4Min]) != 0 {
					t.Fatalf("%s: a packet has a wrong checksum", c.queue)
				}
				switch ecn := p[1] & 3; {
				case ecn == ecnCE && flowOf(b) != 2:
					t.Fatalf("%s: a packet is marked whose sender does not understand that", c.queue)
				case ecn == ecnCE:
					marked++
				default:
					unmarked[ecn]++
				}
			})
		}
		s := l.queue.Counters(l.now)
		if uint64(marked) > s.Marked.Packets || (marked > 0) != c.marks || s.Dropped.Packets == 0 || unmarked[2] == 0 {
			t.Errorf("%s: %d came marked, %v not, %+v", c.queue, marked, unmarked, s)
		}
	}
}

// TestDisciplineChanges proves that a change from each discipline to each other loses nothing that
// waits, and keeps the order of each flow.
func TestDisciplineChanges(t *testing.T) {
	all := []string{"500", "codel", "fq_codel", "red,limit=10000000", "pie", "codel,target=1ms,ecn", "fq_codel,flows=3"}
	for _, from := range all {
		for _, to := range all {
			t.Run(fmt.Sprint(from, " to ", to), func(t *testing.T) {
				l := newLoad(t, from)
				for n := range 50 {
					l.send(n%5, 0)
				}
				i := l.queue.impairment
				i.Queue = managedBy(t, to)
				l.queue.Set(l.now, i)
				waiting, _ := l.queue.Len(l.now)
				i.Queue = topology.Queue{Limit: 10} // what is above stays
				l.queue.Set(l.now, i)
				last, came := map[int]int{}, 0
				l.until(time.Second, func(b []byte, _ time.Duration) {
					f := flowOf(b)
					if n := numberOf(b); n < last[f] {
						t.Errorf("packet %d of flow %d after packet %d", n, f, last[f])
					}
					last[f] = numberOf(b)
					came++
				})
				if waiting.Packets != 50 || came != 50 {
					t.Errorf("50 were sent, %d waited, %d came", waiting, came)
				}
			})
		}
	}
}

// ones returns how many bits differ.
func ones(a, b []byte) (n int) {
	for i := range a {
		for x := a[i] ^ b[i]; x != 0; x &= x - 1 {
			n++
		}
	}
	return n
}

// TestWire proves that as many packets as asked for come twice, are damaged in one bit, or overtake
// (within five standard deviations), that the others are as they were, and that each is counted.
func TestWire(t *testing.T) {
	const n = 20_000
	about := func(what string, got uint64, share float64) {
		t.Helper()
		if off := math.Abs(float64(got) - n*share); off > 5*math.Sqrt(n*share*(1-share)) {
			t.Errorf("%s: %d of %d, want %.0f", what, got, n, n*share)
		}
	}
	i := topology.Impairment{Delay: topology.Duration(10 * time.Millisecond), Duplicate: 0.1, Corrupt: 0.05, Reorder: 0.25}
	s := newSim(t, i)
	came, damaged, early := map[uint64]int{}, uint64(0), uint64(0)
	take := func(sent time.Duration, whole []byte) {
		for {
			next, ok := s.queue.Next()
			if !ok {
				return
			}
			s.now = next
			b, _, at, ok := s.queue.Pop(s.now)
			if !ok {
				continue
			}
			switch ones(b, whole) {
			case 0:
				came[binary.LittleEndian.Uint64(b[vnetLen:])]++
			case 1:
				damaged++
			default:
				t.Fatalf("%x is %x", whole, b)
			}
			switch at - sent {
			case 0:
				early++
			case 10 * time.Millisecond:
			default:
				t.Fatalf("a packet took %v", at-sent)
			}
		}
	}
	for number := range uint64(n) {
		b := make([]byte, 200)
		binary.LittleEndian.PutUint64(b[vnetLen:], number)
		sent := s.now
		s.queue.Push(s.now, b, Traffic{Packets: 1, Bytes: 200})
		take(sent, b)
		s.now += time.Millisecond
	}
	c := s.queue.Counters(s.now)
	about("twice", c.Duplicated.Packets, 0.1)
	about("damaged", damaged, 0.05*1.1)
	about("early", early, 0.25*1.1)
	if c.Corrupted.Packets != damaged || c.Reordered.Packets != early || c.Out.Packets != n+c.Duplicated.Packets {
		t.Errorf("%d damaged, %d early, %+v", damaged, early, c)
	}
	i = topology.Impairment{Delay: i.Delay, Reorder: 0.5, Gap: 5}
	s = newSim(t, i)
	since := 5
	for range n {
		sent := s.now
		s.queue.Push(s.now, make([]byte, 60), Traffic{Packets: 1, Bytes: 60})
		next, _ := s.queue.Next()
		s.now = next
		_, _, at, _ := s.queue.Pop(s.now)
		if since++; at == sent {
			if since < 5 {
				t.Fatalf("with a gap of 5 a packet overtakes %d after the last", since)
			}
			since = 0
		}
	}
	if got := s.queue.Counters(s.now).Reordered.Packets; got < n/8 || got > n/5 {
		t.Errorf("with a gap of 5, %d of %d overtake", got, n)
	}
}

// TestCorrelation proves that with a correlation a loss makes the next one likelier, as netem's
// formula does, and that jitter stays as large and follows the packet before by as much as asked
// for.
func TestCorrelation(t *testing.T) {
	const n = 50_000
	lossOf := func(correlation topology.Fraction) (share, afterLoss float64) {
		s := newSim(t, topology.Impairment{Loss: 0.3, LossCorrelation: correlation})
		lost, twice, was := 0, 0, false
		for range n {
			before := s.queue.Counters(s.now).Lost.Packets
			s.queue.Push(s.now, make([]byte, 60), Traffic{Packets: 1, Bytes: 60})
			s.queue.Pop(s.now)
			is := s.queue.Counters(s.now).Lost.Packets > before
			if is {
				lost++
			}
			if is && was {
				twice++
			}
			was = is
		}
		return float64(lost) / n, float64(twice) / float64(lost)
	}
	if share, after := lossOf(0); math.Abs(share-0.3) > 0.011 || math.Abs(after-0.3) > 0.02 {
		t.Errorf("independent: %.3f are lost, %.3f after a loss", share, after)
	}
	if share, after := lossOf(0.5); share > 0.3 || after < share+0.2 {
		t.Errorf("correlated: %.3f are lost, %.3f after a loss", share, after)
	}
	for _, correlation := range []float64{0, 0.8} {
		s := newSim(t, topology.Impairment{Delay: ms(100), Jitter: ms(10), DelayCorrelation: topology.Fraction(correlation)})
		var sum, squares, product, last float64
		for range n {
			sent := s.now
			s.queue.Push(s.now, make([]byte, 60), Traffic{Packets: 1, Bytes: 60})
			_, at, _ := popAny(s)
			d := (at - sent - 100*time.Millisecond).Seconds() * 1000
			sum, squares, product, last = sum+d, squares+d*d, product+d*last, d
			s.now += time.Second
		}
		if sd := math.Sqrt(squares / n); math.Abs(sd-10) > 0.5 || math.Abs(product/squares-correlation) > 0.03 {
			t.Errorf("jitter of 10 ms, correlation %.1f: %.2f ms, %.3f", correlation, sd, product/squares)
		}
	}
}

func popAny(s *sim) (number uint64, arrived time.Duration, ok bool) {
	s.wild = true
	return s.pop()
}
