package verify

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/netfacts"
	"trivet.dev/trivet/topology"
)

// meant is the topology's route for an address.
type meant struct {
	to     netip.Prefix
	metric uint32
	via    netip.Addr // none: directly connected, or discarded
	device string     // "": that which leads to via
	lost   bool
}

func (m meant) String() string {
	switch {
	case m.lost:
		return "no way"
	case m.via.IsValid():
		return "the way via " + m.via.String()
	}
	return "the way by " + m.device
}

// leads says whether a path is the same as the route.
func (m meant) leads(p netfacts.Path) bool {
	if p.Lost() || m.lost {
		return p.Lost() == m.lost
	}
	if m.via.IsValid() {
		return len(p.Via) == 1 && p.Via[0] == m.via
	}
	return len(p.Via) == 0 && slices.Equal(p.Devices, []string{m.device})
}

// yields says whether the kernel prefers a path in the same table.
func (m meant) yields(p netfacts.Path) bool {
	return p.To.Bits() > m.to.Bits() || p.To.Bits() == m.to.Bits() && p.Metric <= m.metric
}

// The kernel's metrics of IPv6 routes: to connected networks, and of others without one.
const connected6, usual6 = 256, 1024

// meantFor returns the topology's route in a node for an address.
func (j *judge) meantFor(n *topology.Node, a netip.Addr) (best meant, is bool) {
	take := func(m meant) {
		if m.to.Contains(a) &&
			(!is || m.to.Bits() > best.to.Bits() || m.to.Bits() == best.to.Bits() && m.metric < best.metric) {
			best, is = m, true
		}
	}
	for _, at := range j.devices[n.Name] {
		for _, p := range j.ends[at].Addresses {
			m := meant{to: p.Masked(), device: at[1]}
			if a.Is6() {
				m.metric = connected6
			}
			take(m)
		}
	}
	for _, r := range n.StaticRoutes() {
		m := meant{to: r.To.Masked(), metric: r.KernelMetric(), via: r.Via, device: r.Device, lost: r.Discard}
		if m.metric == 0 && a.Is6() {
			m.metric = usual6
		}
		if r.InMain() {
			take(m)
		}
	}
	return best, is
}

// route judges a route that was added, changed or removed by hand.
func (j *judge) route(where string, n *topology.Node, c netfacts.Change) {
	name := strings.NewReplacer("0.0.0.0/0", "default", "::/0", "default").Replace(c.Name)
	name = strings.TrimSpace(name + " " + c.Said())
	if c.Device != netfacts.Main {
		name += ", in table " + c.Device
	}
	switch {
	case n != nil && c.Device != netfacts.Main && !c.New && slices.ContainsFunc(n.Routes, func(r topology.Route) bool {
		return topology.TableName(r.Table) == c.Device &&
			slices.ContainsFunc(netfacts.Paths(c.Key, c.Was),
				func(p netfacts.Path) bool { return p.To == r.To.Masked() })
	}):
		j.say(true, where, c, "route", name)
		return
	case n == nil || c.Device != netfacts.Main:
	case !c.New && relabelled(n, c):
		j.say(true, where, c, "route", name)
		return
	case !c.New && j.promisedRoute(n, c) && j.there != nil:
		return // judged elsewhere
	case !c.New && j.promisedRoute(n, c):
		j.say(true, where, c, "route", name)
		return
	case !c.Gone:
		for _, p := range netfacts.Paths(c.Key, c.Is) {
			if why := j.deviates(n, p, meant.yields); why != "" {
				j.say(true, where, c, "route", name+"; "+why)
				return
			}
		}
	}
	j.say(false, where, c, "route", name)
}

// promisedRoute says whether an earlier route was one of the topology's, and leads elsewhere now.
func (j *judge) promisedRoute(n *topology.Node, c netfacts.Change) bool {
	return slices.ContainsFunc(n.StaticRoutes(), func(r topology.Route) bool {
		return slices.ContainsFunc(netfacts.Paths(c.Key, c.Was), func(p netfacts.Path) bool {
			return p.To == r.To.Masked() && r.Via.IsValid() && !r.Computed && slices.Contains(p.Via, r.Via) &&
				!strings.Contains(c.Is, "via "+r.Via.String())
		})
	})
}

// relabelled says whether an earlier route pushed the topology's labels, and the new one pushes
// others, or none, on the same path.
func relabelled(n *topology.Node, c netfacts.Change) bool {
	return !c.Gone && slices.ContainsFunc(n.StaticRoutes(), func(r topology.Route) bool {
		labels := " encap mpls " + string(r.Labels) + " "
		return r.Labels != "" && slices.ContainsFunc(netfacts.Paths(c.Key, c.Was), func(p netfacts.Path) bool {
			return p.To == r.To.Masked()
		}) &&
			strings.Contains(c.Was+" ", labels) && !strings.Contains(c.Is+" ", labels) &&
			strings.Contains(c.Is+" ", "via "+r.Via.String()+" ")
	})
}

// deviates returns an address of the lab for which a path in a node takes precedence over the
// topology's route and differs from it; "" if there is none. Where the topology has no route, as
// routing daemons find it, only a path that loses packets deviates.
func (j *judge) deviates(n *topology.Node, p netfacts.Path, before func(meant, netfacts.Path) bool) string {
	for _, a := range j.addresses {
		if !p.To.Contains(a.Addr()) || slices.Contains(j.owners[a.Addr()], n.Name) {
			continue
		}
		of := fmt.Sprintf("%s (%s)", a.Addr(), j.owners[a.Addr()][0])
		m, ok := j.meantFor(n, a.Addr())
		switch {
		case !ok && p.Lost() && before(meant{to: a.Masked()}, p), ok && p.Lost() && !m.lost && before(m, p):
			return "nothing reaches " + of
		case ok && !m.leads(p) && before(m, p):
			return fmt.Sprintf("the topology has %s to %s", m, of)
		}
	}
	return ""
}

// mainRule is the priority of the rule that leads to the main table.
const mainRule = 32766

// rule judges a routing rule.
func (j *judge) rule(where string, n *topology.Node, c netfacts.Change) {
	name := c.Name + " " + c.Said()
	head, _, _ := strings.Cut(c.Name, ":")
	family, number, _ := strings.Cut(head, " ")
	priority, _ := strconv.Atoi(number)
	lookup, leads := strings.CutPrefix(c.Is, "lookup ")
	table, _, _ := strings.Cut(lookup, " ")
	always := func(meant, netfacts.Path) bool { return true }
	switch {
	case n != nil && !c.New &&
		slices.ContainsFunc(n.Rules, func(r topology.Rule) bool { return int(r.Priority) == priority }):
		j.say(true, where, c, "rule", name)
		return
	case n == nil || !j.addressed(n, family == "ipv6"):
	case c.Gone && strings.HasPrefix(c.Was, "lookup ") && (priority == 0 || priority == mainRule):
		j.say(true, where, c, "rule", name)
		return
	case c.Gone || priority >= mainRule:
	case !leads && c.Is != "nop" && c.Is != "goto":
		for _, a := range j.addresses {
			if j.matches(n, c.Name, a.Addr()) {
				j.say(true, where, c, "rule",
					fmt.Sprintf("%s; nothing reaches %s (%s)", name, a.Addr(), j.owners[a.Addr()][0]))
				return
			}
		}
	case leads:
		for _, p := range j.tables[n.Name][table] {
			if to := selector(c.Name, "to"); to.IsValid() && to.Bits() > p.To.Bits() && p.To.Overlaps(to) {
				p.To = to
			}
			if !j.from(n, c.Name) {
				continue
			}
			if why := j.deviates(n, p, always); why != "" {
				j.say(true, where, c, "rule", name+"; "+why)
				return
			}
		}
	}
	j.say(false, where, c, "rule", name)
}

// matches says whether a rule may apply to packets to an address of another node.
func (j *judge) matches(n *topology.Node, rule string, to netip.Addr) bool {
	dst := selector(rule, "to")
	return strings.HasPrefix(rule, "ipv6") == to.Is6() && (!dst.IsValid() || dst.Contains(to)) &&
		!slices.Contains(j.owners[to], n.Name) && j.from(n, rule)
}

// from says whether a rule may apply to packets that a node sends or forwards.
func (j *judge) from(n *topology.Node, rule string) bool {
	src := selector(rule, "from")
	return !src.IsValid() || slices.ContainsFunc(j.addresses, func(a netip.Prefix) bool {
		return src.Contains(a.Addr()) && (n.Kind == topology.Router || slices.Contains(j.owners[a.Addr()], n.Name))
	})
}

// selector returns the prefix that a rule selects; none: all.
func selector(rule, word string) netip.Prefix {
	words := strings.Fields(rule)
	if i := slices.Index(words, word); i >= 0 && i+1 < len(words) {
		p, _ := netip.ParsePrefix(words[i+1])
		return p
	}
	return netip.Prefix{}
}
