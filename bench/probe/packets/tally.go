package packets

import (
	"math"
	"math/bits"
	"time"
)

// Tally is what a receiver counts of a stream. Times are in seconds.
type Tally struct {
	Received   int     `json:"received"`   // numbers that came, each once
	Duplicates int     `json:"duplicates"` // packets whose number had come before
	Reordered  int     `json:"reordered"`  // of Received: came after a higher number (RFC 4737, section 3)
	Bytes      int     `json:"bytes"`      // of payload, of Received
	First      int64   `json:"first"`      // arrival, nanoseconds since 1970
	Last       int64   `json:"last"`
	Delay      Moments `json:"delay"` // of all of Received
	// Mean of |D|: of how much longer one packet took than the one that came before it.
	Difference float64 `json:"difference"`
	Jitter     []Point `json:"jitter"` // RFC 3550's estimate at the end of each second, and of the stream
	Delays     []Point `json:"delays"` // a sample of Delay, by the time of sending; in the order of arrival
	// Of LeastGap or more in which nothing arrived, by when they ended; the first thousand.
	Gaps []Point `json:"gaps"`

	sample   uint64 // chance of a delay to be kept, of 1<<64; all ones: certain
	seen     []uint64
	next     uint64 // the lowest number that is not late
	jitter   float64
	transit  int64 // of the packet before
	second   int64 // of First's clock, whose jitter is not noted yet
	differed int
}

// LeastGap is the shortest time without a packet that is noted.
const LeastGap = 300 * time.Millisecond

const mostGaps = 1000

// Point is a value at a time, in nanoseconds since 1970.
type Point struct {
	At    int64   `json:"at"`
	Value float64 `json:"value"`
}

// Moments are of a set of values.
type Moments struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	SD   float64 `json:"sd"` // of a sample: divided by N-1
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	sum  float64 // of squared differences from the mean (Welford's method)
}

func (m *Moments) add(v float64) {
	if m.N++; m.N == 1 {
		m.Min, m.Max = v, v
	}
	m.Min, m.Max = min(m.Min, v), max(m.Max, v)
	delta := v - m.Mean
	m.Mean += delta / float64(m.N)
	m.sum += delta * (v - m.Mean)
	m.SD = math.Sqrt(m.sum / float64(max(1, m.N-1)))
}

// newTally expects count packets, and keeps about sample delays.
func newTally(count, sample int) *Tally {
	t := &Tally{seen: make([]uint64, (count+63)/64), sample: math.MaxUint64}
	if sample < count {
		t.sample = uint64(float64(sample) / float64(count) * (1 << 63) * 2)
		t.Delays = make([]Point, 0, sample+sample/8)
	}
	return t
}

// add counts a packet. It does not count one whose number is beyond those expected.
func (t *Tally) add(number uint64, sent, received int64, size int) {
	word, bit := number/64, uint64(1)<<(number%64)
	if word >= uint64(len(t.seen)) {
		return
	}
	if t.seen[word]&bit != 0 {
		t.Duplicates++
		return
	}
	t.seen[word] |= bit
	if t.Received++; t.Received == 1 {
		t.First, t.second = received, 1
	}
	if gap := received - t.Last; t.Received > 1 && gap >= int64(LeastGap) && len(t.Gaps) < mostGaps {
		t.Gaps = append(t.Gaps, Point{received, float64(gap) / 1e9})
	}
	t.Last = max(t.Last, received)
	t.Bytes += size
	if number >= t.next {
		t.next = number + 1
	} else {
		t.Reordered++
	}
	delay := float64(received-sent) / 1e9
	t.Delay.add(delay)
	t.vary(sent, received)
	if mix(number) <= t.sample {
		t.Delays = append(t.Delays, Point{sent, delay})
	}
}

// vary follows the jitter (RFC 3550, section 6.4.1): J += (|D| - J) / 16 for each packet as it
// comes.
func (t *Tally) vary(sent, received int64) {
	if received >= t.First+t.second*1e9 {
		t.Jitter = append(t.Jitter, Point{t.First + t.second*1e9, t.jitter})
		t.second = (received-t.First)/1e9 + 1
	}
	transit := received - sent
	if t.Received > 1 {
		d := math.Abs(float64(transit-t.transit)) / 1e9
		t.jitter += (d - t.jitter) / 16
		t.differed++
		t.Difference += (d - t.Difference) / float64(t.differed)
	}
	t.transit = transit
}

// end notes the last jitter.
func (t *Tally) end() {
	if t.Received > 1 {
		t.Jitter = append(t.Jitter, Point{t.Last, t.jitter})
	}
}

// mix spreads numbers evenly (the finalizer of SplitMix64), so that a sample has nothing to do with
// the place of packets in batches.
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return bits.ReverseBytes64(n ^ n>>31)
}
