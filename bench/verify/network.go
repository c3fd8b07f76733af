package verify

import (
	"net/netip"
	"slices"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// hop is a direction of a link: out of the end out.
type hop struct{ link, out int }

// flow is traffic from one node to another, with its path.
type flow struct {
	from, to string
	way      []hop
	ports    [2]int // source and destination when the path was found; 0: not yet
}

func (f *flow) name() string { return f.from + " → " + f.to }

// network is a topology with indexes for sending through it.
type network struct {
	t       *topology.Topology
	wires   []datapath.Wire
	nodes   map[string]*topology.Node
	leaving map[string][]hop // by node: directions that carry packets
	ends    []string         // nodes that can send and receive: hosts, and Linux routers
	address map[string]netip.Addr
	silent  map[string]bool   // nodes in which no program starts
	closed  map[string]string // guests that cannot be entered, and why: see openGuests
	fabrics map[string]string // by site: a node whose programs run in the switches' namespace there
}

func newNetwork(info lab.Info) *network {
	n := &network{t: info.Topology, nodes: map[string]*topology.Node{}, leaving: map[string][]hop{},
		address: map[string]netip.Addr{}, silent: map[string]bool{}, closed: map[string]string{},
		fabrics: map[string]string{}}
	for _, node := range n.t.Nodes {
		n.nodes[node.Name] = node
	}
	for _, node := range n.t.Nodes { // preferably a switch
		site := node.Sited()
		if was := n.nodes[n.fabrics[site]]; node.IsDatapath() &&
			(was == nil || was.Kind != topology.Switch && node.Kind == topology.Switch) {
			n.fabrics[site] = node.Name
		}
	}
	for i, l := range n.t.Links {
		n.wires = append(n.wires, info.Wires[i].Wire)
		if l.Down || l.Ends[0].External() || l.Ends[1].External() || info.Wires[i].Blocked {
			continue
		}
		for out := range 2 {
			n.leaving[l.Ends[out].Node] = append(n.leaving[l.Ends[out].Node], hop{i, out})
		}
	}
	for _, node := range n.t.Nodes {
		if !own(node) {
			continue
		}
		if node.Made().Foreign() {
			n.silent[node.Name], n.closed[node.Name] = true, "it was not tried"
		}
		if a, ok := n.addressOf(node); ok {
			n.address[node.Name] = a
			if n.closed[node.Name] == "" && len(n.leaving[node.Name]) > 0 {
				n.ends = append(n.ends, node.Name)
			}
		}
	}
	return n
}

// own says whether a node has a network namespace of its own, in which programs run.
func own(n *topology.Node) bool { return n.Made().Own }

// addressOf returns a node's first IPv4 address, or else its first of IPv6, on a link that is up,
// on an interface of its own, or on its loopback. Addresses in VRFs do not count, as programs are
// not in them.
func (n *network) addressOf(node *topology.Node) (netip.Addr, bool) {
	var all []netip.Prefix
	vrfs := node.VRFs()
	add := func(device string, list []netip.Prefix) {
		if vrfs[device] == nil {
			all = append(all, list...)
		}
	}
	for _, h := range n.leaving[node.Name] {
		add(n.t.Links[h.link].DeviceAt(h.out), n.t.Links[h.link].Ends[h.out].Addresses)
	}
	for _, i := range node.Interfaces {
		add(i.Name, i.Addresses)
	}
	all = append(all, node.Loopback...)
	for _, l := range n.t.Links {
		for i, e := range l.Ends {
			if e.Node == node.Name {
				add(l.DeviceAt(i), e.Addresses)
			}
		}
	}
	for _, v6 := range []bool{false, true} {
		for _, a := range all {
			if a.Addr().Is6() == v6 && !a.Addr().IsLinkLocalUnicast() {
				return a.Addr(), true
			}
		}
	}
	return netip.Addr{}, false
}

func (n *network) near(h hop) string { return n.t.Links[h.link].Ends[h.out].Label() }
func (n *network) far(h hop) string  { return n.t.Links[h.link].Ends[1-h.out].Label() }

func (n *network) nameOf(h hop) string { return n.near(h) + " → " + n.far(h) }

// rate returns the bandwidth of a direction in bit/s; 0: unlimited.
func (n *network) rate(h hop) float64 { return float64(n.t.Links[h.link].Egress(h.out).Bandwidth) }

// hasDevice says whether a tap can see the packets of a link.
func (n *network) hasDevice(link int) bool {
	return slices.Contains([]datapath.Wire{datapath.Veth, datapath.Line, datapath.Tunnel, datapath.Tagged,
		datapath.Cable, datapath.Network}, n.wires[link])
}

// siteOf returns a node's site.
func (n *network) siteOf(node string) string {
	if n.nodes[node] == nil || n.nodes[node].Datapath.Provided() { // no program runs there, so no clock is read
		return topology.Head
	}
	return n.nodes[node].Sited()
}

// tree finds the shortest paths from a node to all others: for each the hop by which it is reached.
// Hosts do not forward.
func (n *network) tree(from string, over func(hop) bool) map[string]hop {
	came := map[string]hop{from: {link: -1}}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != from && n.nodes[at].Kind == topology.Host {
			continue
		}
		for _, h := range n.leaving[at] {
			if _, seen := came[n.far(h)]; !seen && (over == nil || over(h)) {
				came[n.far(h)] = h
				queue = append(queue, n.far(h))
			}
		}
	}
	return came
}

// back returns the path to a node in a tree; nil if there is none.
func (n *network) back(came map[string]hop, to string) (way []hop) {
	for at := to; ; {
		h, ok := came[at]
		if !ok {
			return nil
		}
		if h.link < 0 {
			slices.Reverse(way)
			return way
		}
		way = append(way, h)
		at = n.near(h)
	}
}

// mostEnds is how many receivers are considered for each sender; if there are more, evenly selected
// ones.
const mostEnds = 60

// mostTried is how many receivers are considered for each sender if not all are promised.
const mostTried = 20 * mostEnds

// promisedFlows returns the flows that the topology promises.
func (n *network) promisedFlows() (out []*flow) {
	promise, step := n.promise(), max(1, len(n.ends)/mostEnds)
	for i := step; i > 1 && !coprime(i, len(n.ends)); i-- { // so that all are reached
		step = i - 1
	}
	for i, from := range n.ends {
		came, found := n.tree(from, nil), 0
		for k := range min(len(n.ends)-1, mostTried) {
			to := n.ends[(i+(k+1)*step)%len(n.ends)]
			if to == from || found == mostEnds || !promise.answers(from, n.address[to], to, nil) {
				continue
			}
			if way := n.back(came, to); len(way) > 0 && n.address[from].Is6() == n.address[to].Is6() {
				out = append(out, &flow{from: from, to: to, way: way})
				found++
			}
		}
	}
	return out
}

func coprime(a, b int) bool {
	for b > 0 {
		a, b = b, a%b
	}
	return a == 1
}

// flows returns the flows between the network's ends, by shortest paths; if switches separate
// VLANs, only those that the topology promises.
func (n *network) flows() (out []*flow) {
	if len(topology.VLANPorts(n.t)) > 0 {
		return n.promisedFlows()
	}
	for i, from := range n.ends {
		came := n.tree(from, nil)
		step := max(1, len(n.ends)/mostEnds)
		for k := 1; k < len(n.ends); k += step {
			to := n.ends[(i+k)%len(n.ends)]
			if way := n.back(came, to); len(way) > 0 && n.address[from].Is6() == n.address[to].Is6() {
				out = append(out, &flow{from: from, to: to, way: way})
			}
		}
	}
	return out
}
