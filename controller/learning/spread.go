package learning

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
)

// How paths are installed. A packet that matches a path's entry never leaves that path: a switch
// gets its entry before another one sends packets there, and loses it afterwards. So packets on
// paths are never flooded along the tree and cannot loop; and because entries change in order (from
// the host outwards), paths are free of loops, too.

const (
	// PathPriority is that of the entries of table 1 for packets that take paths: above all others.
	// Packets that arrive on a link outside the tree match nothing else but the guard.
	PathPriority, guardPriority = 3, 2

	outsideTree = 1 // in the metadata: the packet arrived on a link outside the tree

	dropped = 0 // in table.paths: no port

	// maxPaths limits the entries of all switches together. Packets to further hosts are flooded.
	maxPaths = 262_144
)

// spreading is the state of paths.
type spreading struct {
	wanted, refused atomic.Bool // refused: a switch has refused one

	mu      sync.Mutex // guards what follows; may be taken while a table's mu is held
	steered map[openflow.MAC]steer.Ways
	view    *view
	ways    map[openflow.MAC]*way

	// Used by follow only:
	full    bool // the limit on hosts with paths has been reached, and logged
	foreign bool // foreign switches prevent paths, which has been logged
	places  map[openflow.MAC]end
}

// Spread makes packets to hosts use all links, or only those of the tree.
func (a *App) Spread(on bool) {
	if a.spreading.wanted.Swap(on) != on {
		a.spreading.refused.Store(false)
		a.poke()
	}
}

func pathEntry(mac openflow.MAC, port uint32) *openflow.FlowMod {
	var out []openflow.Instruction
	if port != dropped {
		out = append(out, openflow.ApplyActions(openflow.Output(port)))
	}
	m := flow(openflow.FlowAdd, destinationTable, PathPriority, openflow.NewMatch(openflow.EthDst(mac)), out...)
	m.Cookie = pathCookie
	return m
}

func noPathEntry(mac openflow.MAC) *openflow.FlowMod {
	m := pathEntry(mac, dropped)
	m.Command, m.CookieMask = openflow.FlowDeleteStrict, frameMask
	return m
}

// guard drops packets that arrive on a link outside the tree and have no path.
func guard() *openflow.FlowMod {
	return flow(openflow.FlowAdd, destinationTable, guardPriority, openflow.NewMatch(openflow.Metadata(outsideTree)))
}

// bypasses reports whether a port needs the guard. mu must be held.
func (t *table) bypasses() bool {
	for _, p := range t.ports {
		if p.role == bypass {
			return true
		}
	}
	return false
}

// adoptPaths takes over the paths installed in the switch. mu must be held.
func (t *table) adoptPaths() {
	for _, f := range t.sw.Rules(pathCookie, frameMask, nil).Flows() {
		if dst, ok := f.Match.Get(openflow.FieldEthDst); ok {
			t.paths[dst.MAC()] = dropped
			for _, i := range f.Instructions {
				for _, action := range i.Actions {
					t.paths[dst.MAC()] = action.Port
				}
			}
		}
	}
}

// isPending reports whether a switch has yet to confirm its path to an address.
func (t *table) isPending(mac openflow.MAC) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending[mac]
}

// route installs the paths of the current network. spread reports whether links may be used by
// paths now, done whether nothing is left to do.
func (a *App) route(g *graph, tables []*table, links []discovery.Link, now time.Time) (spread, done bool) {
	s := &a.spreading
	s.mu.Lock()
	steered := s.steered
	s.mu.Unlock()
	wanted := s.wanted.Load() && !s.refused.Load() && !a.hasForeign(g)
	has := slices.ContainsFunc(tables, func(t *table) bool { return len(t.paths) > 0 })
	if !wanted && !has {
		a.show(nil, nil)
		return false, true
	}
	if unknown(tables, now) {
		return true, false
	}
	a.confirmRoles(tables)
	v := a.look(tables, links)
	if !wanted && len(v.held) > 0 {
		wanted = true // entries that lead to others cannot be reached
	}
	ways := map[openflow.MAC]*way{}
	if wanted {
		for mac, at := range a.locate(v, links) {
			if w := v.way(mac, at, steered[mac]); w != nil {
				ways[mac] = w
			}
		}
	}
	done = a.install(v, ways)
	a.show(v, ways)
	if !done {
		a.poke()
	}
	return wanted || !done, done
}

// show publishes the paths.
func (a *App) show(v *view, ways map[openflow.MAC]*way) {
	a.spreading.mu.Lock()
	defer a.spreading.mu.Unlock()
	a.spreading.view, a.spreading.ways = v, ways
}

// hasForeign reports whether foreign switches are between those of the app. They would see a host
// in changing places, so that only the tree can be used.
func (a *App) hasForeign(g *graph) bool {
	foreign := slices.ContainsFunc(g.segments, func(s *segment) bool { return s.indirect || len(s.ends) > 2 })
	if foreign && !a.spreading.foreign {
		a.log.Warn("there are foreign switches between switches; all packets take the spanning tree, none takes other paths")
	}
	a.spreading.foreign = foreign
	return foreign
}

// unknown reports whether, after a restart, a switch's tables have links whose other end is not
// known yet, or a switch there has not reconnected.
func unknown(tables []*table, now time.Time) bool {
	for _, t := range tables {
		t.mu.Lock()
		for _, p := range t.ports {
			if t.sw != nil && p.role.hasPaths() && now.Before(p.held) {
				t.mu.Unlock()
				return true
			}
		}
		t.mu.Unlock()
	}
	return false
}

// locate returns where addresses are. Hosts are where discovery says, or if it has not heard them
// since a connection was lost, where their switch has learned them; routers are at the ports that
// lead to them.
func (a *App) locate(v *view, links []discovery.Link) map[openflow.MAC]end {
	out, s := map[openflow.MAC]end{}, &a.spreading
	for _, h := range a.discovery.Hosts() {
		if v.tables[h.Switch] != nil {
			out[h.MAC] = end{h.Switch, h.Port}
		}
	}
	for mac, at := range s.places {
		if _, known := out[mac]; !known && v.tables[at.dpid] != nil &&
			(v.frozen[at.dpid] || v.tables[at.dpid].hasLearned(mac, at.port)) {
			out[mac] = at
		}
	}
	for _, dpid := range slices.Sorted(maps.Keys(v.tables)) {
		v.tables[dpid].eachLearned(func(mac openflow.MAC, port uint32) {
			if _, known := out[mac]; !known {
				out[mac] = end{dpid, port}
			}
		})
	}
	for _, l := range links {
		if a.routers == nil || v.tables[l.From] == nil || v.tables[l.To] != nil {
			continue
		}
		if mac, ok := a.routers(l.To, l.ToPort); ok {
			out[mac] = end{l.From, l.FromPort}
		}
	}
	a.bound(v, out)
	for mac, at := range out {
		if s.places[mac] != at {
			for dpid, t := range v.tables {
				if dpid != at.dpid {
					t.gone(mac)
				}
			}
		}
	}
	s.places = out
	return out
}

// hasLearned reports whether a host was learned at a port.
func (t *table) hasLearned(mac openflow.MAC, port uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, ok := t.addresses[mac]
	return ok && x.port == port
}

// eachLearned calls f for the hosts learned at edge ports.
func (t *table) eachLearned(f func(openflow.MAC, uint32)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for mac, x := range t.addresses {
		if p := t.ports[x.port]; p != nil && p.role == edge {
			f(mac, x.port)
		}
	}
}

// bound reduces the addresses to the permitted number, preferring those that have paths.
func (a *App) bound(v *view, out map[openflow.MAC]end) {
	most := maxPaths / max(1, len(v.tables))
	if len(out) <= most {
		a.spreading.full = false
		return
	}
	if !a.spreading.full {
		a.spreading.full = true
		a.log.Warn("the limit on hosts with paths is reached; packets to further ones are flooded", "hosts", len(out),
			"paths to", most)
	}
	var fresh []openflow.MAC
	for mac := range out {
		if _, had := a.spreading.places[mac]; !had {
			fresh = append(fresh, mac)
		}
	}
	slices.SortFunc(fresh, func(x, y openflow.MAC) int { return bytes.Compare(x[:], y[:]) })
	for len(out) > most && len(fresh) > 0 {
		delete(out, fresh[len(fresh)-1])
		fresh = fresh[:len(fresh)-1]
	}
}

// gone forgets that a host was at a port of the switch, so that its return is noticed.
func (t *table) gone(mac openflow.MAC) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, known := t.addresses[mac]
	if t.sw == nil || !known {
		return
	}
	from, to := sourceEntry(mac, x.port), destinationEntry(mac, x.port)
	for _, m := range []*openflow.FlowMod{from, to} {
		m.Command, m.CookieMask, m.Flags = openflow.FlowDeleteStrict, frameMask, 0
		_ = t.sw.Send(m)
	}
	if p := t.ports[x.port]; p != nil {
		p.addresses--
	}
	delete(t.addresses, mac)
}

// step is a change of a path's entry.
type step struct {
	mac  openflow.MAC
	port uint32
	none bool // the entry is removed
}

// round is a set of changes made together; the next round waits until they are confirmed.
type round map[*table][]step

func (r round) add(t *table, s step) { r[t] = append(r[t], s) }

// install sends the differences to the switches, and reports whether all have confirmed them.
func (a *App) install(v *view, ways map[openflow.MAC]*way) bool {
	var outwards, inwards []round // by distance from the host
	at := func(list *[]round, i int) round {
		for len(*list) <= i {
			*list = append(*list, round{})
		}
		return (*list)[i]
	}
	for dpid, t := range v.tables {
		if v.frozen[dpid] {
			continue
		}
		for mac, w := range ways {
			port, ok := w.port(dpid)
			if have, had := t.paths[mac]; ok && (!had || have != port || t.isPending(mac)) {
				at(&outwards, w.steps(dpid)).add(t, step{mac: mac, port: port})
			}
		}
		for mac, port := range t.paths {
			if w := ways[mac]; w != nil {
				if _, ok := w.port(dpid); ok {
					continue
				}
			}
			switch {
			case !v.held[mac]:
				at(&inwards, v.stepsNow(dpid, mac)).add(t, step{mac: mac, none: true})
			case port != dropped: // a switch that cannot be changed may send packets here
				at(&outwards, 0).add(t, step{mac: mac})
			}
		}
	}
	slices.Reverse(inwards)
	return !slices.ContainsFunc(append(outwards, inwards...), func(r round) bool { return !a.send(r) })
}

// stepsNow returns the number of links that a packet to an address passes from a switch, by the
// installed entries.
func (v *view) stepsNow(dpid uint64, mac openflow.MAC) (n int) {
	for ; n < len(v.tables); n++ {
		e, ok := v.over[end{dpid, v.tables[dpid].paths[mac]}]
		if !ok {
			break
		}
		dpid = e.To
	}
	return n
}

// send makes the changes of a round, and reports whether all switches have confirmed them.
func (a *App) send(r round) bool {
	return a.each(slices.Collect(maps.Keys(r)), func(t *table) []openflow.Message {
		var out []openflow.Message
		for _, s := range r[t] {
			t.pending[s.mac] = true
			if s.none {
				delete(t.paths, s.mac)
				out = append(out, noPathEntry(s.mac))
			} else {
				t.paths[s.mac] = s.port
				out = append(out, pathEntry(s.mac, s.port))
			}
		}
		return out
	}, func(t *table) {
		for _, s := range r[t] {
			delete(t.pending, s.mac)
		}
	})
}

// confirmRoles waits until the ports that paths may use accept their packets.
func (a *App) confirmRoles(tables []*table) {
	fresh := slices.DeleteFunc(slices.Clone(tables), func(t *table) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return !t.fresh || t.stuck || t.sw == nil
	})
	a.each(fresh, func(*table) []openflow.Message { return nil }, func(t *table) { t.fresh = false })
}

// each sends messages to all switches at once, and calls confirmed for those that confirm them;
// others are stuck until they do. tell and confirmed are called with the table's mu held.
func (a *App) each(tables []*table, tell func(*table) []openflow.Message, confirmed func(*table)) bool {
	ctx, cancel := patience.Paths.Context(context.Background())
	defer cancel()
	var group sync.WaitGroup
	for _, t := range tables {
		t.mu.Lock()
		sw, messages := t.sw, tell(t)
		t.mu.Unlock()
		if sw == nil {
			continue // disconnected: the changes stay pending
		}
		group.Go(func() {
			err := sw.Do(ctx, messages...)
			t.mu.Lock()
			defer t.mu.Unlock()
			if err == nil {
				confirmed(t)
				return
			}
			t.stuck = true
			a.stuck(t, sw, err)
		})
	}
	group.Wait()
	return !slices.ContainsFunc(tables, func(t *table) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.stuck || t.sw == nil
	})
}

// stuck handles a switch that has not confirmed its changes.
func (a *App) stuck(t *table, sw *controller.Switch, err error) {
	var refusal *openflow.Error
	if errors.As(err, &refusal) && !a.spreading.refused.Swap(true) {
		a.log.Warn("the switch refuses the path to a host; all packets take the spanning tree, and none takes other paths", "switch", sw.Name(), "error", err)
	}
	a.done.Go(func() {
		if sw.Barrier(a.ctx) != nil {
			return // it is disconnected, and may have some of them
		}
		t.mu.Lock()
		t.stuck = false
		clear(t.pending)
		t.mu.Unlock()
		a.poke()
	})
}
