package routing

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/internal/patience"
)

// follow updates the routes to the current network.
func (a *App) follow() {
	a.mu.Lock()
	nodes := *a.nodes.Load()
	why := a.cause
	a.pending, a.following, a.cause = false, true, cause{}
	config, addresses, protocols, steered := a.given(), a.addresses, a.known(), a.steered
	if a.others != nil && a.digest == "" {
		a.digest = config.digest()
	}
	configured := a.digest
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.following = false
		a.mu.Unlock()
	}()
	up, connected := make([]map[uint32]bool, len(config.Routers)), map[uint64]bool{}
	for dpid, n := range nodes {
		n.mu.Lock()
		up[n.index], connected[dpid] = n.up, n.sw != nil
		n.mu.Unlock()
	}
	stay := restarting(protocols) // read before the routes: those of a router that has just restarted are right
	for dpid := range nodes {     // a router that has appeared may be restarting, and gets an update of its own
		if !connected[dpid] {
			stay[dpid] = true
		}
	}
	changed, links := 0, a.discovery.Links()
	for stage, ways := range stages(a.led, sayable(steered, a.led, connected)) {
		net, err := addresses.network(&config, up, links, protocols)
		if err != nil {
			a.c.Log().Error("routes cannot be computed", "error", err)
			return
		}
		net.steer(ways)
		a.net.Store(net)
		if a.tellEarly() {
			a.mu.Lock()
			a.pending, a.cause = true, why
			a.mu.Unlock()
			a.again()
			return
		}
		a.complete, a.led = true, ways
		if stage > 0 { // parts change their ways, which only this member knows
			changed += a.install(nodes, net, nil, true, stay)
			continue
		}
		changed += a.install(nodes, net, a.rounds(net, configured), false, stay)
	}
	took := time.Since(why.at)
	a.mu.Lock()
	watchers, feeds := a.watchers, a.feeds
	a.mu.Unlock()
	for _, f := range feeds {
		f.publish()
	}
	if changed == 0 {
		return
	}
	a.c.Log().Info("routes changed", "cause", why.what, "entries", changed, "took", took)
	for _, f := range watchers {
		f(Rerouted{Cause: why.what, At: why.at, Took: took, Changed: changed})
	}
}

// tellEarly announces, shortly after the start, which routes routers are going to use, and reports
// whether there is more to wait for: other routers may have routes that depend on what a router
// announces, and whose entries are from the previous controller.
func (a *App) tellEarly() bool {
	if a.complete || time.Since(a.started) > settleTime {
		return false
	}
	a.mu.Lock()
	feeds := a.feeds
	a.mu.Unlock()
	for _, f := range feeds {
		f.publish()
	}
	return a.settling()
}

// change is a way to be installed or replaced.
type change struct {
	*node
	traffic Traffic
	route   *Route
	way     way
	fresh   bool // there was none before
}

// orderedBy returns the traffic whose ways determine the order of a change. Traffic that is not
// steered follows its subnet, and meets the subnet's entries where it has none of its own: both
// change together, unless onlyParts change.
func (c change) orderedBy(net *network, onlyParts bool) Traffic {
	if _, ok := net.balanced[c.traffic][c.index]; ok || onlyParts && len(net.balanced[c.traffic]) > 0 {
		return c.traffic
	}
	return Traffic{To: c.traffic.To}
}

// isSettled reports whether no change elsewhere in the network can affect the router's entries:
// they were right before, and it has only its own subnets, as most routers do when ten thousand of
// them install routes on demand.
func (n *node) isSettled() bool {
	return n.settled && n.reactive && len(n.neighbors) == 0
}

// install sends the differences in rounds, and returns the number of entries. Routers in stay are
// skipped. If the network changes meanwhile, the remaining rounds are left to the next update.
func (a *App) install(nodes map[uint64]*node, net *network, shared *rounds, onlyParts bool,
	stay map[uint64]bool) (count int) {
	byTraffic := map[Traffic][]change{}
	drop := map[*node][]controller.RuleKey{}
	for _, n := range nodes {
		n.mu.Lock()
		n.net, n.reactive = net, net.onDemand
		if n.rules != nil && (!n.isSettled() || net.leadsParts[n.index]) && !stay[n.DPID] {
			known := len(n.neighbors)
			changes, gone := n.compare()
			for _, c := range changes {
				t := c.orderedBy(net, onlyParts)
				byTraffic[t] = append(byTraffic[t], c)
			}
			if len(changes)+len(gone) > 0 || len(n.neighbors) != known {
				drop[n] = gone
			}
		}
		shared.owns(n.index, n.rules != nil)
		n.mu.Unlock()
	}
	var rounds [][]change
	follows := map[int]bool{} // rounds whose changes follow another member's
	for t, list := range byTraffic {
		at, after := layers(net, t, list, shared)
		for i, layer := range at {
			for len(rounds) <= layer {
				rounds = append(rounds, nil)
			}
			rounds[layer] = append(rounds[layer], list[i])
			follows[layer] = follows[layer] || after[i]
		}
	}
	shared.begin(rounds)
	for i, round := range rounds {
		if follows[i] && !shared.wait(i) {
			return count
		}
		a.send(net, round)
		shared.passed(rounds, i)
		count += len(round)
	}
	ends := slices.ContainsFunc(slices.Collect(maps.Values(drop)),
		func(gone []controller.RuleKey) bool { return len(gone) > 0 })
	if shared != nil && ends && !shared.wait(allRounds) {
		return count
	}
	shared.end()
	var touched []*node
	for n, keys := range drop {
		n.mu.Lock()
		count += len(keys)
		if n.rules != nil && n.net == net {
			for _, k := range keys {
				_ = n.rules.Remove(k)
			}
			n.dropGroups()
			n.neighborsChanged()
			touched = append(touched, n)
		}
		n.mu.Unlock()
	}
	if count > 0 {
		a.barrier(touched)
	}
	return count
}

// layers returns the round in which each change to the ways of some traffic may be made, after
// those of the next hops that they lead to, and whether some of these are other members'. Where no
// router had another way before, no order is needed.
func layers(net *network, t Traffic, list []change, shared *rounds) (round []int, follows []bool) {
	round, follows = make([]int, len(list)), make([]bool, len(list))
	allFresh := !slices.ContainsFunc(list, func(c change) bool { return !c.fresh })
	if allFresh && shared.isFirst() {
		return round, follows
	}
	at := map[int][]int{} // router → its changes
	for i, c := range list {
		at[c.index] = append(at[c.index], i)
	}
	type place struct {
		round   int // the first in which its way is right
		follows bool
	}
	known := map[int]place{}
	var right func(router int) place
	right = func(router int) place {
		if l, ok := known[router]; ok {
			return l
		}
		known[router] = place{} // static routes may lead in circles
		var after place
		if r := net.wayOf(router, t); r != nil && r.Source != Connected {
			for _, h := range r.Hops {
				if h.router >= 0 {
					next := right(h.router)
					after = place{max(after.round, next.round), after.follows || next.follows}
				}
			}
		}
		for _, i := range at[router] {
			round[i], follows[i] = after.round, after.follows
		}
		switch {
		case len(at[router]) > 0:
			after.round++
		case shared.changes(router, t):
			after = place{after.round + 1, true}
		}
		known[router] = after
		return after
	}
	order := slices.Clone(list)
	slices.SortFunc(order, func(x, y change) int { return cmp.Compare(x.route.Metric, y.route.Metric) })
	for _, c := range order {
		right(c.index)
	}
	if allFresh && !slices.Contains(follows, true) {
		clear(round)
	}
	return round, follows
}

// send makes the changes of one round and waits until they have taken effect.
func (a *App) send(net *network, round []change) {
	var touched []*node
	byNode := map[*node][]change{}
	for _, c := range round {
		byNode[c.node] = append(byNode[c.node], c)
	}
	for n, list := range byNode {
		n.mu.Lock()
		if n.rules != nil && n.net == net {
			for _, c := range list {
				if c.traffic.Part.Index == each { // it may have started or stopped copying headers
					c.way = n.partWay(c.traffic, c.way.hops)
				}
				_ = n.put(c.way)
			}
			touched = append(touched, n)
		}
		n.mu.Unlock()
	}
	a.barrier(touched)
}

// barrier waits until the routers have done everything sent; one that does not answer in time does
// not delay the others.
func (a *App) barrier(nodes []*node) {
	ctx, cancel := patience.Routes.Context(a.ctx)
	defer cancel()
	var group sync.WaitGroup
	for _, n := range nodes {
		n.mu.Lock()
		sw := n.sw
		n.mu.Unlock()
		if sw != nil {
			group.Go(func() {
				if err := sw.Barrier(ctx); err != nil && a.ctx.Err() == nil {
					a.c.Log().Warn("a router has not confirmed its routes", "router", n.Name, "error", err)
				}
			})
		}
	}
	group.Wait()
}

func sortRoutes(list []*Route) {
	slices.SortFunc(list, func(a, b *Route) int { return a.Prefix.Compare(b.Prefix) })
}
