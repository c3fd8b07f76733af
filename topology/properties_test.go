package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// switchGraphs draws resolved networks of switches: some learn, some run the spanning tree
// protocol, some have a controller; links may be parallel, or down.
var switchGraphs = rapid.Custom(func(t *rapid.T) *Topology {
	top := &Topology{Name: "t"}
	n := rapid.IntRange(1, 9).Draw(t, "switches")
	for i := range n {
		s := top.AddNode(Switch, fmt.Sprintf("s%d", i+1))
		s.Controllers = []string{rapid.SampledFrom([]string{ControllerNone, ControllerNone, ControllerNone, "tcp:127.0.0.1:6653"}).Draw(t, "controller")}
		s.STP = rapid.IntRange(0, 5).Draw(t, "stp") == 0
		s.Datapath = rapid.SampledFrom([]Datapath{Embedded, OVS}).Draw(t, "datapath")
	}
	top.AddNode(Host, "h1")
	top.AddLink("s1", "h1")
	for range rapid.IntRange(0, 20).Draw(t, "links") {
		a, b := rapid.IntRange(1, n).Draw(t, "a"), rapid.IntRange(1, n).Draw(t, "b")
		if a != b {
			top.AddLink(fmt.Sprintf("s%d", a), fmt.Sprintf("s%d", b)).Down = rapid.IntRange(0, 5).Draw(t, "down") == 0
		}
	}
	r, problems := Resolve(top, plain)
	if r == nil {
		t.Fatal(problems)
	}
	return r
})

// forest joins nodes by links; it says whether some link closed a loop.
type forest map[string]string

func (f forest) root(n string) string {
	for f[n] != "" {
		n = f[n]
	}
	return n
}

func (f forest) join(a, b string) (loop bool) {
	a, b = f.root(a), f.root(b)
	if a != b {
		f[a] = b
	}
	return a == b
}

// TestBlocked proves that the links between learning switches that are not blocked form a forest
// that connects whatever the links that are up connect, and that no other link is ever blocked; an
// embedded switch learns, whatever its file says of the spanning tree protocol.
func TestBlocked(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		top := switchGraphs.Draw(rt, "topology")
		blocked := Blocked(top)
		learns := func(name string) bool {
			n := top.Node(name)
			speaks := n.STP && n.Datapath != Embedded
			return n.Kind == Switch && !speaks && n.Controllers[0] == ControllerNone
		}
		all, open := forest{}, forest{}
		for _, l := range top.Links {
			a, b := l.Ends[0].Node, l.Ends[1].Node
			switch {
			case !learns(a) || !learns(b):
				if blocked[l] {
					rt.Errorf("%s is blocked, and not between learning switches", l.Name())
				}
			case l.Down:
			default:
				all.join(a, b)
				if !blocked[l] && open.join(a, b) {
					rt.Errorf("%s closes a loop", l.Name())
				}
			}
		}
		for _, a := range top.Nodes {
			for _, b := range top.Nodes {
				if (all.root(a.Name) == all.root(b.Name)) != (open.root(a.Name) == open.root(b.Name)) {
					rt.Errorf("%s and %s are cut off from each other", a.Name, b.Name)
				}
			}
		}
		if again := Blocked(top.Clone()); len(again) != len(blocked) {
			rt.Errorf("blocks %d links, then %d", len(blocked), len(again))
		}
	})
}

// networks draws networks with everything, as a file would describe them.
var networks = rapid.Custom(func(t *rapid.T) *Topology {
	top := rapid.OneOf(routerGraphs, switchGraphs).Draw(t, "network")
	for _, l := range top.Links {
		if rapid.IntRange(0, 3).Draw(t, "impaired") == 0 {
			l.Delay, l.Bandwidth = Duration(rapid.IntRange(0, 1e9).Draw(t, "delay")), Rate(rapid.IntRange(0, 1e9).Draw(t, "bandwidth"))
		}
	}
	return top
})

// TestResolveTwice proves that a copy is equal and shares nothing; that Resolve changes neither its
// argument nor, applied again, its result; and that the result is the same each time.
func TestResolveTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		top := networks.Draw(rt, "topology")
		before := fields(top, &Topology{})
		first, problems := Resolve(top, plain)
		if first == nil {
			rt.Fatal(problems)
		}
		if after := fields(top, &Topology{}); !slices.Equal(before, after) {
			rt.Fatalf("the argument was changed:\n%v\n%v", before, after)
		}
		again, _ := Resolve(top, plain)
		if d := fields(first, again); len(d) > 0 {
			rt.Fatalf("the second time it is another: %v", d)
		}
		if problems := Validate(first); problems.Err() != nil {
			rt.Fatal(problems)
		}
		second, problems := Resolve(first, plain)
		if second == nil {
			rt.Fatal(problems)
		}
		if d := fields(first, second); len(d) > 0 {
			rt.Fatalf("resolving what is resolved changes it: %v", d)
		}
	})
}

// TestDiffProperties proves that a topology equals itself and its copy, whatever the order of nodes
// and links and whichever end comes first; and that a change is seen in both directions, each the
// reverse of the other.
func TestDiffProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		top := networks.Draw(rt, "topology")
		if top = resolvedBy(rt, top); !Equal(top, top) {
			rt.Fatal("does not equal itself")
		}
		turned := top.Clone()
		keys := LinkKeys(top)
		parallel := len(slices.Compact(slices.Sorted(slices.Values(pairsOf(top))))) < len(keys)
		if !parallel { // parallel links are distinguished by their order
			slices.Reverse(turned.Links)
		}
		slices.Reverse(turned.Nodes)
		for _, l := range turned.Links {
			l.Ends[0], l.Ends[1] = l.Ends[1], l.Ends[0]
		}
		if d := Diff(top, turned); len(d) > 0 {
			rt.Fatalf("order makes a difference: %v", d)
		}
		other := top.Clone()
		switch i := rapid.IntRange(0, 3).Draw(rt, "change"); {
		case i == 0:
			other.AddNode(Host, "new")
		case i == 1:
			other.Nodes[0].Start = "true"
		case len(other.Links) == 0:
			return
		case i == 2:
			other.Links = other.Links[:len(other.Links)-1]
		case i == 3:
			l := other.Links[rapid.IntRange(0, len(other.Links)-1).Draw(rt, "link")]
			l.Ends[1].Egress = &Impairment{Delay: 7}
		}
		there, back := Diff(top, other), Diff(other, top)
		if len(there) != 1 || len(back) != 1 {
			rt.Fatalf("one change is %v, and back %v", there, back)
		}
		a, b := there[0], back[0]
		if a.OldNode != b.NewNode || a.NewNode != b.OldNode || a.OldLink != b.NewLink || a.NewLink != b.OldLink || len(a.Fields) != len(b.Fields) {
			rt.Fatalf("%s is not the reverse of %s", b, a)
		}
		for i := range a.Fields {
			if a.Fields[i].Old != b.Fields[i].New || a.Fields[i].New != b.Fields[i].Old || a.Fields[i].Old == a.Fields[i].New {
				rt.Fatalf("%v is not the reverse of %v", b.Fields[i], a.Fields[i])
			}
		}
	})
}

func pairsOf(t *Topology) (out []string) {
	for _, l := range t.Links {
		a, b := l.Ends[0].Node, l.Ends[1].Node
		out = append(out, min(a, b)+" "+max(a, b))
	}
	return out
}

func resolvedBy(t *rapid.T, top *Topology) *Topology {
	r, problems := Resolve(top, plain)
	if r == nil {
		t.Fatal(problems)
	}
	return r
}

// TestInherit proves that an edited file that inherits from the running lab keeps the ports, device
// names, MAC addresses, addresses and datapath ids of every node and link that it did not touch,
// whatever was added or removed before them.
func TestInherit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(rt, "hosts")
		file := mustGenerate(t, fmt.Sprintf("single,%d", n))
		lab := resolvedBy(rt, file)
		edited := file.Clone()
		gone := rapid.IntRange(0, n-1).Draw(rt, "gone")
		name := edited.Links[gone].Ends[1].Node
		if edited.Node(name).Kind != Host {
			name = edited.Links[gone].Ends[0].Node
		}
		edited.Links = slices.Delete(edited.Links, gone, gone+1)
		edited.Nodes = slices.DeleteFunc(edited.Nodes, func(n *Node) bool { return n.Name == name })
		edited.Nodes = slices.Insert(edited.Nodes, 0, &Node{Name: "a0", Kind: Host}, &Node{Name: "core", Kind: Switch})
		edited.Links = slices.Insert(edited.Links, 0, &Link{Ends: [2]Endpoint{{Node: "s1"}, {Node: "a0"}}}, &Link{Ends: [2]Endpoint{{Node: "s1"}, {Node: "core"}}})
		Inherit(edited, lab)
		next := resolvedBy(rt, edited)
		for _, c := range Diff(lab, next) {
			if len(c.Fields) > 0 {
				rt.Errorf("%s", c)
			}
		}
		before := fields(next, &Topology{})
		same := edited.Clone()
		Inherit(same, next)
		Inherit(same, next)
		if d := fields(resolvedBy(rt, same), next); len(d) > 0 || len(before) == 0 {
			rt.Errorf("inheriting from its own result changes it: %v", d)
		}
	})
}

// TestInheritGiven proves that what the edited file gives takes precedence over what the lab has.
func TestInheritGiven(t *testing.T) {
	file := mustGenerate(t, "single,2")
	lab := resolved(t, file)
	edited := file.Clone()
	edited.Node("h1").Addresses = prefixes("10.0.0.77/8")
	edited.Node("s1").DPID = 99
	port := 42
	edited.Links[0].Ends[0].Port = &port
	Inherit(edited, lab)
	r := resolved(t, edited)
	var at Endpoint
	for _, e := range r.Links[0].Ends {
		if e.Node == edited.Links[0].Ends[0].Node {
			at = e
		}
	}
	if r.Node("s1").DPID != 99 || *at.Port != 42 || !slices.Contains(endsAt(r, "h1"), prefixes("10.0.0.77/8")[0]) || len(endsAt(r, "h1")) != 1 {
		t.Errorf("dpid %s, port %d, addresses %v", r.Node("s1").DPID, *at.Port, endsAt(r, "h1"))
	}
}

// TestInheritOtherNetwork proves that a network that routers now divide, or no longer divide, or
// that gets another pool, has the addresses that it would have had from the start, except for those
// that the file gives; and that it keeps its ports.
func TestInheritOtherNetwork(t *testing.T) {
	flat, divided := "s:s1 s:s2 h:h1 h:h2 h1-s1 s1-s2 s2-h2", "s:s1 s:s2 r:r1 h:h1 h:h2 h1-s1 s1-r1 r1-s2 s2-h2"
	other := build(t, flat)
	other.Subnet = netip.MustParsePrefix("192.168.0.0/16")
	given := build(t, divided)
	given.Node("h2").Addresses = prefixes("10.9.0.7/16")
	for name, c := range map[string]struct{ before, after *Topology }{
		"divided": {build(t, flat), build(t, divided)}, "joined": {build(t, divided), build(t, flat)},
		"another pool": {build(t, flat), other}, "given": {build(t, flat), given},
	} {
		edited := c.after.Clone()
		Inherit(edited, resolved(t, c.before))
		got, want := resolved(t, edited), resolved(t, c.after)
		for _, n := range want.Nodes {
			if a, b := endsAt(got, n.Name), endsAt(want, n.Name); !slices.Equal(a, b) {
				t.Errorf("%s: %s has %v, not %v", name, n.Name, a, b)
			}
		}
		if got.Links[0].Ends[0].Interface != "h1-eth0" {
			t.Errorf("%s: %+v", name, got.Links[0])
		}
	}
}

// TestInheritSegments proves that if a change joins segments, divides one, or makes it too large
// for its subnet, interfaces get the addresses that they need to reach each other; and that others
// keep theirs.
func TestInheritSegments(t *testing.T) {
	const rest = " r:r9 h:h9 r9-h9"
	moved := build(t, "r:r1 h:h1 h1-r1")
	lab := resolved(t, moved)
	moved.Node("h1").Addresses = prefixes("10.77.0.1/24")
	Inherit(moved, lab)
	if got := resolved(t, moved); endsAt(got, "r1")[0].Masked() != prefixes("10.77.0.0/24")[0] {
		t.Errorf("a host has another address, and its router %v", endsAt(got, "r1"))
	}
	for name, c := range map[string][2]string{
		"joined":  {"s:s1 s:s2 r:r1 h:h1 h:h2 h1-s1 s1-r1 r1-s2 s2-h2", "s:s1 s:s2 r:r1 h:h1 h:h2 h1-s1 s1-r1 s1-s2 s2-h2"},
		"divided": {"s:s1 s:s2 r:r1 h:h1 h:h2 h1-s1 s1-r1 s1-s2 s2-h2", "s:s1 s:s2 r:r1 h:h1 h:h2 h1-s1 s1-r1 r1-s2 s2-h2"},
		"larger":  {"s:s1 r:r1 r:r2 r1-s1 s1-r2", "s:s1 r:r1 r:r2 r:r3 h:h1 h:h2 r1-s1 s1-r2 s1-r3 s1-h1 s1-h2"},
	} {
		before := resolved(t, build(t, c[0]+rest))
		edited := build(t, c[1]+rest)
		Inherit(edited, before)
		got := resolved(t, edited)
		if a, b := endsAt(got, "h9"), endsAt(before, "h9"); !slices.Equal(a, b) {
			t.Errorf("%s: h9 has %v, not %v", name, a, b)
		}
		of := map[netip.Prefix]int{} // the segment of each subnet
		r := &resolver{t: got, nodes: byName(got), ends: map[string][]*Endpoint{}}
		for _, l := range got.Links {
			for i := range l.Ends {
				r.ends[l.Ends[i].Node] = append(r.ends[l.Ends[i].Node], &l.Ends[i])
			}
		}
		for i, s := range r.segments() {
			for _, e := range slices.Concat(s.routers, s.ends) {
				if len(e.Addresses) != 1 || e.Addresses[0].Masked() != slices.Concat(s.routers, s.ends)[0].Addresses[0].Masked() {
					t.Errorf("%s: %s has %v", name, e.Interface, e.Addresses)
					continue
				}
				if other, ok := of[e.Addresses[0].Masked()]; ok && other != i {
					t.Errorf("%s: two segments have %v", name, e.Addresses[0].Masked())
				}
				of[e.Addresses[0].Masked()] = i
			}
		}
		again := build(t, c[1]+rest)
		Inherit(again, got)
		if d := fields(resolved(t, again), got); len(d) > 0 {
			t.Errorf("%s: inherited again it is another: %v", name, d)
		}
	}
}

// TestLinkChange proves that a change of a link is unchanged after being written and read, and that
// what it does not mention stays the same.
func TestLinkChange(t *testing.T) {
	for _, words := range [][]string{{"up"}, {"down"}, {"delay=10ms"}, {"delay=none", "loss=1%"}, {"bandwidth=1gbit", "jitter=250us", "queue=7", "down"}, {"queue=none"}, {"mtu=1400"}, {"mtu=none", "queue=7"}, {"loss=0"},
		{"queue=fq_codel"}, {"queue=codel,target=2ms,ecn", "reorder=25%", "gap=5"}, {"duplicate=1%", "corrupt=0.1%", "loss_correlation=25%", "queue=red,min=30000,max=35000,avpkt=1500,burst=20,probability=100%,ecn"}} {
		c, err := ParseLinkChange(words)
		if err != nil {
			t.Fatal(err)
		}
		e, err := ParseEvent("at 1s: a -- b " + c.String())
		if err != nil || e.Action.Change.String() != c.String() {
			t.Errorf("%v: %s became %s (%v)", words, c, e.Action.Change, err)
		}
		before := Impairment{Bandwidth: 1, Delay: 2, Jitter: 3, Loss: 0.5, Queue: Queue{Limit: 6}, MTU: 1400, Reorder: 0.25, Gap: 5, Corrupt: 0.1, LossCorrelation: 0.5}
		l := Link{Impairment: before}
		c.Apply(&l)
		if len(words) == 1 && words[0] == "up" && l.Impairment != before {
			t.Errorf("up changed %v", l.Impairment)
		}
	}
	for _, words := range [][]string{{}, {"sideways"}, {"delay"}, {"delay="}, {"delay=-1ms"}, {"dealy=1ms"}, {"loss=101%"}, {"queue=x"}, {"mtu=67"}, {"mtu=9217"}, {"mtu=1k"}, {"=1"}, {"bandwidth=0.0001bit"},
		{"queue=fq_codle"}, {"queue=codel,target=0s"}, {"queue=codel,flows=8"}, {"queue=red,min=40000,max=30000"}, {"queue=red,min=30000,max=35000,burst=20"}, {"queue=pie,ecn=maybe"}, {"queue=codel,target=2ms,target=3ms"}, {"queue=100,ecn"}, {"queue=codel,"},
		{"gap=0.5"}, {"reorder=200%"}, {"corrupt_correlation=x"}} {
		if c, err := ParseLinkChange(words); err == nil {
			t.Errorf("%v is %s", words, c)
		}
	}
}

// TestBetween proves of every option of a link that what is between a link and another that has it
// makes the one the other; and that links whose directions differ in another way are told.
func TestBetween(t *testing.T) {
	from := &Link{Impairment: Impairment{Bandwidth: 1e9, Loss: 0.5}}
	values := map[string]string{"bandwidth": "5mbit", "queue": "codel,target=2ms", "mtu": "1400", "gap": "7", "delay": "3ms", "jitter": "2ms"}
	for _, name := range LinkOptionNames() {
		value := values[name]
		if value == "" {
			value = "25%"
		}
		change, err := ParseLinkChange([]string{name + "=" + value, "down"})
		if err != nil {
			t.Fatal(err)
		}
		to := from.Clone()
		change.Apply(to)
		got, ok := Between(from, to)
		if !ok || got.String() != change.String() {
			t.Errorf("%s: %s, %t", change, got, ok)
		}
		back, ok := Between(to, from)
		if again := to.Clone(); !ok {
			t.Errorf("%s: no way back", change)
		} else if back.Apply(again); again.Down || again.Impairment != from.Impairment {
			t.Errorf("%s: back it is %+v", change, again.Impairment)
		}
	}
	one := from.Clone()
	one.Ends[1].Egress = &Impairment{Bandwidth: 1e9, Duplicate: 0.5}
	if _, ok := Between(from, one); ok {
		t.Error("one direction alone is not told")
	}
}
