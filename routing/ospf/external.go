package ospf

// path is a way to an AS boundary router or a forwarding address.
type path struct {
	cost      uint32
	preferred bool // intra-area and not through the backbone: section 16.4.1
	hops      []NextHop
}

// betterThan compares paths (section 16.4.1); with RFC1583Compatibility by cost alone.
func (p path) betterThan(o path, compatible bool) bool {
	if !compatible && p.preferred != o.preferred {
		return p.preferred
	}
	return p.cost < o.cost
}

// externalRoute is a candidate for the routing table.
type externalRoute struct {
	body ExternalLSA
	path path
}

// externals is section 16.4: routes to networks outside the AS.
func (c *calculation) externals() {
	best := map[netKey]externalRoute{}
	for _, e := range c.r.domain.external.typed[TypeExternal] {
		body, _ := DecodeExternal(e.Body)
		if body.Metric == LSInfinity || e.maxAged() || e.AdvRouter == c.r.id { // 1, 2
			continue
		}
		net := keyOfPrefix(e.Prefix())
		if c.only != nil && *c.only != net {
			continue
		}
		p, ok := c.pathTo(e.AdvRouter, body.Forward) // 3
		if !ok {
			continue
		}
		c.chooseExternal(best, net, externalRoute{body, p})
	}
	for net, x := range best {
		if c.find(net) != nil {
			continue // 5: intra-area and inter-area paths are preferred
		}
		r := &Route{Prefix: net.prefix(), Type: External1, Cost: x.path.cost + x.body.Metric, Tag: x.body.Tag,
			NextHops: x.path.hops}
		if x.body.Type2 { // 4
			r.Type, r.Cost, r.Type2 = External2, x.path.cost, x.body.Metric
		}
		c.others[net] = r
	}
}

// pathTo returns the path to an external network (section 16.4 step 3): to the router that
// announces it, or to the forwarding address, which must be inside the AS.
func (c *calculation) pathTo(asbr, forward ID) (best path, ok bool) {
	compatible := c.r.domain.cfg.RFC1583Compatibility
	for _, r := range c.routers[asbr] {
		if r.Flags&FlagExternal == 0 || c.r.domain.areas[r.Area].cfg.Stub {
			continue
		}
		p := path{r.Cost, r.Type == IntraArea && r.Area != Backbone, r.NextHops}
		switch {
		case !ok || p.betterThan(best, compatible):
			best, ok = p, true
		case !best.betterThan(p, compatible):
			best.hops = joinHops(best.hops, p.hops)
		}
	}
	if !ok || forward == 0 {
		return best, ok
	}
	for bits := 32; bits >= 0; bits-- {
		r := c.find(keyOf(forward, maskOf(bits)))
		if r == nil {
			continue
		}
		// The table has no external routes yet, so this one is intra-area or inter-area, as
		// required.
		return path{r.Cost, r.Type == IntraArea && r.Area != Backbone,
			forwardHops(r.NextHops, forward)}, len(r.NextHops) > 0
	}
	return path{}, false
}

// forwardHops returns the next hops to a forwarding address: on an attached network the address
// itself is the next hop.
func forwardHops(hops []NextHop, forward ID) []NextHop {
	var out []NextHop
	for _, h := range hops {
		if h.Addr == ID(0).Addr() && h.Interface.typ == Broadcast {
			h.Addr = forward.Addr()
		}
		out = append(out, h)
	}
	return out
}

// chooseExternal keeps the better of two external paths (section 16.4 step 6): type 1 before type
// 2, the lower type 2 metric, the preferred path, the lower cost.
func (c *calculation) chooseExternal(best map[netKey]externalRoute, net netKey, x externalRoute) {
	old, ok := best[net]
	compatible := c.r.domain.cfg.RFC1583Compatibility
	cost := func(x externalRoute) path {
		p := x.path
		if !x.body.Type2 {
			p.cost += x.body.Metric
		}
		return p
	}
	switch {
	case !ok:
		best[net] = x
	case x.body.Type2 != old.body.Type2:
		if !x.body.Type2 {
			best[net] = x
		}
	case x.body.Type2 && x.body.Metric != old.body.Metric:
		if x.body.Metric < old.body.Metric {
			best[net] = x
		}
	case cost(x).betterThan(cost(old), compatible):
		best[net] = x
	case !cost(old).betterThan(cost(x), compatible):
		old.path.hops = joinHops(old.path.hops, x.path.hops)
		best[net] = old
	}
}
