package pipeline

import (
	"math"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/openflow"
)

// A band that remarks marks what is above its rate, as much of it as a band that drops would drop,
// and loses nothing; ARP, which has no DSCP, passes as it is (section 5.7.1). Each case offers so
// many packets a second, as of os-ken's cases, for ten seconds of simulated time.
func TestMeterRemarkRates(t *testing.T) {
	af21 := func(size int) []byte {
		ip := ip4(17, 64)
		ip.TOS = 18 << 2
		frame := pack(t, eth(layers.EthernetTypeIPv4), ip, udp(1, 2), payload)
		return append(frame, make([]byte, size-len(frame))...)
	}
	for _, c := range []struct {
		flags      openflow.MeterFlags
		limit      uint32 // kbit/s or packets/s
		size, rate int    // bytes; packets/s
		marked     float64
	}{
		{openflow.MeterFlagKbps, 100_000, 1250, 20_000, 0.5}, // 200 Mbit/s
		{openflow.MeterFlagKbps, 100_000, 1250, 9_900, 0},    // 99 Mbit/s
		{openflow.MeterFlagPktps, 100, 100, 200, 0.5},
		{openflow.MeterFlagPktps, 1000, 100, 2000, 0.5},
		{openflow.MeterFlagPktps, 10_000, 100, 20_000, 0.5},
		{openflow.MeterFlagPktps, 20_000, 100, 20_000, 0},
		{openflow.MeterFlagPktps, 100, 100, 190, 0.474}, // a tester that sends a twentieth less sees a tenth less marked
	} {
		b := newBench(t)
		b.meter(c.flags, openflow.MeterBand{Type: openflow.BandDSCPRemark, Rate: c.limit, PrecLevel: 1})
		b.add("actions=meter:1,output:2")
		frame := af21(c.size)
		var sent, marked int
		for range 13 * c.rate { // the first three seconds use up the burst, which is one second's worth
			b.now += time.Second / time.Duration(c.rate)
			got := b.receive(1, frame).Sent
			if len(got) != 1 {
				t.Fatalf("%+v: %d packets come out for one", c, len(got))
			}
			if b.now < 3*time.Second {
				continue
			}
			sent++
			switch got[0].Data[15] >> 2 {
			case 20:
				marked++
			case 18:
			default:
				t.Fatalf("%+v: DSCP %d", c, got[0].Data[15]>>2)
			}
		}
		if share := float64(marked) / float64(sent); math.Abs(share-c.marked) > 0.01 {
			t.Errorf("%+v: a share of %.3f is marked", c, share)
		}
	}
}
