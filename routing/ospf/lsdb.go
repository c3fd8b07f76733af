package ospf

import (
	"fmt"
	"slices"
	"time"
)

// database is the link state database of an area, of the whole AS (section 12.2), or of one link
// (RFC 5250, section 3).
type database struct {
	domain  *Domain
	area    *Area // nil: the AS, or a link
	link    *wire // of link-local LSAs
	entries map[LSAKey]*entry
	typed   [TypeOpaqueAS + 1][]*entry // the same, by type
	own     map[LSAKey]*origin         // LSAs that the domain's routers originate
	foreign int                        // number of entries received from neighbours
}

// entry is the database copy of an LSA. It stays when a newer instance arrives.
type entry struct {
	LSA       // Age is that at installed
	db        *database
	installed instant
	arrived   bool      // received by flooding: MinLSArrival applies
	returned  bool      // it has been sent back to a neighbour with an older instance
	sentBack  instant   // when
	waiting   int       // number of retransmission lists that it is on
	changed   bool      // its contents differ from what the neighbours have acknowledged
	from      *neighbor // the neighbour it was received from; nil: originated here
	pos       int       // index in typed
	timer     timer
}

func newDatabase(d *Domain, a *Area) *database {
	return &database{domain: d, area: a, entries: map[LSAKey]*entry{}, own: map[LSAKey]*origin{}}
}

// database returns the database for LSAs of a type received on the wire.
func (w *wire) database(t LSType) *database {
	switch {
	case t.wide():
		return w.domain().external
	case t != TypeOpaqueLink:
		return w.area.db
	case w.link == nil:
		w.link = newDatabase(w.domain(), nil)
		w.link.link = w
	}
	return w.link
}

// discard empties a database that no router uses any more.
func (db *database) discard() {
	for _, o := range db.own {
		db.domain.agenda.stop(&o.timer)
	}
	clear(db.own)
	for _, entries := range db.typed {
		for _, e := range slices.Clone(entries) {
			db.changed(e.Type)
			db.remove(e)
		}
	}
}

// age returns the current age in seconds (section 12.1.1).
func (e *entry) age() uint16 {
	return uint16(min(MaxAge, time.Duration(e.Age)+(e.db.domain.now-e.installed)/time.Second))
}

func (e *entry) maxAged() bool { return e.age() >= MaxAge }

// header returns the header with the current age.
func (e *entry) header() LSAHeader {
	h := e.LSAHeader
	h.Age = e.age()
	return h
}

func (db *database) list() []LSA {
	var all []LSA
	for _, entries := range db.typed {
		for _, e := range entries {
			all = append(all, LSA{e.header(), e.Body})
		}
	}
	slices.SortFunc(all, func(a, b LSA) int { return a.LSAKey.compare(b.LSAKey) })
	return all
}

func (db *database) get(key LSAKey) (LSA, bool) {
	e := db.entries[key]
	if e == nil {
		return LSA{}, false
	}
	return LSA{e.header(), e.Body}, true
}

// install installs an LSA, replacing an older instance (section 13.2). If its contents differ, a
// calculation of routes is scheduled. from is the neighbour it was received from; nil: originated
// here.
func (db *database) install(lsa LSA, arrived bool, from *neighbor) *entry {
	e := db.entries[lsa.LSAKey]
	changed := e == nil || !e.sameContents(lsa)
	if e == nil {
		e = &entry{db: db, pos: len(db.typed[lsa.Type])}
		e.timer = timer{what: timerAge, of: e}
		db.entries[lsa.LSAKey] = e
		db.typed[lsa.Type] = append(db.typed[lsa.Type], e)
	}
	e.changed = changed || e.changed && e.waiting > 0
	db.forget(e)
	delete(db.domain.maxAged, e)
	e.attribute(from)
	e.LSA, e.installed, e.arrived, e.returned = lsa, db.domain.now, arrived, false
	if lsa.Age >= MaxAge {
		db.domain.maxAged[e] = struct{}{}
	}
	e.schedule()
	if changed {
		db.changed(lsa.Type)
		if !lsa.Type.opaque() {
			db.topologyChanged(e, from)
		}
	}
	return e
}

// remove removes an entry. An LSA that was waiting for that is originated now.
func (db *database) remove(e *entry) {
	db.forget(e)
	e.attribute(nil)
	db.domain.agenda.stop(&e.timer)
	delete(db.domain.maxAged, e)
	delete(db.entries, e.LSAKey)
	list := db.typed[e.Type]
	last := len(list) - 1
	list[e.pos] = list[last]
	list[e.pos].pos = e.pos
	list[last] = nil
	db.typed[e.Type] = list[:last]
	if o := db.own[e.LSAKey]; o != nil {
		o.gone(e.Seq)
	}
}

// forget removes an entry from all retransmission lists.
func (db *database) forget(e *entry) {
	if e.waiting == 0 {
		return
	}
	for _, w := range db.wires() {
		for _, n := range w.neighbors {
			n.acknowledged(e)
		}
	}
}

// wires lists the wires on which the database's LSAs are flooded (section 13.3: the eligible
// interfaces).
func (db *database) wires() []*wire {
	switch {
	case db.link != nil:
		return []*wire{db.link}
	case db.area != nil:
		return db.area.wires
	}
	return db.domain.wires
}

// floodsOn reports whether LSAs of the database cross a wire: those of the AS keep out of stub
// areas and virtual links (section 13.3, and RFC 5250, section 3).
func (db *database) floodsOn(w *wire) bool {
	switch {
	case db.link != nil:
		return w == db.link
	case db.area != nil:
		return w.area == db.area
	}
	return !w.area.cfg.Stub && w.typ != Virtual
}

// changed records that the contents of the database have changed.
func (db *database) changed(t LSType) {
	switch {
	case t.opaque():
		return // no routes depend on it
	case db.area == nil:
		db.domain.externalChanged = true
	case t == TypeRouter || t == TypeNetwork:
		db.area.topology = true
	default:
		db.area.changed = true
	}
	for _, r := range db.domain.restarts {
		r.touch() // it may be known again, or not any more
	}
	db.domain.scheduleCalculation()
}

// schedule sets the entry's timer for what its age requires next (section 14): a new instance, a
// verification of the checksum, or removal.
func (e *entry) schedule() {
	d := e.db.domain
	age := time.Duration(e.Age)*time.Second + d.now - e.installed
	if age >= maxAgeTime {
		d.agenda.stop(&e.timer)
		return
	}
	wait := checkAgeTime - age%checkAgeTime
	if e.db.own[e.LSAKey] != nil && age < e.refreshAge() {
		wait = min(wait, e.refreshAge()-age)
	}
	d.agenda.set(&e.timer, d.now+wait)
}

// refreshAge is the age at which the domain refreshes its own LSA: LSRefreshTime, less up to a
// tenth that depends on the LSA, so that LSAs originated together are not refreshed together for
// ever.
func (e *entry) refreshAge() time.Duration {
	h := (uint32(e.ID)*2654435761 ^ uint32(e.AdvRouter)*40503 ^ uint32(e.Type)*97) % 181
	return lsRefreshTime - time.Duration(h)*time.Second
}

// expire is called when the age has reached what schedule waited for.
func (e *entry) expire(timerKind) {
	d := e.db.domain
	switch age := time.Duration(e.Age)*time.Second + d.now - e.installed; {
	case age >= maxAgeTime:
		e.prematurelyAge()
		return
	case !e.ChecksumOK():
		d.out.Errors = append(d.out.Errors, fmt.Errorf("ospf: LSA %v in the database of %v is damaged; it is dropped",
			e.LSAKey, e.db))
		e.db.damaged(e)
		return
	case e.db.own[e.LSAKey] != nil && age >= e.refreshAge():
		e.db.own[e.LSAKey].refresh()
	}
	if e.timer.pos == 0 {
		e.schedule()
	}
}

// damaged replaces a damaged LSA originated by the domain, and drops one of others, which returns
// when it is refreshed.
func (db *database) damaged(e *entry) {
	db.changed(e.Type)
	if o := db.own[e.LSAKey]; o != nil {
		o.refresh()
		return
	}
	db.remove(e)
}

// String names the database.
func (db *database) String() string {
	switch {
	case db.link != nil:
		return "the link of " + db.link.Interface.String()
	case db.area == nil:
		return "the AS"
	}
	return "area " + db.area.id.String()
}

// prematurelyAge sets the age to MaxAge and floods the LSA, so that all routers take it out of
// their databases (sections 14 and 14.1).
func (e *entry) prematurelyAge() {
	lsa := e.LSA
	lsa.Age = MaxAge
	e.db.install(lsa, false, e.from)
	e.db.flood(e, nil)
}
