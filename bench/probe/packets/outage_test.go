package packets

import (
	"testing"
	"time"
)

// Outages are found where packets are missing, at the beginning, within and at the end of a stream,
// and last from the first packet that is missing to the first that came again.
func TestOutages(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, test := range []struct {
		name    string
		missing []int
		want    []Outage
	}{
		{"none", nil, nil},
		{"one packet", []int{4}, []Outage{{At: 1000 + 4*ms, Lost: 1, Seconds: 0.001}}},
		{"two", []int{2, 3, 4, 7}, []Outage{{At: 1000 + 2*ms, Lost: 3, Seconds: 0.003}, {At: 1000 + 7*ms, Lost: 1, Seconds: 0.001}}},
		{"the first", []int{0, 1}, []Outage{{At: 1000, Lost: 2, Seconds: 0.002}}},
		{"the last", []int{8, 9}, []Outage{{At: 1000 + 8*ms, Lost: 2, Seconds: 0.002, Open: true}}},
		{"all", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, []Outage{{At: 1000, Lost: 10, Seconds: 0.01, Open: true}}},
	} {
		r := &Record{Sent: make([]int64, 12)} // room for more than were sent
		for i := range int64(10) {
			r.Sent[i] = 1000 + i*ms
		}
		for _, i := range test.missing {
			r.Sent[i] = 0
		}
		got := Outages(r, &Sent{Sent: 10, Began: 1000, Seconds: 0.01}, time.Millisecond)
		if len(got) != len(test.want) {
			t.Errorf("%s: %+v, not %+v", test.name, got, test.want)
			continue
		}
		for i := range got {
			if !near(got[i].Seconds, test.want[i].Seconds) {
				t.Errorf("%s: %v s, not %v", test.name, got[i].Seconds, test.want[i].Seconds)
			}
			got[i].Seconds, test.want[i].Latest = test.want[i].Seconds, test.want[i].At
			if got[i] != test.want[i] {
				t.Errorf("%s: %+v, not %+v", test.name, got[i], test.want[i])
			}
		}
	}
}

// TestOutageOfStalledSender proves that an outage during which the sender gave packets up may have
// begun as late as the packets that were sent allow.
func TestOutageOfStalledSender(t *testing.T) {
	const ms = int64(time.Millisecond)
	r := &Record{Sent: []int64{1 * ms, 2 * ms, 0, 0, 0, 50 * ms, 51 * ms}}
	got := Outages(r, &Sent{Sent: 7, Began: 1 * ms, Seconds: 0.051}, time.Millisecond)
	if len(got) != 1 || got[0].At != 3*ms || got[0].Latest != 47*ms || got[0].Lost != 3 {
		t.Errorf("%+v", got)
	}
}
