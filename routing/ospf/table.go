package ospf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// PathType is the type of a path; the lower one is preferred (section 11).
type PathType uint8

const (
	IntraArea PathType = 1 + iota
	InterArea
	External1
	External2
)

// String returns the name in the RFC.
func (t PathType) String() string {
	return []string{"none", "intra-area", "inter-area", "type 1 external", "type 2 external"}[t]
}

// NextHop is a next hop of packets.
type NextHop struct {
	Interface *Interface
	// Addr is the next router's address. It is 0.0.0.0 if the destination is on the interface's
	// network, or if the next router has no address on an unnumbered link.
	Addr netip.Addr
}

func (h NextHop) compare(o NextHop) int {
	switch {
	case h.Addr != o.Addr:
		return h.Addr.Compare(o.Addr)
	case h.Interface == o.Interface:
		return 0
	case h.Interface.addr != o.Interface.addr:
		return int(int64(h.Interface.addr) - int64(o.Interface.addr))
	}
	return int(int64(h.Interface.index) - int64(o.Interface.index))
}

// Route is an entry of the routing table for a network (section 11).
type Route struct {
	Prefix netip.Prefix
	Type   PathType
	Area   ID     // not of external routes
	Cost   uint32 // of a type 2 external path: to the router that announces it
	Type2  uint32 // the type 2 metric
	Tag    uint32 // of external routes
	// NextHops are all of equal cost, sorted.
	NextHops []NextHop
	// Discard: the route is an area range that the router announces. Packets without a more
	// specific route are dropped, as they could loop by way of a default route.
	Discard bool
}

// String returns the route in one line.
func (r Route) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v cost %d", r.Prefix, r.Type, r.Cost)
	if r.Type == External2 {
		fmt.Fprintf(&b, "/%d", r.Type2)
	}
	if r.Discard {
		b.WriteString(" discard")
	}
	for _, h := range r.NextHops {
		fmt.Fprintf(&b, " via %v", h.Addr)
	}
	return b.String()
}

// RouterRoute is an entry of the routing table for an area border or AS boundary router (section
// 11).
type RouterRoute struct {
	ID       ID
	Flags    RouterFlags
	Type     PathType // IntraArea or InterArea
	Area     ID
	Cost     uint32
	NextHops []NextHop
}

// Table is a router's routing table (section 11). It is immutable.
type Table struct {
	Router  ID
	Routes  []Route       // sorted by address and length
	Routers []RouterRoute // sorted by Router ID and area

	version uint64
}

func (t *Table) reaches(id ID) bool {
	return slices.ContainsFunc(t.Routers, func(r RouterRoute) bool { return r.ID == id })
}

// Find returns the route of a network, without looking at shorter prefixes.
func (t *Table) Find(p netip.Prefix) (Route, bool) {
	i, ok := slices.BinarySearchFunc(t.Routes, keyOfPrefix(p), func(r Route, k netKey) int {
		return int(int64(keyOfPrefix(r.Prefix)) - int64(k))
	})
	if !ok {
		return Route{}, false
	}
	return t.Routes[i], true
}

// Lookup returns the route that packets to an address take: the longest prefix.
func (t *Table) Lookup(a netip.Addr) (Route, bool) {
	for bits := 32; bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			break
		}
		if r, ok := t.Find(p); ok {
			return r, true
		}
	}
	return Route{}, false
}

// RouteChange is a difference between two tables. Old is nil if the route is new, New if it is
// gone.
type RouteChange struct{ Old, New *Route }

// Diff lists the differences from t to next; t may be nil: an empty table.
func (t *Table) Diff(next *Table) []RouteChange {
	var changes []RouteChange
	var old []Route
	if t != nil {
		old = t.Routes
	}
	i, j := 0, 0
	for i < len(old) || j < len(next.Routes) {
		switch {
		case j == len(next.Routes) || i < len(old) && keyOfPrefix(old[i].Prefix) < keyOfPrefix(next.Routes[j].Prefix):
			changes = append(changes, RouteChange{Old: &old[i]})
			i++
		case i == len(old) || keyOfPrefix(old[i].Prefix) > keyOfPrefix(next.Routes[j].Prefix):
			changes = append(changes, RouteChange{New: &next.Routes[j]})
			j++
		default:
			if !old[i].equal(&next.Routes[j]) {
				changes = append(changes, RouteChange{&old[i], &next.Routes[j]})
			}
			i, j = i+1, j+1
		}
	}
	return changes
}

func (r *Route) equal(o *Route) bool {
	return r.Prefix == o.Prefix && r.Type == o.Type && r.Area == o.Area && r.Cost == o.Cost && r.Type2 == o.Type2 &&
		r.Tag == o.Tag && r.Discard == o.Discard && slices.Equal(r.NextHops, o.NextHops)
}
