// Package rib chooses between the routes that several sources have to one prefix, as routers do:
// the source that is trusted most counts, and of several routes of one source that with the least
// metric. A route that was not chosen stays with its source, so it is chosen as soon as the better
// one is gone.
//
// The choice holds nothing: who asks has the routes, of all prefixes or of the one that a packet
// needs. Ten thousand routers have no table each. Who wants to follow what is chosen has a Feed.
package rib

import (
	"cmp"
	"fmt"
)

// Distance says how much a source of routes is trusted: 0 most, 254 least. Routers call it the
// administrative distance.
type Distance uint8

// Never is the distance of routes that are never used.
const Never Distance = 255

// Distances that routers give to sources if nothing else is said; Cisco's and FRR's are the same.
// Program, Balanced and ShortestPath are Trivet's own. The first is what programs of the user's
// have given; its distance is that of what other networks tell by BGP. The second takes traffic off
// busy links, in place of what protocols find; the third's is that of IS-IS: both know the whole
// network. Computed are routes from the topology's file, for where nothing finds a path.
const (
	Connected    Distance = 0
	Static       Distance = 1
	Program      Distance = 20
	Balanced     Distance = 100
	OSPF         Distance = 110
	ShortestPath Distance = 115
	Computed     Distance = 250
)

// Rank is what a route is chosen by.
type Rank struct {
	Distance Distance
	Metric   uint32 // compared within a distance only
}

// Compare returns -1 if a is chosen before b, 1 if b is, and 0 if both are as good.
func (a Rank) Compare(b Rank) int {
	return cmp.Or(cmp.Compare(a.Distance, b.Distance), cmp.Compare(a.Metric, b.Metric))
}

// Lost says why a route was not chosen, with the rank of the one that was.
func (a Rank) Lost(chosen Rank) string {
	switch {
	case a.Distance == Never:
		return fmt.Sprintf("distance %d: never used", Never)
	case a.Distance != chosen.Distance:
		return fmt.Sprintf("distance %d, not %d", a.Distance, chosen.Distance)
	case a.Metric != chosen.Metric:
		return fmt.Sprintf("metric %d, not %d", a.Metric, chosen.Metric)
	}
	return "as good as the one that is used"
}
