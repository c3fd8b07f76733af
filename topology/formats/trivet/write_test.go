package trivet

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"trivet.dev/trivet/topology"
)

func asText(t *topology.Topology) string {
	data, _ := json.Marshal(t)
	return string(data)
}

// TestRoundTrip proves that what is written reads as the same topology, whatever its fields and
// names, except for events that a line cannot express, which are reported as losses.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := topologies.Draw(t, "topology")
		data, losses, err := Write(want)
		if err != nil {
			t.Fatal(err)
		}
		if len(losses) > 0 {
			t.Skip("an event is lost")
		}
		got, problems := Read("t.yaml", data)
		if len(problems) > 0 {
			t.Fatalf("%s\n%s", problems, data)
		}
		if !reflect.DeepEqual(want, withoutPositions(got)) {
			t.Fatalf("wrote\n%s\nread  %s\nwrote %s", data, asText(got), asText(want))
		}
	})
}

// TestLosses proves that what a file cannot hold is reported: options of other kinds of nodes,
// events that a line cannot express; and that names that would read as something else are refused.
func TestLosses(t *testing.T) {
	top := &topology.Topology{}
	top.AddNode(topology.Host, "h1").DPID = 26
	top.AddNode(topology.Controller, "c0").NAT = true
	top.Schedule = []topology.Event{{At: 1, Action: topology.Action{Node: "h1", Run: "two\nlines"}}}
	_, losses, err := Write(top)
	var got []string
	for _, l := range losses {
		got = append(got, l.String())
	}
	want := []string{"host h1: dpid (0x1a)", "controller c0: nat (true)", "topology: event (at 1ns: h1 run two\nlines)"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwant %q\ngot  %q", err, want, got)
	}
	for _, name := range []string{"", "h[1]", "\xff"} {
		top := &topology.Topology{}
		top.AddNode(topology.Host, name)
		if _, _, err := Write(top); err == nil {
			t.Errorf("%q was written", name)
		}
	}
}
