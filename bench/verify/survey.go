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

// Bytes of layer 2 that a UDP packet has beside its payload.
func overhead(a netip.Addr) int {
	if a.Is6() {
		return 14 + 40 + 8
	}
	return 14 + 20 + 8
}

// trace is what was seen of a flow's stream.
type trace struct {
	*flow
	sent, full int // packets: all, and the last of them, which are full
	frame      int // bytes of layer 2 of the full ones: what the narrowest link of the way takes
	apart      time.Duration
	why        string  // what the sender's kernel said of those that it refused
	points     []point // from the sender to the last place where it was seen
}

// point is where packets of a stream came by.
type point struct {
	hops    []hop            // since the point before; the last is the one with a device
	at      map[uint64]int64 // when, of whole packets, by their numbers
	again   map[uint64]int   // how often they came after that
	damaged map[uint64]int   // how often damaged ones came
	largest int              // frame; 0: not known
	missed  int              // packets that who listens there could not take
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

// survey sends streams over ways, and notes which way they take indeed. It says of each direction
// that they cross how long packets take, how many are lost, and how large they may be; and it plans
// tasks anew by the ways that there are. What seems wrong is looked at again: a machine that stalls
// is no fault of the lab's.
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

// enoughStreams are looked at again where something seems wrong.
const enoughStreams = 4

// doubts says whether something on a flow's way seems wrong, or the machine was too busy to tell.
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

// mayMiss says whether a sender may not find the receiver at once: the question for its address, or
// the answer, is lost on the way.
func (v *verifier) mayMiss(f *flow) bool {
	return slices.ContainsFunc(f.way,
		func(h hop) bool { return loses(v.egress(h)) || loses(v.egress(hop{h.link, 1 - h.out})) })
}

// look sends streams of flows, the first thorough of them longer, and judges what came of them.
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

// atOnce is how many streams are sent at a time: sparse ones cost little, but each is two programs.
func (v *verifier) atOnce() int {
	if v.Quick {
		return 8
	}
	return 32
}

func firstOf(errs ...error) error {
	return lists.First(errs, func(err error) bool { return err != nil })
}

// sighting is a stream at a device of a place.
type sighting struct {
	place  string
	missed int // packets that the tap could not take, of whatever stream
	packets.Sight
}

// taps listens in the namespace of the switches and in those of routers; the ends stop that.
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

// tapping are the places where taps listen: hosts receive by themselves.
func (v *verifier) tapping() []string {
	return slices.DeleteFunc(v.places(), func(place string) bool {
		n := v.nodes[place]
		return own(n) && (n.Kind == topology.Host || len(v.leaving[place]) < 2)
	})
}

// collect ends taps and returns what they noted of each stream.
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
		Whole: true, Large: v.frame(f.way) - overhead(to), LargeLast: large}
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
		return nil, nil // an instrument failed, which says nothing of the lab
	}
	return t, got
}

// follow puts what was seen of a stream in the order in which it came by.
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
	// Each time the first that goes on from there: a switch may pass a packet on with the stamp
	// that it came with, so when it was seen says nothing of the order at its two ends.
	goesOn := func(s sighting) (h hop, between []hop, ok bool) {
		// Of few packets: copies that flooded.
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
	// What came to the receiver's socket came by its own device, whether or not the tap there took
	// it.
	if rest := v.back(v.tree(at, nil), t.to); len(last.at) > 0 && len(rest) > 0 {
		last.hops = rest
		t.points = append(t.points, last)
	} else if at == t.from || len(last.at) == 0 {
		t.points = append(t.points, point{hops: v.rest(t, at, mac), at: last.at})
	}
}

// deliver makes a way end at the receiver's socket: what came to its device, whole, and not to that
// is lost.
func (v *verifier) deliver(t *trace, last point) {
	if p := &t.points[len(t.points)-1]; len(p.hops) > 0 && v.far(p.hops[len(p.hops)-1]) == t.to {
		p.at, p.missed = last.at, last.missed
	}
}

// straight follows a stream that has arrived: over links at whose ends it was seen, and such as
// have no device. Copies that flooded elsewhere are left aside. It says whether there is such a
// way.
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

// meets says how much later (in ns) one sighting is than another: by the first packet that both
// have.
func (s sighting) meets(other sighting) int64 {
	for i, n := range s.Numbers {
		if k := slices.Index(other.Numbers, n); k >= 0 {
			return s.At[i] - other.At[k]
		}
	}
	return int64(len(other.Numbers) - len(s.Numbers))
}

// cameBy is the direction of the link by which packets came to where they were seen.
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

// between is the way from one node to another over links that have no device; nil where they are
// the same or there is none.
func (v *verifier) between(from, to string) []hop {
	if from == to {
		return nil
	}
	return v.back(v.tree(from, func(h hop) bool { return !v.hasDevice(h.link) }), to)
}

// rest is the hop after the last place where a stream was seen, with which packets get lost, as far
// as it is known: that to whom they were sent by their MAC address, where a tap would have seen
// them; at a node of whose they are, and at the sender, that of the way they were thought to take.
func (v *verifier) rest(t *trace, at, mac string) []hop {
	if node := v.ownerOf(mac); mac != "" && node != at {
		if way := v.back(v.tree(at, nil), node); len(way) > 0 &&
			(node == t.to || slices.Contains(v.tapping(), v.placeOf(node))) {
			return way[:1]
		}
		return nil // who gets them was not to, and looks at none; or it is nobody
	}
	way := v.back(v.tree(at, nil), t.to) // the stream has left it
	if i := slices.IndexFunc(t.way, func(h hop) bool { return v.near(h) == at }); i >= 0 {
		way = t.way[i:]
	}
	for i, h := range way { // as far as a tap would have seen them
		if v.hasDevice(h.link) || i == len(way)-1 {
			return way[:i+1]
		}
	}
	return nil
}

// ownerOf is the node that has a MAC address by the topology; "": none.
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

// wayTaken is the way of a stream that has arrived; nil of others.
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

// inTurns does things numbered from 0, some at a time, none at the same time as another that shares
// a narrow link with it.
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

// each does something for all of a list, some at a time, and ends with the first error.
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

// loses says whether a direction loses packets, or damages them so that receivers do.
func loses(e topology.Impairment) bool { return e.Loss > 0 || e.Corrupt > 0 }
