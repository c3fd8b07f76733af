package sites

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

func resolved(t *testing.T, spec string) *topology.Topology {
	t.Helper()
	g, err := topology.Generate(spec, topology.GenerateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, problems := topology.Resolve(g, topology.Defaults{Datapath: topology.Embedded, Controller: topology.ControllerTrivet})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

func machines(names ...string) *site.List {
	l := &site.List{}
	for _, n := range names {
		l.Machines = append(l.Machines, &site.Machine{Name: n, Host: n})
	}
	return l
}

// count returns how many nodes each site has, and how many links cross.
func count(t *topology.Topology) (nodes map[string]int, across int) {
	nodes = map[string]int{}
	for _, n := range t.Nodes {
		nodes[n.Sited()]++
	}
	for _, l := range t.Links {
		if l.Crosses(t.NodesByName()) {
			across++
		}
	}
	return nodes, across
}

// TestPlace proves that nodes are spread by the sites' cores, that few links are cut, that hosts
// stay with their switch, and that the same topology is always placed in the same way.
func TestPlace(t *testing.T) {
	for _, c := range []struct {
		spec   string
		sites  []string
		cores  map[string]float64
		most   int // nodes at a site
		across int // links, at most
	}{
		{"linear,100", []string{"m1", "m2"}, nil, 72, 2},
		{"linear,100", []string{"m1"}, map[string]float64{"head": 1, "m1": 3}, 152, 1},
		{"fat-tree,4", []string{"m1", "m2"}, nil, 15, 22},
		{"tree,3,3", []string{"m1", "m2"}, nil, 16, 5},
		{"ring,30", []string{"m1", "m2"}, nil, 24, 4},
		{"linear,1", []string{"m1", "m2"}, nil, 2, 0},
	} {
		list := machines(c.sites...)
		first := resolved(t, c.spec)
		if err := Place(first, list, c.cores, nil); err != nil {
			t.Fatal(err)
		}
		nodes, across := count(first)
		for name, n := range nodes {
			if n > c.most {
				t.Errorf("%s: %d nodes at %s of %v", c.spec, n, name, nodes)
			}
		}
		if across > c.across {
			t.Errorf("%s: %d links cross, of %d nodes at each: %v", c.spec, across, len(first.Nodes), nodes)
		}
		at := first.NodesByName()
		for _, l := range first.Links {
			if a, b := at[l.Ends[0].Node], at[l.Ends[1].Node]; (a.Kind == topology.Host || b.Kind == topology.Host) && a.Sited() != b.Sited() {
				t.Errorf("%s: %s is cut", c.spec, l.Name())
			}
		}
		second := resolved(t, c.spec)
		if err := Place(second, list, c.cores, nil); err != nil {
			t.Fatal(err)
		}
		if again, _ := count(second); !maps.Equal(again, nodes) {
			t.Errorf("%s is placed as %v, and then as %v", c.spec, nodes, again)
		}
	}
}

// TestPlaceGiven proves that what a file says holds: a site by name, a label, head: only; that an
// edit moves nothing; and that a site that does not exist is an error.
func TestPlaceGiven(t *testing.T) {
	list := machines("m1", "m2")
	list.Machines[1].Labels = []string{"gpu"}
	top := resolved(t, "linear,6")
	top.Node("h1").On, top.Node("h2").On, top.Node("s6").On = "m2", "gpu", "head"
	if err := Place(top, list, nil, nil); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]string{"h1": "m2", "h2": "m2", "s6": "head", "h6": "head"} {
		if got := top.Node(node).Sited(); got != want {
			t.Errorf("%s is at %s, not at %s", node, got, want)
		}
	}
	edited := resolved(t, "linear,9")
	edited.Node("h2").On = "gpu"
	if err := Place(edited, list, nil, top); err != nil {
		t.Fatal(err)
	}
	for _, n := range top.Nodes {
		if got := edited.Node(n.Name).Sited(); got != n.Sited() {
			t.Errorf("%s moves from %s to %s", n.Name, n.Sited(), got)
		}
	}
	list.Head.Only = true
	top = resolved(t, "linear,6")
	if err := Place(top, list, nil, nil); err != nil {
		t.Fatal(err)
	}
	if nodes, _ := count(top); nodes["head"] != 0 {
		t.Errorf("with head: only, %v", nodes)
	}
	top.Node("h1").On = "m3"
	if err := Place(top, list, nil, nil); err == nil || !strings.Contains(err.Error(), "h1: there is no site m3, and none has that label; the sites are m1, m2") {
		t.Errorf("no such site: %v", err)
	}
}

// TestPlaceInstances proves that of a provider's machines those that are hosts themselves become
// the hosts of their name, or that ask for them, and that all other nodes, hosts as well, are left
// to the others; where all machines are hosts, any host goes to one, and what is no host has no
// place.
func TestPlaceInstances(t *testing.T) {
	list := machines("i1", "h2", "vm3")
	list.Head.Only, list.Provided = true, &site.Provided{}
	list.Machines[1].Hosts, list.Machines[2].Hosts = 1, 1
	top := resolved(t, "linear,4")
	top.Node("h4").On = "vm3"
	if err := Place(top, list, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range top.Nodes {
		on, native := "i1", false
		switch n.Name {
		case "h2":
			on, native = "h2", true
		case "h4":
			on, native = "vm3", true
		}
		if n.Kind != topology.Controller && (n.On != on || n.Native != native) {
			t.Errorf("%s is at %s, the machine itself: %v", n.Name, n.On, n.Native)
		}
	}
	list.Machines = list.Machines[1:]
	if err := Place(resolved(t, "linear,2"), list, nil, nil); err == nil || !strings.Contains(err.Error(), "there is no place for the others") {
		t.Errorf("switches: %v", err)
	}
}

// TestPlaceLabelled proves that a host and a switch that are somewhere by a label stay there,
// though others with that label go or come before them in the file.
func TestPlaceLabelled(t *testing.T) {
	list := &site.List{}
	for _, name := range []string{"j1", "j2", "j3"} {
		list.Machines = append(list.Machines, &site.Machine{Name: name, Host: name, Hosts: 1, Capacity: site.Capacity{Labels: []string{"gpu"}}})
	}
	for _, name := range []string{"w1", "w2", "w3"} {
		list.Machines = append(list.Machines, &site.Machine{Name: name, Host: name, Kind: site.OpenWrt, Agent: site.AgentOVS, Capacity: site.Capacity{Labels: []string{"wrt"}}})
	}
	top := func(words string) *topology.Topology {
		out := at(words)
		for _, n := range out.Nodes {
			if n.On == "wrt" {
				n.Kind = topology.Switch
			}
		}
		return out
	}
	place := func(is, was *topology.Topology) *topology.Topology {
		t.Helper()
		if err := errors.Join(placeSwitches(is, list, was), placeHosts(is, list, was)); err != nil {
			t.Fatal(err)
		}
		return is
	}
	was := place(top("h1@gpu h2@gpu s1@wrt s2@wrt"), nil)
	is := place(top("h0@gpu h2@gpu s0@wrt s1@wrt s2@wrt"), was)
	for _, name := range []string{"h2", "s1", "s2"} {
		if a, b := was.Node(name).On, is.Node(name).On; a != b {
			t.Errorf("%s moves from %s to %s", name, a, b)
		}
	}
	if h2 := place(top("h2@gpu"), was).Node("h2").On; h2 != "j2" {
		t.Errorf("when h1 has gone, h2 moves to %s", h2)
	}
	if h0, s0 := is.Node("h0").On, is.Node("s0").On; h0 != "j1" || s0 != "w3" {
		t.Errorf("h0 is at %s, s0 at %s", h0, s0)
	}
}

// linked is at, with a link from s1 to each of the other nodes.
func linked(words string) *topology.Topology {
	out := at(words)
	for _, n := range out.Nodes[1:] {
		l := &topology.Link{}
		l.Ends[0], l.Ends[1] = topology.Endpoint{Node: "s1"}, topology.Endpoint{Node: n.Name}
		out.Links = append(out.Links, l)
	}
	return out
}

// TestVLANMoved proves that a link keeps its VLAN as long as it joins the same machines, and gets
// that of the machine when its host moves to another.
func TestVLANMoved(t *testing.T) {
	list := machines("m1", "m2")
	list.Carrier, list.VLANs = "vlan", [2]uint16{1000, 1999}
	list.Machines[0].VLAN, list.Machines[1].VLAN = 103, 104
	l := headOf(t, linked("s1"), list)
	for _, c := range []struct {
		words string
		want  []uint32
	}{
		{"s1 h1@m1", []uint32{103}},
		{"s1 h1@m1 h2@m1", []uint32{103, 1000}},
		{"s1 h1@m2 h2@m1", []uint32{104, 1000}}, // h2 keeps what it has
		{"s1 h1@m1 h2@m2", []uint32{103, 104}},
	} {
		is := linked(c.words)
		if err := l.allocate(is); err != nil {
			t.Fatal(err)
		}
		l.set(is)
		var got []uint32
		for _, key := range topology.LinkKeys(is) {
			got = append(got, l.record.VNIs[key])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: VLANs %v, not %v", c.words, got, c.want)
		}
	}
}

// TestPlaceMembers proves that the members of a cluster are at the sites that the file says, and
// all others at those that take switches in turn, the head's first; that each stays where it is
// while the lab is up; and that what cannot be is refused with what to do.
func TestPlaceMembers(t *testing.T) {
	list := machines("m1", "m2", "pi")
	list.Machines[1].Labels = []string{"big"}
	list.Machines[2].Hosts = 6
	with := func(members ...string) *topology.Topology {
		out := resolved(t, "linear,6")
		out.Cluster = &topology.Cluster{}
		for _, m := range members {
			name, on, _ := strings.Cut(m, "@")
			out.Cluster.Members = append(out.Cluster.Members, topology.Member{Name: name, On: on})
		}
		return out
	}
	at := func(top *topology.Topology) (out []string) {
		for _, m := range top.Members() {
			out = append(out, m.Name+"@"+m.Sited())
		}
		return out
	}
	was := with("a", "b", "c", "d@big", "e@head")
	if err := Place(was, list, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := at(was), []string{"a@head", "b@m1", "c@m2", "d@m2", "e@head"}; !slices.Equal(got, want) {
		t.Errorf("members are %v, not %v", got, want)
	}
	is := with("a@head", "b", "c@big", "d@big", "e")
	if err := Place(is, list, nil, was); err != nil || !slices.Equal(at(is), at(was)) {
		t.Errorf("members are %v, and were %v: %v", at(is), at(was), err)
	}
	list.Head.Only = true
	is = with("a", "b")
	if err := Place(is, list, nil, nil); err != nil || !slices.Equal(at(is), []string{"a@m1", "b@m2"}) {
		t.Errorf("without nodes at the head members are %v: %v", at(is), err)
	}
	list.Head.Only = false
	moved, own := with("a@m1", "b", "c", "d", "e"), with("a", "b")
	own.Cluster.Store = &topology.Server{Address: "https://10.0.0.1:2379"}
	for _, c := range []struct {
		is, was *topology.Topology
		want    string
	}{
		{with("a@pi"), nil, "there is no site pi for member a"},
		{with("a@m3"), nil, "the sites for members are head, m1, m2"},
		{moved, was, "member a is at head, and cannot move to m1 while the lab is up"},
		{own, nil, "member b is at m1, where a store that is not the lab's own is not reached"},
	} {
		if err := Place(c.is, list, nil, c.was); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, not %q", at(c.is), err, c.want)
		}
	}
	list.Machines[0].Kind, list.Machines[0].Agent = site.OpenWrt, site.AgentOVS
	wrt := with("a")
	wrt.Node("s1").On = "m1"
	if err := Place(wrt, list, nil, nil); err == nil || !strings.Contains(err.Error(), "s1: an OpenWrt device connects to one controller of Trivet's") {
		t.Errorf("an OpenWrt device in a cluster: %v", err)
	}
}

// TestForMembers proves which of what a cluster has at the head a site reaches: members if it has
// switches of theirs, store and broker if it has a member, and nothing else.
func TestForMembers(t *testing.T) {
	top := at("h1@m1 s2@m2 h3@m3")
	top.Node("s2").Kind, top.Node("s2").Controllers = topology.Switch, []string{topology.ControllerTrivet}
	top.Cluster = &topology.Cluster{Members: []topology.Member{{Name: "a"}, {Name: "b", On: "m1"}}}
	for _, c := range []struct {
		site, called string
		want         bool
	}{
		{"m1", lab.ClusterStore, true}, {"m1", lab.ClusterBroker, true}, {"m1", "member-a", false},
		{"m2", lab.ClusterStore, false}, {"m2", lab.ClusterBroker, false}, {"m2", "member-a", true}, {"m2", "member-b", true},
		{"m2", "member-c", false}, {"m3", "member-a", false}, {"m3", lab.ClusterStore, false},
	} {
		if got := forMembers(top, c.site, c.called); got != c.want {
			t.Errorf("%s reaches %s: %v", c.site, c.called, got)
		}
	}
	if forMembers(at("s2@m2"), "m2", lab.ClusterStore) {
		t.Error("without a cluster, the store is reached")
	}
}
