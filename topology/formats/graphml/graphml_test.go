package graphml

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

const example = "../../../examples/backbone.graphml"

var defaults = topology.Defaults{Datapath: topology.Embedded, Controller: topology.ControllerTrivet}

// zoo writes a file as the Topology Zoo does, with its own ids for keys.
func zoo(graph string) []byte {
	return []byte(`<?xml version="1.0" encoding="utf-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="label" attr.type="string" for="node" id="d33"/><key attr.name="Latitude" for="node" id="d32"/>
<key attr.name="Longitude" for="node" id="d29"/><key attr.name="Internal" for="node" id="d31"/><key attr.name="hyperedge" for="node" id="d30"/>
<key attr.name="LinkSpeed" for="edge" id="d35"/><key attr.name="LinkSpeedUnits" for="edge" id="d34"/><key attr.name="LinkSpeedRaw" for="edge" id="d36"/>
<graph edgedefault="undirected">
` + graph + "</graph></graphml>\n")
}

func node(id, label, more string) string {
	return fmt.Sprintf("<node id=%q><data key=\"d33\">%s</data>%s</node>\n", id, label, more)
}

func at(latitude, longitude string) string {
	return fmt.Sprintf(`<data key="d32">%s</data><data key="d29">%s</data>`, latitude, longitude)
}

func edge(a, b, more string) string {
	return fmt.Sprintf("<edge source=%q target=%q>%s</edge>\n", a, b, more)
}

// TestExample proves that the backbone reads without an error, comes up, and has the expected size.
func TestExample(t *testing.T) {
	data, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	if !detect(data) {
		t.Error("not detected")
	}
	top, problems := Read(example, data, formats.Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if n := len(top.NodesOf(topology.Switch)); n < 120 {
		t.Errorf("%d switches, want 120 or more", n)
	}
	if len(problems) != 2 { // one for its external nodes, one for its exchange
		t.Error(problems)
	}
	resolved, problems := topology.Resolve(top, defaults)
	if resolved == nil {
		t.Fatal(problems.Err())
	}
	n := top.Node("Munchen")
	if n == nil || n.Foreign[name].(map[string]any)["label"] != "München" || n.Place == nil {
		t.Errorf("München: %+v", n)
	}
	for _, l := range top.Links {
		if host := top.Node(l.Ends[1].Node).Kind == topology.Host; host == (l.Bandwidth > 0) {
			t.Errorf("link %s has the bandwidth %s", l.Name(), l.Bandwidth)
		}
	}
}

// TestMeaning proves what each type of node and edge becomes.
func TestMeaning(t *testing.T) {
	raw := func(v string) string { return `<data key="d36">` + v + `</data>` }
	speed := func(v, unit string) string {
		return `<data key="d35">` + v + `</data><data key="d34">` + unit + `</data>`
	}
	top, problems := Read("z.graphml", zoo(
		node("0", "Wien", at("48.21", "16.37"))+
			node("1", "Praha", at("50.08", "14.44"))+
			node("7", "Wien", "")+
			node("a", "h1", "")+
			node("b", "Peer", `<data key="d31">0</data>`)+
			node("c", "LAN", `<data key="d30">1</data>`)+
			`<node id="d"/>`+
			edge("0", "1", raw("2500000000.0"))+
			edge("1", "0", speed("45", "M"))+
			edge("0", "7", speed("155.5", "m"))+
			edge("7", "7", "")+
			edge("a", "b", speed("&lt;10", "G"))+
			edge("a", "c", speed("1", "furlongs"))+
			edge("c", "d", raw("0"))), formats.Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range top.Nodes {
		got = append(got, string(n.Kind)+" "+n.Name)
	}
	for _, l := range top.Links {
		got = append(got, fmt.Sprintf("%s %s %s", l.Name(), l.Bandwidth, l.Delay))
	}
	want := []string{
		"switch Wien", "switch Praha", "switch Wien-2", "switch h1", "switch Peer", "switch LAN", "switch nd",
		"host h1-2", "host h2", "host h3", "host h4", "host h5",
		"Wien-h1-2 0bit 0ns", "Praha-h2 0bit 0ns", "Wien-2-h3 0bit 0ns", "h1-h4 0bit 0ns", "nd-h5 0bit 0ns",
		"Wien-Praha 2.5gbit 1.255ms", "Praha-Wien 45mbit 1.255ms", "Wien-Wien-2 155.5mbit 0ns",
		"h1-Peer 0bit 0ns", "h1-LAN 0bit 0ns", "LAN-nd 0bit 0ns",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, w := range []string{"1 nodes (Peer) are external", "1 nodes (LAN) are hyperedges", "the edge from Wien-2 to itself is left out",
		`has the speed "<10", which is not a number`, `a speed in the unknown unit "furlongs"`, `has the speed "0"`} {
		if !strings.Contains(problems.Error(), w) {
			t.Errorf("missing %q in\n%v", w, problems)
		}
	}
	if p := top.Nodes[0].Place; p == nil || top.Nodes[1].Place.Y >= p.Y || top.Nodes[1].Place.X >= p.X {
		t.Errorf("Praha is not north-west of Wien: %v %v", p, top.Nodes[1].Place)
	}
}

// TestDelay proves the great-circle delay for known distances: a quarter and half of the earth's
// circumference, and Paris to New York (5,837 km).
func TestDelay(t *testing.T) {
	for _, c := range []struct {
		from, to site
		km       float64
	}{
		{site{0, 0}, site{90, 0}, 2 * math.Pi * 6371.0088 / 4},
		{site{0, 0}, site{0, 180}, math.Pi * 6371.0088},
		{site{48.8566, 2.3522}, site{40.7128, -74.0060}, 5837},
		{site{10, 20}, site{10, 20}, 0},
		{site{0, 179.5}, site{0, -179.5}, 111.195},
	} {
		want := c.km * 1000 / (299792458 * 2.0 / 3)
		got := time.Duration(c.from.delay(c.to)).Seconds()
		if math.Abs(got-want) > 1e-6+want*1e-3 {
			t.Errorf("%v to %v: got %g s, want %g s", c.from, c.to, got, want)
		}
	}
}

// TestNames proves that any label becomes a valid name, and no two labels the same one.
func TestNames(t *testing.T) {
	used := namer{}
	for label, want := range map[string]string{
		"São Paulo": "Sao-Paulo", "St. John's": "St.-John-s", "Łódź": "Lodz", "  (?) ": "node", "東京": "node-2", "-x-": "x", "Straße 4": "Strasse-4", "lo": "lo-2", ".a": "a",
	} {
		if got := legal(label); got != strings.TrimSuffix(want, "-2") {
			t.Errorf("%q became %q, want %q", label, got, want)
		}
	}
	seen := map[string]bool{}
	for i := range 2000 {
		n := used.take(strings.Repeat("Long Label ", 9) + []string{"", "x", "?"}[i%3])
		if seen[n] || len(n) > maxName {
			t.Fatalf("%q is taken or too long", n)
		}
		seen[n] = true
	}
	if got := used.take("lo"); got != "lo-2" {
		t.Errorf("a reserved word became %q", got)
	}
}
