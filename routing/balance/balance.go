package balance

import (
	"cmp"
	"math"
	"slices"
)

// Options determine when traffic is moved.
type Options struct {
	Model

	// Hysteresis is by how much a move must reduce the load of the path, in the unit of equation 5:
	// 0.1 with K1 of 1 is a tenth of a link. Traffic is not moved unless other traffic uses some
	// link of its path that much.
	Hysteresis float64

	// HopCost is added to the load of each link, so that the shorter of idle paths is taken.
	HopCost float64

	// Moves limits the moves of one Step: the rest is reconsidered after the next measurement.
	Moves int
}

// Defaults returns the default options.
func Defaults() Options {
	return Options{Model: DefaultModel, Hysteresis: 0.1, HopCost: 0.01, Moves: 8}
}

// Values in Demand.Next in place of a link's number.
const (
	None  int32 = -1 // the router is at the destination, or has no route
	Fixed int32 = -2 // its route must not be changed, and leads outside the network
)

// Demand is the traffic to a destination, and its paths.
type Demand struct {
	Ends []int32   // the routers that are at the destination
	Next []int32   // by router: the link to the next hop
	Home []int32   // the same without any moves
	Rate []float64 // by router: what it sends to the destination, bit/s; unused for Ends
	Kept []bool    // by router: its next hop stays (see Choose); nil: none does
}

// Move is a new path for traffic to a destination, from a router and from all others on the path.
type Move struct {
	Demand int
	From   int32
	Path   []int32 // links; none: all of the demand returns to its home path
	Was    float64 // the cost of the old path, by others' load and hops
	Will   float64 // that of the new path
	Busy   int32   // the link of the old path that other traffic used most; -1: it returns home
	Used   float64 // the share of that link used by other traffic
}

// Step returns the moves that reduce loads, the most useful first, each computed with the previous
// ones made. It changes nothing.
//
// A demand sees only the load of others on a link. A link with less spare bandwidth than the
// demand's current throughput cannot be used. A moved demand returns home when no link there is
// busy any more, or when that is the better path. Since a move must gain more than the hysteresis,
// and a return must not lose anything, traffic settles between two equal paths.
func Step(n *Network, demands []Demand, o Options) []Move {
	s := newState(n, demands, o)
	var best []candidate
	for d := range demands {
		best = append(best, s.candidates(d)...)
	}
	slices.SortStableFunc(best, byGain)
	var out []Move
	for i := 0; i < len(best) && len(out) < o.Moves; i++ {
		// Moves made since may have reduced the gain.
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

// candidate is a possible move.
type candidate struct {
	Move
	rate float64 // of the traffic to move
}

func (c candidate) gain() float64 {
	return c.Was - c.Will
}

// byGain orders candidates: returns first, as they free links, then by gain; among equal gains the
// smallest rate first.
func byGain(a, b candidate) int {
	home := func(c candidate) int { return map[bool]int{true: 0, false: 1}[len(c.Path) == 0] }
	return cmp.Or(cmp.Compare(home(a), home(b)), -cmp.Compare(round(a.gain()), round(b.gain())),
		cmp.Compare(a.rate, b.rate),
		cmp.Compare(a.Demand, b.Demand), cmp.Compare(a.From, b.From))
}

// round removes differences of gains that are within measurement errors.
func round(gain float64) float64 { return math.Round(gain * 1000) }

// state is the network after the moves made so far.
type state struct {
	*Network
	Options
	demands []Demand
	flows   []flow
	entries []float64 // F of each link
	largest float64
	used    []float64 // by link, bit/s, after the moves
	graph   grapher
}

// flow is the current path of a demand.
type flow struct {
	next    []int32
	sources []source
	own     map[int32]float64 // what it uses of links
}

// source is a router at which traffic of a demand enters the network.
type source struct {
	router int32
	rate   float64 // bit/s sent
}

// least is the share of its traffic by which a router must send more to a destination than its
// neighbours send it, to count as a source: counters are read at different times.
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
	for _, f := range s.flows { // an overloaded queue drops the same share of all demands
		for l := range f.own {
			if total[l] > s.used[l] {
				f.own[l] *= s.used[l] / total[l]
			}
		}
	}
	return s
}

// others returns what other demands use of a link, bit/s.
func (s *state) others(f *flow, l int32) float64 { return max(0, s.used[l]-f.own[l]) }

// busy returns the share of a link used by others.
func (s *state) busy(f *flow, l int32) float64 {
	return s.BandwidthLoad(Link{Bandwidth: s.Links[l].Bandwidth, Used: s.others(f, l)}, s.largest)
}

// cost returns the cost of a link for a demand.
func (s *state) cost(f *flow, l int32) float64 {
	return s.Load(s.busy(f, l), s.entries[l]) + s.HopCost
}

// walk returns a demand's path from a router; none if it does not reach an end.
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

// along returns, for a path, its cost, the demand's throughput, and the link that others use most.
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

// candidates returns the useful moves of a demand: its return home, or another path from one of its
// sources.
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

// home reports whether a moved demand may return: other traffic does not make the home paths busy,
// or they cost less, and there is room.
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

// tolerance is by what share a demand's measured rate may exceed a link's spare bandwidth.
const tolerance = 0.1

// fits reports whether a path has room for a demand's current throughput.
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

// make makes a move: it recomputes the demand's use of links.
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
