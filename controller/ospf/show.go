package ospf

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	engine "trivet.dev/trivet/routing/ospf"
)

// NeighborChange reports a neighbour's change of state (RFC 2328, section 10.3). Routers of the
// controller have none among each other: they are Full when both are up.
type NeighborChange struct {
	Time      time.Time `json:"time"`
	Router    string    `json:"router"`
	Interface string    `json:"interface"`
	Neighbor  engine.ID `json:"neighbor" doc:"Its router id"`
	From      string    `json:"from"`
	To        string    `json:"to"`
	Reason    string    `json:"reason,omitempty" doc:"Why it was dropped, if it did something wrong"`
	Member    string    `json:"member,omitempty" doc:"In a lab's cluster: the router's master"`
}

// Neighbor is a neighbour of a router.
type Neighbor struct {
	Router    string     `json:"router"`
	Interface string     `json:"interface"`
	Area      engine.ID  `json:"area"`
	Neighbor  string     `json:"neighbor,omitempty" doc:"Its name, where it is known"`
	RouterID  engine.ID  `json:"router_id"`
	Address   netip.Addr `json:"address,omitzero"`
	State     string     `json:"state" doc:"As RFC 2328, section 10.1, calls it: Full, 2-Way, …"`
	DR        netip.Addr `json:"dr,omitzero" doc:"Address of the designated router, as this router sees it"`
	Priority  *uint8     `json:"priority,omitempty"`
	Dead      *float64   `json:"dead_seconds,omitempty" doc:"Until it counts as lost if it stays silent; missing: no packets are exchanged"`
	Requests  int        `json:"requests,omitempty" doc:"LSAs that it is asked for"`
	Unacked   int        `json:"unacknowledged,omitempty" doc:"LSAs that it has not acknowledged"`
	Helped    *float64   `json:"helped_seconds,omitempty" doc:"It is restarting, and counts as adjacent in any state for so long (RFC 3623)"`

	Mismatches []Mismatch `json:"mismatches,omitempty" doc:"What it and the router must agree on, and do not; a router that is no neighbour because of that is Down"`
}

// Attachment is an OSPF interface of a router, for display.
type Attachment struct {
	Router    string            `json:"router"`
	Interface string            `json:"interface"`
	Address   netip.Prefix      `json:"address,omitzero"`
	Area      engine.ID         `json:"area"`
	Type      string            `json:"type" doc:"point-to-point, broadcast, loopback, virtual link"`
	State     string            `json:"state" doc:"As RFC 2328, section 9.1, calls it"`
	Cost      uint16            `json:"cost"`
	Passive   bool              `json:"passive,omitempty"`
	Inside    bool              `json:"inside,omitempty" doc:"All routers on it are the controller's: no packets are exchanged"`
	DR        netip.Addr        `json:"dr,omitzero" doc:"Designated router"`
	BDR       netip.Addr        `json:"bdr,omitzero" doc:"Backup designated router"`
	Hello     float64           `json:"hello_seconds,omitempty"`
	Dead      float64           `json:"dead_seconds,omitempty"`
	Full      int               `json:"full" doc:"Neighbours that are Full"`
	Neighbors int               `json:"neighbors"`
	Sent      map[string]uint64 `json:"sent,omitempty" doc:"Packets by their type"`
	Received  map[string]uint64 `json:"received,omitempty"`
	Refused   uint64            `json:"refused,omitempty" doc:"Packets rejected"`
	Reason    string            `json:"reason,omitempty" doc:"Why the last one was rejected"`
	Restart   *float64          `json:"restart_seconds,omitempty" doc:"Its router is restarting gracefully, and waits for its previous neighbours for so long (RFC 3623)"`
}

// Restart reports that a router begins or ends a graceful restart (RFC 3623), as it does when
// another member of a cluster takes it over; or that it begins or ends helping a neighbour with
// one.
type Restart struct {
	Time      time.Time `json:"time"`
	Router    string    `json:"router"`
	Interface string    `json:"interface,omitempty" doc:"To the neighbour that is helped; missing: the router itself restarts"`
	Neighbor  engine.ID `json:"neighbor,omitempty" doc:"Its router id"`
	Begins    bool      `json:"begins"`
	Seconds   float64   `json:"seconds,omitempty" doc:"At the beginning: the longest that it may take"`
	Reason    string    `json:"reason,omitempty" doc:"Why it has ended, or does not begin"`
	Member    string    `json:"member,omitempty" doc:"In a lab's cluster: the router's master"`
}

// done reports whether a router has completed its restart.
func (r Restart) done() bool { return r.Interface == "" && !r.Begins }

func (r Restart) what() string {
	switch {
	case r.Interface == "" && r.Begins:
		return "a router restarts gracefully"
	case r.Interface == "":
		return "a router has restarted"
	case r.Begins:
		return "a neighbour restarts and is helped"
	}
	return "a neighbour that restarts is not helped any more"
}

func (n *network) restartOf(now time.Time, c engine.RestartChange) Restart {
	x := Restart{Time: now, Router: n.nameOf(c.Router.ID()), Neighbor: c.Neighbor, Begins: c.Begins,
		Seconds: c.Period.Seconds(), Reason: c.Reason}
	if c.Interface == nil {
		return x
	}
	if x.Interface = c.Interface.String(); n.portOf(c.Interface) != nil {
		x.Interface = n.portOf(c.Interface).Name
	}
	return x
}

// LSA is an LSA of a database.
type LSA struct {
	Area      *engine.ID `json:"area,omitempty" doc:"Missing: of the whole AS"`
	Interface string     `json:"interface,omitempty" doc:"Of an LSA of its link alone"`
	Type      string     `json:"type"`
	ID        engine.ID  `json:"id"`
	Router    string     `json:"router,omitempty" doc:"Name of the router that advertises it, where it is known"`
	AdvRtr    engine.ID  `json:"advertising_router"`
	Age       uint16     `json:"age" doc:"Seconds"`
	Sequence  string     `json:"sequence"`
	Checksum  string     `json:"checksum"`
	Content   string     `json:"content" doc:"What it says"`
}

// Route is a route of a router's OSPF table.
type Route struct {
	Router string       `json:"router"`
	Prefix netip.Prefix `json:"prefix"`
	Type   string       `json:"type" doc:"intra-area, inter-area, type 1 external, type 2 external"`
	Area   *engine.ID   `json:"area,omitempty" doc:"Missing: of external routes"`
	Cost   uint32       `json:"cost"`
	Type2  *uint32      `json:"type2_metric,omitempty"`
	Tag    uint32       `json:"tag,omitempty"`
	Hops   []Hop        `json:"hops" doc:"Of equal cost"`
	Drop   bool         `json:"drop,omitempty" doc:"An area range: packets without a more specific route are dropped"`
}

// Hop is a next hop.
type Hop struct {
	Interface string     `json:"interface"`
	Via       netip.Addr `json:"via,omitzero" doc:"Missing: the network is the interface's own"`
}

// Names returns the routers that speak OSPF, also those of other members of a cluster.
func (a *App) Names() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.config.Routers {
		names = append(names, a.config.Routers[i].Name)
	}
	return names
}

// each calls f for the router with a name, or for all if it is empty. mu must be held.
func (n *network) each(name string, f func(*router)) {
	for _, r := range n.sorted {
		if name == "" || r.Name == name {
			f(r)
		}
	}
}

func (n *network) nameOf(id engine.ID) string {
	if r := n.byID[id]; r != nil {
		return r.Name
	}
	return n.names[id]
}

// address returns a, or no address for 0.0.0.0.
func address(a netip.Addr) netip.Addr {
	if a.IsValid() && a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// Neighbors lists the neighbours of the router with a name, or of all if it is empty.
func (a *App) Neighbors(name string) []Neighbor {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []Neighbor{}
	a.net.each(name, func(r *router) {
		for _, p := range slices.Concat(r.ports, r.virtual) {
			dr, _ := p.engine.DR()
			var list []Neighbor
			for _, x := range p.engine.Neighbors() {
				nb := Neighbor{Router: r.Name, Interface: p.Name, Area: p.engine.Area().ID(),
					Neighbor: a.net.nameOf(x.ID), RouterID: x.ID,
					Address: address(x.Addr), State: x.State.String(), DR: address(dr), Requests: x.Requests,
					Unacked: x.Unacknowledged}
				if p.segment == nil && x.Dead > 0 {
					dead := max(x.Dead, 0).Seconds()
					nb.Dead, nb.Priority = &dead, &x.Priority
				}
				if helped := x.Helped.Seconds(); helped > 0 {
					nb.Helped = &helped
				}
				list = append(list, nb)
			}
			out = append(out, a.net.heard(p, list)...)
		}
	})
	return out
}

// Interfaces lists the interfaces on which OSPF runs.
func (a *App) Interfaces(name string) []Attachment {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []Attachment{}
	a.net.each(name, func(r *router) {
		for _, p := range slices.Concat(r.ports, r.virtual) {
			out = append(out, p.show())
		}
	})
	return out
}

func (p *port) show() Attachment {
	e, c := p.engine, p.Settings
	x := Attachment{Router: p.router.Name, Interface: p.Name, Address: e.Address(), Area: e.Area().ID(),
		Type:  e.Type().String(),
		State: e.State().String(), Cost: e.Cost(), Passive: c.Passive, Inside: p.segment != nil,
		Refused: p.counts.refused, Reason: p.counts.reason}
	dr, bdr := e.DR()
	x.DR, x.BDR = address(dr), address(bdr)
	for _, nb := range e.Neighbors() {
		x.Neighbors++
		if nb.State == engine.NeighborFull {
			x.Full++
		}
	}
	if left, ok := p.router.engine.Restarting(); ok {
		seconds := left.Seconds()
		x.Restart = &seconds
	}
	if p.speaks() {
		x.Hello, x.Dead = c.HelloInterval.Seconds(), c.DeadInterval.Seconds()
		x.Sent, x.Received = byKind(p.counts.sent), byKind(p.counts.received)
	}
	return x
}

func byKind(counts [engine.TypeLinkStateAck + 1]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for kind, count := range counts {
		if count > 0 && kind > 0 {
			out[engine.PacketType(kind).String()] = count
		}
	}
	return out
}

// Database lists the LSAs in the areas of the router with a name, or of all areas if it is empty;
// and those of the AS.
func (a *App) Database(name string) []LSA {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []LSA{}
	if a.net.domain == nil {
		return out
	}
	mine := map[engine.ID]bool{}
	a.net.each(name, func(r *router) {
		for _, p := range slices.Concat(r.ports, r.virtual) {
			mine[p.engine.Area().ID()] = true
		}
	})
	outside := false
	for _, area := range a.net.domain.Areas() {
		if !mine[area.ID()] {
			continue
		}
		id := area.ID()
		outside = outside || !area.Config().Stub
		for _, l := range area.LSAs() {
			out = append(out, a.net.show(&id, l))
		}
	}
	if outside {
		for _, l := range a.net.domain.Externals() {
			out = append(out, a.net.show(nil, l))
		}
	}
	a.net.each(name, func(r *router) {
		for _, p := range slices.Concat(r.ports, r.virtual) {
			for _, l := range p.engine.LSAs() {
				id := p.engine.Area().ID()
				x := a.net.show(&id, l)
				x.Interface = p.Name
				out = append(out, x)
			}
		}
	})
	return out
}

func (n *network) show(area *engine.ID, l engine.LSA) LSA {
	return LSA{Area: area, Type: l.Type.String(), ID: l.ID, Router: n.nameOf(l.AdvRouter), AdvRtr: l.AdvRouter,
		Age:      l.Age,
		Sequence: fmt.Sprintf("0x%08x", uint32(l.Seq)), Checksum: fmt.Sprintf("0x%04x", l.Checksum),
		Content: n.content(l)}
}

// content describes an LSA's content in a line.
func (n *network) content(l engine.LSA) string {
	who := func(id engine.ID) string { return cmp.Or(n.nameOf(id), id.String()) }
	switch l.Type {
	case engine.TypeRouter:
		x, err := engine.DecodeRouter(l.Body)
		if err != nil {
			return err.Error()
		}
		var words []string
		for bit, name := range map[engine.RouterFlags]string{engine.FlagBorder: "area border router",
			engine.FlagExternal: "AS boundary router", engine.FlagVirtual: "virtual link"} {
			if x.Flags&bit != 0 {
				words = append(words, name)
			}
		}
		slices.Sort(words)
		for _, k := range x.Links {
			switch k.Type {
			case engine.LinkStub:
				words = append(words, fmt.Sprintf("%v/%d %d", k.ID, bits(k.Data), k.Metric))
			case engine.LinkTransit:
				words = append(words, fmt.Sprintf("network of %v %d", k.ID, k.Metric))
			default:
				words = append(words, fmt.Sprintf("%s %d", who(k.ID), k.Metric))
			}
		}
		return strings.Join(words, ", ")
	case engine.TypeNetwork:
		x, err := engine.DecodeNetwork(l.Body)
		if err != nil {
			return err.Error()
		}
		var words []string
		for _, id := range x.Routers {
			words = append(words, who(id))
		}
		return fmt.Sprintf("%v: %s", l.Prefix(), strings.Join(words, ", "))
	case engine.TypeSummary:
		x, _ := engine.DecodeSummary(l.Body)
		return fmt.Sprintf("%v %d", l.Prefix(), x.Metric)
	case engine.TypeASBRSummary:
		x, _ := engine.DecodeSummary(l.Body)
		return fmt.Sprintf("%s %d", who(l.ID), x.Metric)
	case engine.TypeExternal:
		x, _ := engine.DecodeExternal(l.Body)
		kind := 1
		if x.Type2 {
			kind = 2
		}
		text := fmt.Sprintf("%v %d type %d", l.Prefix(), x.Metric, kind)
		if x.Forward != 0 {
			text += " via " + x.Forward.String()
		}
		return text
	case engine.TypeOpaqueLink:
		if g, err := engine.DecodeGrace(l.Body); err == nil && l.IsGrace() {
			return fmt.Sprintf("restarts within %.0f s", g.Period.Seconds())
		}
	}
	if l.Type >= engine.TypeOpaqueLink {
		return fmt.Sprintf("opaque type %d, %d octets", l.ID>>24, len(l.Body))
	}
	return ""
}

// bits is the length of a mask.
func bits(mask engine.ID) (n int) {
	for ; mask != 0; mask <<= 1 {
		n++
	}
	return n
}

// maxShown limits the routes listed at once.
const maxShown = 200_000

// Routes lists OSPF's routing table of the router with a name, or of all if it is empty.
func (a *App) Routes(name string) ([]Route, error) {
	out := []Route{}
	for _, router := range a.Names() {
		if name != "" && router != name {
			continue
		}
		out = append(out, a.routesOf(router)...)
		if len(out) > maxShown {
			return nil, fmt.Errorf("the routers have more than %d routes; name a router:  trivet ospf routes r1",
				maxShown)
		}
	}
	return out, nil
}

func (a *App) routesOf(name string) (out []Route) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.net.each(name, func(r *router) {
		ports := map[uint32]string{}
		for _, p := range r.ports {
			ports[p.Port] = p.Name
		}
		for _, x := range r.engine.Routes().Routes {
			y := Route{Router: r.Name, Prefix: x.Prefix, Type: x.Type.String(), Cost: x.Cost, Tag: x.Tag,
				Drop: x.Discard, Hops: []Hop{}}
			if x.Type <= engine.InterArea {
				y.Area = &x.Area
			}
			if x.Type == engine.External2 {
				y.Type2 = &x.Type2
			}
			for _, h := range x.NextHops {
				y.Hops = append(y.Hops, Hop{ports[h.Interface.Index()], address(h.Addr)})
			}
			out = append(out, y)
		}
	})
	return out
}

// Log is what `trivet ospf spf-log` shows.
type Log struct {
	Runs    []Run     `json:"runs"`
	Routers []RunTree `json:"routers" doc:"Whose routes have been queried"`
}

// RunTree is the last calculation of a router's own routes.
type RunTree struct {
	Router  string  `json:"router"`
	Seconds float64 `json:"seconds"`
}

// Log returns the last calculations, the oldest first, in the areas of the router with a name, or
// in all if it is empty.
func (a *App) Log(name string) Log {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := Log{[]Run{}, []RunTree{}}
	mine := map[engine.ID]bool{}
	a.net.each(name, func(r *router) {
		for _, p := range slices.Concat(r.ports, r.virtual) {
			mine[p.engine.Area().ID()] = true
		}
		if r.took > 0 {
			out.Routers = append(out.Routers, RunTree{r.Name, r.took.Seconds()})
		}
	})
	for _, run := range a.net.runs {
		if run.External || slices.ContainsFunc(run.Areas, func(id engine.ID) bool { return mine[id] }) {
			out.Runs = append(out.Runs, run)
		}
	}
	return out
}

// Capture returns the last packets of the router with a name, or of all if it is empty, as a pcap
// file: at most 2,048 packets of all routers together are kept.
func (a *App) Capture(name string) []byte {
	a.mu.Lock()
	var list []captured
	a.net.each(name, func(r *router) {
		if name != "" {
			list = a.net.captured.of(r.DPID, false)
		}
	})
	if name == "" {
		list = a.net.captured.of(0, true)
	}
	a.mu.Unlock()
	var b bytes.Buffer
	_ = write(&b, list)
	return b.Bytes()
}

// neighborChange converts a change for watchers.
func (n *network) neighborChange(now time.Time, c engine.NeighborChange) NeighborChange {
	x := NeighborChange{Time: now, Neighbor: c.Neighbor, From: c.From.String(), To: c.To.String(), Reason: c.Reason,
		Router: n.nameOf(c.Interface.Router().ID())}
	if p := n.portOf(c.Interface); p != nil {
		x.Interface = p.Name
	}
	return x
}
