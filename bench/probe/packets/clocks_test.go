package packets

import (
	"math"
	"reflect"
	"testing"
)

// TestInTimeOf proves that what a receiver tells of a stream is the same whatever its clock and the
// sender's are, once it is put into the time of one clock; and that nothing is done where nothing
// came.
func TestInTimeOf(t *testing.T) {
	const began, sender, receiver = 1_700_000_000_000_000_000, 7_000_000_000, -3_000_000_000
	received := func(sender, receiver int64) (*Sent, *Received) {
		r := &Received{Tally: *newTally(2000, 5000), Record: &Record{Sent: make([]int64, 2000), Delay: make([]int64, 2000)},
			Tapped: &Tapped{Sights: []Sight{{At: []int64{began + receiver}, Slots: []Slot{{First: began + receiver, Last: began + 9 + receiver}}}}}}
		for n := range uint64(2000) {
			if n > 500 && n < 1000 { // a gap
				continue
			}
			sent, delay := began+int64(n)*1e6, int64(5e6)+int64(n%7)*1e5
			r.add(n, sent+sender, sent+delay+receiver, 64)
			r.Record.Sent[n], r.Record.Delay[n] = sent+sender, delay+receiver-sender
		}
		r.end()
		return &Sent{Began: began + sender}, r
	}
	wantSent, want := received(0, 0)
	gotSent, got := received(sender, receiver)
	InTimeOf(gotSent, got, sender, receiver)
	if gotSent.Began != wantSent.Began || got.First != want.First || got.Last != want.Last || len(got.Gaps) != 1 {
		t.Errorf("began %d, first %d, last %d, gaps %v", gotSent.Began-began, got.First-began, got.Last-began, got.Gaps)
	}
	same := func(what string, a, b []Point) {
		t.Helper()
		if len(a) != len(b) || len(a) == 0 {
			t.Fatalf("%s: %d and %d", what, len(a), len(b))
		}
		for i := range a {
			if a[i].At != b[i].At || math.Abs(a[i].Value-b[i].Value) > 1e-6 {
				t.Fatalf("%s: %+v, and should be %+v", what, a[i], b[i])
			}
		}
	}
	same("delays", got.Delays, want.Delays)
	same("jitter", got.Jitter[1:], want.Jitter[1:]) // each of the first second of a clock
	same("gaps", got.Gaps, want.Gaps)
	for what, pair := range map[string][2]float64{"mean": {got.Delay.Mean, want.Delay.Mean}, "min": {got.Delay.Min, want.Delay.Min}, "max": {got.Delay.Max, want.Delay.Max}} {
		if math.Abs(pair[0]-pair[1]) > 1e-6 {
			t.Errorf("%s: %v, and should be %v", what, pair[0], pair[1])
		}
	}
	if !reflect.DeepEqual(got.Record, want.Record) || !reflect.DeepEqual(got.Tapped, want.Tapped) {
		t.Error("what is recorded of each packet differs")
	}
	none := &Received{}
	if InTimeOf(nil, none, 1, 2); !reflect.DeepEqual(none, &Received{}) {
		t.Errorf("of nothing there is %+v", none)
	}
	InTimeOf(nil, nil, 1, 2)
}
