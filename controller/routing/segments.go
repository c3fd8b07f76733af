package routing

import (
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/internal/disjoint"
)

// Segments determines which ports are in one layer-2 segment: those joined by links, directly or
// through datapaths that are not routers.
type Segments struct {
	router func(dpid uint64) bool
	joined disjoint.Sets[place]
}

// Segment identifies a segment: two ports are in the same one if their values are equal.
type Segment struct{ root place }

// place is a port of a datapath; port 0 stands for all ports of a layer-2 switch.
type place struct {
	dpid uint64
	port uint32
}

// NewSegments joins ports by links; router reports whether a datapath is a router.
func NewSegments(links []discovery.Link, router func(dpid uint64) bool) *Segments {
	s := &Segments{router, disjoint.Sets[place]{}}
	for _, l := range links {
		s.joined.Join(s.at(l.From, l.FromPort), s.at(l.To, l.ToPort))
	}
	return s
}

// Of returns the segment of a port, which is alone in it if no link is known.
func (s *Segments) Of(dpid uint64, port uint32) Segment {
	return Segment{s.joined.Of(s.at(dpid, port))}
}

func (s *Segments) at(dpid uint64, port uint32) place {
	if s.router(dpid) {
		return place{dpid, port}
	}
	return place{dpid, 0}
}
