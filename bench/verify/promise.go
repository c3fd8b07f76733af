package verify

import (
	"cmp"
	"net/netip"
	"slices"

	"trivet.dev/trivet/internal/disjoint"
	"trivet.dev/trivet/topology"
)

// promise is what a topology says of who reaches whom: where packets go by its links that are up,
// its addresses and its routes. Nothing is promised of nodes that decide by themselves, by a user's
// own controller or a router's own configuration.
type promise struct {
	*network
	at     map[string][]iface        // of hosts and routers: interfaces on links that are up
	owners map[place][]string        // by address and segment
	spoken map[string][]netip.Prefix // by router: networks to which routing protocols bring routes
	join   disjoint.Sets[string]     // routing nodes with the same controller
}

// iface is an interface of a host or router.
type iface struct {
	node    string
	device  string
	segment int // equal if only switches are between them
	all     []netip.Prefix
	labels  bool // it accepts packets with labels (MPLS)
}

// place is an address in a segment.
type place struct {
	segment int
	address netip.Addr
}

func (n *network) promise() *promise {
	p := &promise{network: n, at: map[string][]iface{}, owners: map[place][]string{}, spoken: topology.Reach(n.t),
		join: disjoint.Sets[string]{}}
	segments := disjoint.Sets[int]{} // of ends, by 2 × link + end
	first := map[string]int{}        // of a switch
	var ports []topology.VLANPort
	vlans := topology.VLANPorts(n.t)
	for _, node := range n.t.Nodes {
		for _, h := range n.leaving[node.Name] {
			segments.Join(2*h.link+h.out, 2*h.link+1-h.out)
			if node.Kind != topology.Switch || n.foreign(node) {
				continue
			}
			if v := vlans[n.t.Links[h.link]][h.out]; v != (topology.PortVLANs{}) {
				ports = append(ports, topology.VLANPort{Switch: node.Name, Member: 2*h.link + h.out, PortVLANs: v})
			} else if other, ok := first[node.Name]; ok {
				segments.Join(other, 2*h.link+h.out)
			} else {
				first[node.Name] = 2*h.link + h.out
			}
		}
	}
	ends := map[[2]string]int{}
	for _, node := range n.t.Nodes {
		for _, h := range n.leaving[node.Name] {
			ends[[2]string{node.Name, n.t.Links[h.link].DeviceAt(h.out)}] = 2*h.link + h.out
		}
	}
	domains := topology.Domains(n.t.Nodes, segments, ends, ports, 2*len(n.t.Links))
	routing := map[int]string{} // by segment: a routing node
	for _, node := range n.t.Nodes {
		if node.Kind != topology.Host && node.Kind != topology.Router {
			continue
		}
		vrfs := node.VRFs() // nothing is promised of addresses in one
		add := func(i iface) {
			if vrfs[i.device] != nil {
				return
			}
			p.at[node.Name] = append(p.at[node.Name], i)
			for _, a := range i.all {
				p.owners[place{i.segment, a.Addr()}] = append(p.owners[place{i.segment, a.Addr()}], node.Name)
			}
		}
		for _, x := range node.Interfaces {
			if at, ok := domains[[2]string{node.Name, x.Name}]; ok {
				add(iface{node.Name, x.Name, segments.Of(at), x.Addresses, x.MPLS})
			}
		}
		for _, h := range n.leaving[node.Name] {
			l := n.t.Links[h.link]
			i := iface{node.Name, l.DeviceAt(h.out), segments.Of(2*h.link + h.out), l.Ends[h.out].Addresses,
				l.Ends[h.out].MPLS}
			add(i)
			if !node.RoutingNode() || n.foreign(node) {
				continue
			}
			if other, ok := routing[i.segment]; ok {
				p.join.Join(other, node.Name)
			} else {
				routing[i.segment] = node.Name
			}
		}
	}
	return p
}

// foreign says whether a user's own controller decides for a node.
func (n *network) foreign(node *topology.Node) bool {
	return node.IsDatapath() && slices.ContainsFunc(node.Controllers, func(c string) bool {
		return c != topology.ControllerNone && !n.t.IsBuiltin(c)
	})
}

// has says whether a node has an address, on a link that is up or on its loopback.
func (p *promise) has(node string, a netip.Addr) bool {
	is := func(x netip.Prefix) bool { return x.Addr() == a }
	return slices.ContainsFunc(p.at[node], func(i iface) bool { return slices.ContainsFunc(i.all, is) }) ||
		slices.ContainsFunc(p.nodes[node].Loopback, is)
}

// step is what a node does with packets to an address: it sends them out of an interface, to a
// neighbour or the destination itself; or it has routes that the topology does not contain.
type step struct {
	out   iface
	next  netip.Addr
	stack []int // the labels pushed (MPLS), the outermost first
	known bool  // from a routing protocol or a controller
}

// steps returns the possible steps of a node: those of all equally good routes; none if it has no
// route.
func (p *promise) steps(at string, to netip.Addr) (out []step) {
	node := p.nodes[at]
	type rank struct{ bits, source, metric int } // the longest prefix, then the lowest
	var best rank
	add := func(r rank, s ...step) {
		c := cmp.Or(cmp.Compare(best.bits, r.bits), cmp.Compare(r.source, best.source),
			cmp.Compare(r.metric, best.metric))
		if c < 0 || out == nil {
			best, out = r, s
		} else if c == 0 {
			out = append(out, s...)
		}
	}
	for _, i := range p.at[at] {
		for _, a := range i.all {
			if a.Contains(to) {
				add(rank{a.Bits(), 0, 0}, step{out: i, next: to})
			}
		}
	}
	if len(node.Rules) > 0 {
		return nil // its rules decide
	}
	if len(node.Config) > 0 && node.Kind == topology.Router {
		return out // it decides its routes itself
	}
	for _, r := range node.StaticRoutes() {
		if !r.To.Contains(to) || !r.InMain() {
			continue
		}
		source := 1
		if r.Computed && node.RoutingNode() {
			source = 3 // routes that the controller finds take precedence
		}
		s := []step{} // it discards packets, or leads over a link that is down
		for _, i := range p.at[at] {
			switch {
			case r.Discard || r.Device != "" && r.Device != i.device:
			case !r.Via.IsValid():
				s = append(s, step{out: i, next: to})
			case r.Device != "" || slices.ContainsFunc(i.all, func(a netip.Prefix) bool { return a.Contains(r.Via) }):
				s = append(s, step{out: i, next: r.Via, stack: r.Labels.Labels()})
			}
		}
		add(rank{r.To.Bits(), source, int(r.KernelMetric())}, s...)
	}
	for _, network := range p.spoken[at] {
		if network.Contains(to) {
			add(rank{network.Bits(), 2, 0}, step{known: true})
		}
	}
	if node.RoutingNode() && !p.foreign(node) {
		for _, other := range p.t.NodesOf(topology.Router) {
			if !other.RoutingNode() || other == node || p.join.Of(other.Name) != p.join.Of(at) {
				continue
			}
			for _, i := range p.at[other.Name] {
				for _, a := range i.all {
					if a.Contains(to) {
						add(rank{a.Bits(), 2, 0}, step{known: true})
					}
				}
			}
		}
	}
	return out
}

// mostRouters is how many routers a packet may pass (its TTL).
const mostRouters = 63

// arrives says whether packets to an address get from a node to one that has it, on each of the
// paths that they may take. It calls through, if that is not nil, with the nodes on the path.
func (p *promise) arrives(from string, to netip.Addr, owner string, through func(string)) bool {
	good := map[string]bool{}
	var walk func(at string, left int) bool
	walk = func(at string, left int) bool {
		if p.has(at, to) {
			return at == owner
		}
		if good[at] {
			return true
		}
		node := p.nodes[at]
		if left == 0 || at != from && (node.Kind != topology.Router || p.foreign(node)) {
			return false
		}
		if through != nil {
			through(at)
		}
		steps := p.steps(at, to)
		for _, s := range steps {
			switch {
			case s.known:
				if !p.beside(owner, to) {
					return false
				}
			default:
				next, left, ok := p.switched(s, left-1, through)
				if !ok || !walk(next, left) {
					return false
				}
			}
		}
		good[at] = len(steps) > 0
		return good[at]
	}
	return walk(from, mostRouters)
}

// switched returns the node that examines the destination of packets after a step, which may have
// pushed labels, and how many routers they may pass from there on; false if the topology does not
// tell.
func (p *promise) switched(s step, left int, through func(string)) (at string, rest int, ok bool) {
	for out, next, stack := s.out, s.next, s.stack; left >= 0; left-- {
		owners := p.owners[place{out.segment, next}]
		if len(owners) != 1 {
			return "", 0, false
		}
		if at = owners[0]; len(stack) == 0 {
			return at, left, true
		}
		if !slices.ContainsFunc(p.at[at], func(i iface) bool { return i.segment == out.segment && i.labels }) {
			return "", 0, false
		}
		if through != nil {
			through(at)
		}
		for here := true; here; {
			if len(stack) == 0 {
				return at, left, true
			}
			l, known := p.labelAt(at, stack[0])
			if !known {
				return "", 0, false
			}
			stack = append(l.Swap.Labels(), stack[1:]...)
			if here = l.Device == "lo"; here {
				continue
			}
			i := slices.IndexFunc(p.at[at], func(i iface) bool { return i.device == l.Device && l.Via.IsValid() })
			if i < 0 { // down, or in a VRF
				return "", 0, false
			}
			out, next = p.at[at][i], l.Via
		}
	}
	return "", 0, false
}

// labelAt returns what a node does with a label. Every node pops explicit null.
func (p *promise) labelAt(node string, label int) (l topology.LabelRoute, known bool) {
	if label < topology.FirstLabel {
		return topology.LabelRoute{Label: label, Device: "lo"}, true
	}
	list := p.nodes[node].Labels
	if i := slices.IndexFunc(list, func(l topology.LabelRoute) bool { return l.Label == label }); i >= 0 {
		return list[i], true
	}
	return l, false
}

// beside says whether the owner of an address is a router, or next to one that knows the address's
// network.
func (p *promise) beside(owner string, a netip.Addr) bool {
	if p.nodes[owner].Kind == topology.Router {
		return true
	}
	for _, i := range p.at[owner] {
		if !slices.ContainsFunc(i.all, func(x netip.Prefix) bool { return x.Addr() == a }) {
			continue
		}
		for _, r := range p.t.NodesOf(topology.Router) {
			if slices.ContainsFunc(p.at[r.Name], func(at iface) bool {
				return at.segment == i.segment &&
					slices.ContainsFunc(at.all, func(x netip.Prefix) bool { return x.Contains(a) })
			}) {
				return true
			}
		}
	}
	return false
}

// answers says whether a node should get answers from another at an address: packets arrive, and so
// do those to the addresses that the caller may send from.
func (p *promise) answers(from string, to netip.Addr, owner string, through func(string)) bool {
	if !p.arrives(from, to, owner, through) {
		return false
	}
	sources := p.sources(from, to)
	return len(sources) > 0 &&
		!slices.ContainsFunc(sources, func(a netip.Addr) bool { return !p.arrives(owner, a, from, through) })
}

// sources returns the addresses that a node may send from.
func (p *promise) sources(from string, to netip.Addr) (out []netip.Addr) {
	add := func(i iface, next netip.Addr) {
		family := slices.DeleteFunc(slices.Clone(i.all),
			func(a netip.Prefix) bool { return a.Addr().Is6() != to.Is6() || a.Addr().IsLinkLocalUnicast() })
		for _, a := range family {
			if a.Contains(next) {
				out = append(out, a.Addr())
				return
			}
		}
		for _, a := range family {
			out = append(out, a.Addr())
		}
	}
	for _, s := range p.steps(from, to) {
		if !s.known {
			add(s.out, s.next)
			continue
		}
		for _, i := range p.at[from] {
			add(i, netip.Addr{})
		}
	}
	return out
}
