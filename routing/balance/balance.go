package balance

import (
	"cmp"
	"math"
	"slices"
)

// Options say when traffic moves.
type Options struct {
	Model

	// Hysteresis is by how much the load of the path must become less, in the unit of equation 5:
	// 0.1 with K1 of 1 is a tenth of a link. Traffic stays where no link of its path is used that
	// much by other traffic.
	Hysteresis float64

	// HopCost is added to the load of each link, so that of idle paths the shorter one is taken.
	HopCost float64

	// Moves is the most that one Step moves: the rest is seen anew, with the figures after it.
	Moves int
}

// Defaults are the options that are used where nobody says others.
func Defaults() Options {
	return Options{Model: DefaultModel, Hysteresis: 0.1, HopCost: 0.01, Moves: 8}
}

// What stands in Demand.Next instead of a link's number.
const (
	None  int32 = -1 // the router is at the destination, or has no route
	Fixed int32 = -2 // its route is not to be changed, and leads where the network does not say
)

// Demand is a destination, what is sent to it, and by which ways.
type Demand struct {
	Ends []int32   // the routers that are at the destination
	Next []int32   // of each router: the link that it sends by
	Home []int32   // the same without any moves
	Rate []float64 // of each router, what it sends to the destination, bit/s; nothing where it is an end
}

// Move is another way for what goes to a destination from a router, and from all that it passes.
type Move struct {
	Demand int
	From   int32
	Path   []int32 // links; none: all of the demand goes home
	Was    float64 // the load of the path by others, with the hops' cost
	Will   float64 // that of the new one
	Busy   int32   // the link of the old path that was busiest with other traffic; -1: it goes home
	Used   float64 // the share of it that other traffic used
}

// Step returns the moves that make the loads less, the most useful one first, each computed with
// those before it made. It changes nothing.
//
// What a demand sees of a link is what others use of it. A link that has less left over than the
// demand gets through now is no way for it. A moved demand goes home when nothing is busy there
// any more, or when that is the better path. As a move must gain more than the hysteresis, and a
// way home may not lose anything, two paths that are as good as each other settle.
func Step(n *Network, demands []Demand, o Options) []Move {
	s := newState(n, demands, o)
	var best []candidate
	for d := range demands {
		best = append(best, s.candidates(d)...)
	}
	slices.SortStableFunc(best, byGain)
	var out []Move
	for i := 0; i < len(best) && len(out) < o.Moves; i++ {
		// What was found before other moves were made is looked at again: the gain may be less.
		again := s.candidates(best[i].Demand)
		at := slices.IndexFunc(again, func(c candidate) bool { return c.From == best[i].From })
		if at < 0 {
			continue
		}
		now := again[at]
		if i+1 < len(best) && byGain(now, best[i+1]) > 0 && now.gain() < best[i].gain() {
			best[i] = now
			slices.SortStableFunc(best[i:], byGain)
			i--
			continue
		}
		s.make(now.Move)
		out = append(out, now.Move)
	}
	return out
}

// candidate is a move that would be useful.
type candidate struct {
	Move
	rate float64 // that would move
}

func (c candidate) gain() float64 {
	return c.Was - c.Will
}

// byGain orders candidates: ways home first, as they free links, then by gain; of equal ones that
// first which moves least.
func byGain(a, b candidate) int {
	home := func(c candidate) int { return map[bool]int{true: 0, false: 1}[len(c.Path) == 0] }
	return cmp.Or(cmp.Compare(home(a), home(b)), -cmp.Compare(round(a.gain()), round(b.gain())), cmp.Compare(a.rate, b.rate),
		cmp.Compare(a.Demand, b.Demand), cmp.Compare(a.From, b.From))
}

// round makes gains that differ by measurement alone the same.
func round(gain float64) float64 { return math.Round(gain * 1000) }

// state is the network as it is after the moves made so far.
type state struct {
	*Network
	Options
	demands []Demand
	flows   []flow
	entries []float64 // F of each link
	largest float64
	used    []float64 // of each link, bit/s, with the moves made
	graph   grapher
}

// flow is a demand as it goes over the network now.
type flow struct {
	next    []int32
	sources []source
	own     map[int32]float64 // what it uses of links
}

// source is a router at which traffic of a demand comes into the network.
type source struct {
	router int32
	rate   float64 // bit/s that are sent
}

// least is the share of what a router sends to a destination below which the difference to what its
// neighbours send it is one of the times of reading.
const least = 0.1

func newState(n *Network, demands []Demand, o Options) *state {
	s := &state{Network: n, Options: o, demands: demands, entries: n.entryLoads(), largest: n.largest()}
	total := make([]float64, len(n.Links))
	for d := range demands {
		f := flow{next: slices.Clone(demands[d].Next), own: map[int32]float64{}}
		came := map[int32]float64{}
		for r, l := range f.next {
			if rate := demands[d].Rate[r]; l >= 0 && rate > 0 {
				f.own[l] = rate
				came[n.Links[l].To] += rate
				total[l] += rate
			}
		}
		for r, l := range f.next {
			if rate := demands[d].Rate[r]; l >= 0 && rate-came[int32(r)] > least*rate {
				f.sources = append(f.sources, source{int32(r), rate - came[int32(r)]})
			}
		}
		s.flows = append(s.flows, f)
	}
	s.used = make([]float64, len(n.Links))
	for i, l := range n.Links {
		s.used[i] = max(l.Used, 0)
		if l.Bandwidth > 0 {
			s.used[i] = min(s.used[i], l.Bandwidth)
		}
	}
	for _, f := range s.flows { // a queue drops what a router sends too much: all of its demands the same share
		for l := range f.own {
			if total[l] > s.used[l] {
				f.own[l] *= s.used[l] / total[l]
			}
		}
	}
	return s
}

// others is what others than a demand use of a link, bit/s.
func (s *state) others(f *flow, l int32) float64 { return max(0, s.used[l]-f.own[l]) }

// busy is the share of a link that others use.
func (s *state) busy(f *flow, l int32) float64 {
	return s.BandwidthLoad(Link{Bandwidth: s.Links[l].Bandwidth, Used: s.others(f, l)}, s.largest)
}

// cost of a link for a demand.
func (s *state) cost(f *flow, l int32) float64 {
	return s.Load(s.busy(f, l), s.entries[l]) + s.HopCost
}

// walk follows a demand from a router; nothing where the way does not lead to an end.
func (s *state) walk(d int, next []int32, from int32) (path []int32) {
	for r := from; !slices.Contains(s.demands[d].Ends, r); {
		l := next[r]
		if l < 0 || len(path) > len(next) {
			return nil
		}
		path = append(path, l)
		r = s.Links[l].To
	}
	return path
}

// along sums up a path: its cost, what the demand gets through, and the link that others use most.
func (s *state) along(f *flow, path []int32, rate float64) (cost, carried float64, busiest int32, share float64) {
	carried, busiest = rate, -1
	for _, l := range path {
		cost += s.cost(f, l)
		carried = min(carried, f.own[l])
		if b := s.busy(f, l); busiest < 0 || b > share {
			busiest, share = l, b
		}
	}
	return cost, carried, busiest, share
}

// candidates returns what a demand would gain by: a way home for all of it, or another path from
// one of its sources.
func (s *state) candidates(d int) (out []candidate) {
	f := &s.flows[d]
	if c, ok := s.home(d); ok {
		return []candidate{c}
	}
	for _, from := range f.sources {
		path := s.walk(d, f.next, from.router)
		if len(path) == 0 {
			continue
		}
		was, carried, busiest, share := s.along(f, path, from.rate)
		if share <= s.Hysteresis {
			continue
		}
		better := s.graph.best(s, d, from.router, carried)
		if len(better) == 0 {
			continue
		}
		if will, _, _, _ := s.along(f, better, from.rate); was-will > s.Hysteresis {
			out = append(out, candidate{Move{d, from.router, better, was, will, busiest, share}, carried})
		}
	}
	return out
}

// home says whether a demand that has moved may go back: nothing of the ways home is busy with
// other traffic, or they cost less, and there is room.
func (s *state) home(d int) (c candidate, is bool) {
	f, home := &s.flows[d], s.demands[d].Home
	if slices.Equal(f.next, home) {
		return c, false
	}
	c = candidate{Move: Move{Demand: d, From: -1, Busy: -1}}
	for _, from := range f.sources {
		away, back := s.walk(d, f.next, from.router), s.walk(d, home, from.router)
		if slices.Equal(away, back) {
			continue
		}
		if len(back) == 0 {
			return c, false
		}
		was, carried, _, _ := s.along(f, away, from.rate)
		will, _, _, share := s.along(f, back, from.rate)
		if (share > s.Hysteresis/2 && will > was) || !s.fits(f, back, carried) {
			return c, false
		}
		c.Was, c.Will, c.rate = c.Was+was, c.Will+will, c.rate+carried
	}
	return c, true
}

// tolerance is how much more a demand may have measured than a link has left over.
const tolerance = 0.1

// fits says whether a path has room for what a demand gets through now.
func (s *state) fits(f *flow, path []int32, carried float64) bool {
	return !slices.ContainsFunc(path, func(l int32) bool { return !s.hasRoom(f, l, carried) })
}

func (s *state) hasRoom(f *flow, l int32, carried float64) bool {
	b := s.Links[l].Bandwidth
	if s.Links[l].Unknown {
		return false
	}
	return b <= 0 || b-s.others(f, l) >= (1-tolerance)*carried
}

// make makes a move: the demand's traffic goes over the links as its routers will send it.
func (s *state) make(m Move) {
	f := &s.flows[m.Demand]
	if len(m.Path) == 0 {
		f.next = slices.Clone(s.demands[m.Demand].Home)
	}
	for _, l := range m.Path {
		f.next[s.Links[l].From] = l
	}
	for l, rate := range f.own {
		s.used[l] = max(0, s.used[l]-rate)
	}
	clear(f.own)
	for _, from := range f.sources {
		for _, l := range s.walk(m.Demand, f.next, from.router) {
			room := math.Inf(1)
			if b := s.Links[l].Bandwidth; b > 0 {
				room = max(0, b-s.used[l])
			}
			more := min(from.rate, room)
			f.own[l] += more
			s.used[l] += more
		}
	}
}
