package ospf

import "slices"

// origin is an LSA originated by a router of the domain: its wanted contents, and when it may be
// originated (section 12.4). After a withdrawal it stays until the LSA has left the database.
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

// originate originates an LSA of the domain with this body, at once or when the throttle allows it;
// if the database has it already, nothing happens.
func (db *database) originate(key LSAKey, options Options, body []byte) {
	o := db.own[key]
	if o == nil {
		// An instance that exists already is from before a restart. For ours the age is watched.
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

// update schedules a new instance if the database differs from what is wanted.
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

// isDue reports whether the database lacks what is wanted.
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

// expire is called when the throttle allows the next instance, which may have become unnecessary.
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

// gone is called when the LSA, whose last instance had the given sequence number, has left the
// database. Others may still have that one, at MaxAge: the next must be newer, unless the last
// number was reached.
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

// selfOriginated handles an LSA received from a neighbour that claims to be from a router of the
// domain (section 13.4): if it is still originated, a newer instance replaces it; otherwise it is
// flushed.
func (db *database) selfOriginated(e *entry) {
	if o := db.own[e.LSAKey]; o != nil && o.wanted {
		o.refresh()
		return
	}
	if r := db.domain.owner(e.LSAKey); r != nil && r.restart != nil && db.link == nil {
		return // RFC 3623, section 2.1 (2); a grace-LSA that returns is not from before the restart
	}
	if !e.maxAged() {
		e.prematurelyAge()
	}
}

// isOwn reports whether an LSA is self-originated (section 13.4): by its advertising router, or as
// a network-LSA for the address of an own interface, left from when the router had another ID.
func (d *Domain) isOwn(key LSAKey) bool { return d.owner(key) != nil }

// owner returns the router of the domain that an LSA is from; nil: none.
func (d *Domain) owner(key LSAKey) *Router {
	if r := d.routers[key.AdvRouter]; r != nil || key.Type != TypeNetwork || d.addresses[key.ID] == nil {
		return r
	}
	return d.addresses[key.ID].router
}
