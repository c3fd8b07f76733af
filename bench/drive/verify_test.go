package drive

import (
	"context"
	"io"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/environment"
)

// TestVerified proves that a lab is verified when it is up, and that what does not hold then stands
// against each figure that is measured in it: here a limit that was taken away behind its back.
func TestVerified(t *testing.T) {
	one, probes := bring(t, `
topology:
  nodes: {s1: switch, h1: host, h2: host}
  links: [h1 -- s1, s1 -- h2: {bandwidth: 5mbit}]
lab: {datapath: bridge, controller: none}
probes:
  - packets: {from: h1, to: h2, time: 100ms, rate: 100}
`)
	i := one.(*instance)
	for _, r := range i.doubts {
		if r.Level == environment.Bad {
			t.Errorf("a lab that is sound: %+v", r)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := i.lab.run(ctx, "s1", []string{"tc", "qdisc", "del", "dev", "s1-eth2", "root"}, nil, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	found := func() bool {
		for _, r := range i.doubts {
			if r.Level == environment.Bad && r.Code == "verify" && strings.Contains(r.Text, "s1 → h2  rate") {
				return true
			}
		}
		return false
	}
	for !found() {
		if ctx.Err() != nil {
			t.Fatalf("a limit that is gone is not found: %+v", i.doubts)
		}
		i.doubts = i.verify(ctx)
	}
	o, _ := run(t, one, probes["packets"])
	if len(o.Reasons) == 0 || o.Reasons[0].Code != "verify" {
		t.Errorf("it does not stand against the figures: %+v", o.Reasons)
	}
}
