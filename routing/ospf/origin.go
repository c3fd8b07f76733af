package ospf

import "slices"

// origin is an LSA that a router of the domain originates: what it should say, and when it may be
// said (section 12.4). It stays after a withdrawal until the LSA has left the database.
type origin struct {
	db      *database
	key     LSAKey
	options Options
	body    []byte
	wanted  bool
	forced  bool  // a new instance is due although the contents are the same
	next    int32 // the sequence number of the next instance, when the database has none
	space   throttle
	timer   timer
}

// originate makes the database have an LSA of the domain's own that says body. Nothing happens when
// it does; otherwise a new instance is flooded, at once or when the throttle allows it.
func (db *database) originate(key LSAKey, options Options, body []byte) {
	o := db.own[key]
	if o == nil {
		// An instance that is there already is from before: of ours the age is watched.
		o = &origin{db: db, key: key, next: InitialSequence, forced: db.entries[key] != nil}
		o.timer = timer{what: timerOriginate, of: o}
		db.own[key] = o
	}
	o.options, o.body, o.wanted = options, body, true
	o.update()
}

// withdraw flushes an LSA of the domain's own from the routing domain (section 14.1).
func (db *database) withdraw(key LSAKey) {
	o := db.own[key]
	if o == nil || !o.wanted {
		return
	}
	o.wanted, o.forced, o.body = false, false, nil
	db.domain.agenda.stop(&o.timer)
	switch e := db.entries[key]; {
	case e == nil:
		delete(db.own, key)
	case !e.maxAged():
		e.prematurelyAge()
	}
}

// update schedules a new instance when the database does not have what it should.
func (o *origin) update() {
	d := o.db.domain
	if o.timer.pos != 0 || !o.isDue() {
		return
	}
	if at := o.space.due(d.now, d.cfg.LSA); at > d.now {
		d.agenda.set(&o.timer, at)
		return
	}
	o.emit()
}

// isDue tells whether the database lacks what the origin wants to say.
func (o *origin) isDue() bool {
	e := o.db.entries[o.key]
	return e == nil || o.forced || e.maxAged() || e.Options != o.options || !slices.Equal(e.Body, o.body)
}

// refresh originates a new instance of the same contents.
func (o *origin) refresh() {
	o.forced = true
	if o.wanted {
		o.update()
	}
}

// expire is called when the throttle allows the next instance. What it should say may have become
// what the database has.
func (o *origin) expire(timerKind) {
	if o.wanted && o.isDue() {
		o.emit()
	}
}

// emit makes the next instance. After the last sequence number the LSA must first leave all
// databases (section 12.1.6); gone then begins again with the first number.
func (o *origin) emit() {
	d := o.db.domain
	seq := o.next
	if e := o.db.entries[o.key]; e != nil {
		if e.Seq == MaxSequence {
			o.forced = true
			if !e.maxAged() {
				e.prematurelyAge()
			}
			return
		}
		seq = e.Seq + 1
	}
	o.forced = false
	o.space.happened(d.now, d.cfg.LSA)
	lsa := NewLSA(o.key, o.options, seq, 0, o.body)
	o.db.flood(o.db.install(lsa, false, nil), nil)
}

// gone is called when the LSA has left the database, whose last instance had the given number.
// Others may still have that one, at MaxAge: the next must be newer, unless the last number was
// reached.
func (o *origin) gone(seq int32) {
	if !o.wanted {
		delete(o.db.own, o.key)
		return
	}
	if o.next = seq + 1; seq == MaxSequence {
		o.next = InitialSequence
	}
	o.update()
}

// selfOriginated handles an LSA that has come from a neighbour and says it is from a router of the
// domain (section 13.4): one that is still originated is outdone by a new instance, another is
// flushed.
func (db *database) selfOriginated(e *entry) {
	if o := db.own[e.LSAKey]; o != nil && o.wanted {
		o.refresh()
		return
	}
	if r := db.domain.owner(e.LSAKey); r != nil && r.restart != nil && db.link == nil {
		return // RFC 3623, section 2.1 (2); a grace-LSA that comes back is none of before
	}
	if !e.maxAged() {
		e.prematurelyAge()
	}
}

// isOwn tells whether an LSA is self-originated (section 13.4): by its advertising router, or as a
// network-LSA for the address of an own interface, left from when the router had another ID.
func (d *Domain) isOwn(key LSAKey) bool { return d.owner(key) != nil }

// owner is the router of the domain that an LSA is of; nil: none.
func (d *Domain) owner(key LSAKey) *Router {
	if r := d.routers[key.AdvRouter]; r != nil || key.Type != TypeNetwork || d.addresses[key.ID] == nil {
		return r
	}
	return d.addresses[key.ID].router
}
