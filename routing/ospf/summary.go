package ospf

import "slices"

// summary is a summary-LSA to originate.
type summary struct {
	key  LSAKey
	body SummaryLSA
}

// originateSummaries announces the router's routes into an area by summary-LSAs, and withdraws
// those of networks that it no longer reaches (section 12.4.3).
func (r *Router) originateSummaries(c *calculation, at *attachment) {
	var news []summary
	if r.isBorder() && r.attached(at.area) {
		news = r.newSummaries(c, at)
	}
	var gone []LSAKey
	for key, version := range at.summaries {
		if version != r.domain.version {
			gone = append(gone, key)
		}
	}
	sortKeys(gone)
	for _, key := range gone {
		delete(at.summaries, key)
		at.area.db.withdraw(key)
	}
	slices.SortFunc(news, func(a, b summary) int { return a.key.compare(b.key) })
	for _, n := range news {
		at.area.db.originate(n.key, at.area.options(), n.body.Encode())
	}
}

// newSummaries marks the wanted summaries of the area with the calculation's version, and returns
// those that are new or different.
func (r *Router) newSummaries(c *calculation, at *attachment) (news []summary) {
	if at.summaries == nil {
		at.summaries = map[LSAKey]uint64{}
	}
	want := func(t LSType, id ID, body SummaryLSA) {
		key := LSAKey{t, id, r.id}
		at.summaries[key] = r.domain.version
		if o := at.area.db.own[key]; o != nil && o.wanted {
			if old, _ := DecodeSummary(o.body); old == body {
				return
			}
		}
		news = append(news, summary{key, body})
	}
	nets := c.summaryNets(at.area)
	for net, id := range assignIDs(nets) {
		want(TypeSummary, id, SummaryLSA{net.mask(), nets[net]})
	}
	for id, cost := range c.summaryRouters(at.area) {
		want(TypeASBRSummary, id, SummaryLSA{0, cost})
	}
	return news
}

// summaryNets returns the networks to announce into an area, with their costs.
func (c *calculation) summaryNets(into *Area) map[netKey]uint32 {
	nets := map[netKey]uint32{}
	if into.cfg.Stub {
		nets[0] = min(into.cfg.DefaultCost, LSInfinity-1)
		if into.cfg.NoSummary {
			return nets
		}
	}
	for net, r := range c.each {
		if r.Type > InterArea || r.Discard || !c.summarized(into, r.Type, r.Area, r.Cost, r.NextHops) {
			continue
		}
		if r.Type == IntraArea && c.inRange(into, r.Area, net) {
			continue
		}
		if net == 0 && into.cfg.Stub {
			continue // the area has its own default route
		}
		nets[net] = r.Cost
	}
	for a, rg := range c.eachRange {
		if a == into || rg.Hide || c.uncondensed(into, a.id) {
			continue
		}
		if cost, active := c.rangeCost(a, rg); active && cost < LSInfinity {
			nets[keyOfPrefix(rg.Prefix)] = cost
		}
	}
	return nets
}

// summarized reports whether a route is announced into an area (section 12.4.3): not into its own,
// nor the one that its next hops are in, and into the backbone only from other areas themselves.
func (c *calculation) summarized(into *Area, t PathType, area ID, cost uint32, hops []NextHop) bool {
	if area == into.id || cost >= LSInfinity || t == InterArea && into.id == Backbone {
		return false
	}
	for _, h := range hops {
		if h.Interface.area == into {
			return false
		}
	}
	return true
}

// inRange reports whether an area range is announced in place of a network.
func (c *calculation) inRange(into *Area, area ID, net netKey) bool {
	if c.uncondensed(into, area) {
		return false
	}
	for _, rg := range c.r.domain.areas[area].cfg.Ranges {
		if keyOfPrefix(rg.Prefix).contains(net) {
			return true
		}
	}
	return false
}

// uncondensed reports whether ranges do not apply: those of the backbone in transit areas, so that
// section 16.3 finds every network (section 12.4.3).
func (c *calculation) uncondensed(into *Area, area ID) bool {
	return area == Backbone && c.transit[into]
}

// summaryRouters returns the AS boundary routers to announce into an area, with their costs: the
// path that external routes take counts (section 12.4.3).
func (c *calculation) summaryRouters(into *Area) map[ID]uint32 {
	routers := map[ID]uint32{}
	if into.cfg.Stub {
		return routers
	}
	compatible := c.r.domain.cfg.RFC1583Compatibility
	for id, list := range c.routers {
		var best *RouterRoute
		rank := func(r *RouterRoute) path { return path{r.Cost, r.Type == IntraArea && r.Area != Backbone, nil} }
		for _, r := range list {
			if r.Flags&FlagExternal != 0 && (best == nil || rank(r).betterThan(rank(best), compatible)) {
				best = r
			}
		}
		if best != nil && c.summarized(into, best.Type, best.Area, best.Cost, best.NextHops) {
			routers[id] = best.Cost
		}
	}
	return routers
}
