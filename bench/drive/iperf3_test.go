package drive

import (
	"math"
	"testing"
)

// TestIperfOverhead proves that what a link carries is reckoned from iperf3's payload by the MTU that its way has, for both families,
// whole datagrams and fragments; the frames of each case are counted by hand.
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
