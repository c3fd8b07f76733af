package api

import (
	"context"
	"fmt"
	"slices"

	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/openflow"
)

const (
	maxWays = 64
	maxHops = 256
)

// walk traces a packet from switch to switch.
type walk struct {
	*view
	others *pathParts // nil: no other members are asked
	ctx    context.Context
	to     station
	read   map[uint64]*tables
	failed map[uint64]error
	path   Path
	trail  []step
	copies int // number of steps of the trail that are copies
	fate   fate
	been   map[visit]fate
}

// visit is a packet at a switch.
type visit struct {
	dpid uint64
	packet
}

// step is a switch on the path so far.
type step struct {
	hop  PathHop
	dpid uint64
	at   packet // as it arrived
	out  place
	copy bool
}

// fate reports whether a packet arrives: in all cases, or in some.
type fate struct{ all, some bool }

// tables reads the tables of a switch, once.
func (w *walk) tables(dpid uint64) (*tables, error) {
	if t := w.read[dpid]; t != nil || w.failed[dpid] != nil {
		return t, w.failed[dpid]
	}
	t, err := w.ask(dpid)
	w.read[dpid], w.failed[dpid] = t, err
	return t, err
}

func (w *walk) ask(dpid uint64) (*tables, error) {
	s := w.c.Seen(dpid)
	if s == nil {
		return nil, fmt.Errorf("%s is not connected to the controller", w.switchName(dpid))
	}
	flows, err := question[openflow.FlowStatsList](w.ctx, s, openflow.AllFlows())
	if err != nil {
		return nil, err
	}
	groups, err := question[openflow.GroupDescList](w.ctx, s, openflow.NoBody(openflow.MultipartGroupDesc))
	if err != nil {
		return nil, err
	}
	t := &tables{entries: map[uint8][]*openflow.FlowStats{}, groups: map[uint32]*openflow.GroupDesc{}}
	for i := range flows {
		t.entries[flows[i].Table] = append(t.entries[flows[i].Table], &flows[i])
	}
	for i := range groups {
		t.groups[groups[i].Group] = &groups[i]
	}
	for _, p := range s.Ports() {
		if p.Works() {
			t.ports = append(t.ports, p.Number)
		}
	}
	return t, nil
}

// enter traces a packet into a switch through a port.
func (w *walk) enter(at place, p packet) fate {
	p.fields = p.fields.With(openflow.InPort(at.port)).With(openflow.Metadata(0))
	for _, s := range w.trail {
		if s.dpid == at.dpid && s.at.fields == p.fields {
			return w.end(w.switchName(at.dpid), "it goes round in a loop", false)
		}
	}
	hop := PathHop{Switch: w.switchName(at.dpid), In: w.portName(at.dpid, at.port), Entries: []PathFlow{}}
	if len(w.trail) >= maxHops {
		return w.stuck(hop.Switch, fmt.Sprintf("it is traced over at most %d switches", maxHops))
	}
	here := visit{at.dpid, p}
	if f, ok := w.been[here]; ok && len(w.path.Ways) >= maxWays { // trying all paths could take too long
		w.path.More = true
		return f
	}
	if ports := w.m.Port(at.dpid, at.port).VLANs; !classify(&p, ports) {
		return w.end(hop.Switch, fmt.Sprintf("%s takes no frames %s", hop.In, vlanOf(p)), false)
	}
	t, err := w.tables(at.dpid)
	if err != nil {
		return w.stuck(hop.Switch, "its tables cannot be read: "+err.Error())
	}
	x := t.trace(p)
	for _, e := range x.hits {
		hop.Entries = append(hop.Entries, w.pathFlow(at.dpid, e))
	}
	hop.Notes = x.notes
	if dst, ok := p.fields.Get(openflow.FieldEthDst); ok {
		hop.to = dst.MAC()
	}
	w.been[here] = w.leaveSwitch(step{hop: hop, dpid: at.dpid, at: p}, x)
	return w.been[here]
}

func (w *walk) pathFlow(dpid uint64, e *openflow.FlowStats) PathFlow {
	f := w.flow(dpid, e)
	return PathFlow{Table: f.Table, Priority: f.Priority, Entry: entryText(f.Match, f.Actions), Readable: f.Readable,
		App: f.App, ID: f.ID}
}

// leaveSwitch traces all outputs of a switch.
func (w *walk) leaveSwitch(s step, x traced) fate {
	outputs := slices.DeleteFunc(slices.Clone(x.outputs), func(o output) bool {
		return o.port == openflow.PortController && !o.expired && len(x.outputs) > countController(x.outputs)
	})
	if told := len(x.outputs) - len(outputs); told > 0 {
		s.hop.Notes = append(s.hop.Notes, "the controller gets a copy")
	}
	if len(outputs) == 0 {
		return w.with(s, func() fate { return w.end(s.hop.Switch, dropReason(s.hop, x), false) })
	}
	cases := map[int]fate{} // by choice
	var sum fate
	for _, o := range outputs {
		here := s
		here.hop.Choice = o.reason
		here.copy = o.choice == 0 && len(outputs) > 1
		f := w.with(here, func() fate { return w.output(o) })
		if o.choice == 0 {
			sum.all, sum.some = sum.all || f.all, sum.some || f.some
			continue
		}
		before, ok := cases[o.choice]
		cases[o.choice] = fate{f.all && (before.all || !ok), f.some || before.some}
	}
	for _, f := range cases {
		sum.all, sum.some = sum.all || f.all, sum.some || f.some
	}
	return sum
}

func countController(list []output) int {
	return lists.Count(list, func(o output) bool { return o.port == openflow.PortController })
}

func dropReason(hop PathHop, x traced) string {
	switch {
	case x.missed >= 0:
		return fmt.Sprintf("table %d has no entry for it: dropped", x.missed)
	case len(x.notes) > 0:
		return "dropped: " + x.notes[0]
	}
	e := hop.Entries[len(hop.Entries)-1]
	whose := "an entry"
	switch {
	case e.ID > 0:
		whose = fmt.Sprintf("the user's entry %d", e.ID)
	case e.App != "":
		whose = "an entry of " + e.App
	}
	return "dropped by " + whose + ": " + e.Readable
}

// with calls f with a step added to the trail.
func (w *walk) with(s step, f func() fate) fate {
	w.trail = append(w.trail, s)
	if s.copy {
		w.copies++
	}
	out := f()
	if s.copy {
		w.copies--
	}
	w.trail = w.trail[:len(w.trail)-1]
	return out
}

// output traces an output of the last switch of the trail.
func (w *walk) output(o output) fate {
	s := &w.trail[len(w.trail)-1]
	switch o.port {
	case openflow.PortController:
		return w.controller(s, o)
	case openflow.PortLocal:
		return w.end(s.hop.Switch, "it goes to the switch itself (LOCAL)", false)
	case openflow.PortNormal:
		return w.stuck(s.hop.Switch,
			"the switch forwards it by its own learning (NORMAL), which its tables do not show")
	}
	return w.send(s, place{s.dpid, o.port}, o.packet)
}

// send traces a packet out of a port.
func (w *walk) send(s *step, out place, p packet) fate {
	s.out = out
	s.hop.Out = w.portName(out.dpid, out.port)
	t := w.load(out)
	s.hop.Rate, s.hop.Capacity = t.TxRate, t.Capacity
	if t.TxRate != nil && t.Capacity > 0 {
		s.hop.Utilisation = number(*t.TxRate / t.Capacity)
	}
	d, there := w.desc[out]
	if !there || d.State&openflow.PortStateLinkDown != 0 || d.Config&openflow.PortConfigDown != 0 {
		return w.end(s.hop.Switch, s.hop.Out+" is down", false)
	}
	if inside := p; !declassify(&p, w.m.Port(out.dpid, out.port).VLANs) {
		return w.end(s.hop.Switch, fmt.Sprintf("%s sends no frames %s", s.hop.Out, vlanOf(inside)), false)
	}
	var sum fate
	linked := false
	for _, l := range w.c.Discovery.LinksFrom(out.dpid, out.port) {
		linked = true
		f := w.enter(place{l.To, l.ToPort}, p)
		sum = fate{sum.all || f.all, sum.some || f.some}
	}
	if linked {
		return sum
	}
	return w.arrive(out, p)
}

// arrive ends a path at an edge of the network.
func (w *walk) arrive(out place, p packet) fate {
	dst, _ := p.fields.Get(openflow.FieldEthDst)
	mac := dst.MAC()
	group := mac[0]&1 == 1
	known := w.m.Port(out.dpid, out.port)
	if known.Peer != "" && known.PeerNumber > 0 {
		return w.stuck(known.Peer, "the controller has not found the link to it")
	}
	if f := w.m.ByMAC(mac); f != nil && f.Node == known.Peer {
		switch {
		case f.Node == w.to.name:
			return w.end(f.Node, "", true)
		case w.m.Node(f.Node).Kind == "router":
			return w.stuck(f.Node, fmt.Sprintf("%s is a Linux router, whose own routes decide", f.Node))
		}
		return w.end(f.Node, f.Node+" is not the destination", false)
	}
	if known.Peer == "" {
		for _, h := range w.at()[out] {
			if h.MAC == mac {
				return w.end(w.host(mac), "", w.host(mac) == w.to.name)
			}
		}
	}
	name := known.Peer
	if name == "" {
		name = w.portName(out.dpid, out.port)
	}
	if group {
		return w.end(name, "it is a broadcast or multicast", name == w.to.name)
	}
	return w.end(name, fmt.Sprintf("it is addressed to %s, which is not there", w.host(mac)), false)
}

// end records the path of the walk so far, if there is room for another.
func (w *walk) end(node, reason string, arrives bool) fate {
	return w.record(Way{Arrives: arrives, End: node, Reason: reason})
}

// stuck records a path that cannot be traced further.
func (w *walk) stuck(node, reason string) fate {
	return w.record(Way{Unknown: true, End: node, Reason: reason})
}

func (w *walk) record(way Way) fate {
	f := fate{way.Arrives, way.Arrives}
	way.Copy, way.Hops = w.copies > 0, []PathHop{}
	for _, s := range w.trail {
		way.Hops = append(way.Hops, s.hop)
		if h := s.hop; h.Rate != nil && h.Capacity > 0 {
			if left := max(0, h.Capacity-*h.Rate); way.Free == nil || left < *way.Free {
				way.Free, way.Narrow = &left, &h.Capacity
			}
		}
	}
	if len(w.path.Ways) < maxWays {
		w.path.Ways = append(w.path.Ways, way)
		return f
	}
	w.path.More = true
	if i := slices.IndexFunc(w.path.Ways, func(x Way) bool { return !x.Arrives }); way.Arrives && i >= 0 {
		w.path.Ways[i] = way // a path that arrives replaces one that does not
	}
	return f
}

// finish sorts the paths and sets whether the packet arrives.
func (w *walk) finish() {
	slices.SortStableFunc(w.path.Ways, func(a, b Way) int {
		switch {
		case a.Arrives == b.Arrives:
			return 0
		case a.Arrives:
			return -1
		}
		return 1
	})
	w.path.Arrives = "no"
	switch {
	case !w.fate.some && slices.ContainsFunc(w.path.Ways, func(x Way) bool { return x.Unknown }):
		w.path.Arrives = "unknown"
	case w.fate.all:
		w.path.Arrives = "yes"
	case w.fate.some:
		w.path.Arrives = "partly"
	}
	w.explain()
}

// app names the app whose entry sends a packet to the controller.
func app(o output) string {
	if o.hit == nil {
		return ""
	}
	return apps.Of(o.hit.Cookie)
}
