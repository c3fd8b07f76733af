package api

import (
	"cmp"
	"slices"
)

// joining is how the members' answers are merged.
type joining struct {
	join func(*parts) (any, error)
	all  bool // each member has something that belongs to no switch, so every answer is needed
}

// joins lists the requests that are merged, and how. Other answers are the same at all members:
// links, hosts, what users have added, and the contents of switches' tables. Protocols add theirs:
// see addProtocol.
var joins = map[string]joining{
	"/v1/controller":            {join: joinOverview, all: true},
	"/v1/controller/topology":   {join: joinTopology},
	"/v1/controller/statistics": {join: joinStatistics, all: true},
	"/v1/controller/routes":     {join: joinRoutes},
	"/v1/controller/balance":    {join: joinBalance},
}

// rowsOf merges lists in which each row belongs to a switch.
func rowsOf[T any](of func(T) string) func(*parts) (any, error) {
	return func(p *parts) (any, error) {
		lists, err := read[[]T](p)
		if err != nil {
			return nil, err
		}
		return ofMasters(p, lists, of, false), nil
	}
}

func joinOverview(p *parts) (any, error) {
	all, err := read[Overview](p)
	if err != nil {
		return nil, err
	}
	out := all[0]
	out.Load = sumOfLoads(each(all, func(x Overview) Load { return x.Load }))
	return out, nil
}

func sumOfLoads(all []Load) (out Load) {
	for _, x := range all {
		out.CPUSeconds, out.MemoryBytes, out.Goroutines = out.CPUSeconds+x.CPUSeconds, out.MemoryBytes+x.MemoryBytes,
			out.Goroutines+x.Goroutines
	}
	return out
}

func joinTopology(p *parts) (any, error) {
	all, err := read[Topology](p)
	if err != nil {
		return nil, err
	}
	return Topology{Links: joinLinks(p, each(all, func(x Topology) []Link { return x.Links })), Hosts: all[0].Hosts,
		Switches: ofMasters(p, each(all, func(x Topology) []Switch { return x.Switches }),
			func(x Switch) string { return x.Name }, true)}, nil
}

// joinLinks takes a link from the master of its first end, and adds what only the master of the
// other end knows.
func joinLinks(p *parts, lists [][]Link) []Link {
	of := func(end int) func(Link) string { return func(l Link) string { return l.Ends[end].Node } }
	type key struct {
		from, to End
	}
	keyOf := func(l Link) (k key) {
		k.from = End{Node: l.Ends[0].Node, Port: l.Ends[0].Port}
		if l.Inner { // others may have a better name at another member
			k.to = End{Node: l.Ends[1].Node, Port: l.Ends[1].Port}
		}
		return k
	}
	far := map[key]Link{}
	for _, l := range ofMasters(p, lists, of(1), false) {
		far[keyOf(l)] = l
	}
	out := ofMasters(p, lists, of(0), true)
	for i := range out {
		l := &out[i]
		other, ok := far[keyOf(*l)]
		if !ok {
			continue
		}
		for d := range 2 {
			l.Capacity[d] = cmp.Or(l.Capacity[d], other.Capacity[d])
		}
		l.SetRates([2]*float64{cmp.Or(l.Rates[0], other.Rates[0]), cmp.Or(l.Rates[1], other.Rates[1])})
	}
	return out
}

func joinStatistics(p *parts) (any, error) {
	all, err := read[Statistics](p)
	if err != nil {
		return nil, err
	}
	out := all[0]
	out.Links = joinLinks(p, each(all, func(x Statistics) []Link { return x.Links }))
	slices.SortStableFunc(out.Links, func(a, b Link) int { return b.CompareLoad(a) })
	out.Ports = ofMasters(p, each(all, func(x Statistics) []PortStatistics { return x.Ports }),
		func(x PortStatistics) string { return x.Switch }, false)
	out.Moved = ofMasters(p, each(all, func(x Statistics) []MovedPath { return x.Moved }), MovedPath.from, false)
	out.Load = sumOfLoads(each(all, func(x Statistics) Load { return x.Load }))
	out.PacketsIn, out.Requests, out.Database = []PacketsIn{}, Requests{}, nil
	for _, x := range all {
		out.Period = max(out.Period, x.Period)
		for _, n := range x.PacketsIn {
			out.PacketsIn = addPackets(out.PacketsIn, n)
		}
		r, n := &out.Requests, x.Requests
		r.Answered, r.Refused, r.Unanswered, r.Skipped = r.Answered+n.Answered, r.Refused+n.Refused,
			r.Unanswered+n.Unanswered, r.Skipped+n.Skipped
		if d := x.Database; d != nil {
			if out.Database == nil {
				out.Database = &DatabaseRows{}
			}
			o := out.Database
			o.Written, o.Dropped, o.Failed, o.Queued = o.Written+d.Written, o.Dropped+d.Dropped, o.Failed+d.Failed,
				o.Queued+d.Queued
		}
	}
	return out, nil
}

// addPackets adds one member's count for a protocol.
func addPackets(to []PacketsIn, n PacketsIn) []PacketsIn {
	i := slices.IndexFunc(to, func(x PacketsIn) bool { return x.Protocol == n.Protocol })
	if i < 0 {
		return append(to, n)
	}
	x := &to[i]
	x.Packets, x.Bytes, x.PacketRate, x.ByteRate = x.Packets+n.Packets, x.Bytes+n.Bytes, x.PacketRate+n.PacketRate,
		x.ByteRate+n.ByteRate
	return to
}

// from is where a path begins: the master of that router has moved it.
func (m MovedPath) from() string {
	if len(m.Routers) == 0 {
		return ""
	}
	return m.Routers[0]
}

func joinRoutes(p *parts) (any, error) {
	all, err := read[Routes](p)
	if err != nil {
		return nil, err
	}
	routes := each(all, func(x Routes) []Route { return x.Routes })
	return Routes{Routes: ofMasters(p, routes, func(x Route) string { return x.Router }, false),
		Added: all[0].Added}, nil
}

func joinBalance(p *parts) (any, error) {
	all, err := read[Balance](p)
	if err != nil {
		return nil, err
	}
	out := all[0]
	out.Links = ofMasters(p, each(all, func(x Balance) []RouteLink { return x.Links }),
		func(x RouteLink) string { return x.From }, false)
	slices.SortStableFunc(out.Links, func(a, b RouteLink) int { return cmp.Compare(b.Load, a.Load) })
	out.Moved = ofMasters(p, each(all, func(x Balance) []MovedPath { return x.Moved }), MovedPath.from, false)
	out.Moves = 0
	for _, x := range all {
		out.Moves += x.Moves
	}
	return out, nil
}
