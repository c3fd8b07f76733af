package ditg

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// What ITGDec 2.8.1 printed of two flows is read: the flows, all together, in seconds and bit/s.
func TestDecode(t *testing.T) {
	f, err := os.Open("testdata/two-flows.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	total, flows, err := Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{Flows: 2, Seconds: 1.500313, Packets: 590, Bytes: 37760, Bitrate: 201344.653, Rate: 393.251275,
		DelayMin: 0.000004, DelayMax: 0.000877, Delay: 0.000021, Deviation: 0.000051, Jitter: 0.000015}
	if math.Abs(total.Bitrate-want.Bitrate) > 1e-6 {
		t.Errorf("%v bit/s, not %v", total.Bitrate, want.Bitrate)
	}
	if total.Bitrate = want.Bitrate; total != want {
		t.Errorf("%+v, not %+v", total, want)
	}
	if len(flows) != 2 || flows[0].Flow != 2 || flows[0].Packets != 294 || flows[1].Flow != 1 || flows[1].DelayMax != 0.000108 {
		t.Errorf("flows are %+v", flows)
	}
}

// A log without packets, of which ITGDec prints numbers like -nan, is no measurement; nor is what
// says nothing or something else.
func TestDecodeNothing(t *testing.T) {
	text, err := os.ReadFile("testdata/nothing.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Decode(strings.NewReader(string(text))); !errors.Is(err, ErrNothing) {
		t.Errorf("of no packet: %v", err)
	}
	for _, text := range []string{"", "Error opening log file", "TOTAL RESULTS\nTotal packets = many\n", "Flow number: x\n", "TOTAL RESULTS\nAverage bitrate = 5 Mbit/s\n"} {
		if total, _, err := Decode(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read as %+v", text, total)
		}
	}
}

// Whatever a program called ITGDec prints is read or refused, and no number comes out that is none.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"two-flows", "nothing"} {
		text, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		total, flows, err := Decode(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, s := range append(flows, total) {
			for _, v := range []float64{s.Seconds, s.Bitrate, s.Rate, s.DelayMin, s.DelayMax, s.Delay, s.Deviation, s.Jitter} {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Errorf("%+v", s)
				}
			}
		}
	})
}

// TestRates proves that what ITGDec -b writes is read, of all flows together, and that anything
// else is refused with its line.
func TestRates(t *testing.T) {
	got, err := Rates(strings.NewReader("Time 2-127.0.0.1-127.0.0.1 1-127.0.0.1-127.0.0.1 Aggregate-Flow\n0.000000 51.2 51.2 102.4\n0.100000 0 0 0.000000\n"))
	if want := []Rate{{0, 102.4e3}, {0.1, 0}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"Time a Aggregate-Flow\n0.1\n", "Time a\n0.1 many\n"} {
		if _, err := Rates(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
