package ospf

// interArea is section 16.2: routes to other areas, from the summary-LSAs of one.
func (c *calculation) interArea(a *Area) {
	c.summaries(a, func(lsa LSA, border *RouterRoute, cost uint32) {
		if lsa.Type == TypeASBRSummary {
			c.addRouter(RouterRoute{lsa.ID, FlagExternal, InterArea, a.id, cost, border.NextHops})
			return
		}
		net := keyOfPrefix(lsa.Prefix())
		c.addNet(net, Route{Type: InterArea, Area: a.id, Cost: cost, NextHops: border.NextHops})
	})
}

// throughTransit is section 16.3: shorter paths of the backbone through a transit area, by a border
// router to which no virtual link leads.
func (c *calculation) throughTransit(a *Area) {
	c.summaries(a, func(lsa LSA, border *RouterRoute, cost uint32) {
		if lsa.Type == TypeASBRSummary {
			for _, old := range c.routers[lsa.ID] {
				if old.Area == Backbone {
					improve(&old.Cost, &old.NextHops, cost, border.NextHops)
				}
			}
			return
		}
		old := c.find(keyOfPrefix(lsa.Prefix()))
		if old != nil && old.Type <= InterArea && old.Area == Backbone {
			improve(&old.Cost, &old.NextHops, cost, border.NextHops)
		}
	})
}

// improve takes a shorter path, or adds one of the same cost (section 16.3 step 5).
func improve(cost *uint32, hops *[]NextHop, newCost uint32, newHops []NextHop) {
	switch {
	case newCost < *cost:
		*cost, *hops = newCost, newHops
	case newCost == *cost:
		*hops = joinHops(*hops, newHops)
	}
}

// summaries iterates over the usable summary-LSAs of an area (section 16.2 steps 1 to 4), with the
// path to the border router that announces each, and the cost of the whole path.
func (c *calculation) summaries(a *Area, use func(lsa LSA, border *RouterRoute, cost uint32)) {
	for _, t := range []LSType{TypeSummary, TypeASBRSummary} {
		for _, e := range a.db.typed[t] {
			body, _ := DecodeSummary(e.Body)
			if body.Metric == LSInfinity || e.maxAged() || e.AdvRouter == c.r.id {
				continue
			}
			if t == TypeSummary && c.ranges[keyOfPrefix(e.Prefix())] {
				continue
			}
			if t == TypeASBRSummary && e.ID == c.r.id {
				continue
			}
			border := c.borderRoute(e.AdvRouter, a.id)
			if border == nil || border.Flags&FlagBorder == 0 {
				continue
			}
			use(e.LSA, border, border.Cost+body.Metric)
		}
	}
}

// eachRange iterates over the area ranges of the areas that the router is attached to.
func (c *calculation) eachRange(yield func(*Area, Range) bool) {
	for _, at := range c.r.areas {
		if !c.r.attached(at.area) {
			continue
		}
		for _, rg := range at.area.cfg.Ranges {
			if !yield(at.area, rg) {
				return
			}
		}
	}
}

// rangeCost returns the cost of an area range: that of the farthest network in it (section 12.4.3).
// A range that contains no network of the area is not active.
func (c *calculation) rangeCost(a *Area, rg Range) (cost uint32, active bool) {
	for i, net := range c.keys {
		if c.intra[i].Area == a.id && keyOfPrefix(rg.Prefix).contains(net) {
			cost, active = max(cost, c.intra[i].Cost), true
		}
	}
	return cost, active
}

// findRanges finds the router's own active ranges: summaries of the same networks are ignored
// (section 16.2 step 3).
func (c *calculation) findRanges() {
	c.ranges = map[netKey]bool{}
	for a, rg := range c.eachRange {
		if _, active := c.rangeCost(a, rg); active {
			c.ranges[keyOfPrefix(rg.Prefix)] = true
		}
	}
}

// discards adds an entry for each active range that has no route of its own.
func (c *calculation) discards() {
	for a, rg := range c.eachRange {
		net := keyOfPrefix(rg.Prefix)
		cost, active := c.rangeCost(a, rg)
		if old := c.find(net); active && !rg.Hide && (old == nil || old.Type != IntraArea) {
			c.others[net] = &Route{Prefix: rg.Prefix, Type: IntraArea, Area: a.id, Cost: cost, Discard: true}
		}
	}
}
