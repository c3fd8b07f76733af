package topology

import "testing"

// TestMade proves what each kind of node is on its machine, whichever words of a file make it that,
// and that a kind cannot take the name of another.
func TestMade(t *testing.T) {
	for _, c := range []struct {
		node Node
		made string
		open bool
	}{
		{Node{Kind: Host}, "namespaces", true},
		{Node{Kind: Host, Native: true}, "machine", false},
		{Node{Kind: Router, Datapath: Kernel}, "namespaces", true},
		{Node{Kind: Router, Datapath: FRR}, "namespaces", true},
		{Node{Kind: Router, Datapath: BIRD}, "namespaces", true},
		{Node{Kind: Router, Datapath: VM}, "vm", false},
		{Node{Kind: Router, Datapath: Embedded}, "switched", false},
		{Node{Kind: Router, Datapath: OVS}, "switched", false},
		{Node{Kind: Switch, Datapath: Bridge}, "switched", false},
		{Node{Kind: Controller}, "switched", false},
	} {
		if is := c.node.Made(); is.Name != c.made || is.Own != (c.made != "switched") || is.Open() != c.open {
			t.Errorf("a %s with datapath %q, native: %v, is %+v", c.node.Kind, c.node.Datapath, c.node.Native, *is)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("there are two kinds of one name")
		}
	}()
	RegisterNodeKind(NodeKind{Name: "vm"})
}
