package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func mustGenerate(t *testing.T, spec string) *Topology {
	t.Helper()
	top, err := Generate(spec, GenerateOptions{})
	if err != nil {
		t.Fatalf("Generate(%q): %v", spec, err)
	}
	return top
}

// TestGenerateCounts proves that each generator makes the number of nodes and links that its shape
// has, and that Size gives it without making any.
func TestGenerateCounts(t *testing.T) {
	for spec, want := range map[string][3]int{ // inner nodes, hosts, links
		"minimal":           {1, 2, 2},
		"single":            {1, 2, 2},
		"single,5":          {1, 5, 5},
		"reversed,4":        {1, 4, 4},
		"linear":            {2, 2, 3},
		"linear,4":          {4, 4, 7},
		"linear,k=3,n=2":    {3, 6, 8},
		"linear,3,n=0":      {3, 0, 2},
		"line,4":            {4, 2, 5},
		"line,1":            {1, 2, 2},
		"line,0":            {0, 2, 1},
		"star,9":            {10, 9, 18},
		"star,9,4":          {10, 36, 45},
		"tree,3":            {7, 8, 14},
		"tree,depth=3":      {7, 8, 14},
		"tree, 2, fanout=3": {4, 9, 12},
		"ring,5":            {5, 5, 10},
		"ring,5,2":          {5, 10, 15},
		"mesh,5":            {5, 5, 15},
		"mesh,4,3":          {4, 12, 18},
		"grid,4,3":          {12, 12, 29},
		"grid,1,1":          {1, 1, 1},
		"torus,3,4":         {12, 12, 36},
		"torus,3,3,2":       {9, 18, 36},
		"torus,4,5,2,6":     {20, 8, 48},
		"fat-tree,4":        {20, 8, 40},
		"fat-tree,4,2":      {20, 16, 48},
		"fat-tree,2":        {5, 2, 6},
		"erdos-renyi,7,1":   {7, 7, 28},
		"erdos-renyi,7,0":   {7, 7, 13},
		"waxman,9,beta=0":   {9, 9, 17},
		"waxman,1":          {1, 1, 1},
	} {
		top := mustGenerate(t, spec)
		got := [3]int{len(top.NodesOf(Switch)), len(top.NodesOf(Host)), len(top.Links)}
		if got != want {
			t.Errorf("%s: switches, hosts, links %v, want %v", spec, got, want)
		}
		if hosts, others, err := Size(spec); hosts != want[1] || others != want[0] || err != nil {
			t.Errorf("%s: said to be %d hosts and %d others, %v; want %v", spec, hosts, others, err, want)
		}
	}
}

// TestGenerateDegrees proves that the inner nodes of regular shapes have the degrees that define
// the shape, and hosts have 1.
func TestGenerateDegrees(t *testing.T) {
	for spec, want := range map[string]map[string]int{
		"star,6":     {"s1": 6, "s2": 2, "s7": 2},
		"ring,7":     {"s1": 3, "s4": 3, "s7": 3},
		"mesh,6,2":   {"s1": 7, "s6": 7},
		"torus,4,5":  {"s1x1": 5, "s4x5": 5, "s2x3": 5},
		"grid,3,3":   {"s1x1": 3, "s1x2": 4, "s2x2": 5},
		"tree,3,3":   {"s1": 3, "s2": 4, "s3": 4},
		"fat-tree,6": {"c1": 6, "c9": 6, "a1": 6, "a18": 6, "e1": 4, "e18": 4},
		"line,5":     {"s1": 2, "s3": 2, "s5": 2},
	} {
		top := mustGenerate(t, spec)
		degree := map[string]int{}
		for _, l := range top.Links {
			degree[l.Ends[0].Node]++
			degree[l.Ends[1].Node]++
		}
		for name, d := range want {
			if degree[name] != d {
				t.Errorf("%s: %s has %d links, want %d", spec, name, degree[name], d)
			}
		}
		for _, h := range top.NodesOf(Host) {
			if degree[h.Name] != 1 {
				t.Errorf("%s: host %s has %d links, want 1", spec, h.Name, degree[h.Name])
			}
		}
	}
}

// examples returns the documented example of every generator, and random networks that would be
// disconnected without joining.
func examples() []string {
	specs := []string{"waxman,200,beta=0.01", "erdos-renyi,200,0.003", "erdos-renyi,1000,0.001,seed=5"}
	for _, g := range Generators() {
		specs = append(specs, g.Example)
	}
	return specs
}

// TestGenerateIsSoundAndDeterministic proves that every example works, is connected, has unique
// names, no link to a missing node or to itself and no duplicate link, and is the same each time.
func TestGenerateIsSoundAndDeterministic(t *testing.T) {
	for _, spec := range examples() {
		top := mustGenerate(t, spec)
		number := map[string]int{}
		for i, n := range top.Nodes {
			number[n.Name] = i
		}
		if len(number) != len(top.Nodes) {
			t.Errorf("%s: %d names for %d nodes", spec, len(number), len(top.Nodes))
		}
		var links []pair
		seen := map[pair]bool{}
		for _, l := range top.Links {
			i, ok := number[l.Ends[0].Node]
			j, ok2 := number[l.Ends[1].Node]
			if p := ordered(i, j); !ok || !ok2 || i == j || seen[p] {
				t.Errorf("%s: link %s is wrong or there twice", spec, l.Name())
			}
			seen[ordered(i, j)] = true
			links = append(links, pair{i, j})
		}
		if count := slices.Max(parts(len(top.Nodes), links)); count != 1 {
			t.Errorf("%s: falls into %d parts", spec, count)
		}
		first, _ := json.Marshal(top)
		second, _ := json.Marshal(mustGenerate(t, spec))
		if string(first) != string(second) {
			t.Errorf("%s: is different the second time", spec)
		}
	}
}

// TestGenerateSeed proves that the seed determines a random network, and that the default seed is
// 1.
func TestGenerateSeed(t *testing.T) {
	for _, spec := range []string{"waxman,40", "erdos-renyi,40,0.1"} {
		byDefault, _ := json.Marshal(mustGenerate(t, spec).Links)
		one, _ := json.Marshal(mustGenerate(t, spec+",seed=1").Links)
		two, _ := json.Marshal(mustGenerate(t, spec+",seed=2").Links)
		if string(byDefault) != string(one) || string(one) == string(two) {
			t.Errorf("%s: seeds: default = 1 is %v, 1 = 2 is %v", spec, string(byDefault) == string(one), string(one) == string(two))
		}
	}
}

// TestGenerateProbabilities proves that erdos-renyi draws links with the given probability (within
// six standard deviations), and that waxman prefers near nodes.
func TestGenerateProbabilities(t *testing.T) {
	const n, p = 500, 0.1
	pairs := float64(n * (n - 1) / 2)
	got := float64(len(mustGenerate(t, "erdos-renyi,500,0.1").Links) - n)
	if math.Abs(got-pairs*p) > 6*math.Sqrt(pairs*p*(1-p)) {
		t.Errorf("erdos-renyi,500,0.1 has %v links, expected about %v", got, pairs*p)
	}
	near, far := len(mustGenerate(t, "waxman,300,alpha=0.05").Links), len(mustGenerate(t, "waxman,300,alpha=5").Links)
	if far < 3*near {
		t.Errorf("waxman: %d links at alpha 0.05, %d at 5: distance should make a difference", near, far)
	}
}

// TestGenerateRouters proves that with routers the shape is the same and names begin with r, and
// that other kinds are refused.
func TestGenerateRouters(t *testing.T) {
	for _, spec := range []string{"linear,3,2", "torus,3,3", "tree,2,2", "fat-tree,4"} {
		top, err := Generate(spec, GenerateOptions{Nodes: Router})
		if err != nil {
			t.Fatal(err)
		}
		if len(top.NodesOf(Switch)) != 0 || len(top.Links) != len(mustGenerate(t, spec).Links) {
			t.Errorf("%s of routers has switches or other links", spec)
		}
		for _, n := range top.NodesOf(Router) {
			if !strings.Contains("rcae", n.Name[:1]) {
				t.Errorf("%s: router is named %s", spec, n.Name)
			}
		}
	}
	if _, err := Generate("single", GenerateOptions{Nodes: Controller}); err == nil {
		t.Error("a topology of controllers was made")
	}
}

// TestGenerateErrors proves that a wrong specification is refused with a message that names the
// argument, its range and an example, and that all errors are reported together.
func TestGenerateErrors(t *testing.T) {
	for spec, want := range map[string][]string{
		"":                        {`no generator ""`, "choose one of minimal, single"},
		"liner,4":                 {"did you mean linear?", "fat-tree"},
		"linear,x":                {`k is "x"`, "a whole number from 1 to 1000000", "write linear,4"},
		"linear,2.5":              {`k is "2.5"`, "whole"},
		"linear,0":                {`k is "0"`},
		"linear,4,":               {`n is ""`},
		"linear,4,2,7":            {`"7" is one argument too many`, "linear[,k=2][,n=1]"},
		"linear,4,k=4":            {"k is given twice"},
		"minimal,3":               {"it takes none"},
		"tree,depht=3":            {`no argument "depht"`, "did you mean depth?"},
		"ring":                    {"k is missing", "from 3 to"},
		"torus,2,3":               {`x is "2"`, "from 3"},
		"fat-tree,5":              {`k is "5"`, "even"},
		"erdos-renyi,9,1.5":       {`p is "1.5"`, "a number from 0 to 1"},
		"erdos-renyi,9,NaN":       {`p is "NaN"`},
		"torus,2,x,n=-1":          {`x is "2"`, `y is "x"`, `n is "-1"`},
		"tree,60":                 {"nodes", "1000000"},
		"tree,1000000,1000000":    {"countless"},
		"mesh,2000":               {"2001000 links"},
		"linear,500001":           {"1000002 nodes"},
		"waxman,10000,beta=1":     {"links or more"},
		"erdos-renyi,100000,0.5":  {"links"},
		"grid,1000000,1000000,20": {"nodes"},
	} {
		_, err := Generate(spec, GenerateOptions{})
		if err == nil {
			t.Errorf("%q was accepted", spec)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: error %q does not say %q", spec, err, w)
			}
		}
	}
}

// TestGenerateName proves that the name of a generated topology describes its shape.
func TestGenerateName(t *testing.T) {
	for spec, want := range map[string]string{
		"minimal": "minimal", "linear,4": "linear-4", "linear,4,2": "linear-4-2", "linear": "linear-2",
		"tree,depth=3,fanout=4": "tree-3-4", "waxman,60,0.3,seed=4": "waxman-60", "fat-tree,4": "fat-tree-4",
	} {
		if got := mustGenerate(t, spec).Name; got != want {
			t.Errorf("%s is named %s, want %s", spec, got, want)
		}
	}
}

const mininetProgram = `
import sys
from mininet.topo import *
from mininet.topolib import *
t = eval(sys.argv[1])
print(*("host " + h for h in t.hosts()), sep="\n")
for s in t.switches(): print("switch", s, t.nodeInfo(s).get("dpid", "-"))
for _, _, i in t.links(withInfo=True): print("link %s:%d %s:%d" % (i["node1"], i["port1"], i["node2"], i["port2"]))
`

// TestGenerateEqualsMininet proves that names, the order of hosts, datapath ids and port numbers
// are those of the real Mininet's classes.
func TestGenerateEqualsMininet(t *testing.T) {
	if exec.Command("/usr/bin/python3", "-c", "import mininet.topolib").Run() != nil {
		t.Skip("Mininet is not installed")
	}
	for spec, class := range map[string]string{
		"minimal": "MinimalTopo()", "single,5": "SingleSwitchTopo(5)", "reversed,5": "SingleSwitchReversedTopo(5)",
		"linear,4": "LinearTopo(4)", "linear,3,2": "LinearTopo(3,2)", "linear,11,3": "LinearTopo(11,3)",
		"tree,3,2": "TreeTopo(3,2)", "tree,2,4": "TreeTopo(2,4)", "torus,3,3": "TorusTopo(3,3)", "torus,3,4,2": "TorusTopo(3,4,2)",
	} {
		out, err := exec.Command("/usr/bin/python3", "-c", mininetProgram, class).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", class, err, out)
		}
		want := splitLinks(strings.Split(strings.TrimSpace(string(out)), "\n"))
		if got := splitLinks(describe(mustGenerate(t, spec))); !slices.Equal(got, want) {
			t.Errorf("%s differs from Mininet:\n%s\nMininet has\n%s", spec, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// splitLinks sorts the lines about links: Mininet lists them in an order of its own.
func splitLinks(lines []string) []string {
	first := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "link") })
	slices.Sort(lines[first:])
	return lines
}

// describe lists a topology as mininetProgram does; ports without a number get the next free one.
func describe(top *Topology) []string {
	var lines []string
	next := map[string]int{}
	for _, n := range top.NodesOf(Host) {
		lines = append(lines, "host "+n.Name)
	}
	for _, n := range top.NodesOf(Switch) {
		dpid := "-"
		if n.DPID != 0 {
			dpid = fmt.Sprintf("%x", uint64(n.DPID))
		}
		lines = append(lines, "switch "+n.Name+" "+dpid)
		next[n.Name] = 1
	}
	port := func(e Endpoint) int {
		if e.Port != nil {
			return *e.Port
		}
		next[e.Node]++
		return next[e.Node] - 1
	}
	for _, l := range top.Links {
		lines = append(lines, fmt.Sprintf("link %s:%d %s:%d", l.Ends[0].Node, port(l.Ends[0]), l.Ends[1].Node, port(l.Ends[1])))
	}
	return lines
}

// FuzzGenerate proves that no text makes the parser panic, that what it accepts is within limits,
// and that what it refuses has a reason.
func FuzzGenerate(f *testing.F) {
	for _, spec := range append(examples(), "linear,4,n=", "tree,3,3,3", "torus,3,x", "mesh,k=2,k=3", ",,,", "grid,1e3,2", "waxman,5,-1,Inf") {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		words := strings.Split(spec, ",")
		g, err := generatorNamed(words[0])
		if err != nil {
			return
		}
		a, err := g.parse(words[1:])
		if err != nil {
			if problems := (Problems{}); !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("%q: refused without a reason: %v", spec, err)
			}
			return
		}
		for _, p := range g.params {
			if v := a[p.name]; !(v >= p.min && v <= p.max) || !p.real && v != math.Trunc(v) {
				t.Fatalf("%q: %s = %v was accepted", spec, p.name, v)
			}
		}
		if small := !slices.ContainsFunc(g.params, func(p param) bool { return p.name != "seed" && a[p.name] > 12 }); small {
			top, err := Generate(spec, GenerateOptions{})
			if err != nil && !strings.Contains(err.Error(), "limit") {
				t.Fatalf("%q: parsed but not built: %v", spec, err)
			}
			if hosts, others, problem := Size(spec); err == nil && (problem != nil || hosts != len(top.NodesOf(Host)) || hosts+others != len(top.Nodes)) {
				t.Fatalf("%q: %d hosts and %d others, %v; built: %d nodes", spec, hosts, others, problem, len(top.Nodes))
			}
		}
	})
}
