package plan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// random is a network of switches and hosts that may have parallel links and loops.
func random(r *rand.Rand) *topology.Topology {
	t := &topology.Topology{}
	for i := range 2 + r.IntN(5) {
		t.AddNode(topology.Switch, fmt.Sprintf("s%d", i)).STP = r.IntN(4) == 0
	}
	for i := range r.IntN(4) {
		n := t.AddNode(topology.Host, fmt.Sprintf("h%d", i))
		n.CPU = topology.CPU{CPUs: float64(r.IntN(2)) / 2}
		if r.IntN(3) == 0 {
			n.Dirs = []topology.PrivateDir{{Path: "/srv"}}
		}
	}
	for range r.IntN(12) {
		a, b := t.Nodes[r.IntN(len(t.Nodes))], t.Nodes[r.IntN(len(t.Nodes))]
		if a == b {
			continue
		}
		l := t.AddLink(a.Name, b.Name)
		l.Bandwidth = topology.Rate(r.IntN(2)) * 1e6
		l.Down = r.IntN(4) == 0
		l.Device = r.IntN(4) == 0
	}
	return resolved(t)
}

func resolved(t *topology.Topology) *topology.Topology {
	out, problems := topology.Resolve(t, topology.Defaults{Datapath: topology.Bridge, Controlled: topology.Embedded, Controller: topology.ControllerNone})
	if err := problems.Err(); err != nil {
		panic(err)
	}
	return out
}

func same(_, _ *topology.Link) bool { return true }

// follow applies steps to a topology.
func follow(t *testing.T, from *topology.Topology, s plan.Steps) *topology.Topology {
	nodes, links := from.NodesByName(), topology.LinksByKey(from)
	for _, k := range s.DropLinks {
		if links[k.Key] == nil {
			t.Errorf("a link is taken away that is not there: %s", k.Key)
		}
		delete(links, k.Key)
	}
	for _, n := range s.DropNodes {
		for key, l := range links {
			if l.Ends[0].Node == n.Name || l.Ends[1].Node == n.Name {
				t.Errorf("node %s goes, and its link %s stays", n.Name, key)
			}
		}
		delete(nodes, n.Name)
	}
	for _, n := range s.AddNodes {
		nodes[n.Name] = n
	}
	for _, c := range s.SetNodes {
		nodes[c.New.Name] = c.New
	}
	for _, k := range s.AddLinks {
		if links[k.Key] != nil {
			t.Errorf("a link is made that is there: %s", k.Key)
		}
		links[k.Key] = k.Link
	}
	for _, k := range s.SetLinks {
		if links[k.Key] == nil {
			t.Errorf("a link is set that is not there: %s", k.Key)
		}
		links[k.Key] = k.Link
	}
	to := *from
	to.Nodes = slices.Collect(maps.Values(nodes))
	to.Links = nil
	for _, key := range slices.Sorted(maps.Keys(links)) { // parallel links keep their order
		to.Links = append(to.Links, links[key])
	}
	return &to
}

// TestMake proves that the steps from any topology to any other lead there, and remove a node only
// together with its links.
func TestMake(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		from, to := random(r), random(r)
		if left := topology.Diff(follow(t, from, plan.Make(from, to, same, never)), to); len(left) > 0 {
			t.Fatalf("seed %d: the steps leave out %v", seed, left)
		}
		if s := plan.Make(to, to, same, never); len(s.DropLinks)+len(s.AddLinks)+len(s.SetLinks)+len(s.DropNodes)+len(s.AddNodes)+len(s.SetNodes) > 0 {
			t.Fatalf("seed %d: a topology that stays as it is takes steps: %+v", seed, s)
		}
	}
}

// TestUndone proves that the steps back restore what there was, once what the steps made is gone.
func TestUndone(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		from, to := random(r), random(r)
		s := plan.Make(from, to, same, never)
		half := *to // the new topology without what the steps made; what they removed is not back yet
		half.Nodes = slices.DeleteFunc(slices.Clone(to.Nodes), func(n *topology.Node) bool { return slices.Contains(s.AddNodes, n) })
		half.Links = slices.DeleteFunc(slices.Clone(to.Links), func(l *topology.Link) bool {
			return slices.ContainsFunc(s.AddLinks, func(k plan.Link) bool { return k.Link == l })
		})
		back := s.Undone(from)
		back.DropLinks, back.DropNodes = nil, nil // already gone
		if left := topology.Diff(follow(t, &half, back), from); len(left) > 0 {
			t.Fatalf("seed %d: undoing leaves %v", seed, left)
		}
	}
}

// loops says whether switches joined by links make a loop.
func loops(t *topology.Topology, forwards func(*topology.Link) bool) bool {
	parent := map[string]string{}
	var find func(string) string
	find = func(n string) string {
		if parent[n] == "" {
			return n
		}
		return find(parent[n])
	}
	nodes := t.NodesByName()
	for _, l := range t.Links {
		a, b := nodes[l.Ends[0].Node], nodes[l.Ends[1].Node]
		if a.Kind != topology.Switch || b.Kind != topology.Switch || a.STP || b.STP || l.Down || !forwards(l) {
			continue
		}
		x, y := find(a.Name), find(b.Name)
		if x == y {
			return true
		}
		parent[x] = y
	}
	return false
}

// TestGrow proves that no loop forwards at any time of a change: neither while links are held, when
// links that are in both topologies may still forward as in either, nor afterwards.
func TestGrow(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var tree plan.Tree
		forwarded := map[string]bool{}
		for step := range 4 {
			to := random(r)
			f := tree.Grow(to)
			if f.First != (step == 0) {
				t.Fatal("First is not the first time")
			}
			keys := map[*topology.Link]string{}
			for key, l := range topology.LinksByKey(to) {
				keys[l] = key
			}
			if step > 0 && loops(to, func(l *topology.Link) bool { return !f.Held[l] }) {
				t.Fatalf("seed %d: a loop while links are held", seed)
			}
			for l := range keys {
				if step > 0 && !f.Held[l] && !l.Down && !forwarded[keys[l]] {
					t.Fatalf("seed %d: %s forwards while what it may close a loop with does", seed, keys[l])
				}
			}
			if loops(to, func(l *topology.Link) bool { return !f.Blocked[l] }) {
				t.Fatalf("seed %d: a loop", seed)
			}
			now := map[string]bool{}
			for l, key := range keys {
				now[key] = !f.Blocked[l] && !l.Down
			}
			maps.DeleteFunc(now, func(_ string, is bool) bool { return !is })
			if step > 0 && f.Stale != !maps.Equal(now, forwarded) {
				t.Fatalf("seed %d: stale is %v", seed, f.Stale)
			}
			forwarded = now
		}
	}
}

// TestImpairedOnly proves that only a change of a link's impairment calls for impairing it again,
// which would replace queues that its user has made.
func TestImpairedOnly(t *testing.T) {
	of := func(rate topology.Rate, down bool) *topology.Topology {
		n := &topology.Topology{}
		n.AddNode(topology.Switch, "s1")
		n.AddNode(topology.Host, "h1")
		l := n.AddLink("s1", "h1")
		l.Bandwidth, l.Down = rate, down
		return resolved(n)
	}
	for _, c := range []struct {
		rate topology.Rate
		down bool
		want bool
	}{{1e6, true, false}, {2e6, false, true}, {0, true, true}} {
		s := plan.Make(of(1e6, false), of(c.rate, c.down), same, never)
		if len(s.SetLinks) != 1 || s.Impaired[s.SetLinks[0].Key] != c.want || s.Plugged[s.SetLinks[0].Key] != c.down {
			t.Errorf("a link of 1 Mbit/s that becomes one of %v, down %v: %+v", c.rate, c.down, s)
		}
	}
}

func never(*topology.Node) bool { return false }

// TestEnded proves that a node that has ended by itself is made anew with all of its links, and
// nothing else is, whether its settings have changed or not.
func TestEnded(t *testing.T) {
	of := func(cpu float64) *topology.Topology {
		t := &topology.Topology{}
		t.AddNode(topology.Switch, "s1")
		for _, h := range []string{"h1", "h2"} {
			t.AddNode(topology.Host, h)
			t.AddLink("s1", h)
		}
		t.AddLink("h1", "h2")
		t.Node("h1").CPU = topology.CPU{CPUs: cpu}
		return resolved(t)
	}
	same := func(_, _ *topology.Link) bool { return true }
	for _, cpu := range []float64{0, 0.5} {
		s := plan.Make(of(0), of(cpu), same, func(n *topology.Node) bool { return n.Name == "h1" })
		if len(s.DropNodes) != 1 || len(s.AddNodes) != 1 || s.AddNodes[0].Name != "h1" || s.AddNodes[0].CPU.CPUs != cpu || len(s.SetNodes) > 0 {
			t.Errorf("cpu %v: drops %d, adds %d, sets %d nodes", cpu, len(s.DropNodes), len(s.AddNodes), len(s.SetNodes))
		}
		if len(s.DropLinks) != 2 || len(s.AddLinks) != 2 || len(s.SetLinks) > 0 {
			t.Errorf("cpu %v: drops %d, adds %d, sets %d links", cpu, len(s.DropLinks), len(s.AddLinks), len(s.SetLinks))
		}
	}
}

// TestPolicyInPlace proves that rules and permanent neighbours of a node change without making it
// anew.
func TestPolicyInPlace(t *testing.T) {
	rule, err := topology.ParseRule("table 7 priority 7")
	if err != nil {
		t.Fatal(err)
	}
	of := func(change func(*topology.Node)) *topology.Topology {
		t := &topology.Topology{}
		change(t.AddNode(topology.Host, "h1"))
		t.AddNode(topology.Host, "h2")
		t.AddLink("h1", "h2")
		return resolved(t)
	}
	for name, change := range map[string]func(*topology.Node){
		"rules": func(n *topology.Node) { n.Rules = []topology.Rule{rule} },
		"neighbors": func(n *topology.Node) {
			n.Neighbors = []topology.Neighbor{{Address: netip.MustParseAddr("10.0.0.7"), MAC: topology.MAC{2, 0, 0, 0, 0, 7}}}
		},
	} {
		s := plan.Make(of(func(*topology.Node) {}), of(change), func(_, _ *topology.Link) bool { return true }, never)
		if len(s.SetNodes) != 1 || len(s.AddNodes)+len(s.DropNodes) > 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestFiles proves that a file that a container is given with another text or other permissions is
// set in place, and that the container is made anew for one that it is given no more, or had not
// been.
func TestFiles(t *testing.T) {
	of := func(files ...topology.NodeFile) *topology.Topology {
		t := &topology.Topology{}
		n := t.AddNode(topology.Host, "h1")
		n.Image, n.Files = "x", files
		return resolved(t)
	}
	a, b := topology.NodeFile{Path: "/a", TextFile: topology.TextFile{Text: "a", File: "a"}, Mode: 0o644}, topology.NodeFile{Path: "/b", TextFile: topology.TextFile{Text: "b", File: "b"}, Mode: 0o644}
	other, closed := a, a
	other.Text, closed.Mode = "other", 0o600
	for _, c := range []struct {
		from, to  []topology.NodeFile
		set, anew int
	}{
		{[]topology.NodeFile{a, b}, []topology.NodeFile{other, b}, 1, 0},
		{[]topology.NodeFile{a, b}, []topology.NodeFile{closed, b}, 1, 0},
		{[]topology.NodeFile{a, b}, []topology.NodeFile{b, a}, 0, 0},
		{[]topology.NodeFile{a, b}, []topology.NodeFile{b}, 0, 1},
		{[]topology.NodeFile{a}, []topology.NodeFile{a, b}, 0, 1},
	} {
		if s := plan.Make(of(c.from...), of(c.to...), same, never); len(s.SetNodes) != c.set || len(s.AddNodes) != c.anew || len(s.DropNodes) != c.anew {
			t.Errorf("%v to %v: %+v", c.from, c.to, s)
		}
	}
}

// TestGuest proves that whatever is said of a virtual machine, its memory, ports and start command
// too, makes the node anew where it changes; and that its limits, and the memory of a container are
// changed in place.
func TestGuest(t *testing.T) {
	of := func(change func(*topology.Node)) *topology.Topology {
		t := &topology.Topology{}
		n := t.AddNode(topology.Host, "h1")
		n.Guest = &topology.Guest{Image: "x", Kernel: "k"}
		t.AddNode(topology.Switch, "s1")
		t.AddLink("s1", "h1")
		change(n)
		return resolved(t)
	}
	same := func(_, _ *topology.Link) bool { return true }
	plain := func(*topology.Node) {}
	for name, c := range map[string]struct {
		from, to func(*topology.Node)
		anew     bool
	}{
		"memory":   {plain, func(n *topology.Node) { n.Memory = 1 << 30 }, true},
		"no guest": {plain, func(n *topology.Node) { n.Guest = nil }, true},
		"cpu":      {plain, func(n *topology.Node) { n.CPU = topology.CPU{CPUs: 1} }, false},
		"health":   {plain, func(n *topology.Node) { n.Health = "true" }, false},
		"start":    {plain, func(n *topology.Node) { n.Start = "true" }, true},
		"memory of a container": {func(n *topology.Node) { n.Guest, n.Image = nil, "x" },
			func(n *topology.Node) { n.Guest, n.Image, n.Memory = nil, "x", 1<<30 }, false},
	} {
		if s := plan.Make(of(c.from), of(c.to), same, never); (len(s.AddNodes) == 1) != c.anew || (len(s.AddLinks) == 1) != c.anew || len(s.AddNodes)+len(s.SetNodes) != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	values := map[reflect.Kind]any{reflect.String: "another", reflect.Int: 2, reflect.Bool: true, reflect.Struct: topology.TextFile{File: "x", Text: "another"}, reflect.Slice: []topology.GuestDisk{{Size: 1 << 30}}}
	for i := range reflect.TypeFor[topology.Guest]().NumField() {
		f := reflect.TypeFor[topology.Guest]().Field(i)
		to := of(plain)
		v := reflect.ValueOf(to.Node("h1").Guest).Elem().Field(i)
		v.Set(reflect.ValueOf(values[v.Kind()]))
		if s := plan.Make(of(plain), to, same, never); len(s.AddNodes) != 1 || len(s.DropNodes) != 1 {
			t.Errorf("another %s does not make the node anew", f.Name)
		}
	}
}
