package topology

import (
	"net/netip"
	"testing"

	"trivet.dev/trivet/routing/rib"
)

// TestDiffInWords proves that what differs between two routers is shown in the words of files.
func TestDiffInWords(t *testing.T) {
	router := func(distance rib.Distance, metric int) *Topology {
		return &Topology{Nodes: []*Node{{Name: "r1", Kind: Router, Distances: []SourceDistance{{Source: SourceOSPF, Distance: distance}, {Source: SourceStatic, Distance: 5}},
			Protocols: Protocols{SourceOSPF: &OSPF{Redistribute: []OSPFRedistribute{{RedistributeRule: RedistributeRule{Source: SourceStatic, Prefix: netip.MustParsePrefix("10.20.0.0/16"), LE: 24, Metric: metric}}, {RedistributeRule: RedistributeRule{Source: SourceConnected, Deny: true}}}}}}}}
	}
	changes := Diff(router(150, 30), router(120, 40))
	want := "~ router r1   distances ospf 150, static 5 → ospf 120, static 5, " +
		"ospf.redistribute static 10.20.0.0/16 le 24 metric 30, deny connected → static 10.20.0.0/16 le 24 metric 40, deny connected"
	if len(changes) != 1 || changes[0].String() != want {
		t.Errorf("%v\nwant %s", changes, want)
	}
}
