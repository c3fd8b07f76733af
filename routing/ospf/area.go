package ospf

import "net/netip"

// AreaConfig sets an area up (appendix C.2).
type AreaConfig struct {
	ID ID
	// Stub: AS-external-LSAs do not come in; border routers announce a default route (section 3.6).
	Stub bool
	// DefaultCost is the cost of that default route: StubDefaultCost.
	DefaultCost uint32
	// NoSummary: into a stub area no other summaries are announced ("totally stubby").
	NoSummary bool
	// Ranges are networks that border routers announce outside of the area in place of what is in
	// them.
	Ranges []Range
	// MaxLSAs is how many LSAs of routers outside of the domain are kept, with the
	// AS-external-LSAs. The neighbour that has brought the most is dropped when there would be
	// more. 0 is DefaultMaxLSAsOfArea.
	MaxLSAs int
}

// Range is an area address range (appendix C.2).
type Range struct {
	Prefix netip.Prefix
	Hide   bool // DoNotAdvertise: what is in the range is not announced at all
}

// Area is an area with the one database that all routers of the domain share in it.
type Area struct {
	id     ID
	cfg    AreaConfig
	domain *Domain
	db     *database
	wires  []*wire // up, virtual ones as well
	graph  *graph  // of the last calculation

	interfaces int // of the domain's routers, whether up or not

	topology bool // router- or network-LSAs have changed since
	changed  bool // other LSAs have
}

// ID returns the area's number.
func (a *Area) ID() ID { return a.id }

// Config returns how the area was set up.
func (a *Area) Config() AreaConfig { return a.cfg }

// LSAs lists the area's database, sorted by type, Link State ID and advertising router, with the
// ages of now.
func (a *Area) LSAs() []LSA { return a.db.list() }

// LSA returns an LSA of the area's database with its age of now.
func (a *Area) LSA(key LSAKey) (LSA, bool) { return a.db.get(key) }

// Size returns the number of router-LSAs in the area's database, and that of all LSAs.
func (a *Area) Size() (routers, all int) { return len(a.db.typed[TypeRouter]), len(a.db.entries) }

// options returns what the area's Hellos and LSAs carry (section A.2).
func (a *Area) options() Options {
	if a.cfg.Stub {
		return 0
	}
	return OptionE
}
