package drive

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/measure/environment"
)

// TestVerified proves that a lab is verified when it is up, and that what does not hold then stands
// against each figure that is measured in it: a limit that is gone, another MTU, a loss.
func TestVerified(t *testing.T) {
	one, probes := bring(t, `
topology:
  nodes: {s1: switch, 'h[1-3]': host}
  links: [h1 -- s1, s1 -- h2: {bandwidth: 5mbit}, s1 -- h3: {delay: 10ms}]
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
	for _, c := range []struct{ node, plant, undo, want string }{
		{"s1", "tc qdisc del dev s1-eth2 root", "tc qdisc add dev s1-eth2 root tbf rate 5mbit burst 5000 limit 150000", "s1 → h2  rate"},
		{"h1", "ip link set h1-eth0 mtu 1400", "ip link set h1-eth0 mtu 1500", "h1 → s1  mtu"},
		{"h2", "nft 'add table netdev x; add chain netdev x c { type filter hook ingress device h2-eth0 priority 0; }; add rule netdev x c numgen inc mod 4 == 0 drop'",
			"nft delete table netdev x", "s1 → h2  loss"},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		defer cancel()
		sh := func(script string) {
			t.Helper()
			if err := i.lab.run(ctx, c.node, []string{"sh", "-c", script}, nil, io.Discard, io.Discard); err != nil {
				t.Fatal(script, err)
			}
		}
		sh(c.plant)
		found := func() bool {
			return slices.ContainsFunc(i.doubts, func(r environment.Reason) bool {
				return r.Level == environment.Bad && r.Code == "verify" && strings.Contains(r.Text, c.want)
			})
		}
		for !found() {
			if ctx.Err() != nil {
				t.Fatalf("%s is not found: %+v", c.want, i.doubts)
			}
			i.doubts = i.verify(ctx)
		}
		o, _ := run(t, one, probes["packets"])
		if len(o.Reasons) == 0 || o.Reasons[0].Code != "verify" {
			t.Errorf("%s does not stand against the figures: %+v", c.want, o.Reasons)
		}
		sh(c.undo)
	}
}
