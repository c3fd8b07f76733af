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
)

// DatapathKind is what a topology can say of a datapath, and what follows for its nodes. What makes
// one on a machine is a Fabric of package datapath.
type DatapathKind struct {
	Name Datapath
	Is   string // what forwards: "a Linux bridge"
	Help string // in few words, for lists

	Nodes    []Kind   // whose packets it forwards
	Linux    bool     // its routers forward as Linux does, in namespaces of their own; those of others are routing nodes
	OpenFlow []string // versions that its switches speak; none: they take no controller
}

// datapathKinds are in the order in which people are told of them. They stand here and not with
// their fabrics because they are words of the file formats: who reads a topology, and makes nothing
// of it, needs them, too.
var datapathKinds = []DatapathKind{
	{Name: Embedded, Is: "an embedded switch", Help: "the default", Nodes: []Kind{Switch, Router}, OpenFlow: []string{"1.3"}},
	{Name: OVS, Is: "Open vSwitch", Nodes: []Kind{Switch, Router}, OpenFlow: []string{"1.0", "1.1", "1.2", "1.3", "1.4", "1.5"}},
	{Name: Bridge, Is: "a Linux bridge", Help: "switches without a controller", Nodes: []Kind{Switch}},
	{Name: Kernel, Is: "Linux", Nodes: []Kind{Router}, Linux: true},
	{Name: FRR, Is: "Linux with FRR", Nodes: []Kind{Router}, Linux: true},
	{Name: BIRD, Is: "Linux with BIRD", Help: "routers", Nodes: []Kind{Router}, Linux: true},
}

// RegisterDatapath makes another datapath known. It is to be called in an init function.
func RegisterDatapath(k DatapathKind) {
	if k.Name == "" || k.Name.known() {
		panic("topology: a datapath " + string(k.Name) + " is there already")
	}
	datapathKinds = append(datapathKinds, k)
}

// Datapaths are all that there are.
func Datapaths() []DatapathKind { return slices.Clone(datapathKinds) }

func (d Datapath) known() bool { return d.Kind().Name != "" }

// Kind is what is known of a datapath; of one that there is not, nothing.
func (d Datapath) Kind() DatapathKind {
	for _, k := range datapathKinds {
		if k.Name == d {
			return k
		}
	}
	return DatapathKind{}
}

// Linux says whether the kernel forwards in a namespace of the node's own, whatever fills its
// routing table.
func (d Datapath) Linux() bool { return d.Kind().Linux }

// Controlled says whether controllers decide for what it forwards.
func (d Datapath) Controlled() bool { return len(d.Kind().OpenFlow) > 0 }

// Serves says whether it can forward for nodes of a kind.
func (d Datapath) Serves(k Kind) bool { return slices.Contains(d.Kind().Nodes, k) }
