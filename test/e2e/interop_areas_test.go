package e2e

import (
	"maps"
	"net/netip"

	"trivet.dev/trivet/topology"
)

// computation is the oracle's work for one state of the network: what several areas make of it.
type computation struct {
	*oracle
	areas    map[topology.AreaID]*graph
	attached []map[topology.AreaID]bool
	transit  map[topology.AreaID]bool // areas with a virtual link through them
	ways     []map[topology.AreaID]map[int]way
	stubs    map[topology.AreaID]bool
}

// attach finds the areas that each router has a working interface in.
func (c *computation) attach() {
	c.stubs = map[topology.AreaID]bool{}
	for r := range c.routers {
		c.attached[r] = map[topology.AreaID]bool{}
		for i := range c.routers[r].Interfaces {
			f := &c.routers[r].Interfaces[i]
			if _, alone := c.unplugged(r, f); c.up(r, f) || alone {
				c.attached[r][f.Area] = true
			}
		}
		for _, a := range c.routers[r].Areas {
			c.stubs[a.ID] = c.stubs[a.ID] || a.Stub
		}
	}
}

// virtual adds virtual links to the backbone: a step that costs, and goes, as the way through the
// transit area does (section 15). Both ends must have it.
func (c *computation) virtual() {
	for r := range c.routers {
		for _, v := range c.routers[r].VirtualLinks {
			peer := c.index(v.Peer)
			both := false
			for _, back := range c.routers[peer].VirtualLinks {
				both = both || back.Peer == c.routers[r].RouterID && back.Area == v.Area
			}
			w, ok := c.areas[v.Area].ways(r, v.Area)[peer]
			if !both || !ok || c.dead[c.routers[r].Node.Name] || c.dead[c.routers[peer].Node.Name] {
				continue
			}
			c.transit[v.Area], c.attached[r][0] = true, true
			step := edge{r, peer, w.cost, w.hops}
			c.areas[0].edges = append(c.areas[0].edges, step)
			c.areas[0].across = append(c.areas[0].across, step)
		}
	}
}

func (c *computation) intra() {
	c.ways = make([]map[topology.AreaID]map[int]way, len(c.routers))
	for r := range c.routers {
		c.ways[r] = map[topology.AreaID]map[int]way{}
		for area := range c.attached[r] {
			c.ways[r][area] = c.areas[area].ways(r, area)
		}
	}
}

func (c *computation) border(r int) bool { return len(c.attached[r]) > 1 }

// table is section 16, from what border routers have said.
func (c *computation) table(r int, said news) outcome {
	t := outcome{map[netip.Prefix]way{}, map[int][]way{}}
	if c.dead[c.routers[r].Node.Name] {
		return t
	}
	for area, ways := range c.ways[r] {
		for _, l := range c.areas[area].leaves {
			if w, ok := ways[l.vertex]; ok {
				merge(t.nets, l.prefix, w.plus(l.cost, intra), inside)
			}
		}
		for v, w := range ways {
			if v < len(c.routers) && v != r && !c.stubs[area] {
				t.routers[v] = append(t.routers[v], w)
			}
		}
	}
	for area := range c.attached[r] {
		if !c.border(r) || area == 0 {
			c.summaries(r, area, said, &t)
		}
	}
	for area := range c.attached[r] {
		if c.border(r) && c.attached[r][0] && c.transit[area] {
			c.shorten(r, area, said, &t)
		}
	}
	c.externals(r, &t)
	return t
}

// summaries is section 16.2.
func (c *computation) summaries(r int, area topology.AreaID, said news, t *outcome) {
	own := c.ranges(r, *t)
	found := map[int]way{}
	for from, what := range said[area] {
		w, ok := c.ways[r][area][from]
		if !ok || from == r {
			continue
		}
		for p, cost := range what.nets {
			if _, mine := own[p]; !mine {
				merge(t.nets, p, w.plus(cost, inter), inside)
			}
		}
		for x, cost := range what.routers {
			if _, direct := c.ways[r][area][x]; !direct && x != r {
				merge(found, x, w.plus(cost, inter), inside)
			}
		}
	}
	for x, w := range found {
		w.area = area
		t.routers[x] = append(t.routers[x], w)
	}
}

// shorten is section 16.3: ways of the backbone that are shorter through a transit area.
func (c *computation) shorten(r int, area topology.AreaID, said news, t *outcome) {
	for from, what := range said[area] {
		w, ok := c.ways[r][area][from]
		if !ok || from == r {
			continue
		}
		for p, cost := range what.nets {
			if old, ok := t.nets[p]; ok && old.area == 0 {
				t.nets[p] = shorter(old, w, cost)
			}
		}
		for x, cost := range what.routers {
			for i, old := range t.routers[x] {
				if old.area == 0 {
					t.routers[x][i] = shorter(old, w, cost)
				}
			}
		}
	}
}

func shorter(old, w way, cost int) way {
	switch {
	case w.cost+cost < old.cost:
		old.cost, old.hops = w.cost+cost, maps.Clone(w.hops)
	case w.cost+cost == old.cost:
		old.hops = maps.Clone(old.hops)
		maps.Copy(old.hops, w.hops)
	}
	return old
}

// externals is section 16.4.
func (c *computation) externals(r int, t *outcome) {
	best := map[netip.Prefix]way{}
	for x := range c.routers {
		to := map[int]way{}
		for _, w := range t.routers[x] {
			if w.kind == inter {
				w.area = viaSummary
			}
			merge(to, x, w, far)
		}
		w, ok := to[x]
		if !ok || c.dead[c.routers[x].Node.Name] {
			continue
		}
		for _, e := range c.routers[x].Externals {
			y := w.plus(e.Metric, type1)
			if e.Type2 {
				y = w.plus(0, type2)
				y.metric = e.Metric
			}
			merge(best, e.Prefix, y, outside)
		}
	}
	for p, w := range best {
		if _, ok := t.nets[p]; !ok {
			t.nets[p] = w
		}
	}
}

// ranges are the router's own area ranges that are active: their cost is that of the farthest
// network in them.
func (c *computation) ranges(r int, t outcome) map[netip.Prefix]int {
	out := map[netip.Prefix]int{}
	if !c.border(r) {
		return out
	}
	for _, a := range c.routers[r].Areas {
		for _, rg := range a.Ranges {
			for p, w := range t.nets {
				if w.kind == intra && w.area == a.ID && rg.Prefix.Bits() <= p.Bits() && rg.Prefix.Contains(p.Addr()) {
					out[rg.Prefix] = max(out[rg.Prefix], w.cost)
				}
			}
		}
	}
	return out
}

// tell is what a border router announces into its areas (section 12.4.3).
func (c *computation) tell(r int, t outcome, all news) {
	if !c.border(r) {
		return
	}
	for into := range c.attached[r] {
		say := told{map[netip.Prefix]int{}, map[int]int{}}
		c.tellNets(r, into, t, say)
		for x, ways := range t.routers {
			if best := map[int]way{}; len(c.routers[x].Redistribute) > 0 && !c.stubs[into] {
				for _, w := range ways {
					marked := w
					if w.kind == inter {
						marked.area = viaSummary
					}
					merge(best, x, marked, far)
				}
				if w := best[x]; w.area != into && !(w.kind == inter && into == 0) && !through(w, into) {
					say.routers[x] = w.cost
				}
			}
		}
		if all[into] == nil {
			all[into] = map[int]told{}
		}
		all[into][r] = say
	}
}

func (c *computation) tellNets(r int, into topology.AreaID, t outcome, say told) {
	for _, a := range c.routers[r].Areas {
		if a.ID == into && c.stubs[into] {
			say.nets[netip.PrefixFrom(netip.IPv4Unspecified(), 0)] = a.DefaultCost
			if a.NoSummary {
				return
			}
		}
	}
	for p, w := range t.nets {
		if w.kind > inter || w.area == into || w.kind == inter && into == 0 || through(w, into) {
			continue
		}
		condensed := false
		for _, a := range c.routers[r].Areas {
			for _, rg := range a.Ranges {
				if w.kind == intra && w.area == a.ID && rg.Prefix.Bits() <= p.Bits() && rg.Prefix.Contains(p.Addr()) && !(a.ID == 0 && c.transit[into]) {
					condensed = true
					if cost := c.ranges(r, t)[rg.Prefix]; !rg.Hide {
						say.nets[rg.Prefix] = cost
					}
				}
			}
		}
		if !condensed {
			say.nets[p] = w.cost
		}
	}
}

// through says whether a way begins in an area.
func through(w way, area topology.AreaID) bool {
	for h := range w.hops {
		if h.area == area {
			return true
		}
	}
	return false
}
