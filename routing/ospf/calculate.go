package ospf

import (
	"cmp"
	"slices"
)

// scheduleCalculation schedules a calculation of routes as soon as the throttle allows it.
func (d *Domain) scheduleCalculation() {
	if d.calculate.pos == 0 {
		d.agenda.set(&d.calculate, d.spf.due(d.now, d.cfg.SPF))
	}
}

// expire runs a calculation: it rebuilds the graphs of areas whose topology has changed, calculates
// the routes of routers that announce summaries, and reports the changes.
func (d *Domain) expire(timerKind) {
	d.spf.happened(d.now, d.cfg.SPF)
	d.version++
	changed := map[*Area]bool{}
	for _, a := range d.Areas() {
		if !a.topology && !a.changed {
			continue
		}
		if a.topology {
			a.graph = buildGraph(a)
		}
		a.topology, a.changed, changed[a] = false, false, true
		d.out.Changes = append(d.out.Changes, Change{AreaChanged, a.id})
	}
	d.relieve()
	external := d.externalChanged
	if d.externalChanged = false; external {
		d.out.Changes = append(d.out.Changes, Change{Kind: ExternalChanged})
	}
	for _, r := range d.bordersIn(changed) {
		r.recalculate()
	}
	for _, r := range d.restarts {
		if r.restart.phase == restartEnds {
			r.restart.phase = restartCleared
			d.tellRestart(RestartChange{Router: r, Reason: r.restart.reason})
		}
	}
	for _, r := range d.routers {
		if r.forwards {
			r.touch() // section 12.4.4.1 depends on which routers are reachable
		}
	}
}

// bordersIn lists the routers whose routes must be calculated because areas have changed: border
// routers, former ones, and those with virtual links.
func (d *Domain) bordersIn(changed map[*Area]bool) []*Router {
	var list []*Router
	for _, r := range d.routers {
		if len(r.areas) < 2 && len(r.virtual) == 0 && r.table == nil {
			continue
		}
		if r.table == nil || slices.ContainsFunc(r.areas, func(at *attachment) bool { return changed[at.area] }) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *Router) int { return cmp.Compare(a.id, b.id) })
	return list
}

// recalculate calculates the routes of a border router, and originates the LSAs that depend on
// them.
func (r *Router) recalculate() {
	table, c := r.calculate()
	for _, v := range r.virtual {
		v.update(c)
	}
	r.table = table
	if !r.isBorder() {
		r.table = nil
	}
	if r.restarting() {
		return
	}
	for _, at := range r.areas {
		r.originateSummaries(c, at)
	}
}
