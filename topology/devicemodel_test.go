package topology

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func modelledPair(ports Rate) *Topology {
	t := &Topology{}
	t.AddNode(Switch, "s1").Model = &Model{PerPacket: Cost{Amount: 28_000}, Ports: ports, Source: "a test"}
	t.AddNode(Host, "h1")
	t.AddNode(Host, "h2")
	t.AddLink("s1", "h1")
	t.AddLink("s1", "h2")
	return t
}

// TestModelPorts proves that each link at a modelled device has, both ways, at most the bandwidth
// of its ports: where it says nothing, or more, or has more in one direction; that what has less
// keeps it; and that a command cannot take that away.
func TestModelPorts(t *testing.T) {
	top := modelledPair(100e6)
	top.Links[0].Bandwidth = 1e9
	top.Links[0].Ends[1].Egress = &Impairment{Bandwidth: 10e6}
	top.Links[1].Ends[0].Egress = &Impairment{Delay: 1e6}
	out, problems := Resolve(top, Defaults{})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	for i, want := range [][2]Rate{{100e6, 10e6}, {100e6, 100e6}} {
		for end := range 2 {
			if got := out.Links[i].Egress(end).Bandwidth; got != want[end] {
				t.Errorf("link %d, end %d: %v, not %v", i, end, got, want[end])
			}
		}
	}
	for words, want := range map[string]Rate{"bandwidth=none": 100e6, "bandwidth=1gbit": 100e6, "bandwidth=5mbit": 5e6} {
		c, err := ParseLinkChange([]string{words})
		if err != nil {
			t.Fatal(err)
		}
		l := out.Links[1].Clone()
		if c.WithinPorts(l, out.Node).Apply(l); l.Egress(0).Bandwidth != want || l.Egress(1).Bandwidth != want {
			t.Errorf("%s: %v", words, l.Egress(0).Bandwidth)
		}
	}
	if c, err := ParseLinkChange([]string{"delay=1ms"}); err != nil || c.WithinPorts(out.Links[1],
		out.Node).Bandwidth != nil {
		t.Error("a change of something else changes the bandwidth", err)
	}
}

// TestModelRefused proves that a model is refused where it could not hold: at a controller, at a
// host that is a machine itself, and at nodes with a link whose packets do not go through anything
// of the lab's.
func TestModelRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Topology)
		want   string
	}{
		"an interface of the machine": {func(t *Topology) {
			t.Links = append(t.Links, &Link{Ends: [2]Endpoint{{Node: "s1"}, {Interface: "eth7"}}})
		}, "packets of a real interface or network do not pass"},
		"a network": {func(t *Topology) {
			t.Links = append(t.Links, &Link{Ends: [2]Endpoint{{Network: "net1"}, {Node: "s1"}}})
		},
			"packets of a real interface or network do not pass"},
		"a controller": {func(t *Topology) { t.AddNode(Controller, "c1").Model = t.Nodes[0].Model },
			"it has no model"},
		"a native host": {func(t *Topology) { t.Nodes[1].Native, t.Nodes[1].Model = true, t.Nodes[0].Model },
			"has no model"},
		"without source": {func(t *Topology) { t.Nodes[0].Model.Source = " " }, "where its values are from"},
		"two of a name": {func(t *Topology) { m := *t.Nodes[0].Model; m.Name = "m"; t.Models = []Model{m, m} },
			"two of that name"},
		"too many": {func(t *Topology) {
			for i := range MaxModels + 1 {
				m := *t.Nodes[0].Model
				m.Name = fmt.Sprint("m", i)
				t.Models = append(t.Models, m)
			}
		}, "there are 1001 models, and 1000 is the most"},
		"a nameless one": {func(t *Topology) { t.Models = []Model{*t.Nodes[0].Model} }, "needs a name"},
		"NaN":            {func(t *Topology) { t.Nodes[0].Model.PerByte.Amount = nan() }, "too long"},
		"an endless name": {func(t *Topology) {
			m := *t.Nodes[0].Model
			m.Name = strings.Repeat("x",
				101)
			t.Models = []Model{m}
		}, "at most 100"},
	} {
		top := modelledPair(0)
		c.change(top)
		if err := Validate(top).Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if problems := Validate(modelledPair(0)); len(problems) > 0 {
		t.Error(problems)
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

// TestCosts proves that costs and clocks are read as they are written, whatever they are.
func TestCosts(t *testing.T) {
	for text, want := range map[string]Cost{"28us": {Amount: 28_000}, "1.5 ns": {Amount: 1.5}, "0.2s": {Amount: 2e8}, "15000 cycles": {15000, true}, "1 cycle": {1, true}} {
		if got, err := ParseCost(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "28", "us", "-1us", "2s", "1e5us", "3 laps", "1 m", "2000000000000 cycles"} {
		if got, err := ParseCost(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		c := Cost{rapid.Float64Range(0, 1e9).Draw(t, "amount"), rapid.Bool().Draw(t, "cycles")}
		c.Cycles = c.Cycles && c.Amount > 0
		if got, err := ParseCost(c.String()); err != nil || got != c {
			t.Fatalf("%v is written %s and read as %+v, %v", c, c, got, err)
		}
		f := Frequency(rapid.Uint64Range(1000, 1e12).Draw(t, "clock"))
		if got, err := ParseFrequency(f.String()); err != nil || got != f {
			t.Fatalf("%d is written %s and read as %d, %v", uint64(f), f, uint64(got), err)
		}
	})
}

// TestModelDiff proves that a change of a model shows as one setting, in words.
func TestModelDiff(t *testing.T) {
	a, b := modelledPair(0), modelledPair(0)
	b.Nodes[0].Model.PerPacket.Amount = 1000
	changes := Diff(a, b)
	if len(changes) != 1 || changes[0].String() !=
		"~ switch s1   model 28us a packet, queue 1000, source a test → 1us a packet, queue 1000, source a test" {
		t.Errorf("%v", changes)
	}
}
