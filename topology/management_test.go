package topology

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// managed is a network of a host, Linux router, routing node, switch and virtual machine.
func managed() *Topology {
	t := &Topology{Name: "managed", Management: Management{Chosen: true}}
	t.AddNode(Host, "h1")
	t.AddNode(Switch, "s1")
	t.AddNode(Router, "r1").Datapath = Kernel
	t.AddNode(Router, "r2").Datapath = Embedded
	t.AddNode(Router, "r3").Datapath = VM
	t.AddNode(Host, "h2")
	for _, ends := range [][2]string{{"h1", "s1"}, {"s1", "r1"}, {"r1", "r2"}, {"r2", "r3"}, {"h2", "r3"}} {
		t.AddLink(ends[0], ends[1])
	}
	return t
}

var managedBy = Defaults{Datapath: Bridge, Controlled: Embedded, Controller: ControllerTrivet}

func addressesIn(t *Topology) string {
	var out []string
	for _, n := range t.Nodes {
		if n.Management.IsValid() {
			out = append(out, n.Name+" "+n.Management.String())
		}
	}
	return strings.Join(out, ", ")
}

// Nodes with namespaces of their own are numbered in order, after the machine; a given address
// stays, the others' do not depend on it; and what is resolved resolves to itself.
func TestManagementAddresses(t *testing.T) {
	r, problems := Resolve(managed(), managedBy)
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	if got := addressesIn(r); got != "h1 172.30.0.2, r1 172.30.0.3, h2 172.30.0.4" || r.Management.Machine().String() != "172.30.0.1/24" {
		t.Error(got, r.Management.Machine())
	}
	if again, problems := Resolve(r, managedBy); problems.Err() != nil || !Equal(r, again) || again.Management != r.Management {
		t.Error("resolved again:", problems, addressesIn(again))
	}
	given := managed()
	given.Management = Management{Subnet: netip.MustParsePrefix("192.0.2.0/28")}
	given.Node("h1").Management = netip.MustParseAddr("192.0.2.4")
	if r, problems = Resolve(given, managedBy); problems.Err() != nil || addressesIn(r) != "h1 192.0.2.4, r1 192.0.2.3, h2 192.0.2.5" {
		t.Error(problems, addressesIn(r))
	}
	moved, err := r.WithManagement(netip.MustParsePrefix("198.51.100.16/28"))
	if err != nil || addressesIn(moved) != "h1 198.51.100.20, r1 198.51.100.19, h2 198.51.100.21" || addressesIn(r) != "h1 192.0.2.4, r1 192.0.2.3, h2 192.0.2.5" {
		t.Error(err, addressesIn(moved))
	}
}

// The subnet that is chosen is large enough, and not one of the lab's.
func TestManagementSubnetIsFree(t *testing.T) {
	busy := managed()
	busy.Node("h1").Addresses = []netip.Prefix{netip.MustParsePrefix("172.30.0.9/23")}
	r, problems := Resolve(busy, managedBy)
	if problems.Err() != nil || r.Management.Subnet.String() != "172.30.2.0/24" {
		t.Error(problems, r.Management)
	}
	large := managed()
	for i := range 300 {
		large.AddNode(Host, fmt.Sprintf("n%d", i))
	}
	if r, problems = Resolve(large, managedBy); problems.Err() != nil || r.Management.Subnet.Bits() != 23 {
		t.Error(problems, r.Management)
	}
}

// What cannot be is an error that names it.
func TestManagementProblems(t *testing.T) {
	subnet := func(s string) func(*Topology) {
		return func(t *Topology) { t.Management = Management{Subnet: netip.MustParsePrefix(s)} }
	}
	address := func(node, a string) func(*Topology) {
		return func(t *Topology) {
			subnet("192.0.2.0/24")(t)
			t.Node(node).Management = netip.MustParseAddr(a)
		}
	}
	for want, change := range map[string]func(*Topology){
		"is not IPv4":                          subnet("fd00::/64"),
		"is not a network for nodes":           subnet("192.0.2.7/24"),
		"the lab's links have addresses of":    subnet("10.0.1.0/24"),
		"too few addresses for 7 nodes":        func(t *Topology) { subnet("192.0.2.0/29")(t); t.Nodes = append(t.Nodes, hostsOf(4)...) },
		"is no address for a node in":          address("h1", "192.0.3.7"),
		"is the machine's own address":         address("h1", "192.0.2.1"),
		"only hosts and routers have":          address("s1", "192.0.2.7"),
		"only hosts and Linux routers":         address("r2", "192.0.2.7"),
		"the subnet of the management network": func(t *Topology) { t.Node("h1").Management = netip.MustParseAddr("172.30.0.7") },
		"is also the address of h1":            func(t *Topology) { address("h1", "192.0.2.7")(t); address("h2", "192.0.2.7")(t) },
		"is called mgmt0":                      func(t *Topology) { t.Links[0].Ends[0].Interface = ManagementDevice },
		"1026 nodes are too many":              func(t *Topology) { t.Nodes = append(t.Nodes, hostsOf(1023)...) },
	} {
		broken := managed()
		change(broken)
		_, problems := Resolve(broken, managedBy)
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	r, problems := Resolve(managed(), managedBy)
	if r == nil || !strings.Contains(problems.Error(), "r3 is a virtual machine: it has no management address") {
		t.Error("of a virtual machine:", problems)
	}
}

func hostsOf(n int) (out []*Node) {
	for i := range n {
		out = append(out, &Node{Name: fmt.Sprintf("x%d", i), Kind: Host})
	}
	return out
}

// An edited file keeps the addresses of the nodes that stay.
func TestManagementIsInherited(t *testing.T) {
	was, problems := Resolve(managed(), managedBy)
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	moved, err := was.WithManagement(netip.MustParsePrefix("172.30.5.0/24"))
	if err != nil {
		t.Fatal(err)
	}
	edited := managed()
	edited.Nodes = append([]*Node{{Name: "h0", Kind: Host}}, edited.Nodes...)
	Inherit(edited, moved)
	is, problems := Resolve(edited, managedBy)
	if problems.Err() != nil || addressesIn(is) != "h0 172.30.5.5, h1 172.30.5.2, r1 172.30.5.3, h2 172.30.5.4" {
		t.Error(problems, addressesIn(is))
	}
}
