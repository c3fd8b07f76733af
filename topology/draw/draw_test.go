package draw

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
	"pgregory.net/rapid"

	"trivet.dev/trivet/topology"
)

var update = flag.Bool("update", false, "write the golden files anew")
var pictures = flag.String("pictures", "", "a directory to which TestPictures writes every example as SVG")

// samples are topologies of every layout, by name.
func samples(t *testing.T) map[string]*topology.Topology {
	out := map[string]*topology.Topology{"campus": campus(), "two-sites": twoSites(), "nothing": {}}
	for _, spec := range []string{"single,1", "single,60", "linear,2", "linear,4", "linear,30", "linear,6,4", "line,5", "star,9", "tree,3,2", "tree,4,3",
		"tree,2,8", "ring,3", "ring,20", "mesh,2", "mesh,8", "grid,4,3", "torus,5,5", "torus,4,4,3", "fat-tree,2", "fat-tree,4", "fat-tree,6,3",
		"waxman,60", "erdos-renyi,30,0.1", "waxman,200,beta=0.05"} {
		top, err := topology.Generate(spec, topology.GenerateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out[spec] = top
	}
	return out
}

// campus is ten switches, the first in the middle, with four hosts each.
func campus() *topology.Topology {
	t := &topology.Topology{Name: "campus"}
	for i := 1; i <= 10; i++ {
		s := t.AddNode(topology.Switch, "s"+strconv.Itoa(i)).Name
		for j := 1; j <= 4; j++ {
			t.AddLink(t.AddNode(topology.Host, "h"+strconv.Itoa(4*i-4+j)).Name, s)
		}
		if i > 1 {
			t.AddLink("s1", s)
		}
	}
	return t
}

// twoSites has everything that a drawing may encounter: all kinds of nodes; parallel and impaired
// links, one that is down, one to a real interface, one to nowhere, one from a node to itself; and
// nodes without links.
func twoSites() *topology.Topology {
	t := &topology.Topology{Name: "two-sites"}
	for _, name := range []string{"r1", "r2", "frr"} {
		t.AddNode(topology.Router, name)
	}
	t.AddNode(topology.Controller, "c0")
	t.AddNode(topology.Host, "lonely")
	for i := range 2 {
		s := t.AddNode(topology.Switch, "s"+strconv.Itoa(i+1)).Name
		for j := range 4 {
			h := t.AddNode(topology.Host, "h"+strconv.Itoa(4*i+j+1))
			h.Addresses = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(4*i + j + 1)}), 8)}
			t.AddLink(h.Name, s)
		}
		t.AddLink(s, "r"+strconv.Itoa(i+1))
	}
	for _, l := range t.Links {
		l.Bandwidth = 1e9
	}
	wan := t.AddLink("r1", "r2")
	wan.Delay, wan.Loss = 10e6, 0.001
	t.AddLink("r1", "r2").Ends[0].Egress = &topology.Impairment{Delay: 5e6}
	down := t.AddLink("r2", "frr")
	down.Down, down.Bandwidth = true, 1e9
	t.AddLink("s2", "").Ends[1].Interface = "enp3s0"
	t.AddLink("s1", "nowhere").Bandwidth = 1e9
	t.AddLink("s1", "s1").Bandwidth = 1e9
	return t
}

// element is what the tests need of an SVG.
type element struct {
	XMLName  xml.Name
	Class    string    `xml:"class,attr"`
	ViewBox  string    `xml:"viewBox,attr"`
	Title    string    `xml:"title"`
	X        float64   `xml:"x,attr"`
	Y        float64   `xml:"y,attr"`
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

func parse(t *testing.T, svg []byte) element {
	t.Helper()
	var root element
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	decoder.Strict = true
	if err := decoder.Decode(&root); err != nil {
		t.Fatalf("not well-formed: %v\n%s", err, svg)
	}
	return root
}

// find returns the elements whose class has a word.
func (e element) find(class string) []element {
	var out []element
	for _, word := range strings.Fields(e.Class) {
		if word == class {
			out = append(out, e)
		}
	}
	for _, c := range e.Children {
		out = append(out, c.find(class)...)
	}
	return out
}

// TestSVGHasEverythingOnce proves that the SVG is well-formed, has each node and each link exactly
// once and no coordinate that is not a number, and is the same each time.
func TestSVGHasEverythingOnce(t *testing.T) {
	for name, top := range samples(t) {
		svg := SVG(top, Options{})
		root := parse(t, svg)
		if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
			t.Errorf("%s: a coordinate is no number", name)
		}
		if !bytes.Equal(svg, SVG(top, Options{})) {
			t.Errorf("%s: is different the second time", name)
		}
		if got := len(root.find("link")); got != len(top.Links) {
			t.Errorf("%s: %d links are drawn, there are %d", name, got, len(top.Links))
		}
		times := map[string]int{}
		for _, n := range root.find("node") {
			times[strings.SplitN(n.Title, "\n", 2)[0]]++
		}
		for _, n := range top.Nodes {
			if times[n.Name] != 1 {
				t.Errorf("%s: %s is drawn %d times", name, n.Name, times[n.Name])
			}
		}
	}
}

// TestBoxesDoNotOverlap proves that nodes' boxes do not overlap, and are all inside the picture.
func TestBoxesDoNotOverlap(t *testing.T) {
	for name, top := range samples(t) {
		g := newGraph(top)
		if len(g.vertices) == 0 {
			continue
		}
		g.layout()
		size := g.toOrigin()
		for i, a := range g.vertices {
			if a.at.x-a.size.x/2 < 0 || a.at.x+a.size.x/2 > size.x || a.at.y-a.size.y/2 < 0 || a.at.y+a.size.y/2 > size.y {
				t.Errorf("%s: %s at %v is outside of %v", name, a.name, a.at, size)
			}
			for _, b := range g.vertices[:i] {
				if o := overlap(a.at, a.size, b.at, b.size, 0); o.x > 0.1 && o.y > 0.1 {
					t.Errorf("%s: %s lies over %s by %.1f x %.1f", name, a.name, b.name, o.x, o.y)
				}
			}
		}
	}
}

// TestPlaceIsKept proves that nodes with a Place are drawn there, relative to each other, and the
// others around them; that places that are not in pixels (but in degrees) are spread, and absurd
// ones ignored.
func TestPlaceIsKept(t *testing.T) {
	top := campus()
	top.Node("s1").Place = &topology.Point{X: 500, Y: 100}
	top.Node("s5").Place = &topology.Point{X: 900, Y: 400}
	top.Node("h40").Place = &topology.Point{X: 100, Y: 800}
	top.Node("s9").Place = &topology.Point{X: math.Inf(1), Y: math.NaN()}
	g := newGraph(top)
	g.layout()
	at := map[string]point{}
	for _, v := range g.vertices {
		at[v.name] = v.at
	}
	if d := at["s5"].minus(at["s1"]); d != (point{400, 300}) {
		t.Errorf("s5 is %v from s1, want 400, 300", d)
	}
	if d := at["h40"].minus(at["s1"]); d != (point{-400, 700}) {
		t.Errorf("h40 is %v from s1, want -400, 700", d)
	}
	if d := at["h17"].distance(at["s5"]); d > 150 {
		t.Errorf("h17 is %.0f pixels from its switch", d)
	}
	degrees := &topology.Topology{}
	degrees.AddNode(topology.Router, "oslo").Place = &topology.Point{X: 10.7, Y: 59.9}
	degrees.AddNode(topology.Router, "rome").Place = &topology.Point{X: 12.5, Y: 41.9}
	g = newGraph(degrees)
	g.layout()
	if d := g.vertices[0].at.distance(g.vertices[1].at); d < 50 {
		t.Errorf("oslo and rome are %.0f pixels apart", d)
	}
}

// TestSVGTellsDetails proves that whatever is special about a link or node is in the picture:
// impairments, down, real interfaces, addresses, counts.
func TestSVGTellsDetails(t *testing.T) {
	top := twoSites()
	svg := string(SVG(top, Options{Title: "My <net>"}))
	for _, want := range []string{"My &lt;net&gt;", "10ms 0.1% loss", "→ 5ms", "10.0.0.3/8", "enp3s0", "links 1gbit unless noted",
		"9 hosts", "2 switches", "3 routers", "1 controller", "(1 down)", "1 missing node", "prefers-color-scheme: dark"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture does not have %q", want)
		}
	}
	root := parse(t, []byte(svg))
	for class, n := range map[string]int{"down": 1, "real": 1} {
		if got := len(root.find(class)); got != n {
			t.Errorf("%d links are of class %s, want %d", got, class, n)
		}
	}
}

// TestUntrustedNames proves that no name or title can break out of its place in any of the outputs.
func TestUntrustedNames(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		top := &topology.Topology{Name: rapid.String().Draw(r, "title")}
		names := rapid.SliceOfNDistinct(rapid.OneOf(rapid.String(), rapid.Just(`"]; x -- y [label="`), rapid.Just("</text><script>"),
			rapid.Just("a\x1b[31m\n\tb"), rapid.Just(`\`), rapid.Just("日本語日本語日本語日本語")), 1, 6, rapid.ID).Draw(r, "names")
		for i, n := range names {
			top.AddNode(topology.Switch, n)
			top.AddLink(names[0], names[i])
		}
		root := element{}
		if err := xml.Unmarshal(SVG(top, Options{}), &root); err != nil {
			r.Fatalf("SVG: %v", err)
		}
		if got := len(root.find("node")); got < len(names) {
			r.Fatalf("%d nodes are drawn, there are %d", got, len(names))
		}
		if lines := strings.Count(string(DOT(top)), "\n"); lines != 5+len(newGraph(top).vertices)+len(top.Links) {
			r.Fatalf("DOT has %d lines:\n%s", lines, DOT(top))
		}
		checkWidth(r, top, rapid.IntRange(narrowest, 200).Draw(r, "width"))
	})
}

func checkWidth(t interface{ Errorf(string, ...any) }, top *topology.Topology, width int) {
	text := Text(top, width)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if w := runewidth.StringWidth(line); w > width || strings.ContainsAny(line, "\x1b\t\r") {
			t.Errorf("line of %d columns in a terminal of %d: %q", w, width, line)
		}
	}
}

// TestTextWidth proves that no line of the text is wider than the terminal, whatever the topology.
func TestTextWidth(t *testing.T) {
	for name, top := range samples(t) {
		for _, width := range []int{narrowest, 40, 80, 200} {
			t.Run(fmt.Sprintf("%s at %d", name, width), func(t *testing.T) { checkWidth(t, top, width) })
		}
	}
}

// TestTextHasEveryLink proves that the text names each switch and each link between switches
// exactly once, in the tree or below it.
func TestTextHasEveryLink(t *testing.T) {
	for _, spec := range []string{"tree,3,2", "ring,7", "mesh,5", "torus,3,3", "fat-tree,4", "linear,12", "waxman,25"} {
		top, _ := topology.Generate(spec, topology.GenerateOptions{})
		g := newGraph(top)
		w := &writer{g: g, width: 1000, notes: g.notes()}
		w.parts(g.components())
		_, beside, _ := strings.Cut(w.String(), "\nand ")
		below := 0
		for _, children := range w.below {
			below += len(children)
		}
		inner := len(top.NodesOf(topology.Switch))
		if core := len(top.Links) - len(top.NodesOf(topology.Host)); below != inner-1 || below+strings.Count(beside, "──") != core {
			t.Errorf("%s: %d links in the tree and %d beside it, of %d:\n%s", spec, below, strings.Count(beside, "──"), core, w.String())
		}
	}
}

// TestRanges proves that ranges are short, keep the order, and stand for the names they came from.
func TestRanges(t *testing.T) {
	for names, want := range map[string]string{
		"h1 h2 h3 h7":             "h[1-3] h7",
		"h1s1 h2s1 h1s2":          "h[1-2]s1 h1s2",
		"h1x1 h1x2 h2x2":          "h1x[1-2] h2x2",
		"h08 h09 h10":             "h08 h09 h10",
		"a b":                     "a b",
		"h9 h10 h11 x":            "h[9-11] x",
		"h1 h3":                   "h1 h3",
		"h99999999999999999999 h": "h99999999999999999999 h",
	} {
		if got := strings.Join(ranges(strings.Fields(names)), " "); got != want {
			t.Errorf("%s: %s, want %s", names, got, want)
		}
	}
}

// TestDOTIsGraphviz proves that Graphviz reads what DOT writes, and finds all nodes and links.
func TestDOTIsGraphviz(t *testing.T) {
	if _, err := exec.LookPath("dot"); err != nil {
		t.Skip("Graphviz is not installed")
	}
	top := twoSites()
	top.AddNode(topology.Host, `"\N\`)
	cmd := exec.Command("dot", "-Tplain")
	cmd.Stdin = bytes.NewReader(DOT(top))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("dot: %v", err)
	}
	if nodes, links := strings.Count(string(out), "\nnode "), strings.Count(string(out), "\nedge "); nodes != len(top.Nodes)+2 || links != len(top.Links) {
		t.Errorf("dot finds %d nodes and %d links", nodes, links)
	}
}

// TestLargeTopologies proves that a thousand nodes and more can be drawn (quadratic work would show
// as a time-out).
func TestLargeTopologies(t *testing.T) {
	for _, spec := range []string{"waxman,500,beta=0.05", "single,2000", "linear,2000", "tree,10", "grid,40,40"} {
		top, err := topology.Generate(spec, topology.GenerateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(parse(t, SVG(top, Options{})).find("node")); got != len(top.Nodes) {
			t.Errorf("%s: %d nodes are drawn", spec, got)
		}
		if lines := strings.Count(Text(top, 80), "\n"); lines > 100 {
			t.Errorf("%s: %d lines for a terminal", spec, lines)
		}
	}
}

// TestGolden proves that what these drawings look like changes only on purpose. Layouts by stress
// are left out: their last digit may differ between processors.
func TestGolden(t *testing.T) {
	linear, _ := topology.Generate("linear,3", topology.GenerateOptions{})
	for file, got := range map[string][]byte{
		"campus.txt":    []byte(Text(campus(), 80)),
		"two-sites.txt": []byte(Text(twoSites(), 60)),
		"two-sites.dot": DOT(twoSites()),
		"linear-3.svg":  SVG(linear, Options{}),
	} {
		path := filepath.Join("testdata", file)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is different now (look at it, then go test -update):\n%s", file, got)
		}
	}
}

// TestPictures writes pictures to look at; it proves nothing and runs only on request.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("no -pictures directory is given")
	}
	for name, top := range samples(t) {
		if err := os.WriteFile(filepath.Join(*pictures, name+".svg"), SVG(top, Options{}), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSites proves that every drawing says at which site a node is, and the words of a leaf only
// where that is not its neighbour's.
func TestSites(t *testing.T) {
	top := campus()
	for _, n := range top.Nodes {
		if n.Kind == topology.Switch {
			n.On = "m<1>"
		}
	}
	top.Nodes[0].On = "m2"
	switches := len(top.NodesOf(topology.Switch))
	svg := string(SVG(top, Options{}))
	for _, want := range []string{"<title>at m&lt;1&gt;</title>", "at m2</text>", "\nat m&lt;1&gt;"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in the SVG", want)
		}
	}
	parse(t, []byte(svg))
	if n := strings.Count(svg, `rx="6" fill=`); n < switches+1 || n > switches+4 {
		t.Errorf("%d shapes for sites", n)
	}
	if dot := string(DOT(top)); strings.Count(dot, "subgraph cluster_") != 2 || !strings.Contains(dot, `label="m<1>"`) {
		t.Error(dot)
	}
	if text := Text(top, 100); !strings.Contains(text, "@m<1>") || !strings.Contains(text, "@head") {
		t.Error(text)
	}
}
