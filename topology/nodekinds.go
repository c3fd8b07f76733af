package topology

import "slices"

// NodeKind says what a node is on its machine, and what follows from that. A Kind of package
// target/local makes such nodes.
type NodeKind struct {
	Name string
	Is   string           // "a virtual machine", where more than the kind of node need be said
	Of   func(*Node) bool // whether a node of a resolved topology is one

	Own   bool // its devices and programs are in a network namespace other than the switches'
	Guest bool // the node is another kernel, which is reached through these devices
	Files bool // its programs have files, variables and users of their own
	Whole bool // the namespace is the machine's, with devices that are not the lab's
}

// Foreign says whether the node is a virtual machine of its owner's, with a system, programs and
// names that are not ours.
func (k *NodeKind) Foreign() bool { return k.Guest && k.Files }

// nodeKinds are asked in this order.
var nodeKinds = []NodeKind{
	{Name: "machine", Is: "a machine of its own", Of: func(n *Node) bool { return n.Native }, Own: true, Whole: true},
	{Name: "vm", Is: "a virtual machine", Of: func(n *Node) bool { return n.Datapath == VM }, Own: true, Guest: true},
	{Name: "provided", Is: "a provider's router", Of: func(n *Node) bool { return n.Datapath.Provided() }},
	{Name: "namespaces", Of: func(n *Node) bool { return n.Kind == Host || n.Kind == Router && n.Datapath.Linux() },
		Own: true},
	{Name: "switched", Of: func(*Node) bool { return true }},
}

// RegisterNodeKind registers another kind, which takes precedence over the others. It must be
// called in an init function.
func RegisterNodeKind(k NodeKind) {
	if k.Name == "" || slices.ContainsFunc(nodeKinds, func(has NodeKind) bool { return has.Name == k.Name }) {
		panic("topology: a kind of nodes " + k.Name + " is there already")
	}
	nodeKinds = slices.Insert(nodeKinds, 0, k)
}

// Made returns the node's kind on its machine, which is known only once the topology is resolved.
func (n *Node) Made() *NodeKind {
	return &nodeKinds[slices.IndexFunc(nodeKinds, func(k NodeKind) bool { return k.Of(n) })]
}

// Open says whether the node's network namespace has exactly the node's addresses, routes and
// rules.
func (k *NodeKind) Open() bool { return k.Own && !k.Guest && !k.Whole }
