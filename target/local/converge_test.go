package local

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestRoutesOfTheDead proves that a routing daemon which ends while its routes are looked at, and is not yet known to have, is a router whose
// daemons have ended, not an error that takes the lab down.
func TestRoutesOfTheDead(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	top := &topology.Topology{}
	top.AddNode(topology.Router, "r1").Datapath = topology.FRR
	l := &Lab{}
	l.setTopology(top)
	l.setProcess("r1", "zebra", &process{cmd: cmd, ended: make(chan struct{})})
	_, missing, err := l.missingRoute(map[string][]netip.Prefix{"r1": {netip.MustParsePrefix("10.0.0.0/8")}}, nil)
	if err != nil || !strings.Contains(missing, "the daemons of router r1 have ended") {
		t.Errorf("%q, %v", missing, err)
	}
}
