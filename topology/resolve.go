package topology

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Defaults apply if a topology says nothing; overrides come from the command line.
type Defaults struct {
	Datapath   Datapath // of switches without a controller that specify none
	Controlled Datapath // of switches and routers with Trivet's controller that specify none
	Foreign    Datapath // of switches with a foreign controller that specify none; unset: as Controlled
	Controller string   // of switches that specify none

	OverrideDatapath   Datapath // of all nodes of kinds that can have it
	OverrideController []string // of all switches
	OverrideMembers    int      // of the cluster: 1 is none; 0: as the topology says
}

// Resolve validates a topology and returns a copy in which everything left open is assigned:
// datapaths, controllers, ports, device names, MAC addresses, datapath ids, addresses, gateways,
// routes, router ids and management addresses. The same topology always resolves to the same
// result. If the problems include an error, the topology is nil.
func Resolve(t *Topology, d Defaults) (*Topology, Problems) {
	problems := validate(t, d)
	if problems.Err() != nil {
		return nil, problems
	}
	r := &resolver{t: t.Clone(), nodes: make(map[string]*Node, len(t.Nodes)), ends: map[string][]*Endpoint{},
		builtin: map[string]bool{}, labels: asksForMPLS(t), problems: problems}
	for _, n := range r.t.Nodes {
		r.nodes[n.Name] = n
		if n.Kind == Controller && n.Address == ControllerTrivet {
			r.builtin[n.Name] = true
		}
	}
	d.members(r.t)
	r.defaults(d)
	r.unclustered()
	r.models()
	r.ports()
	r.devices()
	r.interfaces()
	r.wifi()
	r.vlans()
	r.macs()
	r.guestMACs()
	r.dpids()
	r.addresses()
	r.neighbors()
	r.mpls()
	r.routes()
	r.rules()
	r.protocols()
	r.problems = append(r.problems, CheckProvided(r.t)...)
	r.mtus()
	r.management()
	if r.problems.Err() != nil {
		return nil, r.problems
	}
	return r.t, r.problems
}

type resolver struct {
	t        *Topology
	nodes    map[string]*Node
	ends     map[string][]*Endpoint // for each node, by port
	segs     []*segment
	provided map[*Endpoint]bool // ends whose addresses others assign: see segments
	// Ends of segs that stand for nodes' own interfaces, with given addresses.
	fixed    map[*Endpoint]bool
	inVRF    map[*Endpoint]bool // ends of segs whose routes are in the table of a VRF
	builtin  map[string]bool    // controller nodes that stand for Trivet's
	labels   map[string]bool    // nodes that use MPLS
	problems Problems
}

func (r *resolver) defaults(d Defaults) {
	t := r.t
	t.IPv6 = cmp.Or(t.IPv6, IPv6Off)
	for _, n := range t.Nodes {
		if n.Kind != Switch && n.Kind != Router {
			continue
		}
		own, inherited, override := n.Controllers, t.Datapath, d.OverrideDatapath
		if !override.Serves(n.Kind) {
			override = ""
		}
		named := cmp.Or(override, n.Datapath, inherited)
		r.controllersOf(n, d, n.Kind == Switch && named.known() && !named.Controlled())
		fallback := d.Controlled
		switch n.Controllers[0] {
		case ControllerTrivet:
		case ControllerNone:
			fallback = d.Datapath
		default:
			fallback = cmp.Or(d.Foreign, d.Controlled)
		}
		if n.Kind == Router && (n.Controllers[0] != ControllerTrivet || n.RunsPrograms() || r.labels[n.Name]) {
			fallback = Kernel // not even a datapath for all nodes makes it a routing node
			inherited, override = onlyLinux(inherited), onlyLinux(override)
		}
		if n.Inside() != "" { // it brings its own daemons, whatever others run
			inherited, override = "", ""
		}
		if !inherited.Serves(n.Kind) {
			inherited = ""
		}
		n.Datapath = cmp.Or(n.Datapath, n.runsOwn(inherited), inherited, fallback)
		if override != "" && !n.NAT && len(n.Masquerade) == 0 &&
			(n.OwnRouting() == "" || n.runsOwn(override) == override) {
			n.Datapath = override
		}
		if n.Kind == Switch && n.CPU != (CPU{}) && (n.Datapath == Embedded || n.Datapath == Bridge) {
			r.problems.Warn(n.Pos, "take datapath: ovs, which can be slowed down where it forwards in user space",
				"switch %s: cpu limits the programs that run there, not its forwarding", n.Name)
		}
		if n.Kind == Router {
			r.routerControllers(n, own)
			r.speaks(n)
		}
	}
	r.checkDistances()
	r.checkRedistribute()
	if i := slices.IndexFunc(t.Nodes, (*Node).RoutingNode); i >= 0 && t.Routes == RoutesAsWritten {
		r.problems.Warn(t.Nodes[i].Pos, "use datapath kernel",
			"routes as-written: %s is a routing node, which finds its routes itself: routes are computed",
			t.Nodes[i].Name)
		t.Routes = RoutesComputed
	}
}

// RunsPrograms says whether a router has anything that needs namespaces of its own.
func (n *Node) RunsPrograms() bool {
	return n.Kind == Router &&
		(n.NAT || len(n.Masquerade) > 0 || n.Start != "" || n.Stop != "" || n.Inside() != "" || n.OwnRouting() != "" ||
			len(n.Ports) > 0 || len(n.Sysctls) > 0 || len(n.Isolate) > 0 || len(n.Dirs) > 0 || len(n.Interfaces) > 0 ||
			len(n.Rules) > 0 || len(n.Neighbors) > 0 || slices.ContainsFunc(n.Routes, Route.OnlyKernels))
}

// routerControllers keeps controllers only on routing nodes, which need one that routes.
func (r *resolver) routerControllers(n *Node, own []string) {
	switch {
	case !n.RoutingNode():
		n.Controllers, n.FailMode = own, ""
	case n.RunsPrograms() || r.labels[n.Name]:
		r.problems.Add(n.Pos, "use datapath kernel", "router %s: a routing node has no namespaces: it cannot translate addresses, run programs or have further interfaces, tables, neighbours or labels of its own", n.Name)
	case n.Controllers[0] == ControllerNone:
		r.problems.Add(n.Pos, "use datapath kernel, or controller trivet",
			"router %s: datapath %s needs a controller that routes", n.Name, n.Datapath)
	}
}

// onlyLinux returns d if it forwards in a namespace of the node's own, and "" otherwise.
func onlyLinux(d Datapath) Datapath {
	if d.Linux() {
		return d
	}
	return ""
}

// controllersOf gives a node the controllers specified for it, for all nodes, or by default; a
// Linux bridge takes none, so it has none by default.
func (r *resolver) controllersOf(n *Node, d Defaults, learns bool) {
	switch {
	case len(d.OverrideController) > 0:
		n.Controllers = d.OverrideController
	case len(n.Controllers) == 0 && len(r.t.Controllers) > 0:
		n.Controllers = r.t.Controllers
	case len(n.Controllers) == 0 && learns:
		n.Controllers = []string{ControllerNone}
	case len(n.Controllers) == 0:
		n.Controllers = []string{cmp.Or(d.Controller, ControllerNone)}
	}
	for i, c := range n.Controllers {
		if r.builtin[c] {
			n.Controllers = slices.Clone(n.Controllers)
			n.Controllers[i] = ControllerTrivet
		}
	}
	if n.FailMode == "" || len(d.OverrideController) > 0 && n.Controllers[0] == ControllerNone {
		n.FailMode = Secure
		if n.Controllers[0] == ControllerNone {
			n.FailMode = Standalone
		}
	}
}

// ports numbers ends without a port: after the highest so far on the node, skipping given ones.
func (r *resolver) ports() {
	next, given := map[string]int{}, map[portKey]bool{}
	for _, l := range r.t.Links {
		for _, e := range l.Ends {
			if e.Port != nil && !e.External() {
				given[portKey{e.Node, *e.Port}] = true
			}
		}
	}
	for _, l := range r.t.Links {
		for i := range l.Ends {
			e := &l.Ends[i]
			if e.External() {
				continue
			}
			if r.nodes[e.Node].Kind == Switch {
				e.Addresses, e.Unaddressed = nil, false
			}
			if e.Port == nil {
				port := next[e.Node]
				if port == 0 && r.nodes[e.Node].Kind == Switch {
					port = 1
				}
				for given[portKey{e.Node, port}] {
					port++
				}
				e.Port = &port
			}
			next[e.Node] = max(next[e.Node], *e.Port+1)
			r.ends[e.Node] = append(r.ends[e.Node], e)
		}
	}
	for _, ends := range r.ends {
		slices.SortFunc(ends, func(a, b *Endpoint) int { return cmp.Compare(*a.Port, *b.Port) })
	}
}

// devices names the network device of each end. Devices of switches share one namespace; those of a
// host or router have their own.
func (r *resolver) devices() {
	taken := map[[2]string]string{} // by what
	for _, n := range r.t.Nodes {
		if !n.IsDatapath() {
			continue
		}
		taken[[2]string{"", DeviceName(n.Name)}] = string(n.Kind) + " " + n.Name
	}
	for _, l := range r.t.Links {
		for i := range l.Ends {
			e := &l.Ends[i]
			if e.External() {
				continue
			}
			far := l.Ends[1-i]
			// The machine's interface is the node's device, and keeps its name.
			keeps := far.External() && far.Network == "" && !r.nodes[e.Node].IsDatapath()
			switch {
			case keeps && e.Interface != "" && e.Interface != far.Interface:
				r.problems.Add(l.Pos, "leave interface out at "+e.Node,
					"link %s: an interface of the machine keeps its name at a %s: %s, not %s",
					l.Name(), r.nodes[e.Node].Kind, far.Interface, e.Interface)
			case keeps:
				e.Interface = far.Interface
			case e.Interface == "":
				e.Interface = DeviceName(fmt.Sprintf("%s-eth%d", e.Node, *e.Port))
			}
			namespace := e.Node
			if r.nodes[e.Node].IsDatapath() {
				namespace = ""
			}
			key := [2]string{namespace, e.Interface}
			if other := taken[key]; other != "" {
				r.problems.Add(l.Pos, "give one of them another: from: {interface: …}",
					"link %s: the device name %s at %s is taken by %s", l.Name(), e.Interface, e.Node, other)
			}
			taken[key] = "link " + l.Name()
		}
	}
}

// DeviceName returns name or, if that is too long for a network device, a shorter one that is
// practically unique: its beginning, a hash, its end.
func DeviceName(name string) string {
	if len(name) <= MaxDeviceName {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	tail := ""
	if m := portSuffix.FindString(name); len(m) <= 8 {
		tail = m
	}
	hash := fmt.Sprintf("%06x", h.Sum32()&0xffffff)
	return name[:MaxDeviceName-len(hash)-len(tail)] + hash + tail
}

var portSuffix = regexp.MustCompile(`-eth\d+$`)

// macs gives every interface an address that depends only on the names of the topology, the node
// and the device (except for one of 2^40 that is taken).
func (r *resolver) macs() {
	taken := map[MAC]bool{}
	for _, n := range r.t.Nodes {
		if ends := r.ends[n.Name]; len(ends) > 0 && n.Kind != Switch {
			if first := ends[0]; first.MAC == (MAC{}) {
				first.MAC = n.MAC
			}
			n.MAC = MAC{}
		}
	}
	for _, l := range r.t.Links {
		taken[l.Ends[0].MAC], taken[l.Ends[1].MAC] = true, true
	}
	taken[MAC{}] = true
	for _, l := range r.t.Links {
		for i := range l.Ends {
			e := &l.Ends[i]
			if e.External() || e.MAC != (MAC{}) {
				continue
			}
			for try := 0; taken[e.MAC]; try++ { // zero counts as taken, too
				e.MAC = ownMAC(r.t, e, try)
			}
			taken[e.MAC] = true
		}
	}
}

func ownMAC(t *Topology, e *Endpoint, try int) MAC {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%s%s", t.Name, e.Node, e.Interface, strings.Repeat("\x00", try))
	sum := h.Sum64()
	return MAC{0x02, byte(sum >> 32), byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}
}

// HasOwnMAC says whether an interface has the MAC address that Resolve assigns by default.
func HasOwnMAC(t *Topology, e *Endpoint) bool { return e.MAC == ownMAC(t, e, 0) }

// AddressMAC is the MAC address that belongs to an IPv4 address in the C3-Edge testbed.
func AddressMAC(a netip.Addr) MAC {
	b := a.As4()
	return MAC{0x02, 0xff, b[0], b[1], b[2], b[3]}
}

var firstNumber = regexp.MustCompile(`\d+`)

// dpids assigns the first number in the name, as Mininet does, or, if that is taken or missing, the
// lowest free number.
func (r *resolver) dpids() {
	taken := map[DPID]*Node{}
	var open []*Node
	for _, n := range r.t.Nodes {
		if !n.IsDatapath() {
			continue
		}
		if n.DPID == 0 {
			open = append(open, n)
			continue
		}
		if other := taken[n.DPID]; other != nil {
			r.problems.Add(n.Pos, "datapath ids must be unique", "%s %s: the dpid %s is already that of %s", n.Kind,
				n.Name, n.DPID, other.Name)
		}
		taken[n.DPID] = n
	}
	var rest []*Node
	for _, n := range open {
		v, err := strconv.ParseUint(firstNumber.FindString(n.Name), 10, 48)
		if err != nil || v == 0 || taken[DPID(v)] != nil {
			rest = append(rest, n)
			continue
		}
		n.DPID = DPID(v)
		taken[n.DPID] = n
	}
	free := DPID(1)
	for _, n := range rest {
		for taken[free] != nil {
			free++
		}
		n.DPID = free
		taken[free] = n
	}
}
