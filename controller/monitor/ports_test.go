package monitor

import (
	"math"
	"testing"
	"time"

	"trivet.dev/trivet/openflow"
)

var start = time.Unix(1_800_000_000, 0)

// Proves how rates come of two readings: with what interval, and when there are none.
func TestRates(t *testing.T) {
	reading := func(bytes, packets uint64, own time.Duration) openflow.PortStats {
		sent := 2 * bytes
		if bytes == NoCounter {
			sent = NoCounter
		}
		return openflow.PortStats{RxBytes: bytes, TxBytes: sent, RxPackets: packets, TxPackets: packets, Duration: openflow.DurationOf(own)}
	}
	for name, c := range map[string]struct {
		before, after    openflow.PortStats
		interval         time.Duration // by our clock
		want             time.Duration
		rxRate, rxPacket float64
	}{
		"plain":                       {reading(1000, 10, 0), reading(3000, 30, 0), 2 * time.Second, 2 * time.Second, 8000, 10},
		"the switch's clock":          {reading(1000, 10, 5*time.Second), reading(3000, 30, 6*time.Second), 1100 * time.Millisecond, time.Second, 16000, 20},
		"a clock that stands":         {reading(1000, 10, 5*time.Second), reading(3000, 30, 5*time.Second), 2 * time.Second, 2 * time.Second, 8000, 10},
		"a clock that runs away":      {reading(1000, 10, 5*time.Second), reading(3000, 30, 500*time.Second), 2 * time.Second, 2 * time.Second, 8000, 10},
		"nothing":                     {reading(1000, 10, 0), reading(1000, 10, 0), time.Second, time.Second, 0, 0},
		"counters begin anew":         {reading(1000, 10, 0), reading(999, 30, 0), time.Second, 0, 0, 0},
		"only packets begin anew":     {reading(1000, 10, 0), reading(3000, 9, 0), time.Second, 0, 0, 0},
		"the port is another":         {reading(1000, 10, 5*time.Second), reading(3000, 30, time.Second), time.Second, 0, 0, 0},
		"no time between":             {reading(1000, 10, 0), reading(3000, 30, 0), 0, 0, 0, 0},
		"bytes are not counted":       {reading(NoCounter, 10, 0), reading(NoCounter, 30, 0), time.Second, time.Second, 0, 20},
		"bytes are counted from then": {reading(NoCounter, 10, 0), reading(500, 30, 0), time.Second, time.Second, 0, 20},
	} {
		p := &port{Port: Port{Capacity: 16_000}}
		p.update(&c.before, start)
		if p.Interval != 0 || !math.IsNaN(p.Utilisation()) {
			t.Errorf("%s: rates from one reading: %+v", name, p.Port)
		}
		p.update(&c.after, start.Add(c.interval))
		if p.Interval != c.want || p.RxRate != c.rxRate || p.RxPacketRate != c.rxPacket || p.RxBytes != c.after.RxBytes {
			t.Errorf("%s: interval %v, %v bit/s, %v packets/s", name, p.Interval, p.RxRate, p.RxPacketRate)
		}
		if name == "plain" && (p.TxRate != 16_000 || p.Utilisation() != 1 || p.RxUtilisation() != 0.5 || p.TxUtilisation() != 1) {
			t.Errorf("%s: sends %v bit/s, uses %v", name, p.TxRate, p.Utilisation())
		}
		if c.want == 0 && !math.IsNaN(p.Utilisation()) {
			t.Errorf("%s: a use without a rate", name)
		}
	}
}

// Proves which readings get a row in the time series: all with traffic, the first without,
// and one a minute.
func TestRows(t *testing.T) {
	p := &port{}
	var wrote []int
	for second, packets := range []uint64{5, 6, 6, 6, 6, 7, 7} {
		was := p.idle
		p.update(&openflow.PortStats{RxPackets: packets}, start.Add(time.Duration(second)*time.Second))
		if row, wanted := p.row(was, storedAtLeast); wanted {
			wrote = append(wrote, second)
			if row.RxPackets != packets {
				t.Errorf("row of second %d: %+v", second, row)
			}
		}
	}
	for second := 7; second < 190; second++ {
		was := p.idle
		p.update(&openflow.PortStats{RxPackets: 7}, start.Add(time.Duration(second)*time.Second))
		if _, wanted := p.row(was, storedAtLeast); wanted {
			wrote = append(wrote, second)
		}
	}
	want := []int{0, 1, 2, 5, 6, 66, 126, 186}
	if len(wrote) != len(want) {
		t.Fatalf("rows of seconds %v, want %v", wrote, want)
	}
	for i := range want {
		if wrote[i] != want[i] {
			t.Fatalf("rows of seconds %v, want %v", wrote, want)
		}
	}
}
