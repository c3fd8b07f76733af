package ospf

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Config has what holds for a whole domain. Zero values stand for the defaults.
type Config struct {
	// RFC1583Compatibility chooses among external paths as RFC 1583 did (section 16.4.1, C.1). All
	// routers of an AS must agree. The RFC's default is true, that of FRR and most others false.
	RFC1583Compatibility bool

	// LSA spaces the instances of one LSA (section 12.4). The default 0/5 s/5 s is MinLSInterval.
	LSA Throttle
	// SPF spaces calculations of routes. The default is 50 ms/200 ms/5 s.
	SPF Throttle
	// MinLSArrival is the least time between two instances of an LSA that are taken from a
	// neighbour (section 13). The default is 1 s; below 0 there is none.
	MinLSArrival time.Duration
}

// MinLSInterval is the RFC's least time between two instances of an LSA (appendix B).
const MinLSInterval = 5 * time.Second

// Times of the appendix B.
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

// Domain is what one process runs of an autonomous system: its areas' databases and any number of
// routers that share them. A single router is a domain with one router in it.
//
// A domain does no input and output. Methods put packets, changes and the time in; everything that
// comes of it is returned by Poll. It must not be used by two goroutines at once.
type Domain struct {
	cfg    Config
	epoch  time.Time
	now    instant
	agenda agenda

	routers   map[ID]*Router
	areas     map[ID]*Area
	external  *database // AS-external-LSAs and opaque ones of the AS: those without an area
	addresses map[ID]*Interface
	wires     []*wire // all that are up
	busy      []*wire // those with something to send

	touched    []*Router // their router-LSAs may have changed
	elect      []*Segment
	maxAged    map[*entry]struct{} // wait to be acknowledged, then removed; section 14
	exchanging int                 // neighbours in state Exchange or Loading
	relief     instant             // until then, what gone neighbours have brought is not kept
	calculate  timer
	spf        throttle
	scratch    scratch
	restarts   []*Router // that restart
	helping    int       // neighbours that are helped to

	externalChanged bool
	version         uint64 // of calculations
	out             Output
}

// Datagram is an OSPF packet to send.
type Datagram struct {
	// Interface is the one to send from. On a virtual link it is the virtual one: Src and Dst then
	// are ordinary addresses, and the packet is routed as any other.
	Interface *Interface
	Src, Dst  netip.Addr // Src is not valid on an interface without an address: take one of the router's
	TTL       uint8      // 1, and more on a virtual link
	Payload   []byte     // the OSPF packet; IP protocol 89
}

// ChangeKind says what a Change is about.
type ChangeKind uint8

const (
	// AreaChanged: routes of the routers in the area may have changed.
	AreaChanged ChangeKind = iota
	// ExternalChanged: external routes of all routers may have changed.
	ExternalChanged
)

// Change says that routes may be others than before.
type Change struct {
	Kind ChangeKind
	Area ID // of AreaChanged
}

// NeighborChange is a transition of a neighbour's state (section 10.3).
type NeighborChange struct {
	Interface *Interface
	Neighbor  ID // its Router ID
	From, To  NeighborState
	Reason    string // why it was dropped, where it has done something wrong
}

// Output is what came out of a domain since the Poll before.
type Output struct {
	Datagrams []Datagram
	Changes   []Change
	Neighbors []NeighborChange
	Restarts  []RestartChange
	// Mismatches are what has newly come to Interface.Mismatches.
	Mismatches []Mismatch
	// Errors are things that cannot happen while memory is sound (section 14: an LSA in the
	// database whose checksum has become wrong).
	Errors []error
	// Deadline is when Poll has to be called again, at the latest. Zero: not before something is
	// put in.
	Deadline time.Time
}

// NewDomain returns an empty domain. Times given to its methods must not fall.
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

// SetThrottle changes how the instances of an LSA are spaced from now on (see Config).
func (d *Domain) SetThrottle(lsa Throttle) { d.cfg.LSA = lsa }

// advance moves the domain's time on.
func (d *Domain) advance(now time.Time) { d.now = max(d.now, now.Sub(d.epoch)) }

// clock returns the domain's time as a time of day.
func (d *Domain) clock() time.Time { return d.epoch.Add(d.now) }

// Poll runs what is due and returns all that is to be sent and told.
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

// Pending reports whether LSAs or routes are to follow what has changed, and wait for their
// throttles.
func (d *Domain) Pending() bool {
	return len(d.touched)+len(d.elect) > 0 ||
		slices.ContainsFunc(d.agenda,
			func(t *timer) bool { return t.what == timerOriginate || t.what == timerCalculate })
}

// runTimers runs what is due, until nothing is.
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

// settle brings LSAs up to date with what has changed since.
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

// removeMaxAged takes LSAs out that have been flooded as MaxAge and acknowledged (section 14), and
// tells whether there were any: others may be originated in their place.
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

// Area returns an area by its number, nil when no router of the domain is in it.
func (d *Domain) Area(id ID) *Area { return d.areas[id] }

// Areas lists the areas in order of their numbers.
func (d *Domain) Areas() []*Area {
	return slices.SortedFunc(maps.Values(d.areas), func(a, b *Area) int { return cmp.Compare(a.id, b.id) })
}

// Routers lists the routers in order of their Router IDs.
func (d *Domain) Routers() []*Router {
	return slices.SortedFunc(maps.Values(d.routers), func(a, b *Router) int { return cmp.Compare(a.id, b.id) })
}

// Router returns a router by its Router ID, nil when the domain has none such.
func (d *Domain) Router(id ID) *Router { return d.routers[id] }

// Externals returns the database of AS-external-LSAs and of opaque ones of the AS, as Area.LSAs
// does.
func (d *Domain) Externals() []LSA { return d.external.list() }

// AddArea sets an area up (appendix C.2). Areas that are ordinary and have no ranges need not be
// added: AddInterface makes them.
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
