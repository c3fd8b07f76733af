package pipeline

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/openflow"
)

func (b *testBench) group(id uint32, kind openflow.GroupType, buckets ...openflow.Bucket) {
	b.t.Helper()
	m := &openflow.GroupMod{GroupDesc: openflow.GroupDesc{Group: id, Kind: kind, Buckets: buckets}}
	if err := b.GroupMod(m, b.now); err != nil {
		b.t.Fatal(err)
	}
}

// Each bucket of a group of type all has a packet of its own; what comes after the group has the
// packet as it was; counters count.
func TestGroupAll(t *testing.T) {
	b := newBench(t)
	b.group(1, openflow.GroupTypeAll,
		openflow.NewBucket(openflow.SetField(openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, 7})), openflow.Output(2)),
		openflow.NewBucket(openflow.Output(3)))
	b.add("actions=group:1,output:4")
	r := b.receive(1, plain(t))
	if len(r.Sent) != 3 || r.Sent[0].Data[5] != 7 || r.Sent[1].Data[5] != 2 || r.Sent[2].Data[5] != 2 {
		t.Fatalf("%v", r.Sent)
	}
	body, err := b.Multipart(openflow.GroupStatsRequest{Group: openflow.GroupAll}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s := body.(openflow.GroupStatsList)[0]
	if s.Packets != 1 || len(s.Buckets) != 2 || s.Buckets[1].Bytes != uint64(len(plain(t))) || s.RefCount != 1 || s.Duration.Sec != 1 {
		t.Errorf("%+v", s)
	}
}

// What ends a bucket's copy, a TTL that is used up, does not end the packet.
func TestBucketEnds(t *testing.T) {
	b := newBench(t)
	b.group(1, openflow.GroupTypeAll, openflow.NewBucket(openflow.DecNwTTL(), openflow.Output(2)), openflow.NewBucket(openflow.Output(3)))
	b.add("actions=group:1,output:4")
	b.want(1, pack(t, eth(0x800), ip4(17, 1), udp(1, 2), payload), "3", "4", "INVALID_TTL")
}

// Fast failover takes the first bucket whose port, or group, is live, and the translation of before
// is not fresh any more when that changes.
func TestFailover(t *testing.T) {
	watch := func(port, group uint32, a ...openflow.Action) openflow.Bucket {
		b := openflow.NewBucket(a...)
		b.WatchPort, b.WatchGroup = port, group
		return b
	}
	b := newBench(t)
	b.group(2, openflow.GroupTypeFF, watch(3, openflow.GroupAny, openflow.Output(3)))
	b.group(1, openflow.GroupTypeFF, watch(2, openflow.GroupAny, openflow.Output(2)), watch(openflow.PortAny, 2, openflow.Group(2)),
		watch(4, openflow.GroupAny, openflow.Output(4)))
	b.add("actions=group:1")
	b.want(1, plain(t), "2")
	var o Translation
	var k Key
	ParseKey(&k, plain(t), 1)
	NewTranslator(b.net).Translate(&o, b.Port(1), &k, 0)
	if !o.Fresh() {
		t.Error("a translation is stale at once")
	}
	b.SetPortState(2, openflow.PortStateLinkDown)
	if o.Fresh() {
		t.Error("a translation outlives the port that it went by")
	}
	b.want(1, plain(t), "3")
	b.SetPortState(3, openflow.PortStateLinkDown)
	b.want(1, plain(t), "4")
	b.SetPortState(4, openflow.PortStateLinkDown)
	b.want(1, plain(t))
}

// Select shares connections out by weight, keeps each on its bucket, and moves only those of a
// bucket that dies.
func TestSelect(t *testing.T) {
	b := newBench(t)
	bucket := func(weight uint16, port uint32) openflow.Bucket {
		k := openflow.NewBucket(openflow.Output(port))
		k.Weight, k.WatchPort = weight, port
		return k
	}
	b.group(1, openflow.GroupTypeSelect, bucket(1, 2), bucket(2, 3), bucket(1, 4))
	b.add("actions=group:1")
	where := func(i int) string {
		frame := pack(t, eth(0x800), ip4(17, 64), udp(uint16(i), 2000), payload)
		return fmt.Sprint(b.ports(1, frame))
	}
	const flows = 4000
	count := map[string]float64{}
	before := make([]string, flows)
	for i := range before {
		before[i] = where(i)
		count[before[i]]++
	}
	for port, share := range map[string]float64{"[2]": 0.25, "[3]": 0.5, "[4]": 0.25} {
		if got := count[port] / flows; math.Abs(got-share) > 0.04 { // about five standard deviations
			t.Errorf("port %s has a share of %.3f, want %.2f", port, got, share)
		}
	}
	b.SetPortState(4, openflow.PortStateLinkDown)
	for i := range before {
		after := where(i)
		if before[i] != "[4]" && after != before[i] || after == "[4]" {
			t.Fatalf("flow %d goes from %s to %s", i, before[i], after)
		}
	}
}

// Groups that would lead to themselves are refused, as is the removal of one that another leads to;
// the removal of a group removes its entries.
func TestGroupRules(t *testing.T) {
	b := newBench(t)
	b.group(1, openflow.GroupTypeIndirect, openflow.NewBucket(openflow.Output(2)))
	b.group(2, openflow.GroupTypeAll, openflow.NewBucket(openflow.Group(1)), openflow.NewBucket(openflow.Output(3)))
	mod := func(command openflow.GroupModCommand, id uint32, kind openflow.GroupType, buckets ...openflow.Bucket) error {
		return b.GroupMod(&openflow.GroupMod{Command: command, GroupDesc: openflow.GroupDesc{Group: id, Kind: kind, Buckets: buckets}}, 0)
	}
	refusedWith(t, mod(openflow.GroupAdd, 1, 0), openflow.GroupModFailedGroupExists)
	refusedWith(t, mod(openflow.GroupModify, 1, 0, openflow.NewBucket(openflow.Group(2))), openflow.GroupModFailedLoop)
	refusedWith(t, mod(openflow.GroupAdd, 3, openflow.GroupTypeIndirect), openflow.GroupModFailedInvalidGroup)
	refusedWith(t, mod(openflow.GroupDelete, 1, 0), openflow.GroupModFailedChainedGroup)
	b.add("priority=2,send_flow_rem,actions=group:2", "priority=1,send_flow_rem,actions=write_actions(group:1)")
	b.want(1, plain(t), "2", "3")
	if err := mod(openflow.GroupDelete, 2, 0); err != nil {
		t.Fatal(err)
	}
	equalText(t, b.flows(), "0:1  n=0 write_actions(group:1)")
	if len(b.news) != 1 || b.news[0].(*openflow.FlowRemoved).Reason != openflow.RemovedGroupDelete {
		t.Errorf("news: %v", b.news)
	}
	if err := mod(openflow.GroupDelete, openflow.GroupAll, 0); err != nil {
		t.Fatal(err)
	}
	equalText(t, b.flows())
}

func (b *testBench) meter(flags openflow.MeterFlags, bands ...openflow.MeterBand) {
	b.t.Helper()
	if err := b.MeterMod(&openflow.MeterMod{MeterConfig: openflow.MeterConfig{Meter: 1, Flags: flags, Bands: bands}}, b.now); err != nil {
		b.t.Fatal(err)
	}
}

// offer brings in packets at an even rate for twelve seconds, and returns the share that comes out
// in the last ten: the burst is used up by then.
func (b *testBench) offer(frame []byte, rate int) (share float64) {
	var out int
	for i := range rate * 12 {
		b.now = time.Duration(i) * time.Second / time.Duration(rate)
		if sent := len(b.receive(1, frame).Sent); i >= rate*2 {
			out += sent
		}
	}
	return float64(out) / float64(rate*10)
}

// A meter lets through what its rate allows, in bits or packets, and all of what is below it; a
// burst may exceed it.
func TestMeterDrop(t *testing.T) {
	frame := append(plain(t), make([]byte, 1000-len(plain(t)))...)
	near := func(got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.02 {
			t.Errorf("a share of %.3f comes through, want %.3f", got, want)
		}
	}
	b := newBench(t)
	b.meter(openflow.MeterFlagKbps, openflow.MeterBand{Type: openflow.BandDrop, Rate: 1000})
	b.add("actions=meter:1,output:2")
	near(b.offer(frame, 250), 0.5) // 2 Mbit/s
	b = newBench(t)
	b.meter(openflow.MeterFlagKbps, openflow.MeterBand{Type: openflow.BandDrop, Rate: 1000})
	b.add("actions=meter:1,output:2")
	near(b.offer(frame, 100), 1) // 0.8 Mbit/s
	b = newBench(t)
	b.meter(openflow.MeterFlagPktps, openflow.MeterBand{Type: openflow.BandDrop, Rate: 100})
	b.add("actions=meter:1,output:2")
	near(b.offer(frame, 400), 0.25)
	body, err := b.Multipart(openflow.MeterStatsRequest{Meter: 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s := body.(openflow.MeterStatsList)[0]; s.Packets != 4800 || s.Flows != 1 || math.Abs(float64(s.Bands[0].Packets)-3500) > 50 {
		t.Errorf("%+v", s)
	}
	b = newBench(t)
	b.meter(openflow.MeterFlagPktps|openflow.MeterFlagBurst, openflow.MeterBand{Type: openflow.BandDrop, Rate: 1, Burst: 20})
	b.add("actions=meter:1,output:2")
	var out int
	for range 50 {
		out += len(b.receive(1, frame).Sent)
	}
	if out != 20 {
		t.Errorf("%d of a burst come through, want 20", out)
	}
}

// A remarking band raises the drop precedence of assured forwarding, and only that.
func TestMeterRemark(t *testing.T) {
	b := newBench(t)
	b.meter(openflow.MeterFlagPktps|openflow.MeterFlagBurst, openflow.MeterBand{Type: openflow.BandDSCPRemark, Rate: 1, Burst: 1, PrecLevel: 1},
		openflow.MeterBand{Type: openflow.BandDrop, Rate: 2, Burst: 3})
	b.add("actions=meter:1,goto_table:1", "table=1,priority=2,ip,ip_dscp=12,actions=output:3", "table=1,priority=1,actions=output:2")
	ip := ip4(17, 64)
	ip.TOS = 10 << 2 // AF11
	frame := pack(t, eth(layers.EthernetTypeIPv4), ip, udp(1, 2), payload)
	b.want(1, frame, "2")
	b.want(1, frame, "3") // AF12 from now on
	if got := b.receive(1, frame).Sent[0].Data[15]; got != 12<<2 {
		t.Errorf("DSCP %d", got>>2)
	}
	b.want(1, frame) // and then it is too much
	for in, want := range map[uint64]uint64{10: 12, 12: 14, 14: 14, 0: 0, 46: 46, 8: 8, 34: 36} {
		if got := remarked(in, 1); got != want {
			t.Errorf("DSCP %d becomes %d, want %d", in, got, want)
		}
	}
	if err := b.MeterMod(&openflow.MeterMod{Command: openflow.MeterDelete, MeterConfig: openflow.MeterConfig{Meter: 1}}, 0); err != nil {
		t.Fatal(err)
	}
	if got := b.flows(); len(got) != 2 {
		t.Errorf("after the meter's removal there are %v", got)
	}
}
