package ospf

import "net/netip"

// AreaConfig configures an area (appendix C.2).
type AreaConfig struct {
	ID ID
	// Stub: AS-external-LSAs do not come in; border routers announce a default route (section 3.6).
	Stub bool
	// DefaultCost is the cost of that default route: StubDefaultCost.
	DefaultCost uint32
	// NoSummary: no other summaries are announced into a stub area ("totally stubby").
	NoSummary bool
	// Ranges are networks that border routers announce outside the area in place of the networks
	// within them.
	Ranges []Range
	// MaxLSAs limits the LSAs kept from routers outside the domain, including AS-external-LSAs. If
	// it is exceeded, the neighbour that has sent the most is dropped. 0 is DefaultMaxLSAsOfArea.
	MaxLSAs int
}

// Range is an area address range (appendix C.2).
type Range struct {
	Prefix netip.Prefix
	Hide   bool // DoNotAdvertise: networks in the range are not announced at all
}

// Area is an area, with the database that all routers of the domain share in it.
type Area struct {
	id     ID
	cfg    AreaConfig
	domain *Domain
	db     *database
	wires  []*wire // up, including virtual ones
	graph  *graph  // of the last calculation

	interfaces int // of the domain's routers, up or not

	topology bool // router- or network-LSAs have changed since
	changed  bool // other LSAs have
}

// ID returns the area's number.
func (a *Area) ID() ID { return a.id }

// Config returns the area's configuration.
func (a *Area) Config() AreaConfig { return a.cfg }

// LSAs lists the area's database, sorted by type, Link State ID and advertising router, with
// current ages.
func (a *Area) LSAs() []LSA { return a.db.list() }

// LSA returns an LSA of the area's database with its current age.
func (a *Area) LSA(key LSAKey) (LSA, bool) { return a.db.get(key) }

// Size returns the numbers of router-LSAs and of all LSAs in the area's database.
func (a *Area) Size() (routers, all int) { return len(a.db.typed[TypeRouter]), len(a.db.entries) }

// options returns the Options field of the area's Hellos and LSAs (section A.2).
func (a *Area) options() Options {
	if a.cfg.Stub {
		return 0
	}
	return OptionE
}
