// Package steer is the interface by which the app balance redirects traffic of another app: of
// routing, to subnets, and of learning, to Ethernet addresses.
package steer

import "context"

// Edge leads from a datapath to an adjacent one: between routers over a link or layer-2 switches,
// between switches over a link.
type Edge struct {
	From, To         uint64 // datapath ids
	FromPort, ToPort uint32
}

// Ways are the next hops, by datapath, that are to replace the app's own towards a destination.
// Each must lead to a datapath at the destination, or to one that has a way, too. Those that do
// not, for example because a link has failed, are ignored.
type Ways map[uint64]Edge

// Arrive reports whether the ways lead from a datapath to the destination.
func (w Ways) Arrive(from uint64, at func(dpid uint64) bool) bool {
	for range len(w) + 1 {
		if at(from) {
			return true
		}
		e, ok := w[from]
		if !ok {
			return false
		}
		from = e.To
	}
	return false
}

// Destination is a destination of packets, and the paths to it.
type Destination struct {
	Owners []uint64 // the datapaths at the destination

	// Next is the current next hop of each datapath, if it leads to another one of the app; Home is
	// what it would be without Steer.
	Next, Home map[uint64]Edge

	Fixed map[uint64]bool // datapaths whose next hop Steer does not replace
}

// Domain is an app's view of the network. K identifies a destination.
type Domain[K comparable] interface {
	// Edges returns the current edges, in a deterministic order.
	Edges() []Edge

	// Quiet reports whether all datapaths have the entries that the app wants.
	Quiet() bool

	// Destination returns the paths to a destination; false: there is no such destination.
	Destination(to K) (Destination, bool)

	// Parts returns the parts into which traffic to a destination can be divided, each a
	// destination of its own beside the rest; none: it is indivisible. With flows it returns the
	// key that stands for all flows: each flow becomes a destination when its first packet arrives.
	Parts(to K, flows bool) []K

	// Whole returns the destination that a part belongs to, or the destination itself.
	Whole(to K) K

	// Carried returns the bytes that a datapath has forwarded to each destination, from the
	// counters of its entries.
	Carried(ctx context.Context, dpid uint64) (map[K]uint64, error)

	// Steer replaces all ways given before. A destination is divided into those of its parts that
	// are keys, even if they have no ways.
	Steer(ways map[K]Ways, why string)
}
