package drive

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// unlucky is nodes whose iperf3 loses the first datagrams of some streams of UDP: a real one
// takes half a minute to say so.
type unlucky struct {
	nodes
	fails, begun int
}

func (u *unlucky) run(ctx context.Context, _ string, argv []string, _ io.Reader, out, _ io.Writer) error {
	if argv[1] == "--server" {
		fmt.Fprintln(out, "Server listening")
		<-ctx.Done()
		return ctx.Err()
	}
	if u.begun++; u.begun <= u.fails {
		fmt.Fprint(out, `{"start": {}, "error": "error - unable to read from stream socket: Resource temporarily unavailable"}`)
		return exit(1)
	}
	fmt.Fprint(out, `{"end": {"sum": {"bits_per_second": 1e6, "packets": 100, "lost_packets": 5}}}`)
	return nil
}

// TestIperfGreeting proves that UDP whose first datagram was lost is measured by another attempt,
// and that there is an end to it; that who reads the figure is told.
func TestIperfGreeting(t *testing.T) {
	for fails, want := range map[int]int{0: 1, 2: 3, 100: 1 + mostGreetings} {
		u := &unlucky{fails: fails}
		b := &bed{nodes: u, cell: &experiment.Cell{}, options: experiment.Options{"from": "h1", "to": "h2", "protocol": "udp", "time": "1s"},
			topology: &topology.Topology{Nodes: []*topology.Node{{Name: "h2", Loopback: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}}}}
		o, err := iperf3(t.Context(), b)
		if good := fails < want; u.begun != want || (err == nil) != good || good && valuesOf(o)["throughput h1 h2"][0] != 0.95e6 {
			t.Errorf("%d fail: %d attempts, %v, %v", fails, u.begun, valuesOf(o), err)
		}
		if told := len(o.Reasons) == 1 && o.Reasons[0].Code == "late"; told != (fails > 0) || fails == 0 && len(o.Reasons) > 0 {
			t.Errorf("%d fail: %+v", fails, o.Reasons)
		}
	}
}

// TestIperfTimes proves that the times of what was sent second by second count from the beginning
// of the sample, also where iperf3 was started again.
func TestIperfTimes(t *testing.T) {
	r, err := readIperf([]byte(`{"intervals": [{"sum": {"start": 0, "bits_per_second": 1}}, {"sum": {"start": 1, "bits_per_second": 2}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if over := r.overTime(30.5); over == nil || !slices.Equal(over.At, []float64{30.5, 31.5}) {
		t.Errorf("%+v", over)
	}
}

// TestIperfLate proves that the reason says how late it was.
func TestIperfLate(t *testing.T) {
	if r := late(30*time.Second + 9*time.Millisecond); r.Level != environment.Doubtful || r.Code != "late" || r.Text != "iperf3 began 30 s late: its greeting was lost" {
		t.Errorf("%+v", r)
	}
}

// TestIperfOverhead proves that what a link carries is reckoned from iperf3's payload by the MTU
// that its way has, for both families, whole datagrams and fragments; the frames of each case are
// counted by hand.
func TestIperfOverhead(t *testing.T) {
	for _, test := range []struct {
		name           string
		segment, block int
		udp, v6        bool
		want           float64
	}{
		{"TCP", 1448, 131072, false, false, 1514.0 / 1448},
		{"TCP, IPv6", 1428, 131072, false, true, 1514.0 / 1428},
		{"TCP, an MTU of 9000", 8948, 131072, false, false, 9014.0 / 8948},
		{"TCP, a report without segments", 0, 131072, false, true, 1514.0 / 1428},
		{"UDP", 1448, 1448, true, false, 1490.0 / 1448},
		{"UDP, the longest in one frame", 1448, 1472, true, false, 1514.0 / 1472},
		{"UDP, two fragments", 1448, 1473, true, false, (1473 + 8 + 2*34.0) / 1473},
		{"UDP, six fragments", 1448, 8192, true, false, (8192 + 8 + 6*34.0) / 8192},
		{"UDP, an MTU of 9000", 8948, 8192, true, false, 8234.0 / 8192},
		{"UDP, IPv6", 1428, 1428, true, true, 1490.0 / 1428},
		{"UDP, IPv6, six fragments", 1428, 8192, true, true, (8192 + 8 + 6*62.0) / 8192},
		{"UDP, IPv6, the least MTU", 1208, 1300, true, true, (1300 + 8 + 2*62.0) / 1300},
	} {
		var r iperfReport
		r.Start.Segment, r.Start.Test.BlockSize = test.segment, test.block
		if got := r.overhead(test.udp, test.v6); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: %v, not %v", test.name, got, test.want)
		}
	}
}
