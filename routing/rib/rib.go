// Package rib chooses among the routes that several sources have to one prefix, as routers do: by
// the source's distance, and within a source by the metric. A route that was not chosen stays with
// its source, and is chosen when the better one is gone.
//
// The package stores no routes: the caller has them, for all prefixes or for the one that a packet
// needs, so that ten thousand routers need not have a table each. To follow what is chosen, use a
// Feed.
package rib

import (
	"cmp"
	"fmt"
)

// Distance is the administrative distance of a source of routes: 0 is preferred most, 254 least.
type Distance uint8

// Never is the distance of routes that are never used.
const Never Distance = 255

// Default distances of sources, the same as Cisco's and FRR's. Program, Balanced and ShortestPath
// are Trivet's own: routes given by a user's program, with the distance of EBGP; routes that take
// traffic off busy links, in place of what protocols find; and shortest paths, with the distance of
// IS-IS. Computed are fallback routes from the topology's file, used where nothing else finds a
// path.
const (
	Connected    Distance = 0
	Static       Distance = 1
	Program      Distance = 20
	Balanced     Distance = 100
	OSPF         Distance = 110
	ShortestPath Distance = 115
	Computed     Distance = 250
)

// Rank is a route's preference.
type Rank struct {
	Distance Distance
	Metric   uint32 // compared within a distance only
}

// Compare returns -1 if a is preferred, 1 if b is, and 0 if they are equal.
func (a Rank) Compare(b Rank) int {
	return cmp.Or(cmp.Compare(a.Distance, b.Distance), cmp.Compare(a.Metric, b.Metric))
}

// Lost says why a route was not chosen, given the rank of the one that was.
func (a Rank) Lost(chosen Rank) string {
	switch {
	case a.Distance == Never:
		return fmt.Sprintf("distance %d: never used", Never)
	case a.Distance != chosen.Distance:
		return fmt.Sprintf("distance %d, not %d", a.Distance, chosen.Distance)
	case a.Metric != chosen.Metric:
		return fmt.Sprintf("metric %d, not %d", a.Metric, chosen.Metric)
	}
	return "equal to the one in use"
}
