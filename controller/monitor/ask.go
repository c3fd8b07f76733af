package monitor

import (
	"context"
	"errors"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/openflow"
)

// Requests counts the poller's readings by outcome; those of flows and groups take two requests.
type Requests struct {
	Answered   uint64
	Refused    uint64 // answered with an ERROR
	Unanswered uint64
	Skipped    uint64 // not sent: the previous reading had not been answered
}

// glance is a switch's activity before a reading: while it stays the same, another reading would
// return the same.
type glance struct {
	activity uint64
	known    bool
	read     bool // the reading taken after it has been answered
	spared   int  // consecutive readings skipped since then
}

// spareMost limits how many consecutive readings of a kind are skipped because nothing has changed:
// Switch.Activity does not cover everything.
const spareMost = 9

// spare reports whether a reading can be skipped, because nothing has changed since the previous
// one. If not, it counts as under way.
func (n *node) spare(k kind, now glance) bool {
	g := &n.last[k]
	if now.known && g.read && g.activity == now.activity && g.spared < spareMost {
		g.spared++
		return true
	}
	*g = now
	return false
}

// readAll makes the readings of the given turns, or skips them. Switches are asked for their
// activity without mu held, because that may block. some reports whether a reading was skipped, so
// that there is room for another request.
func (a *App) readAll(turns []*turn, now time.Time) (some bool) {
	for _, t := range turns {
		var g glance
		g.activity, g.known = t.n.sw.Activity()
		a.mu.Lock()
		if t.n.spare(t.kind, g) {
			t.n.busy, some = false, true
			a.poller.giveBack(t.n.silent > 0)
			a.poller.pacer.spend(-cost[t.kind])
			a.mu.Unlock()
			if t.kind == readPorts {
				a.keepPorts(t.n, now)
			}
			continue
		}
		a.ask(t.n, t.kind)
		a.mu.Unlock()
	}
	return some
}

// giveBack frees the place of a request in flight.
func (p *poller) giveBack(silent bool) {
	p.inFlight--
	if silent {
		p.silent--
	}
}

// ask makes a reading in a goroutine. Its place among the requests in flight is freed after
// Options.Timeout at the latest, even if the switch does not accept the request. mu must be held.
func (a *App) ask(n *node, k kind) {
	p, wasSilent := &a.poller, n.silent > 0
	held := true
	release := func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if held {
			held = false
			if p.giveBack(wasSilent); p.inFlight == a.o.InFlight-1 { // requests that are due wait for a place
				a.poke()
			}
		}
	}
	timer := time.AfterFunc(a.o.Timeout, release)
	a.done.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, a.o.Timeout)
		defer cancel()
		err := a.read(ctx, n, k)
		timer.Stop()
		a.judge(n, k, err)
		release()
	})
}

// judge records the outcome of a reading.
func (a *App) judge(n *node, k kind, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n.busy = false
	var refusal *openflow.Error
	switch {
	case err == nil:
		a.requests.Answered++
		n.silent, n.last[k].read = 0, true
	case errors.As(err, &refusal):
		a.requests.Refused++
		n.silent = 0
	case errors.Is(err, controller.ErrGone) || a.ctx.Err() != nil:
	default:
		a.requests.Unanswered++
		if n.silent++; n.silent == 3 {
			a.log.Warn("the switch does not answer requests for statistics; it is asked less often", "switch",
				n.sw.Name(), "error", err)
		}
	}
}

func (a *App) read(ctx context.Context, n *node, k kind) error {
	switch k {
	case readPorts:
		list, err := controller.Ask[openflow.PortStatsList](ctx, n.sw,
			openflow.PortStatsRequest{Port: openflow.PortAny})
		if err == nil {
			a.takePorts(n, list, time.Now())
		}
		return err
	case readTables:
		list, err := controller.Ask[openflow.TableStatsList](ctx, n.sw, openflow.NoBody(openflow.MultipartTable))
		if err == nil {
			a.mu.Lock()
			n.tables = list
			a.mu.Unlock()
		}
		return err
	case readFlows:
		return a.readFlows(ctx, n)
	default:
		return a.readGroups(ctx, n)
	}
}

// readFlows counts the entries, and reads them where there is room to keep them.
func (a *App) readFlows(ctx context.Context, n *node) error {
	sum, err := controller.Ask[openflow.AggregateStats](ctx, n.sw, openflow.AggregateStatsRequest(openflow.AllFlows()))
	if err != nil {
		return err
	}
	t := FlowTable{Time: time.Now(), Count: int(sum.Flows), Packets: sum.Packets, Bytes: sum.Bytes}
	a.mu.Lock()
	room := a.reserve(n, t.Count)
	a.mu.Unlock()
	if room {
		list, err := controller.Ask[openflow.FlowStatsList](ctx, n.sw, openflow.AllFlows())
		if err != nil {
			return err
		}
		t.Time, t.Count = time.Now(), len(list)
		a.mu.Lock()
		a.poller.pacer.spend(float64(len(list)) / 100) // a large answer counts as several
		if t.Complete = a.reserve(n, len(list)); t.Complete {
			t.Entries = list
		}
		a.mu.Unlock()
	}
	a.mu.Lock()
	before, stored := n.flows, n.flowsStored
	n.flows = t
	store := !n.gone && a.o.Store != nil
	changed := t.Complete && (t.Time.Sub(stored) >= storedAtLeast || !same(before.Entries, t.Entries))
	if changed {
		n.flowsStored = t.Time
	}
	a.mu.Unlock()
	if store {
		a.storeFlows(n.sw.DPID(), &t, changed)
	}
	return nil
}

// reserve reserves room for a switch's flow entries, replacing its reservation, and reports whether
// there is room; if not, it has none. mu must be held.
func (a *App) reserve(n *node, flows int) bool {
	a.reserved -= n.reserved
	n.reserved = 0
	if n.gone && flows > 0 || a.reserved+flows > a.o.MaxFlows {
		return false
	}
	n.reserved = flows
	a.reserved += flows
	return true
}

// readGroups requests counters only if there are groups, and nothing from a switch that has
// refused.
func (a *App) readGroups(ctx context.Context, n *node) error {
	a.mu.Lock()
	refused := n.noGroups
	a.mu.Unlock()
	if refused {
		return nil
	}
	var stats openflow.GroupStatsList
	list, err := controller.Ask[openflow.GroupDescList](ctx, n.sw, openflow.NoBody(openflow.MultipartGroupDesc))
	if err == nil && len(list) > 0 {
		stats, err = controller.Ask[openflow.GroupStatsList](ctx, n.sw,
			openflow.GroupStatsRequest{Group: openflow.GroupAll})
	}
	now := time.Now()
	groups := joinGroups(list, stats)
	a.mu.Lock()
	var refusal *openflow.Error
	n.noGroups = errors.As(err, &refusal)
	store := err == nil && !n.gone && a.o.Store != nil && (len(groups) > 0 || len(n.groups) > 0 || n.groups == nil)
	if err == nil {
		n.groups = groups
	}
	a.mu.Unlock()
	if store {
		a.storeGroups(n.sw.DPID(), now, groups)
	}
	return err
}

// joinGroups combines descriptions and counters.
func joinGroups(list openflow.GroupDescList, stats openflow.GroupStatsList) []Group {
	of := lists.Index(stats, func(s openflow.GroupStats) uint32 { return s.Group })
	groups := make([]Group, len(list))
	for i, d := range list {
		groups[i] = Group{GroupDesc: d, Stats: of[d.Group]}
	}
	return groups
}
