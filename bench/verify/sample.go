package verify

import (
	"cmp"
	"slices"
	"time"

	"trivet.dev/trivet/topology"
)

// sample is what two points of a stream show about the direction between them. Packets that were
// damaged before the first point are ignored.
type sample struct {
	by      string // the stream
	look    int    // of the survey, from 0
	why     string // the sender's kernel's error for packets that it refused
	took    []passing
	of      int // packets that came to the first point, without full ones
	lost    int
	missed  int // of lost: may have come, as the receiver or tap dropped so many
	late    int // of lost: a queue may have overflowed as the machine sent late
	damaged int
	again   int // arrived more often than they were sent
	ahead   int // overtook others
	excused int // of ahead: the others may be late because of the machine
	apart   time.Duration
}

func (s *sample) dead() bool { return s.of > 0 && s.lost == s.of }

// passing is how long a packet took, in seconds. It is excused if the machine may be the reason why
// it took longer than it should.
type passing struct {
	took    float64
	excused bool
}

// note stores what a look's streams show about the directions that they crossed.
func (v *verifier) note(traces []*trace, m *machine) {
	type end struct {
		t *trace
		i int
		s *sample
	}
	var dead []end
	for _, t := range traces {
		for i := 1; i < len(t.points); i++ {
			hops := t.points[i].hops
			if len(hops) == 0 {
				continue
			}
			last := hops[len(hops)-1]
			s := t.sample(i, inTime(v.takes80(last)), m)
			if v.rate(last) == 0 {
				s.late = 0
			}
			s.look = v.looks
			if s.dead() {
				dead = append(dead, end{t, i, s})
				continue
			}
			v.seen[last] = append(v.seen[last], s)
			for _, h := range hops[:len(hops)-1] {
				// For links without devices before one that has a device, it is known that these
				// packets crossed them; and, if that link should not delay anything, that they took
				// no longer in total.
				one := &sample{by: s.by, look: s.look, of: s.of - s.lost, apart: s.apart}
				if v.takes80(last) == 0 {
					one.took = s.took
				}
				v.seen[h] = append(v.seen[h], one)
			}
		}
	}
	for _, e := range dead { // once it is known where the others came through
		hops := e.t.points[e.i].hops
		h := v.blamed(e.t, hops[len(hops)-1])
		if v.crossed(h) && v.unanswered(e.t.from, e.t.to) {
			continue // others get across: the fault is the pair's, and reported there
		}
		v.seen[h] = append(v.seen[h], e.s)
	}
	v.looks++
}

// blamed returns the direction to blame for a stream of which nothing came beyond h. If the node
// before h has to resolve a MAC address first, that is the first direction on the way to its owner
// that nothing else crosses either.
func (v *verifier) blamed(t *trace, h hop) hop {
	if n := v.nodes[v.near(h)]; n.IsDatapath() && n.Kind != topology.Router {
		return h
	}
	from := slices.Index(t.way, h)
	if from < 0 {
		return h
	}
	for _, next := range t.way[from:] {
		if !v.crossed(next) {
			return next
		}
		if v.nodes[v.far(next)].Kind != topology.Switch {
			break
		}
	}
	return h
}

// crossed says whether anything crosses a direction: packets of other streams, or calls.
func (v *verifier) crossed(h hop) bool {
	return v.called[h] || slices.ContainsFunc(v.seen[h], func(s *sample) bool { return s.of > s.lost })
}

// unanswered says whether a node has got no answer from another.
func (v *verifier) unanswered(from, to string) bool {
	return slices.ContainsFunc(v.result.Reach.Fails,
		func(u Unreached) bool { return u.From == from && u.To == to && u.Verdict == Wrong })
}

// sample compares a point of a stream with the one before; asked is the delay of the direction
// between them.
func (t *trace) sample(i int, asked time.Duration, m *machine) *sample {
	before, here := t.points[i-1], t.points[i]
	s := &sample{by: t.name(), why: t.why, apart: t.apart}
	further := func(n uint64) bool {
		return slices.ContainsFunc(t.points[i+1:], func(p point) bool { return p.has(n) })
	}
	var both []crossing
	unseen := 0 // arrived, but not seen at the previous point
	small := uint64(max(0, t.sent-t.full))
	for n := range uint64(t.sent) {
		at, came := here.at[n]
		if n >= small {
			continue
		}
		was, left := before.at[n]
		if !left && (before.damaged[n] > 0 || i > 1 && !came && here.damaged[n] > 0) {
			continue // damaged before, or unknown
		}
		// The sender has sent it, even if it is unknown when; and what is seen later has passed
		// here.
		left = left || i == 1 || came || here.damaged[n] > 0 || further(n)
		if !left {
			continue
		}
		s.of++
		if was == 0 && before.damaged[n] == 0 && i > 1 {
			unseen++
		}
		switch {
		case came:
			if was != 0 {
				both = append(both, crossing{was, at})
			}
			if here.again[n] > before.again[n] {
				s.again++
			}
		case here.damaged[n] > before.damaged[n]: // else it was a copy that was damaged before
			s.damaged++
		case !further(n):
			s.lost++
			if m.excuses(was-int64(lateAround), was+int64(lateAround), lateQueue) {
				s.late++
			}
		}
	}
	// Packets that are illegible by now are among those that did not arrive.
	illegible := min(s.lost, max(0, here.illegible(small)-before.illegible(small)-max(unseen, before.missed)))
	s.lost, s.damaged = s.lost-illegible, s.damaged+illegible
	s.missed = min(s.lost, here.missed)
	s.late = min(s.late, s.lost-s.missed, s.of/fewLate)
	s.cross(both, asked, m)
	return s
}

// A device with a rate that had to wait for a processor then finds all packets that have come
// meanwhile at once, which may overflow its queue. That is excused only if something waited that
// long around the time at which a packet was sent, and only for a small share of the packets.
const (
	lateAround = 100 * time.Millisecond
	lateQueue  = 20 * time.Millisecond
	fewLate    = 20 // one in so many
)

// has says whether a packet came by a point.
func (p point) has(n uint64) bool { return p.at[n] != 0 || p.damaged[n] > 0 }

// illegible counts damaged packets whose numbers belong to no others, or to some that came.
func (p point) illegible(small uint64) (count int) {
	for n, times := range p.damaged {
		if n >= small || p.at[n] != 0 {
			count += times
		}
	}
	return count
}

// crossing is the times of a packet at two points, in nanoseconds since 1970.
type crossing struct{ left, came int64 }

// cross evaluates how long packets took, and which overtook others.
func (s *sample) cross(all []crossing, asked time.Duration, m *machine) {
	slices.SortStableFunc(all, func(a, b crossing) int { return cmp.Compare(a.left, b.left) })
	var latest crossing
	for _, c := range all {
		took := time.Duration(c.came - c.left)
		late := took - asked
		s.took = append(s.took, passing{took.Seconds(), late.Seconds() > delayFloor && m.excuses(c.left, c.came, late)})
		if c.came < latest.came && c.left > latest.left {
			s.ahead++
			if m.excuses(latest.left, latest.came, time.Duration(latest.came-c.came)) {
				s.excused++
			}
		}
		if c.came > latest.came {
			latest = c
		}
	}
}
