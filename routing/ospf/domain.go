package ospf

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Config is the configuration of a whole domain. Zero values mean the defaults.
type Config struct {
	// RFC1583Compatibility chooses among external paths as RFC 1583 did (section 16.4.1, C.1). All
	// routers of an AS must agree. The RFC's default is true, that of FRR and most others false.
	RFC1583Compatibility bool

	// LSA throttles the instances of an LSA (section 12.4). The default 0/5 s/5 s is MinLSInterval.
	LSA Throttle
	// SPF throttles calculations of routes. The default is 50 ms/200 ms/5 s.
	SPF Throttle
	// MinLSArrival is the minimum time between two instances of an LSA that are accepted from a
	// neighbour (section 13). The default is 1 s; below 0 there is none.
	MinLSArrival time.Duration
}

// MinLSInterval is the RFC's minimum time between two instances of an LSA (appendix B).
const MinLSInterval = 5 * time.Second

// Times of appendix B.
const (
	lsRefreshTime = 1800 * time.Second
	maxAgeTime    = MaxAge * time.Second
	checkAgeTime  = CheckAge * time.Second
)

func (c *Config) setDefaults() {
	if c.LSA == (Throttle{}) {
		c.LSA = Throttle{0, MinLSInterval, MinLSInterval}
	}
	if c.SPF == (Throttle{}) {
		c.SPF = Throttle{50 * time.Millisecond, 200 * time.Millisecond, 5 * time.Second}
	}
	if c.MinLSArrival == 0 {
		c.MinLSArrival = time.Second
	}
}

// Domain is the part of an autonomous system that one process runs: its areas' databases and any
// number of routers that share them. A single router is a domain with one router in it.
//
// A domain does no input or output. Its methods take packets, changes and the time; Poll returns
// everything that results. It is not safe for concurrent use.
type Domain struct {
	cfg    Config
	epoch  time.Time
	now    instant
	agenda agenda

	routers   map[ID]*Router
	areas     map[ID]*Area
	external  *database // AS-external-LSAs and opaque ones of the AS: those without an area
	addresses map[ID]*Interface
	wires     []*wire // those that are up
	busy      []*wire // those with something to send

	touched    []*Router // whose router-LSAs may have changed
	elect      []*Segment
	maxAged    map[*entry]struct{} // waiting for acknowledgments before removal; section 14
	exchanging int                 // neighbours in state Exchange or Loading
	relief     instant             // until then, LSAs of former neighbours are removed
	calculate  timer
	spf        throttle
	scratch    scratch
	restarts   []*Router // those that are restarting
	helping    int       // number of neighbours being helped

	externalChanged bool
	version         uint64 // of calculations
	out             Output
}

// Datagram is an OSPF packet to send.
type Datagram struct {
	// Interface is the one to send from. If it is a virtual link, Src and Dst are ordinary
	// addresses, and the packet is routed like any other.
	Interface *Interface
	Src, Dst  netip.Addr // Src is invalid if the interface has no address: use one of the router's
	TTL       uint8      // 1, and more on a virtual link
	Payload   []byte     // the OSPF packet; IP protocol 89
}

// ChangeKind is the kind of a Change.
type ChangeKind uint8

const (
	// AreaChanged: routes of the routers in the area may have changed.
	AreaChanged ChangeKind = iota
	// ExternalChanged: external routes of all routers may have changed.
	ExternalChanged
)

// Change reports that routes may have changed.
type Change struct {
	Kind ChangeKind
	Area ID // of AreaChanged
}

// NeighborChange is a transition of a neighbour's state (section 10.3).
type NeighborChange struct {
	Interface *Interface
	Neighbor  ID // its Router ID
	From, To  NeighborState
	Reason    string // why it was dropped, if it was at fault
}

// Output is what a domain has produced since the previous Poll.
type Output struct {
	Datagrams []Datagram
	Changes   []Change
	Neighbors []NeighborChange
	Restarts  []RestartChange
	// Mismatches are the new entries of Interface.Mismatches.
	Mismatches []Mismatch
	// Errors report corrupted memory (section 14: an LSA in the database whose checksum has become
	// wrong).
	Errors []error
	// Deadline is when Poll must be called again, at the latest. Zero: not before the next input.
	Deadline time.Time
}

// NewDomain returns an empty domain. The times passed to its methods must not decrease.
func NewDomain(cfg Config, now time.Time) *Domain {
	cfg.setDefaults()
	d := &Domain{
		cfg:       cfg,
		epoch:     now,
		routers:   map[ID]*Router{},
		areas:     map[ID]*Area{},
		addresses: map[ID]*Interface{},
		maxAged:   map[*entry]struct{}{},
	}
	d.external = newDatabase(d, nil)
	d.calculate = timer{what: timerCalculate, of: d}
	return d
}

// SetThrottle changes the throttle of LSAs from now on (see Config).
func (d *Domain) SetThrottle(lsa Throttle) { d.cfg.LSA = lsa }

// advance advances the domain's time.
func (d *Domain) advance(now time.Time) { d.now = max(d.now, now.Sub(d.epoch)) }

// clock returns the domain's time as a time of day.
func (d *Domain) clock() time.Time { return d.epoch.Add(d.now) }

// Poll runs what is due, and returns everything to be sent and reported.
func (d *Domain) Poll(now time.Time) Output {
	d.advance(now)
	for {
		d.runTimers()
		for _, w := range take(&d.busy) {
			w.flush()
		}
		if !d.removeMaxAged() {
			break
		}
	}
	if len(d.agenda) > 0 {
		d.out.Deadline = d.epoch.Add(d.agenda[0].at)
	}
	out := d.out
	d.out = Output{}
	return out
}

// Pending reports whether LSAs or routes that must follow a change are waiting for their throttles.
func (d *Domain) Pending() bool {
	return len(d.touched)+len(d.elect) > 0 ||
		slices.ContainsFunc(d.agenda,
			func(t *timer) bool { return t.what == timerOriginate || t.what == timerCalculate })
}

// runTimers runs everything that is due.
func (d *Domain) runTimers() {
	for {
		d.settle()
		if len(d.agenda) == 0 || d.agenda[0].at > d.now {
			return
		}
		t := d.agenda[0]
		d.agenda.stop(t)
		t.of.expire(t.what)
	}
}

// settle updates LSAs after changes.
func (d *Domain) settle() {
	for len(d.elect)+len(d.touched) > 0 {
		for _, s := range take(&d.elect) {
			s.settle()
		}
		for _, r := range take(&d.touched) {
			r.touched = false
			r.originate()
		}
	}
}

// take empties a list and returns what was in it.
func take[T any](list *[]T) []T {
	l := *list
	*list = nil
	return l
}

// removeMaxAged removes LSAs that have been flooded as MaxAge and acknowledged (section 14), and
// reports whether there were any: others may be originated in their place.
func (d *Domain) removeMaxAged() bool {
	if d.exchanging > 0 || len(d.maxAged) == 0 {
		return false
	}
	var gone []*entry
	for e := range d.maxAged {
		if e.waiting == 0 {
			gone = append(gone, e)
		}
	}
	slices.SortFunc(gone, func(a, b *entry) int { return a.LSAKey.compare(b.LSAKey) })
	for _, e := range gone {
		e.db.remove(e)
	}
	return len(gone) > 0
}

// Area returns an area by its number, or nil if no router of the domain is in it.
func (d *Domain) Area(id ID) *Area { return d.areas[id] }

// Areas lists the areas in order of their numbers.
func (d *Domain) Areas() []*Area {
	return slices.SortedFunc(maps.Values(d.areas), func(a, b *Area) int { return cmp.Compare(a.id, b.id) })
}

// Routers lists the routers in order of their Router IDs.
func (d *Domain) Routers() []*Router {
	return slices.SortedFunc(maps.Values(d.routers), func(a, b *Router) int { return cmp.Compare(a.id, b.id) })
}

// Router returns a router by its Router ID, or nil if it is not in the domain.
func (d *Domain) Router(id ID) *Router { return d.routers[id] }

// Externals returns the database of AS-external-LSAs and of opaque ones of the AS, as Area.LSAs
// does.
func (d *Domain) Externals() []LSA { return d.external.list() }

// AddArea adds an area (appendix C.2). Ordinary areas without ranges need not be added:
// AddInterface creates them.
func (d *Domain) AddArea(cfg AreaConfig) (*Area, error) {
	if d.areas[cfg.ID] != nil {
		return nil, fmt.Errorf("ospf: there is already an area %v", cfg.ID)
	}
	if cfg.ID == Backbone && cfg.Stub {
		return nil, fmt.Errorf("ospf: the backbone cannot be a stub area")
	}
	for i, r := range cfg.Ranges {
		if !r.Prefix.Addr().Is4() || r.Prefix != r.Prefix.Masked() {
			return nil, fmt.Errorf("ospf: area %v: range %v is not an IPv4 network", cfg.ID, cfg.Ranges[i].Prefix)
		}
	}
	a := &Area{id: cfg.ID, cfg: cfg, domain: d}
	a.db = newDatabase(d, a)
	a.graph = emptyGraph(a)
	d.areas[cfg.ID] = a
	return a, nil
}
