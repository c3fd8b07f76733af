// Package differ sends the same packets through three switches with the same tables: the embedded
// switch's fast path in the kernel, its pipeline alone, and Open vSwitch.
package differ

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// repeats is how often each packet is sent: the first time through user space, the last one by a
// cache's entry.
const repeats = 4

// fixture is the switches that are compared, and one more of ours that says beforehand what a
// packet will meet.
type fixture struct {
	t      testing.TB
	truth  *plain
	scout  *plain
	others []system

	failed bool // the last trial
	sizes  bool // the present trial looks at the sizes of packets

	compared, emitted, excluded, refused int
}

func newFixture(t testing.TB) *fixture {
	b := &fixture{t: t, truth: newPlain(t), scout: newPlain(t), others: []system{newFast(t)}}
	if v := newVSwitch(t); v != nil {
		b.others = append(b.others, v)
	}
	return b
}

// isOVS says whether a switch counts bytes in its own way: as the packet was when it came in.
func isOVS(s system) bool { _, ok := s.(*vswitch); return ok }

func (b *fixture) all() []system { return append([]system{b.truth, b.scout}, b.others...) }

// play runs a trial and says what the switches did differently, or "".
func (b *fixture) play(c *trial) (why string) {
	defer func() { b.failed = why != "" }()
	if why := b.install(c); why != "" {
		return why
	}
	b.sizes = c.looksAtSizes()
	before := b.counters()
	for _, s := range b.all() {
		if _, err := s.send(0, nil, &received{}); err != nil { // what has come from elsewhere is gone
			return s.name() + ": " + err.Error()
		}
	}
	for _, p := range c.packets {
		if b.excludes(p) {
			b.excluded++
			continue
		}
		for n := range repeats {
			if why := b.send(p, n); why != "" {
				return why
			}
		}
	}
	return b.compareCounters(before)
}

// install gives all switches the tables, but for what Open vSwitch refuses.
func (b *fixture) install(c *trial) string {
	for _, s := range b.all() {
		s.clear()
	}
	var why string
	offer := func(what fmt.Stringer, f func(system) error) bool {
		judge := b.others[len(b.others)-1]
		if f(judge) != nil {
			b.refused++
			return false
		}
		for _, s := range b.all() {
			if s == judge {
				continue
			}
			if err := f(s); err != nil && why == "" {
				why = fmt.Sprintf("%s refuses what %s takes: %v: %v", s.name(), judge.name(), what, err)
			}
		}
		return true
	}
	for sw := range switches {
		there := map[uint32]bool{}
		for _, m := range c.groups[sw] {
			if leads(there, m.Buckets...) && offer(m, func(s system) error { return s.group(sw, m) }) {
				there[m.Group] = true
			}
		}
		for _, m := range c.flows[sw] {
			if leadsFlow(there, m) {
				offer(m, func(s system) error { return s.flow(sw, m) })
			}
		}
		for _, m := range markFlows() {
			offer(m, func(s system) error { return s.flow(sw, m) })
		}
	}
	for _, s := range b.all() {
		s.barrier()
	}
	return why
}

// leads says whether all groups that buckets name are there. Open vSwitch takes those that name
// others.
func leads(there map[uint32]bool, buckets ...openflow.Bucket) bool {
	return !slices.ContainsFunc(buckets, func(b openflow.Bucket) bool {
		return slices.ContainsFunc(b.Actions, func(a openflow.Action) bool { return a.Type == openflow.ActionGroup && !there[a.Group] })
	})
}

func leadsFlow(there map[uint32]bool, m *openflow.FlowMod) bool {
	return !slices.ContainsFunc(m.Instructions, func(in openflow.Instruction) bool {
		return !leads(there, openflow.Bucket{Actions: in.Actions})
	})
}

// send sends a packet everywhere and says what came out differently.
func (b *fixture) send(p packet, n int) string {
	want, _ := b.truth.send(p.host, p.frame, nil)
	for _, s := range b.others {
		got, err := s.send(p.host, p.frame, &want)
		if err != nil {
			return fmt.Sprintf("%s: from host %d, time %d: %v", s.name(), p.host, n+1, err)
		}
		b.compared++
		for h := range hosts {
			g, w := texts(got[h]), texts(want[h])
			b.emitted += len(g)
			if isOVS(s) { // the order of several copies is its own
				slices.Sort(g)
				slices.Sort(w)
			}
			if !slices.Equal(g, w) {
				return fmt.Sprintf("%s: from host %d, time %d, of %s host %d gets\n  %s\nwant\n  %s", s.name(), p.host, n+1,
					hex.EncodeToString(p.frame), h, strings.Join(g, "\n  "), strings.Join(w, "\n  "))
			}
		}
	}
	return ""
}

// texts writes frames without the zeros at their ends: we fill up what has become shorter than an
// Ethernet frame, and Open vSwitch does not.
func texts(frames [][]byte) (list []string) {
	for _, f := range frames {
		list = append(list, hex.EncodeToString(bytes.TrimRight(f, "\x00")))
	}
	return list
}

// counters are those of all switches. After a difference, what has come late is counted first.
func (b *fixture) counters() (all [][switches]counters) {
	if b.failed {
		time.Sleep(100 * time.Millisecond)
	}
	for _, s := range b.all() {
		var list [switches]counters
		for sw := range switches {
			list[sw] = s.counters(sw)
		}
		all = append(all, list)
	}
	return all
}

// compareCounters gives the switches some time: what has just been counted in the kernel may be
// known a moment later.
func (b *fixture) compareCounters(before [][switches]counters) (problems string) {
	for range 50 {
		if problems = b.differentCounters(before); problems == "" {
			return ""
		}
		time.Sleep(20 * time.Millisecond)
	}
	return problems
}

func (b *fixture) differentCounters(before [][switches]counters) string {
	var problems []string
	for i, s := range b.all() {
		if s == system(b.scout) || isOVS(s) && b.sizes {
			continue
		}
		for sw := range switches {
			got, want := s.counters(sw).since(before[i][sw]), b.truth.counters(sw).since(before[0][sw])
			for _, d := range got.differ(want, !isOVS(s)) {
				problems = append(problems, fmt.Sprintf("%s, switch %d: %s", s.name(), sw+1, d))
			}
		}
	}
	return strings.Join(problems, "\n")
}

// excludes says whether the specification leaves open what becomes of a packet, or Open vSwitch has
// a limit there: an invalid TTL (the action set of before is carried out or not), more than two
// tags, loops; and where a later table has no entry for the packet: Open vSwitch carries out the
// action set, and section 5.4 says that such packets are dropped.
func (b *fixture) excludes(p packet) bool {
	var k pipeline.Key
	var o pipeline.Translation
	sw, port := placeOf(p.host)
	in := b.scout.switches[sw].Port(port)
	if pipeline.ParseKey(&k, p.frame, port) {
		pipeline.NewTranslator(b.scout.net).Translate(&o, in, &k, 0)
	}
	if strings.Contains(o.Slow, "VLAN tags") {
		return true
	}
	before := b.misses()
	r := b.scout.receive(p.host, p.frame)
	if r.Loop != nil || len(r.Sent) > 32 || b.misses() != before {
		return true
	}
	for _, m := range r.PacketIns {
		if m.Message.Reason == openflow.ReasonInvalidTTL {
			return true
		}
	}
	return slices.ContainsFunc(r.Sent, func(s pipeline.Sent) bool {
		tags := 0
		for at := 12; at+1 < len(s.Data) && (s.Data[at] == 0x81 && s.Data[at+1] == 0 || s.Data[at] == 0x88 && s.Data[at+1] == 0xa8); at += 4 {
			tags++
		}
		return tags > 2
	})
}

// misses is how many packets found no entry in a later table.
func (b *fixture) misses() (n uint64) {
	for sw := range switches {
		for _, t := range b.scout.ask(sw)(openflow.NoBody(openflow.MultipartTable)).(openflow.TableStatsList) {
			if t.Table > 0 {
				n += t.Lookups - t.Matched
			}
		}
	}
	return n
}

// shrink takes away from a trial what it does not need to fail, for a minute at most.
func (b *fixture) shrink(c *trial) (*trial, string) {
	why := b.play(c)
	end := time.Now().Add(time.Minute)
	for again := true; again && why != ""; {
		again = false
		try := func(smaller trial) bool {
			if time.Now().After(end) {
				return false
			}
			said := b.play(&smaller)
			if said != "" {
				*c, why, again = smaller, said, true
			}
			return said != ""
		}
		shorten(c.packets, func(list []packet) bool { s := *c; s.packets = list; return try(s) })
		for sw := range switches {
			shorten(c.flows[sw], func(list []*openflow.FlowMod) bool { s := *c; s.flows[sw] = list; return try(s) })
			shorten(c.groups[sw], func(list []*openflow.GroupMod) bool { s := *c; s.groups[sw] = list; return try(s) })
		}
	}
	return c, why
}

// shorten tries a list without parts of it, halves first, as long as that is taken.
func shorten[T any](list []T, takes func([]T) bool) {
	for n := max(1, len(list)/2); ; n /= 2 {
		for at := 0; at < len(list); {
			without := slices.Concat(list[:at], list[min(len(list), at+n):])
			if takes(without) {
				list = without
			} else {
				at += n
			}
		}
		if n <= 1 {
			return
		}
	}
}

// Random tables, groups and packets in the fast path, the pipeline and Open vSwitch: the same
// packets come out at the same hosts, byte for byte, and every flow, group, bucket and port has
// counted as many. TRIVET_DIFFER is for how long seeds are tried ("20m"; otherwise 24 seeds, or as
// many as ten seconds allow and show something), TRIVET_DIFFER_SEED the first one. A failure prints
// the seed, and the least tables and packets that show it.
func TestThreeSwitches(t *testing.T) {
	first, err := strconv.ParseInt(cmp.Or(os.Getenv("TRIVET_DIFFER_SEED"), "1"), 10, 64)
	long, err2 := time.ParseDuration(cmp.Or(os.Getenv("TRIVET_DIFFER"), "0s"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	const enough = 100 // packets
	b := newFixture(t)
	start, failures, seed := time.Now(), 0, first
	more := func() bool {
		took := time.Since(start)
		return took < long || long == 0 && seed < first+24 && (took < 10*time.Second || b.emitted < enough)
	}
	for ; failures < 5 && more(); seed++ {
		once := b.play(newTrial(seed))
		if once == "" {
			continue
		}
		failures++
		if c, why := b.shrink(newTrial(seed)); why == "" {
			t.Errorf("seed %d: a difference that does not come again: %s", seed, once)
		} else {
			t.Errorf("seed %d: %s\nwith\n%v", seed, why, c)
		}
	}
	t.Logf("seeds %d to %d: %d packets compared, of which came %d; %d excluded, %d flows and groups refused; %s", first, seed-1,
		b.compared, b.emitted, b.excluded, b.refused, b.fastStats())
	if failures == 0 && (b.compared < enough || b.emitted < enough) {
		t.Error("too few packets to prove anything")
	}
}

func (b *fixture) fastStats() string {
	s := b.others[0].(*fast).engine.Stats()
	return fmt.Sprintf("fast path: %d entries made, %d packets through user space", s.Installed, s.Missed)
}
