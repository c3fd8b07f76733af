package topology

import "slices"

// NodeKind is what a node can be on its machine, and what follows from that for whoever asks
// something of it. What makes one is a Kind of package target/local.
type NodeKind struct {
	Name string
	Is   string           // "a virtual machine", where more than the kind of node need be said
	Of   func(*Node) bool // which nodes are; the topology is resolved

	Own   bool // its devices and programs are in a network namespace that is not the switches'
	Guest bool // but the node is another kernel, which these devices lead to
	Files bool // its programs have files, variables and users of their own
	Whole bool // but that namespace is the machine's, where there is also what is not the lab's
}

// Foreign says whether the node is a virtual machine of its owner's, whose system, programs and
// names are not ours.
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

// RegisterNodeKind makes another kind known, which is asked before the others. It must be called in
// an init function.
func RegisterNodeKind(k NodeKind) {
	if k.Name == "" || slices.ContainsFunc(nodeKinds, func(has NodeKind) bool { return has.Name == k.Name }) {
		panic("topology: a kind of nodes " + k.Name + " is there already")
	}
	nodeKinds = slices.Insert(nodeKinds, 0, k)
}

// Made is what a node is on its machine. It is only known once the topology is resolved.
func (n *Node) Made() *NodeKind {
	return &nodeKinds[slices.IndexFunc(nodeKinds, func(k NodeKind) bool { return k.Of(n) })]
}

// Open says whether the addresses, routes and rules in a node's network namespace are the node's,
// all of them and no others.
func (k *NodeKind) Open() bool { return k.Own && !k.Guest && !k.Whole }
