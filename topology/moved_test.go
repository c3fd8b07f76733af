package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// Proves which addresses have moved: those that another node or another MAC has, none that is new
// or gone, and of those that several have at once only who has come to them.
func TestMoved(t *testing.T) {
	type at struct {
		node, address string
		mac           byte
	}
	network := func(list ...at) *Topology {
		out := &Topology{}
		for _, x := range list {
			out.Links = append(out.Links, &Link{Ends: [2]Endpoint{
				{Node: x.node, Interface: x.node + "-eth0", MAC: MAC{2, 0, 0, 0, 0, x.mac}, Addresses: []netip.Prefix{netip.MustParsePrefix(x.address)}}, {Node: "s1"}}})
		}
		return out
	}
	for _, x := range []struct {
		name     string
		old, now *Topology
		want     []string
	}{
		{"nothing", network(at{"h1", "10.0.0.1/8", 1}), network(at{"h1", "10.0.0.1/8", 1}), nil},
		{"another length of the prefix", network(at{"h1", "10.0.0.1/8", 1}), network(at{"h1", "10.0.0.1/24", 1}), nil},
		{"new, and gone", network(at{"h1", "10.0.0.1/8", 1}), network(at{"h2", "10.0.0.2/8", 2}), nil},
		{"two swap", network(at{"h1", "10.0.0.1/8", 1}, at{"h2", "fd00::2/64", 2}), network(at{"h1", "fd00::2/64", 1}, at{"h2", "10.0.0.1/8", 2}), []string{"h1 fd00::2", "h2 10.0.0.1"}},
		{"another MAC", network(at{"h1", "10.0.0.1/8", 1}), network(at{"h1", "10.0.0.1/8", 3}), []string{"h1 10.0.0.1"}},
		{"one more has it", network(at{"h1", "10.0.0.1/8", 1}), network(at{"h1", "10.0.0.1/8", 1}, at{"h2", "10.0.0.1/8", 2}), []string{"h2 10.0.0.1"}},
		{"a port elsewhere had it", network(at{"", "10.0.0.1/8", 1}), network(at{"", "10.0.0.1/8", 2}), nil},
	} {
		var got []string
		for _, a := range Moved(x.old, x.now) {
			if a.Interface != a.Node+"-eth0" {
				t.Errorf("%s: %+v", x.name, a)
			}
			got = append(got, fmt.Sprint(a.Node, " ", a.Address))
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}
