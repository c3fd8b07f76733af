package learning

import (
	"context"
	"slices"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
)

// App is a steer.Domain: its destinations are the Ethernet addresses that have paths.

// Edges returns the links that paths may use, in each direction.
func (a *App) Edges() []steer.Edge {
	s := &a.spreading
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view == nil {
		return nil
	}
	return slices.Clone(s.view.edges)
}

// Quiet reports whether all paths are installed.
func (a *App) Quiet() bool { return a.Settled() }

// Destination returns the paths to an address; false: it has none.
func (a *App) Destination(to openflow.MAC) (d steer.Destination, is bool) {
	s := &a.spreading
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.ways[to]
	if w == nil {
		return d, false
	}
	return steer.Destination{Owners: []uint64{w.at.dpid}, Next: w.next, Home: w.home, Fixed: s.view.frozen}, true
}

// Parts returns none: an address has one path from each switch.
func (*App) Parts(openflow.MAC, bool) []openflow.MAC { return nil }

// Whole returns the address itself.
func (*App) Whole(to openflow.MAC) openflow.MAC { return to }

// Steer replaces all steered ways.
func (a *App) Steer(ways map[openflow.MAC]steer.Ways, _ string) {
	a.spreading.mu.Lock()
	a.spreading.steered = ways
	a.spreading.mu.Unlock()
	a.poke()
}

// Carried returns the bytes that a switch has sent on the path to each address.
func (a *App) Carried(ctx context.Context, dpid uint64) (map[openflow.MAC]uint64, error) {
	a.mu.Lock()
	t := a.switches[dpid]
	a.mu.Unlock()
	if t == nil {
		return nil, controller.ErrGone
	}
	t.mu.Lock()
	sw := t.sw
	t.mu.Unlock()
	if sw == nil {
		return nil, controller.ErrGone
	}
	all := openflow.AllFlows()
	all.Table, all.Cookie, all.CookieMask = destinationTable, pathCookie, frameMask
	list, err := controller.Ask[openflow.FlowStatsList](ctx, sw, all)
	out := map[openflow.MAC]uint64{}
	for _, f := range list {
		if dst, ok := f.Match.Get(openflow.FieldEthDst); ok {
			out[dst.MAC()] += f.Bytes
		}
	}
	return out, err
}
