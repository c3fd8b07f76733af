package topology

import (
	"slices"
)

// Datapath is what forwards packets of a switch or router.
type Datapath string

// The datapaths that ship.
const (
	Embedded Datapath = "embedded"
	OVS      Datapath = "ovs"
	Bridge   Datapath = "bridge"
	Kernel   Datapath = "kernel"
	FRR      Datapath = "frr"
	BIRD     Datapath = "bird"
	VM       Datapath = "vm"
	Neutron  Datapath = "neutron"
)

// DatapathKind says what a topology can ask of a datapath, and what follows for its nodes. A Fabric
// of package datapath implements one on a machine.
type DatapathKind struct {
	Name Datapath
	Is   string // what forwards: "a Linux bridge"
	Help string // brief, for lists

	Nodes    []Kind   // whose packets it forwards
	Linux    bool     // its routers forward as Linux does, in own namespaces; otherwise they are routing nodes
	Provided bool     // its routers are a provider's, and on no machine of the lab
	OpenFlow []string // versions that its switches speak; none: they take no controller
}

// datapathKinds are in the order in which they are shown to users. They are here rather than with
// their fabrics because they are keywords of the file formats: programs that only read topologies
// need them, too.
var datapathKinds = []DatapathKind{
	{Name: Embedded, Is: "an embedded switch", Help: "the default", Nodes: []Kind{Switch, Router},
		OpenFlow: []string{"1.3"}},
	{Name: OVS, Is: "Open vSwitch", Nodes: []Kind{Switch, Router},
		OpenFlow: []string{"1.0", "1.1", "1.2", "1.3", "1.4", "1.5"}},
	{Name: Bridge, Is: "a Linux bridge", Help: "switches without a controller", Nodes: []Kind{Switch}},
	{Name: Kernel, Is: "Linux", Nodes: []Kind{Router}, Linux: true},
	{Name: FRR, Is: "Linux with FRR", Nodes: []Kind{Router}, Linux: true},
	{Name: BIRD, Is: "Linux with BIRD", Nodes: []Kind{Router}, Linux: true},
	{Name: VM, Is: "a virtual machine with FRR", Help: "routers", Nodes: []Kind{Router}, Linux: true},
	{Name: Neutron, Is: "a router of Neutron", Help: "routers, in a cloud", Nodes: []Kind{Router}, Linux: true,
		Provided: true},
}

// RegisterDatapath registers another datapath. It must be called in an init function.
func RegisterDatapath(k DatapathKind) {
	if k.Name == "" || k.Name.known() {
		panic("topology: a datapath " + string(k.Name) + " is there already")
	}
	datapathKinds = append(datapathKinds, k)
}

// Datapaths returns all datapaths.
func Datapaths() []DatapathKind { return slices.Clone(datapathKinds) }

func (d Datapath) known() bool { return d.Kind().Name != "" }

// Kind returns what is known about a datapath; the zero value if it does not exist.
func (d Datapath) Kind() DatapathKind {
	for _, k := range datapathKinds {
		if k.Name == d {
			return k
		}
	}
	return DatapathKind{}
}

// Linux says whether the kernel forwards in a namespace of the node's own, whatever fills the
// routing table.
func (d Datapath) Linux() bool { return d.Kind().Linux }

// Provided says whether its routers are made by the provider of the lab's machines, such as a
// cloud.
func (d Datapath) Provided() bool { return d.Kind().Provided }

// Controlled says whether its forwarding is decided by controllers.
func (d Datapath) Controlled() bool { return len(d.Kind().OpenFlow) > 0 }

// Serves says whether it can forward for nodes of a kind.
func (d Datapath) Serves(k Kind) bool { return slices.Contains(d.Kind().Nodes, k) }
