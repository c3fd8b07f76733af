package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// overhead returns how many bytes of layer 2 a UDP packet has besides its payload.
func overhead(a netip.Addr) int {
	if a.Is6() {
		return 14 + 40 + 8
	}
	return 14 + 20 + 8
}

// trace is what was observed of a flow's stream.
type trace struct {
	*flow
	sent, full int // packets: all, and the full ones at the end
	frame      int // bytes of layer 2 of the full ones, by the narrowest MTU of the path
	apart      time.Duration
	why        string  // the sender's kernel's error for those that it refused
	points     []point // from the sender to the last place where it was seen
}

// point is a place that packets of a stream passed.
type point struct {
	hops    []hop            // since the previous point; the last is the one with a device
	at      map[uint64]int64 // times of undamaged packets, by number
	again   map[uint64]int   // how often they came again
	damaged map[uint64]int   // how often they came damaged
	largest int              // frame; 0: unknown
	missed  int              // packets that the tap or receiver dropped
}

func pointOf(s sighting) point {
	p := point{at: map[uint64]int64{}, again: map[uint64]int{}, damaged: map[uint64]int{}, largest: s.Largest,
		missed: s.missed}
	for i, n := range s.Numbers {
		p.at[n] = s.At[i]
	}
	for _, n := range s.Again {
		p.again[n]++
	}
	for _, n := range s.Damaged {
		p.damaged[n]++
	}
	return p
}

// survey sends streams over paths, and determines which paths they really take. For each direction
// that they cross it measures delay, loss and MTU; then it plans tasks by the actual paths. What
// seems wrong is measured again: a machine that stalls is no fault of the lab.
func (v *verifier) survey(ctx context.Context, p *plan) error {
	traces, err := v.look(ctx, slices.Concat(p.cover, p.others), len(p.cover))
	if err != nil {
		return err
	}
	for range tries - 1 {
		var again []*flow
		met := map[*flow]bool{}
		for _, t := range traces {
			met[t.flow] = met[t.flow] || t.wayTaken() != nil
		}
		for _, t := range traces {
			if (v.doubts(t.flow) || v.detours[t.name()] != "" || !met[t.flow] && v.mayMiss(t.flow)) &&
				!slices.Contains(again, t.flow) {
				again = append(again, t.flow)
			}
		}
		if len(again) == 0 || v.late() {
			break
		}
		more, err := v.look(ctx, again, len(again))
		if err != nil {
			return err
		}
		traces = append(traces, more...)
	}
	v.sayDetours()
	var real []*flow
	known := map[*flow]bool{}
	for _, t := range traces {
		if way := t.wayTaken(); way != nil && !known[t.flow] {
			known[t.flow] = true
			t.way = way
			real = append(real, t.flow)
		}
	}
	tried := slices.Concat(p.cover, p.others)
	*p = *v.planFor(real)
	p.tried = tried
	return nil
}

// enoughStreams is how many streams are repeated where something seems wrong.
const enoughStreams = 4

// doubts says whether something on a flow's path seems wrong, or the machine was too busy to tell.
func (v *verifier) doubts(f *flow) bool {
	for _, h := range f.way {
		for _, c := range v.result.Links[h.link].Directions[h.out].Checks {
			i := slices.Index(c.By, f.name())
			if c.What != Rate && c.What != Queue && i >= 0 && i < enoughStreams &&
				(c.Verdict == Wrong || c.Verdict == Untold && c.Got != nil) {
				return true
			}
		}
	}
	return false
}

// mayMiss says whether address resolution on a flow's path may fail at first, as requests or
// answers may be lost.
func (v *verifier) mayMiss(f *flow) bool {
	return slices.ContainsFunc(f.way,
		func(h hop) bool { return v.egress(h).Arrives() < 1 || v.egress(hop{h.link, 1 - h.out}).Arrives() < 1 })
}

// look sends streams of flows, the first thorough of them longer, and judges the results.
func (v *verifier) look(ctx context.Context, flows []*flow, thorough int) ([]*trace, error) {
	first := uint16(rand.Uint32())
	if len(flows) == 0 {
		return nil, ctx.Err()
	}
	if len(flows) > 1<<15 {
		return nil, fmt.Errorf("%d streams to send: the lab is too large to be verified", len(flows))
	}
	if int(first)+len(flows) > 1<<16 {
		first = 0
	}
	ends, err := v.taps(ctx, packets.Tap{First: first, Count: uint16(len(flows))})
	if err != nil {
		return nil, err
	}
	sharing, crossing := map[hop]int{}, map[*topology.Node]int{}
	for _, f := range flows {
		for _, h := range f.way {
			sharing[h]++
			for _, d := range v.devices(h) {
				crossing[d]++
			}
		}
	}
	machine := watch()
	traces := make([]*trace, len(flows))
	received := make([]*packets.Received, len(flows))
	v.inTurns(ctx, len(flows), v.atOnce(), func(i int) []hop { return flows[i].way }, func(i int) {
		traces[i], received[i] = v.surveyOne(ctx, flows[i], first+uint16(i), sharing, crossing, i < thorough)
	}, func(done int) { v.Progress("ways", done, len(flows)) })
	m := machine()
	sights, err := collect(ends)
	if err != nil || ctx.Err() != nil {
		return nil, firstOf(ctx.Err(), err)
	}
	for i, t := range traces {
		if t != nil {
			v.follow(t, sights[first+uint16(i)], received[i])
		}
	}
	traces = slices.DeleteFunc(traces, func(t *trace) bool { return t == nil })
	v.note(traces, m)
	v.judge()
	v.judgeMTUs(traces)
	v.judgeWays(traces)
	return traces, nil
}

// atOnce is how many streams are sent at the same time: sparse ones cost little, but each needs two
// programs.
func (v *verifier) atOnce() int {
	if v.Quick {
		return 8
	}
	return 32
}

func firstOf(errs ...error) error {
	return lists.Find(errs, func(err error) bool { return err != nil })
}

// sighting is a stream at a device of a place.
type sighting struct {
	place  string
	missed int // packets that the tap dropped, of any stream
	packets.Sight
}

// taps starts taps in the namespaces of the switches and of routers; ends has functions that stop
// them.
func (v *verifier) taps(ctx context.Context, t packets.Tap) (ends map[string]func() (*packets.Tapped, error),
	err error) {
	ends = map[string]func() (*packets.Tapped, error){}
	for _, place := range v.tapping() {
		end, err := packets.Listen(ctx, v.node(place), t)
		if err != nil {
			_, _ = collect(ends)
			return nil, err
		}
		ends[place] = func() (*packets.Tapped, error) {
			got, err := end()
			got.InTimeOf(v.ahead(place))
			return got, err
		}
	}
	return ends, nil
}

// tapping returns the places with taps; hosts receive by themselves.
func (v *verifier) tapping() []string {
	return slices.DeleteFunc(v.places(), func(place string) bool {
		n := v.nodes[place]
		return own(n) && (n.Kind == topology.Host || len(v.leaving[place]) < 2)
	})
}

// collect stops taps and returns what they recorded of each stream.
func collect(ends map[string]func() (*packets.Tapped, error)) (map[uint16][]sighting, error) {
	out := map[uint16][]sighting{}
	var failed error
	for place, end := range ends {
		got, err := end()
		if err != nil {
			failed = firstOf(failed, err)
			continue
		}
		for _, s := range got.Sights {
			out[s.Stream] = append(out[s.Stream], sighting{place, got.Dropped, s})
		}
	}
	return out, failed
}

// surveyOne sends one stream.
func (v *verifier) surveyOne(ctx context.Context, f *flow, stream uint16, sharing map[hop]int,
	crossing map[*topology.Node]int, thorough bool) (*trace, *packets.Received) {
	if v.late() {
		return nil, nil
	}
	to := v.address[f.to]
	p := v.paceOf(f.way, sharing, crossing, thorough)
	s := packets.Send{To: netip.AddrPortFrom(to, 0), Stream: stream, Size: packets.HeaderLen, Rate: p.rate,
		Count: p.count + large,
		Whole: true, Uneven: v.throughDevice(f.way) != nil, Large: v.frame(f.way) - overhead(to), LargeLast: large}
	sent, got, err := v.measure(ctx, f.from, f.to, s, packets.Receive{Record: true, Raw: true}, v.quiet(f.way))
	t := &trace{flow: f, full: large, frame: v.frame(f.way), apart: p.apart()}
	if sent != nil {
		f.ports = sent.Ports
	}
	switch {
	case sent != nil && sent.Refused > 0:
		t.sent, t.why = max(sent.Sent, sent.Refused), sent.Error
	case sent != nil:
		t.sent = sent.Sent
	}
	if got == nil && err != nil && t.why == "" {
		return nil, nil // an instrument failed, which says nothing about the lab
	}
	return t, got
}

// follow puts the sightings of a stream in the order of its path.
func (v *verifier) follow(t *trace, sights []sighting, got *packets.Received) {
	start := point{at: map[uint64]int64{}}
	last := point{at: map[uint64]int64{}}
	if got != nil && got.Record != nil {
		for n, sent := range got.Record.Sent {
			if sent != 0 {
				start.at[uint64(n)], last.at[uint64(n)] = sent, sent+got.Record.Delay[n]
			}
		}
	}
	t.points = append(t.points, start)
	if got != nil && got.Tapped != nil {
		last.missed = got.Dropped
		if !slices.ContainsFunc(sights, func(s sighting) bool { return s.place == t.to }) {
			for _, s := range got.Tapped.Sights {
				sights = append(sights, sighting{t.to, got.Tapped.Dropped, s})
			}
		}
	}
	defer v.deliver(t, last)
	if len(last.at) > 0 && v.straight(t, sights, last) {
		return
	}
	at, mac := t.from, ""
	// Each time the first sighting that continues from there: a switch may forward a packet with
	// its time of arrival, so times at the two ends of a switch say nothing about the order.
	goesOn := func(s sighting) (h hop, between []hop, ok bool) {
		// With few packets, it is a flooded copy.
		if h, ok = v.cameBy(s); !ok || v.far(h) == t.from || len(s.Numbers) < t.sent/50 {
			return h, nil, false
		}
		between = v.between(at, v.near(h))
		return h, between, between != nil || v.near(h) == at
	}
	for {
		first := -1
		for i, s := range sights {
			if _, _, ok := goesOn(s); ok && (first < 0 || s.meets(sights[first]) < 0) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		h, between, _ := goesOn(sights[first])
		p := pointOf(sights[first])
		p.hops = append(between, h)
		t.points = append(t.points, p)
		at, mac = v.far(h), sights[first].To
		sights = slices.Delete(sights, first, first+1)
	}
	if at == t.to {
		return
	}
	// What came to the receiver's socket passed its device, whether or not the tap there recorded
	// it.
	if rest := v.back(v.tree(at, nil), t.to); len(last.at) > 0 && len(rest) > 0 {
		last.hops = rest
		t.points = append(t.points, last)
	} else if at == t.from || len(last.at) == 0 {
		t.points = append(t.points, point{hops: v.rest(t, at, mac), at: last.at})
	}
}

// deliver ends a path at the receiver's socket: undamaged packets that came to its device, but not
// to the socket, are lost.
func (v *verifier) deliver(t *trace, last point) {
	if p := &t.points[len(t.points)-1]; len(p.hops) > 0 && v.far(p.hops[len(p.hops)-1]) == t.to {
		p.at, p.missed = last.at, last.missed
	}
}

// straight follows a stream that has arrived: over links at whose ends it was seen, and over links
// without devices. Copies that were flooded elsewhere are ignored. It says whether there is such a
// path.
func (v *verifier) straight(t *trace, sights []sighting, last point) bool {
	seen := map[hop]*point{}
	for _, s := range sights {
		h, ok := v.cameBy(s)
		if !ok {
			continue
		}
		p := pointOf(s)
		seen[h] = &p
	}
	way := v.back(v.tree(t.from,
		func(h hop) bool { return seen[h] != nil || !v.hasDevice(h.link) || v.far(h) == t.to }), t.to)
	if len(way) == 0 {
		return false
	}
	var hops []hop
	for i, h := range way {
		hops = append(hops, h)
		p := seen[h]
		if p == nil && i == len(way)-1 {
			p = &last
		}
		if p != nil {
			p.hops, hops = hops, nil
			t.points = append(t.points, *p)
		}
	}
	return true
}

// meets returns how much later (in ns) one sighting is than another, by the first packet that both
// have.
func (s sighting) meets(other sighting) int64 {
	for i, n := range s.Numbers {
		if k := slices.Index(other.Numbers, n); k >= 0 {
			return s.At[i] - other.At[k]
		}
	}
	return int64(len(other.Numbers) - len(s.Numbers))
}

// cameBy returns the direction of the link by which packets came to where they were seen.
func (v *verifier) cameBy(s sighting) (hop, bool) {
	for i, l := range v.t.Links {
		for end, e := range l.Ends {
			n := v.nodes[e.Node]
			if n != nil && l.DeviceAt(end) == s.Device && v.placeOf(e.Node) == s.place {
				return hop{i, 1 - end}, true
			}
		}
	}
	return hop{}, false
}

// between returns the path from one node to another over links without devices; nil if they are the
// same or there is none.
func (v *verifier) between(from, to string) []hop {
	if from == to {
		return nil
	}
	return v.back(v.tree(from, func(h hop) bool { return !v.hasDevice(h.link) }), to)
}

// rest returns the hops, after the last place where a stream was seen, on which its packets get
// lost, as far as known. By their destination MAC address they were sent towards its owner, where a
// tap would have seen them. At the owner itself, and at the sender, the expected path counts.
func (v *verifier) rest(t *trace, at, mac string) []hop {
	if node := v.ownerOf(mac); mac != "" && node != at {
		if way := v.back(v.tree(at, nil), node); len(way) > 0 &&
			(node == t.to || slices.Contains(v.tapping(), v.placeOf(node))) {
			return way[:1]
		}
		return nil // the owner is not on the path and has no tap, or there is no owner
	}
	way := v.back(v.tree(at, nil), t.to) // the stream has left the expected path
	if i := slices.IndexFunc(t.way, func(h hop) bool { return v.near(h) == at }); i >= 0 {
		way = t.way[i:]
	}
	for i, h := range way { // up to where a tap would have seen them
		if v.hasDevice(h.link) || i == len(way)-1 {
			return way[:i+1]
		}
	}
	return nil
}

// ownerOf returns the node that has a MAC address in the topology; "" if there is none.
func (v *verifier) ownerOf(mac string) string {
	for _, l := range v.t.Links {
		for i := range l.Ends {
			if e := &l.Ends[i]; e.MAC.String() == mac {
				return e.Node
			}
		}
	}
	return ""
}

// wayTaken returns the path of a stream that has arrived; nil for others.
func (t *trace) wayTaken() (way []hop) {
	last := t.points[len(t.points)-1]
	if len(t.points) < 2 || len(last.at) == 0 {
		return nil
	}
	for _, p := range t.points {
		way = append(way, p.hops...)
	}
	return way
}

// inTurns runs things numbered from 0, most at a time, but none together with another that shares a
// narrow link with it.
func (v *verifier) inTurns(ctx context.Context, n, most int, way func(i int) []hop, do func(i int), done func(int)) {
	var mu sync.Mutex
	free := sync.NewCond(&mu)
	busy, running, finished := map[hop]bool{}, 0, 0
	waiting := make([]int, n)
	for i := range waiting {
		waiting[i] = i
	}
	mu.Lock()
	defer mu.Unlock()
	for len(waiting) > 0 && ctx.Err() == nil {
		k := -1
		if running < most {
			k = slices.IndexFunc(waiting, func(i int) bool {
				return !slices.ContainsFunc(way(i), func(h hop) bool { return busy[h] })
			})
		}
		if k < 0 {
			free.Wait()
			continue
		}
		i := waiting[k]
		waiting = slices.Delete(waiting, k, k+1)
		var mine []hop
		for _, h := range way(i) {
			if r := v.rate(h); r > 0 && r < narrow {
				mine = append(mine, h)
				busy[h] = true
			}
		}
		running++
		go func() {
			do(i)
			mu.Lock()
			defer mu.Unlock()
			for _, h := range mine {
				delete(busy, h)
			}
			running--
			finished++
			done(finished)
			free.Broadcast()
		}()
	}
	for running > 0 {
		free.Wait()
	}
}

// each calls do for all elements of a list, most at a time, and stops at the first error.
func each[A, B any](ctx context.Context, list []A, most int, do func(context.Context, A) (B, error),
	done func(int)) ([]B, error) {
	out := make([]B, len(list))
	var mu sync.Mutex
	var failed error
	finished := 0
	var group sync.WaitGroup
	slots := make(chan struct{}, most)
	for i, a := range list {
		slots <- struct{}{}
		mu.Lock()
		stop := failed != nil || ctx.Err() != nil
		mu.Unlock()
		if stop {
			break
		}
		group.Go(func() {
			defer func() { <-slots }()
			b, err := do(ctx, a)
			mu.Lock()
			defer mu.Unlock()
			out[i], failed = b, firstOf(failed, err)
			finished++
			done(finished)
		})
	}
	group.Wait()
	return out, firstOf(ctx.Err(), failed)
}
