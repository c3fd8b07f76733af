package sites

import (
	"maps"
	"strings"
	"testing"

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
