package packets

import (
	"math"
	"math/rand/v2"
	"testing"
)

// near says whether two numbers are the same but for rounding.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12+1e-9*math.Abs(b) }

// The jitter is that of RFC 3550, section 6.4.1, against an example reckoned by hand: packets every
// 20 ms whose transits are 10, 14, 6 and 6 ms have |D| of 4, 8 and 0 ms, so J is 0.25, then
// 0.25+(8-0.25)/16 = 0.734375, then 0.734375·15/16 = 0.6884765625 ms; the mean of |D| is 4 ms.
func TestJitter(t *testing.T) {
	const ms = 1_000_000
	tally := newTally(10, 10)
	for i, transit := range []int64{10, 14, 6, 6} {
		sent := int64(i+1) * 20 * ms
		tally.add(uint64(i), sent, sent+transit*ms, 64)
	}
	tally.end()
	if len(tally.Jitter) != 1 || !near(tally.Jitter[0].Value, 0.6884765625e-3) || tally.Jitter[0].At != 86*ms {
		t.Errorf("jitter %+v; it is 0.6884765625 ms at 86 ms", tally.Jitter)
	}
	if !near(tally.Difference, 4e-3) {
		t.Errorf("the mean of |D| is %v", tally.Difference)
	}
	d := tally.Delay
	if d.N != 4 || !near(d.Mean, 9e-3) || !near(d.Min, 6e-3) || !near(d.Max, 14e-3) || !near(d.SD, math.Sqrt((1+25+9+9)/3.0)*1e-3) {
		t.Errorf("delays %+v", d)
	}
}

// Losses, reordering (RFC 4737: what comes after a higher number) and duplicates are told apart.
func TestTallyOrder(t *testing.T) {
	tally := newTally(20, 20)
	for i, number := range []uint64{0, 1, 3, 2, 2, 6, 4, 3, 9, 100} { // 5, 7 and 8 are lost; 100 is none of the stream
		tally.add(number, int64(i), int64(i)+5, 10)
	}
	if tally.Received != 7 || tally.Reordered != 2 || tally.Duplicates != 2 || tally.Bytes != 70 {
		t.Errorf("%d received, %d reordered, %d duplicates, %d bytes; it is 7, 2, 2 and 70", tally.Received, tally.Reordered, tally.Duplicates, tally.Bytes)
	}
}

// Of a long stream a share of delays is kept that is about as asked for, and has nothing to do with
// when a packet was sent, nor with where in a batch it was: delays that depend on both have the
// same mean in the sample.
func TestTallySample(t *testing.T) {
	const n, keep = 200_000, 5000
	tally := newTally(n, keep)
	for i := range uint64(n) {
		tally.add(i, 1, 1+int64(i%32)*1000+int64(i), 18)
	}
	if got := float64(len(tally.Delays)); math.Abs(got-keep) > 6*math.Sqrt(keep) {
		t.Errorf("%v delays were kept, not about %d", got, keep)
	}
	var mean float64
	for _, p := range tally.Delays {
		mean += p.Value / float64(len(tally.Delays))
	}
	if sigma := tally.Delay.SD / math.Sqrt(keep); math.Abs(mean-tally.Delay.Mean) > 6*sigma {
		t.Errorf("the mean of the sample is %v, of all %v", mean, tally.Delay.Mean)
	}
}

// A synthetic stream with normal jitter of a known deviation σ has that deviation, and a mean |D|
// of 2σ/√π, within what chance explains (six standard errors).
func TestTallyKnownJitter(t *testing.T) {
	const n, sigma, mean = 50_000, 1e-3, 20e-3
	random := rand.New(rand.NewPCG(1, 2))
	tally := newTally(n, n)
	for i := range uint64(n) {
		sent := int64(i) * 1_000_000
		tally.add(i, sent, sent+int64((mean+sigma*random.NormFloat64())*1e9), 64)
	}
	if se := sigma / math.Sqrt(2*n); math.Abs(tally.Delay.SD-sigma) > 6*se {
		t.Errorf("deviation %v, not %v ± %v", tally.Delay.SD, sigma, 6*se)
	}
	want := 2 * sigma / math.Sqrt(math.Pi)
	if se := 2 * sigma / math.Sqrt(n); math.Abs(tally.Difference-want) > 6*se {
		t.Errorf("mean |D| %v, not %v ± %v", tally.Difference, want, 6*se)
	}
	if len(tally.Jitter) < n/1000-1 {
		t.Errorf("%d points of jitter in %d s", len(tally.Jitter), n/1000)
	}
}

// A clock that is set while a stream runs does not fill memory with seconds that there were not.
func TestTallyClockSet(t *testing.T) {
	tally := newTally(10, 10)
	tally.add(0, 0, 1, 18)
	tally.add(1, 1, 1<<62, 18)
	tally.add(2, 2, 3, 18)
	tally.end()
	if len(tally.Jitter) > 3 {
		t.Errorf("%d points of jitter", len(tally.Jitter))
	}
}

// What a sender writes a receiver reads, in 18 bytes.
func TestHeader(t *testing.T) {
	b := make([]byte, HeaderLen)
	want := header{0xfedc, 1<<31 + 5, 1_795_300_628_921_456_074}
	want.put(b)
	if got, ok := parseHeader(b); !ok || got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
	if _, ok := parseHeader(b[:HeaderLen-1]); ok {
		t.Error("a header of 17 bytes was read")
	}
}

// Whatever comes by the network or from the kernel is read or refused, and never counted beyond its
// stream.
func FuzzPacket(f *testing.F) {
	b := make([]byte, HeaderLen)
	header{1, 2, 3}.put(b)
	f.Add(b, []byte{32, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 35, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, payload, control []byte) {
		parseAncillary(control)
		h, ok := parseHeader(payload)
		if !ok {
			return
		}
		again := make([]byte, HeaderLen)
		if h.put(again); string(again) != string(payload[:HeaderLen]) {
			t.Errorf("%x was read as %+v", payload[:HeaderLen], h)
		}
		tally := newTally(64, 64)
		tally.add(h.number, h.sent, 0, len(payload))
		if tally.Received > 1 || tally.Received == 1 && h.number >= 64 {
			t.Errorf("number %d was counted", h.number)
		}
	})
}
