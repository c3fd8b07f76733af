// Package topology is the model of a network: nodes, links and addresses.
//
// It knows nothing of files (package formats reads and writes them) and nothing of where a topology
// will run (package lab brings it up). A Topology as read contains what its author wrote; Resolve
// returns a copy in which everything left open is assigned: ports, device names, MAC addresses,
// datapath ids, addresses, gateways and routes.
package topology

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// Topology is a network as its author described it.
type Topology struct {
	Name string `json:"name,omitempty"`

	// Subnet and Subnet6 are the pools from which addresses are assigned.
	// Unset: 10.0.0.0/8 and fd00::/64.
	Subnet  netip.Prefix `json:"subnet,omitzero"`
	Subnet6 netip.Prefix `json:"subnet6,omitzero"`
	IPv6    IPv6         `json:"ipv6,omitempty"`

	// Management is the network by which the machine reaches nodes.
	Management Management `json:"management,omitzero"`

	// Datapath and Controllers apply to switches and routers that specify none themselves.
	Datapath    Datapath `json:"datapath,omitempty"`
	Controllers []string `json:"controllers,omitempty"`

	// Routes says whether Resolve adds the routes and gateways that hosts and routers lack.
	Routes RoutesMode `json:"routes,omitempty"`

	// Routing says when routing nodes get their routes.
	Routing Routing `json:"routing,omitempty"`

	// Learning says when the controller installs flow entries in switches.
	Learning Routing `json:"learning,omitempty"`

	// Balance says how traffic between routing nodes and between switches is spread over paths;
	// nil: over all shortest ones.
	Balance *Balance `json:"balance,omitempty"`

	// Cluster says that Trivet's own controller is several processes; nil: it is one.
	Cluster *Cluster `json:"cluster,omitempty"`

	Models []Model `json:"models,omitempty"` // profiles of slow devices: see Node.Model

	Nodes    []*Node `json:"nodes"`
	Links    []*Link `json:"links,omitempty"`
	Schedule []Event `json:"schedule,omitempty"`

	// RouterHops is the maximum number of routers on a shortest path or, with many routers, an
	// upper bound. Resolve sets it if paths are computed, by itself or by a controller.
	RouterHops int `json:"router_hops,omitempty"`

	// Site and Elsewhere are set in the part of a lab that runs at one of several sites: see Part.
	Site      string  `json:"site,omitempty"`
	Elsewhere []Named `json:"elsewhere,omitempty"` // the addresses of nodes at other sites

	// Foreign keeps, by format name, what a file contains that has no meaning to Trivet, so that it
	// survives a round trip. Node and Link have the same.
	Foreign map[string]any `json:"foreign,omitempty"`

	Format string   `json:"-"` // name of the format it was read from; "" if there is none
	Pos    Position `json:"-"`
}

// IPv6 says how hosts and kernel routers get IPv6 addresses.
type IPv6 string

const (
	IPv6Off       IPv6 = "off"        // no IPv6 at all, not even link-local addresses; the default
	IPv6LinkLocal IPv6 = "link-local" // what the kernel does by itself on any other machine, and no more
	IPv6Assigned  IPv6 = "assigned"   // addresses as given or assigned from Subnet6; no autoconfiguration
	IPv6Auto      IPv6 = "auto"       // as assigned, and the kernel does what it does by itself
)

// Addressed says whether there are addresses and routes of IPv6.
func (v IPv6) Addressed() bool { return v == IPv6Assigned || v == IPv6Auto }

// RoutesMode says where hosts' gateways and routers' static routes come from.
type RoutesMode string

const (
	RoutesComputed  RoutesMode = "computed"   // what is not given is derived from the topology; the default
	RoutesAsWritten RoutesMode = "as-written" // only those given exist, and routers have only given addresses
)

// Routing says when a controller installs its decisions: routes in routing nodes, and entries in
// switches.
type Routing string

const (
	Proactive Routing = "proactive" // all in advance; the default
	Reactive  Routing = "reactive"  // when the first packet needs it
)

// Kind is the role of a node.
type Kind string

const (
	Host       Kind = "host"       // runs the user's programs
	Switch     Kind = "switch"     // forwards by a flow table or by learning
	Router     Kind = "router"     // owns IP addresses, decrements TTL
	Controller Kind = "controller" // decides for switches
)

// FailMode is what a switch does while it has no controller (OpenFlow 1.3.5, section 6.4).
type FailMode string

const (
	Standalone FailMode = "standalone" // forward by learning
	Secure     FailMode = "secure"     // keep the present flows, add none
)

// Special values of Node.Controllers and Topology.Controllers; others are addresses
// ("tcp:127.0.0.1:6653") and names of controller nodes.
const (
	ControllerNone   = "none"   // forward by learning
	ControllerTrivet = "trivet" // the built-in controller
)

// ControllerPrograms are the names of foreign controllers that a lab can start by itself.
var ControllerPrograms = []string{"faucet", "floodlight", "os-ken", "ovs-testcontroller", "pox"}

// IsControllerProgram says whether a switch's controller c is one of ControllerPrograms. A
// controller node of that name takes precedence.
func (t *Topology) IsControllerProgram(c string) bool {
	return slices.Contains(ControllerPrograms, c) && t.Node(c) == nil
}

// IsBuiltin says whether a switch's controller c is Trivet's own: by its name, or a controller node
// that stands for it.
func (t *Topology) IsBuiltin(c string) bool {
	n := t.Node(c)
	return c == ControllerTrivet || n != nil && n.Kind == Controller && n.Address == ControllerTrivet
}

// Node is a host, switch, router or controller.
type Node struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`

	// Addresses and MAC are those of the first interface (lowest port), for hosts and routers.
	// Resolve moves them to the link's end.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	MAC       MAC            `json:"mac,omitzero"`
	Loopback  []netip.Prefix `json:"loopback,omitempty"` // additional addresses, on the loopback device

	Interfaces []Interface `json:"interfaces,omitempty"` // besides those of links

	Management netip.Addr `json:"management,omitzero"` // in the management network

	Gateways []netip.Addr `json:"gateways,omitempty"` // default routes: at most one IPv4, one IPv6
	Routes   []Route      `json:"routes,omitempty"`   // static routes
	Rules    []Rule       `json:"rules,omitempty"`    // policy routing: which table is used for which packets
	// For interfaces without settings of their own; Resolve moves it there.
	RA        *Advertisement `json:"ra,omitempty"`
	Neighbors []Neighbor     `json:"neighbors,omitempty"` // whose MAC addresses need not be resolved
	Protocols Protocols      `json:"protocols,omitempty"` // of routers: protocols that they speak

	Labels []LabelRoute `json:"labels,omitempty"` // label routes

	CPU   CPU    `json:"cpu,omitzero"`    // limit for all processes of the node
	Cores []int  `json:"cores,omitempty"` // processors that the node's processes may use
	Start string `json:"start,omitempty"` // shell command, run once the lab is up
	Stop  string `json:"stop,omitempty"`  // shell command, run before the lab goes down

	Container
	Guest   *Guest       `json:"vm,omitempty"`      // nil: it is not its owner's virtual machine
	Sysctls []Assignment `json:"sysctls,omitempty"` // of its network
	Ports   []Port       `json:"ports,omitempty"`   // of the machine that lead to the node's

	Isolate []string     `json:"isolate,omitempty"` // further namespaces: "pid"
	Dirs    []PrivateDir `json:"dirs,omitempty"`    // directories of the node's own
	Config  []ConfigFile `json:"config,omitempty"`  // in its tools' own syntax: see ConfigFile
	Files   []NodeFile   `json:"files,omitempty"`   // that the node is given

	DPID     DPID     `json:"dpid,omitzero"`
	Datapath Datapath `json:"datapath,omitempty"`
	// "none", "trivet", programs, addresses, names of controller nodes.
	Controllers []string `json:"controllers,omitempty"`
	FailMode    FailMode `json:"fail_mode,omitempty"`
	OpenFlow    []string `json:"openflow,omitempty"` // versions allowed: "1.0", "1.3"; empty: the datapath's default
	STP         bool     `json:"stp,omitempty"`      // run the spanning tree protocol

	NAT bool `json:"nat,omitempty"` // a router with an uplink to the outside of the lab

	// These are adjacent to fit into one word: a topology may have a million nodes.

	// Unaddressed applies to all interfaces of the node without given addresses: see Endpoint.
	// Resolve moves it there.
	Unaddressed bool `json:"unaddressed,omitempty"`
	AcceptRA    bool `json:"accept_ra,omitempty"` // as RA
	MPLS        bool `json:"mpls,omitempty"`      // all its devices accept packets with labels

	// StartMayFail says that a failing start command is only a warning: set by formats whose
	// programs do not check how commands end.
	StartMayFail bool `json:"start_may_fail,omitempty"`

	// Native says that the host is the machine that it is placed at, rather than namespaces there.
	Native bool `json:"native,omitempty"`

	Distances []SourceDistance `json:"distances,omitempty"` // of a routing node, in place of the default ones

	// Of a routing node, into programs; the first rule for a program that matches a route decides.
	Redistribute []Redistribute `json:"redistribute,omitempty"`

	// Masquerade says which packets a router forwards under its own address.
	Masquerade []Masquerade `json:"masquerade,omitempty"`

	Address string `json:"address,omitempty"` // of a controller: "tcp:192.0.2.1:6653", or "trivet" for the built-in one
	Device  string `json:"device,omitempty"`  // for racks: where to place the node; otherwise ignored

	Model *Model `json:"model,omitempty"` // the slow device that it stands for; nil: none

	On string `json:"on,omitempty"` // the site that it runs at, or a label of sites; empty: not chosen, or the head

	Place   *Point         `json:"place,omitempty"` // where a drawing puts the node
	Foreign map[string]any `json:"foreign,omitempty"`

	Pos Position `json:"-"`
}

// RoutingNode says whether a node is a router that is an OpenFlow datapath: a controller's app
// routes for it, and it has no namespaces and runs no programs. It is known only once the topology
// is resolved.
func (n *Node) RoutingNode() bool {
	return n.Kind == Router && n.Datapath != "" && !n.Datapath.Linux()
}

// IsDatapath says whether a node forwards by a flow table or by learning, and has a datapath id.
func (n *Node) IsDatapath() bool { return n.Kind == Switch || n.RoutingNode() }

// OpenFlowPort is the OpenFlow number of one of the node's ports. OpenFlow has no port 0, but
// routers' ports count from 0 whatever forwards, so that their devices keep their names.
func (n *Node) OpenFlowPort(e Endpoint) uint32 {
	if n.Kind == Router {
		return uint32(*e.Port) + 1
	}
	return uint32(*e.Port)
}

// Point is a point in a drawing, in pixels from the upper left corner.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// PrivateDir is a directory of a node's own: empty and in memory, or bound to Source.
type PrivateDir struct {
	Path     string `json:"path"`
	Source   string `json:"source,omitempty"`
	ReadOnly bool   `json:"read_only,omitempty"` // nothing can be changed there, nor in the source
}

// ReadOnlySuffix follows the source of a directory that is read-only, in files.
const ReadOnlySuffix = ":ro"

// String is the path, after a colon the source, and whether it is read-only.
func (d PrivateDir) String() string {
	text := strings.TrimSuffix(d.Path+":"+d.Source, ":")
	if d.ReadOnly {
		text += ReadOnlySuffix
	}
	return text
}

// Masquerade selects packets: those from a subnet to any other, those that leave through a device,
// or those that do both.
type Masquerade struct {
	From   netip.Prefix `json:"from,omitzero"`
	Device string       `json:"device,omitempty"`
}

func (m Masquerade) String() string {
	switch {
	case m.Device == "":
		return m.From.String()
	case !m.From.IsValid():
		return "dev " + m.Device
	}
	return m.From.String() + " dev " + m.Device
}

// Link joins two ends.
type Link struct {
	Ends [2]Endpoint `json:"ends"`
	Down bool        `json:"down,omitempty"`
	Impairment

	Protocols LinkProtocols `json:"protocols,omitempty"` // for both ends

	// VLAN and Trunk apply to those ends that are ports of switches: see PortVLANs.
	VLAN  int   `json:"vlan,omitempty"`
	Trunk VLANs `json:"trunk,omitempty"`

	MPLS bool `json:"mpls,omitempty"` // at those ends that are hosts or routers; Resolve moves it there

	Wifi *Wifi `json:"wifi,omitempty"` // makes a link to a real interface wireless

	// Device asks for network devices even if the link could do without, because somebody captures
	// there.
	Device bool `json:"device,omitempty"`

	// Named says that a command has named an interface of the link: for the rest of the lab's life
	// it has network devices, through which all its packets pass.
	Named bool `json:"named,omitempty"`

	// Held says, in a Part, that the link must not forward, as it is not in the spanning tree of
	// the whole topology.
	Held bool `json:"held,omitempty"`

	Foreign map[string]any `json:"foreign,omitempty"`

	Pos Position `json:"-"`
}

// NoAddress is how files write Unaddressed for an interface or a node.
const NoAddress = "none"

// Endpoint is one end of a link: at a node, or (Node empty) a real interface of the machine or
// somebody else's network.
type Endpoint struct {
	Node      string `json:"node,omitempty"`
	Interface string `json:"interface,omitempty"` // device name; unset: <node>-eth<port>
	// Unset: next free; hosts and routers count from 0, switches from 1.
	Port      *int           `json:"port,omitempty"`
	MAC       MAC            `json:"mac,omitzero"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`

	// Unaddressed says that the interface gets no address of any family: programs in the node may
	// set some.
	Unaddressed bool `json:"unaddressed,omitempty"`

	// Take says that a real interface may be used although the machine uses it.
	Take bool `json:"take,omitempty"`

	// Network is the name or the ID of a network of the machines' provider, such as a cloud: the
	// node at the link's other end gets a port of its own there.
	Network string `json:"network,omitempty"`

	// Carrier leads, in a Part, to a node at another site, or into a network. The end then is
	// External, and Interface is the device of the node at the link's other end.
	Carrier *Carrier `json:"carrier,omitempty"`

	// Egress replaces the link's impairment for what leaves this end.
	Egress *Impairment `json:"egress,omitempty"`

	Protocols LinkProtocols `json:"protocols,omitempty"` // override the link's settings

	// VLAN and Trunk together replace the link's.
	VLAN  int   `json:"vlan,omitempty"`
	Trunk VLANs `json:"trunk,omitempty"`

	// RA is what a router advertises here, and AcceptRA whether the interface accepts others'
	// advertisements: the kernel then derives addresses from their prefixes. Both replace the
	// node's. Resolve leaves no RA that is Off.
	RA       *Advertisement `json:"ra,omitempty"`
	AcceptRA *bool          `json:"accept_ra,omitempty"`

	MPLS bool `json:"mpls,omitempty"` // packets with labels are accepted
}

// Egress returns the impairment of what leaves end i (0 or 1).
func (l *Link) Egress(i int) Impairment {
	if e := l.Ends[i].Egress; e != nil {
		return *e
	}
	return l.Impairment
}

// Impaired says whether any direction of the link is impaired.
func (l *Link) Impaired() bool {
	return l.Egress(0) != Impairment{} || l.Egress(1) != Impairment{}
}

// MTUAt returns the MTU of an end of the link: the bytes of the largest IP packet that leaves it.
func (l *Link) MTUAt(i int) int { return cmp.Or(l.Egress(i).MTU, MTU) }

// Jumbo says whether a link carries larger packets than the default MTU.
func (l *Link) Jumbo() bool { return max(l.MTUAt(0), l.MTUAt(1)) > MTU }

// Name returns the link's name in messages and commands: "a-b", from the ends' nodes or interfaces.
func (l *Link) Name() string { return l.Ends[0].Label() + "-" + l.Ends[1].Label() }

// DeviceAt returns the name of the device at an end, which is a node's: if the other end is a real
// interface, the name of that.
func (l *Link) DeviceAt(end int) string {
	if far := l.Ends[1-end]; far.External() {
		return cmp.Or(far.Interface, l.Ends[end].Interface)
	}
	return l.Ends[end].Interface
}

// Label returns the name of an end in its link's name: the node, the interface of the machine or
// the network.
func (e Endpoint) Label() string {
	switch {
	case e.Carrier != nil:
		return e.Carrier.Node
	case e.Network != "":
		return e.Network
	case e.Node == "":
		return e.Interface
	}
	return e.Node
}

// Beyond says whether the end is a real interface of the machine, or a port in a network, so that
// the lab does not control what is behind it.
func (e Endpoint) Beyond() bool { return e.External() && (e.Carrier == nil || e.Carrier.Port != nil) }

// External says whether the end is a real interface of the machine, or leads to another site or
// into a network.
func (e Endpoint) External() bool { return e.Node == "" }

// Node returns the node of that name, or nil.
func (t *Topology) Node(name string) *Node {
	for _, n := range t.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// NodesOf returns the nodes of a kind, in order.
func (t *Topology) NodesOf(kind Kind) []*Node {
	var out []*Node
	for _, n := range t.Nodes {
		if n.Kind == kind {
			out = append(out, n)
		}
	}
	return out
}

// AddNode appends a node and returns it.
func (t *Topology) AddNode(kind Kind, name string) *Node {
	n := &Node{Name: name, Kind: kind}
	t.Nodes = append(t.Nodes, n)
	return n
}

// AddLink appends a link between two nodes and returns it.
func (t *Topology) AddLink(a, b string) *Link {
	l := &Link{Ends: [2]Endpoint{{Node: a}, {Node: b}}}
	t.Links = append(t.Links, l)
	return l
}
