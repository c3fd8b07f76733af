// Package steer is what the app balance asks of an app whose ways through the network it may
// choose: routing, to subnets, and learning, to Ethernet addresses.
package steer

import "context"

// Edge is a way from a datapath to one that is next to it: for routers by a link or over layer-2
// switches, for those by a link.
type Edge struct {
	From, To         uint64 // datapath ids
	FromPort, ToPort uint32
}

// Ways are those that datapaths are to take to a destination in place of those that they find, by
// datapath. Each must lead to one that is at the destination or is steered as well: those from
// which that is not so, or not any more because a link is down, are as if they were not there.
type Ways map[uint64]Edge

// Arrive says whether ways lead from a datapath to one that is at the destination.
func (w Ways) Arrive(from uint64, at func(dpid uint64) bool) bool {
	for range len(w) + 1 {
		if at(from) {
			return true
		}
		e, is := w[from]
		if !is {
			return false
		}
		from = e.To
	}
	return false
}

// Destination is where packets go, and how they get there.
type Destination struct {
	Owners []uint64 // the datapaths that are at it now

	// Next is how each datapath sends on what goes there, if that leads to another one of the app;
	// Home is what that were without Steer.
	Next, Home map[uint64]Edge

	Fixed map[uint64]bool // datapaths whose way Steer does not replace
}

// Ground is an app's part of the network. K names its destinations.
type Ground[K comparable] interface {
	// Edges returns the ways between datapaths that there are now, in an order that depends on
	// nothing else.
	Edges() []Edge

	// Quiet says whether all datapaths do what the app wants of them.
	Quiet() bool

	// Destination returns how packets get to a destination; false: there is none.
	Destination(to K) (Destination, bool)

	// Parts returns the parts into which what goes to a destination can be divided, each of which
	// is a destination for itself, beside the rest; none: it cannot be. With flows it returns what
	// stands for all flows: each is a destination as soon as something has come of it.
	Parts(to K, flows bool) []K

	// Whole returns the destination of which one is a part, or the one itself.
	Whole(to K) K

	// Carried returns how many bytes a datapath has sent on to each destination, as its entries
	// count them.
	Carried(ctx context.Context, dpid uint64) (map[K]uint64, error)

	// Steer makes datapaths take other ways, in place of all that were given before. A destination
	// is divided into those of its parts that are named, with ways or without.
	Steer(ways map[K]Ways, why string)
}
