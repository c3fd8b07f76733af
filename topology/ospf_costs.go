package topology

import (
	"net/netip"
	"slices"
)

// ospfCosts are the costs of OSPF's paths according to the settings of a topology.
type ospfCosts struct {
	routers map[string]OSPFRouter
	members map[ospfNetwork][]ospfMember
	least   map[netip.Addr]map[string]int
}

// ospfMember is a router that may have neighbours in a network, and the cost of its interface
// there.
type ospfMember struct {
	router string
	cost   int
}

// ospfCostsOf returns the costs of a resolved topology.
func ospfCostsOf(t *Topology) *ospfCosts {
	c := &ospfCosts{routers: map[string]OSPFRouter{}, members: map[ospfNetwork][]ospfMember{},
		least: map[netip.Addr]map[string]int{}}
	for _, r := range OSPFOf(t) {
		c.routers[r.Node.Name] = r
		for _, i := range r.Interfaces {
			if !i.Passive && !i.Link.Down {
				c.members[networkOf(i)] = append(c.members[networkOf(i)], ospfMember{r.Node.Name, i.Cost})
			}
		}
	}
	return c
}

// Over returns the cost of a router's device; false if OSPF does not run there.
func (c *ospfCosts) Over(router, device string) (cost int, ok bool) {
	for _, i := range c.routers[router].Interfaces {
		if i.Name == device {
			return i.Cost, true
		}
	}
	return 0, false
}

// Least returns the lowest cost from a router to the network that contains an address, over
// intra-area paths, which take precedence over all others; false if there is no such path, or the
// network is not that of a link in one area.
func (c *ospfCosts) Least(router string, to netip.Addr) (cost int, ok bool) {
	if _, known := c.least[to]; !known {
		c.least[to] = c.leastTo(to)
	}
	cost, ok = c.least[to][router]
	return cost, ok
}

func (c *ospfCosts) leastTo(to netip.Addr) map[string]int {
	least := map[string]int{}
	var areas []AreaID
	var changed []string
	for name, r := range c.routers {
		for _, i := range r.Interfaces {
			if i.Link == nil || i.Link.Down ||
				!slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Contains(to) }) {
				continue
			}
			if !slices.Contains(areas, i.Area) {
				areas = append(areas, i.Area)
			}
			if old, has := least[name]; !has || i.Cost < old {
				least[name] = i.Cost
			}
			changed = append(changed, name)
		}
	}
	if len(areas) != 1 {
		return nil
	}
	for ; len(changed) > 0; changed = changed[1:] {
		at := changed[0]
		for _, i := range c.routers[at].Interfaces {
			if i.Passive || i.Link.Down || i.Area != areas[0] {
				continue
			}
			for _, m := range c.members[networkOf(i)] {
				if old, has := least[m.router]; m.router != at && (!has || m.cost+least[at] < old) {
					least[m.router] = m.cost + least[at]
					changed = append(changed, m.router)
				}
			}
		}
	}
	return least
}
