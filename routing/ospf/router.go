package ospf

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Router is a router of the domain, with its Router ID, interfaces and routes (section 5). In the
// databases it is a router of its own.
type Router struct {
	domain     *Domain
	id         ID
	interfaces []*Interface
	virtual    []*virtualLink
	areas      []*attachment
	externals  map[netKey]External
	announced  map[netKey]LSAKey // the AS-external-LSAs of them
	table      *Table            // of the last calculation, of border routers only
	forwards   bool              // some have a forwarding address
	restart    *restart          // nil: it does not restart
	touched    bool
	removed    bool
}

// attachment is what a router originates into an area that it is attached to.
type attachment struct {
	area      *Area
	networks  map[ID]bool       // network-LSAs, by Link State ID
	summaries map[LSAKey]uint64 // summary-LSAs, with the calculation that they follow from
}

// AddRouter adds a router. Its Router ID must be its own in the AS (appendix C.1).
func (d *Domain) AddRouter(id ID) (*Router, error) {
	switch {
	case id == 0:
		return nil, fmt.Errorf("ospf: a Router ID must not be 0.0.0.0")
	case d.routers[id] != nil:
		return nil, fmt.Errorf("ospf: there is already a router %v", id)
	}
	r := &Router{domain: d, id: id}
	d.routers[id] = r
	return r, nil
}

// ID returns the Router ID.
func (r *Router) ID() ID { return r.id }

// Interfaces lists the router's interfaces, without virtual links.
func (r *Router) Interfaces() []*Interface { return r.interfaces }

// Remove removes the router from the domain; its interfaces go down. With flush its LSAs are
// flushed from the AS (section 14.1), as on an orderly shutdown; without, they stay until MaxAge,
// as after a power failure.
func (r *Router) Remove(now time.Time, flush bool) {
	d := r.domain
	d.advance(now)
	r.removed = true
	r.forgetRestart()
	if flush {
		d.withdrawAll(r.id)
		for _, w := range take(&d.busy) {
			w.flush() // while its interfaces are up
		}
	} else {
		d.disown(r.id)
	}
	for _, v := range r.virtual {
		v.iface.down()
		v.iface.area.interfaces--
	}
	for _, i := range r.interfaces {
		i.down()
		i.forget()
	}
	delete(d.routers, r.id)
	for _, at := range r.areas {
		if at.area.interfaces == 0 {
			at.area.db.discard() // there is nobody to follow its changes
		}
	}
	if len(d.routers) == 0 {
		d.external.discard()
	}
}

// ownedBy lists the LSAs that a router originates.
func (db *database) ownedBy(id ID) []*origin {
	var list []*origin
	for k, o := range db.own {
		if k.AdvRouter == id {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *origin) int { return a.key.compare(b.key) })
	return list
}

func (d *Domain) databases() []*database {
	all := []*database{d.external}
	for _, a := range d.Areas() {
		all = append(all, a.db)
	}
	return all
}

// disown leaves a router's LSAs in the databases, but no longer as originated here.
func (d *Domain) disown(id ID) {
	for _, db := range d.databases() {
		for _, o := range db.ownedBy(id) {
			d.agenda.stop(&o.timer)
			delete(db.own, o.key)
		}
	}
}

func (d *Domain) withdrawAll(id ID) {
	for _, db := range d.databases() {
		for _, o := range db.ownedBy(id) {
			db.withdraw(o.key)
		}
	}
}

// touch records that the router's LSAs may have to change; Poll originates them.
func (r *Router) touch() {
	if !r.touched && !r.removed {
		r.touched = true
		r.domain.touched = append(r.domain.touched, r)
	}
}

// attached reports whether the router has an interface that is up in an area (section 3.3).
func (r *Router) attached(a *Area) bool {
	up := func(i *Interface) bool { return i.area == a && i.isUp() }
	return slices.ContainsFunc(r.interfaces, up) ||
		a.id == Backbone && slices.ContainsFunc(r.virtual, func(v *virtualLink) bool { return v.iface.isUp() })
}

// isBorder reports whether the router is an area border router: attached to several areas.
func (r *Router) isBorder() bool {
	n := 0
	for _, at := range r.areas {
		if r.attached(at.area) {
			n++
		}
	}
	return n > 1
}

// attach adds an area to those into which the router originates LSAs.
func (r *Router) attach(a *Area) {
	if !slices.ContainsFunc(r.areas, func(at *attachment) bool { return at.area == a }) {
		r.areas = append(r.areas, &attachment{area: a})
	}
}

// originate brings the router's router-, network- and AS-external-LSAs up to date (section 12.4).
// Summaries follow from routes, see summary.go.
func (r *Router) originate() {
	if r.removed {
		return
	}
	for _, i := range r.interfaces {
		r.attach(i.area)
	}
	if len(r.virtual) > 0 {
		r.attach(r.virtual[0].iface.area)
	}
	if !r.resumes() {
		return
	}
	for _, at := range r.areas {
		key := LSAKey{TypeRouter, r.id, r.id}
		if !r.attached(at.area) {
			at.area.db.withdraw(key)
		} else {
			at.area.db.originate(key, at.area.options(), r.routerLSA(at.area).Encode())
		}
		r.networkLSAs(at)
	}
	if r.isBorder() != (r.table != nil) {
		r.domain.scheduleCalculation() // a border router keeps its routes calculated
	}
	r.announceExternals()
	if r.restart != nil {
		r.endGrace()
	}
}

// routerLSA describes the router's links to an area (section 12.4.1).
func (r *Router) routerLSA(a *Area) RouterLSA {
	lsa := RouterLSA{}
	if r.isBorder() {
		lsa.Flags |= FlagBorder
	}
	if len(r.externals) > 0 && !a.cfg.Stub {
		lsa.Flags |= FlagExternal
	}
	for _, v := range r.virtual {
		if v.transit == a && len(v.iface.peers()) > 0 {
			lsa.Flags |= FlagVirtual
		}
	}
	for _, i := range r.interfaces {
		if i.area == a && i.isUp() {
			lsa.Links = i.appendLinks(lsa.Links)
		}
	}
	for _, v := range r.virtual {
		if a.id != Backbone {
			break
		}
		for _, p := range v.iface.peers() { // section 12.4.1.3
			lsa.Links = append(lsa.Links, RouterLink{LinkVirtual, p.id, v.iface.addr, v.iface.cost})
		}
	}
	return lsa
}

// appendLinks adds the links of one interface (section 12.4.1).
func (i *Interface) appendLinks(links []RouterLink) []RouterLink {
	switch {
	case i.typ == Loopback: // cost 0 in the RFC; others announce the configured cost, and so do we
		return append(links, RouterLink{LinkStub, i.addr, maskOf(32), i.cost})
	case i.isTransit(): // 12.4.1.2
		return append(links, RouterLink{LinkTransit, i.dr, i.addr, i.cost})
	case i.typ == Broadcast:
		return append(links, RouterLink{LinkStub, i.addr & i.mask, i.mask, i.cost})
	}
	data := i.addr // 12.4.1.1
	if data == 0 {
		data = ID(i.index)
	}
	for _, p := range i.peers() {
		links = append(links, RouterLink{LinkPointToPoint, p.id, data, i.cost})
	}
	if i.addr != 0 { // option 2: the network of the link
		links = append(links, RouterLink{LinkStub, i.addr & i.mask, i.mask, i.cost})
	}
	return links
}

// networkLSAs describes the networks of an area that the router is DR of, and fully adjacent to
// someone on (section 12.4.2).
func (r *Router) networkLSAs(at *attachment) {
	now := map[ID]bool{}
	for _, i := range r.interfaces {
		if i.area != at.area || i.state != InterfaceDR || !i.isTransit() {
			continue
		}
		lsa := NetworkLSA{Mask: i.mask, Routers: []ID{r.id}}
		for _, p := range i.peers() {
			lsa.Routers = append(lsa.Routers, p.id)
		}
		slices.Sort(lsa.Routers)
		at.area.db.originate(LSAKey{TypeNetwork, i.addr, r.id}, at.area.options(), lsa.Encode())
		now[i.addr] = true
	}
	for id := range at.networks {
		if !now[id] {
			at.area.db.withdraw(LSAKey{TypeNetwork, id, r.id})
		}
	}
	at.networks = now
	if len(now) == 0 {
		at.networks = nil // most routers have none
	}
}

// External is a route to a network outside of the AS that a router announces (section 12.4.4).
type External struct {
	Prefix  netip.Prefix // 0.0.0.0/0 for a default route
	Type2   bool         // Metric is not comparable to costs inside the AS
	Metric  uint32       // at most 16777214
	Forward netip.Addr   // forwarding address, of a router outside on a network of the AS; may be left out
	Tag     uint32
}

// SetExternals makes the router announce these networks, and no others: it is an AS boundary router
// as long as there are any.
func (r *Router) SetExternals(now time.Time, externals []External) error {
	next := map[netKey]External{}
	for _, e := range externals {
		if !e.Prefix.IsValid() || !e.Prefix.Addr().Is4() || e.Prefix != e.Prefix.Masked() {
			return fmt.Errorf("ospf: external %v is not an IPv4 network", e.Prefix)
		}
		if e.Metric >= LSInfinity {
			return fmt.Errorf("ospf: external %v: the metric %d is above 16777214", e.Prefix, e.Metric)
		}
		next[keyOfPrefix(e.Prefix)] = e
	}
	r.domain.advance(now)
	r.externals, r.forwards = next, slices.ContainsFunc(externals, func(e External) bool { return e.Forward.IsValid() })
	r.touch()
	return nil
}

// announceExternals originates the AS-external-LSAs, and withdraws those of networks that are no
// longer announced (section 12.4.4).
func (r *Router) announceExternals() {
	if len(r.externals)+len(r.announced) == 0 {
		return
	}
	db := r.domain.external
	now := map[netKey]LSAKey{}
	for net, id := range assignIDs(r.externals) {
		if !r.outdone(r.externals[net]) {
			now[net] = LSAKey{TypeExternal, id, r.id}
		}
	}
	used := map[LSAKey]bool{}
	for _, key := range now {
		used[key] = true
	}
	for _, key := range r.announced {
		if !used[key] {
			db.withdraw(key)
		}
	}
	for _, net := range sortedNets(now) {
		e := r.externals[net]
		body := ExternalLSA{Mask: net.mask(), Type2: e.Type2, Metric: e.Metric, Tag: e.Tag}
		if e.Forward.IsValid() {
			body.Forward = IDOf(e.Forward)
		}
		db.originate(now[net], OptionE, body.Encode())
	}
	r.announced = now
}

// outdone reports whether another router, with a higher Router ID, announces the same network with
// the same cost and forwarding address: one of them is enough (section 12.4.4.1).
func (r *Router) outdone(e External) bool {
	forward := IDOf(e.Forward)
	if forward == 0 {
		return false
	}
	for _, o := range r.domain.external.typed[TypeExternal] {
		if o.AdvRouter <= r.id || o.maxAged() || o.Prefix() != e.Prefix {
			continue
		}
		body, _ := DecodeExternal(o.Body)
		if body.Forward == forward && body.Type2 == e.Type2 && body.Metric == e.Metric &&
			r.Routes().reaches(o.AdvRouter) {
			return true
		}
	}
	return false
}
