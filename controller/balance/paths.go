package balance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/topology"
)

// Option is a possible path, with its current load.
type Option struct {
	Edges []steer.Edge
	Load  float64 // the sum of the links' loads (equation 5)
	Free  float64 // bit/s left on the busiest link; 0 if Limited is false
	// Limited reports whether the bandwidth of any link is known.
	Limited bool
}

// Installed is the reason of a path installed by a user.
const Installed = "a user has installed it"

// LinkLoad is a link between datapaths with its load.
type LinkLoad struct {
	Edge            steer.Edge
	Bandwidth, Used float64 // bit/s; Bandwidth 0: unknown
	Load            float64 // equation 5
}

// Links returns the current load of the links between datapaths.
func (a *Balancer[K]) Links() (out []LinkLoad) {
	r, c := a.now()
	for i, l := range c.Loads(r.network) {
		x := r.network.Links[i]
		out = append(out, LinkLoad{r.order[i], x.Bandwidth, x.Used, l})
	}
	return out
}

// now returns a reading of the links as far as monitor knows.
func (a *Balancer[K]) now() (*reading[K], Config) {
	a.mu.Lock()
	c := a.config
	a.mu.Unlock()
	return a.survey(c), c
}

// MaxPaths limits the number of paths per request.
const MaxPaths = 16

// Paths returns up to k, at most MaxPaths, of the least loaded loop-free paths from a datapath to a
// destination that can be installed, the best first; none if no datapath has the destination, or
// the datapath itself does. Callers are served one at a time, until ctx ends. It is an error if the
// datapath's own path cannot be replaced.
func (a *Balancer[K]) Paths(ctx context.Context, from uint64, to K, k int) (out []Option, err error) {
	select {
	case a.finding <- struct{}{}:
		defer func() { <-a.finding }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r, c := a.now()
	d, ok := a.domain.Destination(to)
	start, known := r.index[from]
	if !ok || !known || slices.Contains(d.Owners, from) {
		return nil, nil
	}
	if d.Fixed[from] {
		return nil, a.whyFixed(c, from, to)
	}
	var ends []int32
	for _, o := range d.Owners {
		if i, known := r.index[o]; known {
			ends = append(ends, i)
		}
	}
	fixed := make([]bool, len(r.index))
	for dpid, i := range r.index {
		fixed[i] = d.Fixed[dpid]
	}
	list, err := c.Best(ctx, r.network, start, ends, min(k, MaxPaths), c.HopCost,
		func(i int32) bool { return fixed[i] })
	loads := c.Loads(r.network)
	for _, links := range list {
		var o Option
		for _, l := range links {
			x := r.network.Links[l]
			o.Edges, o.Load = append(o.Edges, r.order[l]), o.Load+loads[l]
			if free := max(0, x.Bandwidth-x.Used); x.Bandwidth > 0 && (!o.Limited || free < o.Free) {
				o.Free, o.Limited = free, true
			}
		}
		out = append(out, o)
	}
	return out, err
}

// whyFixed says why a datapath's traffic to a destination cannot be moved.
func (a *Balancer[K]) whyFixed(c Config, from uint64, to K) error {
	if a.kind == kindSwitch || a.switches(from) == nil {
		return fmt.Errorf("%s is not connected to the controller", c.name(from))
	}
	return fmt.Errorf("%s has a route to %v that takes precedence, a static one, or no address of that version of IP: trivet routes %[1]s %[2]v", c.name(from), to)
}

// Install makes traffic to a destination from the first datapath, and from all others on the path,
// take that path until it is removed; nothing else moves it. Consecutive datapaths must be
// adjacent, and the last one must have the destination.
func (a *Balancer[K]) Install(to K, routers []uint64) error {
	d, ok := a.domain.Destination(to)
	if !ok {
		return fmt.Errorf("no %s has %v", a.kind, to)
	}
	a.mu.Lock()
	c := a.config
	a.mu.Unlock()
	if len(routers) < 2 {
		return fmt.Errorf("a path has two %s or more, not %d", plural(a.kind), len(routers))
	}
	edges := map[[2]uint64]steer.Edge{}
	for _, e := range a.domain.Edges() {
		if _, ok := edges[[2]uint64{e.From, e.To}]; !ok { // of several the first
			edges[[2]uint64{e.From, e.To}] = e
		}
	}
	passed := map[uint64]bool{}
	path := make([]steer.Edge, 0, len(routers)-1)
	for i := range len(routers) - 1 {
		from, next := routers[i], routers[i+1]
		e, linked := edges[[2]uint64{from, next}]
		switch {
		case passed[from]:
			return fmt.Errorf("the path passes %s twice", c.name(from))
		case !linked:
			return fmt.Errorf("no link leads from %s to %s now", c.name(from), c.name(next))
		case d.Fixed[from]:
			return a.whyFixed(c, from, to)
		case slices.Contains(d.Owners, from):
			return fmt.Errorf("%s has %v itself", c.name(from), to)
		}
		passed[from] = true
		path = append(path, e)
	}
	if last := routers[len(routers)-1]; !slices.Contains(d.Owners, last) {
		return fmt.Errorf("the path ends at %s, which does not have %v", c.name(last), to)
	}
	a.mu.Lock()
	m := &Moved[K]{To: to, ways: steer.Ways{}, User: true}
	if old := a.moved[to]; old != nil && old.User {
		m.ways, m.Paths = maps.Clone(old.ways), slices.Clone(old.Paths)
	}
	for _, e := range path {
		m.ways[e.From] = e
	}
	m.add(Path{Routers: routers, Edges: path, Since: time.Now(), Why: Installed})
	a.unite(to) // all parts take the path
	a.moved[to] = m
	a.turn++
	a.mu.Unlock()
	a.steer("a path was installed")
	return nil
}

// The words for datapaths in messages.
const (
	kindRouter = "router"
	kindSwitch = "switch"
)

func plural(kind string) string {
	if kind == kindSwitch {
		return "switches"
	}
	return "routers"
}

// TakeBack removes all installed paths to a destination; false: there are none.
func (a *Balancer[K]) TakeBack(to K) bool {
	a.mu.Lock()
	m := a.moved[to]
	is := m != nil && m.User
	if is {
		delete(a.moved, to)
		a.turn++
	}
	a.mu.Unlock()
	if is {
		a.steer("a path was taken back")
	}
	return is
}

// add records a path, replacing those that it includes.
func (m *Moved[K]) add(path Path) {
	m.Paths = slices.DeleteFunc(m.Paths, func(old Path) bool { return slices.Contains(path.Routers, old.Routers[0]) })
	m.Paths = append(m.Paths, path)
}

// Moved returns the destinations whose packets do not take the shortest paths, in order.
func (a *Balancer[K]) Moved() (out []Moved[K]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range slices.SortedFunc(maps.Keys(a.moved), a.compare) {
		m := *a.moved[p]
		m.Paths = slices.Clone(m.Paths)
		out = append(out, m)
	}
	return out
}

// Why returns the path on which packets from a datapath to a destination were moved; nil: they were
// not.
func (a *Balancer[K]) Why(router uint64, to K) *Path {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.moved[to]; m != nil {
		for _, p := range slices.Backward(m.Paths) {
			if slices.Contains(p.Routers[:len(p.Routers)-1], router) {
				return &p
			}
		}
	}
	return nil
}

// PartsMoved returns how many parts of the traffic to a destination were moved to paths through a
// datapath.
func (a *Balancer[K]) PartsMoved(router uint64, to K) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, m := range a.moved {
		passes := func(p Path) bool { return slices.Contains(p.Routers[:len(p.Routers)-1], router) }
		if k != to && a.domain.Whole(k) == to && slices.ContainsFunc(m.Paths, passes) {
			n++
		}
	}
	return n
}

// On reports whether the app moves traffic.
func (a *Balancer[K]) On() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.config.On
}

// Chooses says when paths are chosen.
func (a *Balancer[K]) Chooses() topology.BalanceChoose {
	a.mu.Lock()
	defer a.mu.Unlock()
	return cmp.Or(a.config.Choose, topology.ChooseBusy)
}

// Moves returns how often traffic was moved since the app started.
func (a *Balancer[K]) Moves() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.moves
}
