package monitor

import (
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// Proves that the requests in a second are bounded, as many as a bucket holds at once.
func TestPacer(t *testing.T) {
	p := pacer{perSecond: 100, burst: 5}
	sent := 0
	for at := start; at.Before(start.Add(10 * time.Second)); at = at.Add(time.Millisecond) {
		for p.wait(at) == 0 {
			p.spend(1)
			sent++
		}
	}
	if sent < 990 || sent > 1005 {
		t.Errorf("%d in 10 s, 100 are allowed in one", sent)
	}
	end := start.Add(10 * time.Second)
	p.spend(200) // a large answer
	if wait := p.wait(end); wait < 1900*time.Millisecond || wait > 2100*time.Millisecond {
		t.Errorf("after one that counts for 200: %v", wait)
	}
	if p.wait(end.Add(time.Hour)); p.tokens != 5 {
		t.Errorf("after an hour %v are saved", p.tokens)
	}
}

// simulate turns the poller of n switches, of which some never answer, for a time that passes as
// fast as it can be computed. The others answer at once. It returns the requests of each second
// and how often each switch's ports were read.
func simulate(o Options, n, silent int, span time.Duration) (a *App, seconds []float64, reads map[*node]int) {
	a = New(o)
	a.packets.last = start.Add(span) // no ticks
	var nodes []*node
	for range n {
		node := &node{sw: &controller.Switch{}}
		nodes = append(nodes, node)
		a.poller.add(node, start, a.o)
	}
	for _, node := range nodes[:silent] {
		node.silent = 5
	}
	reads, seconds = map[*node]int{}, make([]float64, span/time.Second)
	p := &a.poller
	for now := start; now.Before(start.Add(span)); now = now.Add(time.Millisecond) {
		for !p.turns[0].due.After(now) && p.pacer.wait(now) == 0 {
			t := p.turns[0].turn
			p.pacer.spend(cost[t.kind])
			p.put(t, p.next(t, now, a.o))
			seconds[now.Sub(start)/time.Second] += cost[t.kind]
			if t.kind == readPorts {
				reads[t.n]++
				if !t.n.started.IsZero() && t.n.silent == 0 {
					p.measure(now.Sub(t.n.started))
				}
				t.n.started = now
			}
		}
	}
	return a, seconds, reads
}

// Proves that switches that come all at once are asked evenly over the period, in every second
// as much as in the others.
func TestSpread(t *testing.T) {
	a, seconds, reads := simulate(Options{PerSecond: 1000}, 200, 0, 60*time.Second)
	for i, n := range seconds[20:] {
		if n < 250 || n > 350 { // 200 of ports, and 5 every 10 s of each
			t.Errorf("second %d: %v requests", 20+i, n)
		}
	}
	for _, n := range reads {
		if n < 58 || n > 62 {
			t.Errorf("the ports of a switch were read %d times in 60 s", n)
		}
	}
	if p := a.Period(); p != time.Second {
		t.Errorf("period %v", p)
	}
	// within a second: no tenth of it has more than a few more than its share
	counts := map[int64]int{}
	for _, turn := range a.poller.turns {
		if turn.kind == readPorts {
			counts[turn.due.Sub(start).Milliseconds()%1000/100]++
		}
	}
	for tenth, n := range counts {
		if n < 15 || n > 25 {
			t.Errorf("tenth %d of a second has %d of 200 switches", tenth, n)
		}
	}
}

// Proves that for more switches than may be asked in a period it grows, equally for all, is
// reported, and that the bound holds.
func TestStretch(t *testing.T) {
	a, seconds, reads := simulate(Options{PerSecond: 500}, 1000, 0, 60*time.Second)
	for i, n := range seconds[2:] {
		if n > 520 {
			t.Errorf("second %d: %v requests, 500 are allowed", 2+i, n)
		}
	}
	least, most := 60, 0
	for _, n := range reads {
		least, most = min(least, n), max(most, n)
	}
	if least < 17 || most > 22 { // 1,500 requests a second are wanted: all takes three times as long
		t.Errorf("the ports of a switch were read %d to %d times in 60 s", least, most)
	}
	if p := a.Period(); p < 2800*time.Millisecond || p > 3200*time.Millisecond {
		t.Errorf("period %v", p)
	}
}

// Proves that switches that do not answer are asked seldom.
func TestSilentAreAskedLess(t *testing.T) {
	_, _, reads := simulate(Options{}, 10, 9, 100*time.Second)
	for n, times := range reads {
		if n.silent > 0 && times > 5 || n.silent == 0 && times < 95 {
			t.Errorf("silent %d: read %d times in 100 s", n.silent, times)
		}
	}
}

// Proves that the counters of a switch become rates, use and samples, and that its tables, flows
// and groups are read.
func TestReadings(t *testing.T) {
	a, c := begin(t, Options{Period: 50 * time.Millisecond, SlowPeriod: 100 * time.Millisecond,
		Capacity: func(dpid uint64, port uint32) float64 { return map[uint32]float64{1: 1e9}[port] }})
	var mu sync.Mutex
	samples := 0
	var busy Port // the last with traffic
	cancel := a.Watch(func(s Sample) {
		mu.Lock()
		defer mu.Unlock()
		if samples++; s.Switch != 5 || len(s.Ports) != 2 {
			t.Errorf("sample %+v", s)
			return
		}
		if s.Ports[0].RxRate > 0 {
			busy = s.Ports[0]
		}
		a.Ports() // may be called
	})
	f := meet(t, c, 5, func(f *fake) {
		f.ports = openflow.PortStatsList{{Port: 1, RxBytes: 1000}, {Port: 2, TxBytes: NoCounter}, {Port: 77}, {Port: openflow.PortLocal}, {Port: 1}}
		f.flows = openflow.FlowStatsList{{Priority: 3, Match: openflow.NewMatch(openflow.InPort(1)), Cookie: 8}}
		f.groups = openflow.GroupDescList{{Group: 9, Kind: openflow.GroupTypeSelect, Buckets: []openflow.Bucket{openflow.NewBucket(openflow.Output(1))}}}
	})
	until.True(t, "rates of two ports", func() bool {
		p := a.Ports()
		return len(p) == 2 && p[0].Interval > 0 && p[1].Interval > 0
	})
	p, _ := a.Port(5, 1)
	if p.Capacity != 1e9 || !p.Up || p.Name != "one" || p.RxRate != 0 {
		t.Errorf("port 1: %+v", p)
	}
	if p, _ := a.Port(5, 2); p.Capacity != 10e6 || p.Up || p.TxRate != 0 {
		t.Errorf("port 2: %+v", p)
	}
	if _, ok := a.Port(5, 77); ok {
		t.Error("a port that the switch has not described is believed")
	}
	f.set(func() { f.ports[0].RxBytes += 1_000_000 })
	until.True(t, "a rate", func() bool {
		mu.Lock()
		defer mu.Unlock()
		sent := busy.RxRate * busy.Interval.Seconds() / 8
		return busy.Number == 1 && sent > 999_999 && sent < 1_000_001 && busy.Utilisation() == busy.RxRate/1e9
	})
	until.True(t, "flows, tables and groups", func() bool {
		flows, there := a.Flows(5)
		groups := a.Groups(5)
		return there && flows.Complete && flows.Count == 1 && len(flows.Entries) == 1 && flows.Entries[0].Cookie == 8 && flows.Packets == 3 &&
			len(a.Tables(5)) == 2 && len(groups) == 1 && groups[0].Stats.Packets == 11 && len(groups[0].Buckets) == 1
	})
	if n := a.FlowCounts(); len(n) != 1 || n[5] != 1 {
		t.Errorf("counts %v", n)
	}
	cancel()
	mu.Lock()
	before := samples
	mu.Unlock()
	asked := f.count(openflow.MultipartPortStats)
	until.True(t, "further readings", func() bool { return f.count(openflow.MultipartPortStats) > asked+3 })
	mu.Lock()
	if before == 0 || samples > before {
		t.Errorf("%d samples, %d after cancel", before, samples)
	}
	mu.Unlock()
	f.conn.Close()
	until.True(t, "the end of the switch", func() bool {
		_, there := a.Flows(5)
		return !there && len(a.Ports()) == 0
	})
}

// Proves that more flow entries than there is room for are counted and not read, and that a
// switch that refuses groups is asked for them once.
func TestManyFlows(t *testing.T) {
	a, c := begin(t, Options{Period: 50 * time.Millisecond, SlowPeriod: 50 * time.Millisecond, MaxFlows: 3})
	first := meet(t, c, 1, func(f *fake) { f.flows = make(openflow.FlowStatsList, 4) })
	until.True(t, "the number of flows", func() bool { f, _ := a.Flows(1); return f.Count == 4 && !f.Complete && len(f.Entries) == 0 })
	if n := first.count(openflow.MultipartFlow); n != 0 {
		t.Errorf("the entries were asked for %d times", n)
	}
	first.set(func() { first.flows = first.flows[:2] })
	until.True(t, "two flows", func() bool { f, _ := a.Flows(1); return f.Complete && len(f.Entries) == 2 })
	second := meet(t, c, 2, func(f *fake) { f.flows = make(openflow.FlowStatsList, 2) })
	until.True(t, "no room for two more", func() bool { f, _ := a.Flows(2); return f.Count == 2 && !f.Complete })
	first.conn.Close()
	until.True(t, "room after the first has gone", func() bool { f, _ := a.Flows(2); return f.Complete })
	asked := second.count(openflow.MultipartAggregate)
	until.True(t, "further readings", func() bool { return second.count(openflow.MultipartAggregate) > asked+3 })
	if n := second.count(openflow.MultipartGroupDesc); n != 1 {
		t.Errorf("groups were asked for %d times", n)
	}
	if r := a.Requests(); r.Refused != 2 {
		t.Errorf("%+v", r)
	}
}

// Proves that switches that do not answer, and one that does not even read, do not keep others from
// being read, though there are places for two requests only; and that they are read when they
// answer again.
func TestSilentSwitches(t *testing.T) {
	a, c := begin(t, Options{Period: 50 * time.Millisecond, Timeout: 500 * time.Millisecond, InFlight: 2})
	var silent []*fake
	for dpid := uint64(10); dpid < 15; dpid++ {
		silent = append(silent, meet(t, c, dpid, func(f *fake) { f.mute = true }))
	}
	stuck := meet(t, c, 20)
	until.True(t, "six switches", func() bool { return len(c.Switches()) == 6 })
	stuck.mu.Lock() // its connection is full: it waits for the lock and reads no more
	defer stuck.mu.Unlock()
	good := meet(t, c, 1, func(f *fake) { f.ports = openflow.PortStatsList{{Port: 1}} })
	until.True(t, "readings of the switch that answers", func() bool { return good.count(openflow.MultipartPortStats) >= 20 })
	if p, ok := a.Port(1, 1); !ok || p.Interval <= 0 {
		t.Errorf("its port: %+v", p)
	}
	until.True(t, "requests without an answer", func() bool { return a.Requests().Unanswered >= 5 })
	silent[0].set(func() { silent[0].mute, silent[0].ports = false, openflow.PortStatsList{{Port: 2}} })
	until.True(t, "a switch that answers again", func() bool { _, ok := a.Port(10, 2); return ok })
}

// Proves that no more requests are in flight than allowed, for slow switches, and that one
// that has not answered is skipped.
func TestInFlight(t *testing.T) {
	a, c := begin(t, Options{Period: 20 * time.Millisecond, SlowPeriod: time.Hour, InFlight: 3})
	var fakes []*fake
	for dpid := uint64(1); dpid <= 10; dpid++ {
		fakes = append(fakes, meet(t, c, dpid, func(f *fake) { f.work = 50 * time.Millisecond }))
	}
	most := 0
	for _, f := range fakes {
		until.True(t, "readings of each", func() bool {
			a.mu.Lock()
			most = max(most, a.poller.inFlight)
			a.mu.Unlock()
			return f.count(openflow.MultipartPortStats) >= 3
		})
		f.set(func() {
			if f.most > 1 {
				t.Errorf("%d requests to one switch at once", f.most)
			}
		})
	}
	if most > 3 || most == 0 {
		t.Errorf("%d requests in flight", most)
	}
	if p := a.Period(); p < 100*time.Millisecond { // ten of 50 ms each, three at a time
		t.Errorf("period %v", p)
	}
}

// Proves that packets are counted by protocol and switch, and stay counted when the switch has
// gone.
func TestPackets(t *testing.T) {
	a, c := begin(t, Options{Period: 50 * time.Millisecond})
	first, second := meet(t, c, 1), meet(t, c, 2)
	until.True(t, "two switches", func() bool { return len(c.Switches()) == 2 })
	in := func(etherType byte) *openflow.PacketIn {
		data := make([]byte, 60)
		data[12], data[13] = 8, etherType
		return &openflow.PacketIn{Buffer: openflow.BufferNone, Match: openflow.NewMatch(openflow.InPort(1)), Data: data}
	}
	for range 10 {
		_ = first.send(in(6))
		_ = second.send(in(6))
		_ = second.send(in(0))
	}
	until.True(t, "packets", func() bool {
		all, two := a.Packets(), a.PacketsOf(2)
		return all[ARP].Packets == 20 && all[ARP].Bytes == 1200 && all[IPv4].Packets == 10 && two[ARP].Packets == 10 && two[IPv4].Packets == 10
	})
	until.True(t, "rates that end", func() bool { return a.Packets()[ARP].PacketRate == 0 })
	_ = first.send(in(6))
	first.conn.Close()
	until.True(t, "that the switch goes", func() bool { return a.PacketsOf(1) == nil })
	if n := a.Packets()[ARP].Packets; n != 21 {
		t.Errorf("%d packets after a switch has gone", n)
	}
	if a.PacketIn(&controller.Switch{}, &controller.Packet{PacketIn: &openflow.PacketIn{}}) {
		t.Error("a packet is handled")
	}
}
