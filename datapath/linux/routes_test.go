package linux

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// site is a lab of which there is nothing but its topology.
type site struct {
	datapath.Site
	topology *topology.Topology
}

func (s site) Topology() *topology.Topology { return s.topology }

// TestRoutesOfTheDead proves that a routing daemon which ends while its routes are looked at, and
// is not yet known to have, is a router whose daemons have ended, not an error that takes the lab
// down.
func TestRoutesOfTheDead(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	top := &topology.Topology{}
	top.AddNode(topology.Router, "r1").Datapath = topology.FRR
	f := newFabric(site{topology: top})
	f.setProcess("r1", "zebra", &daemon{cmd: cmd, ended: make(chan struct{})})
	_, missing, err := f.missingRoute(map[string][]netip.Prefix{"r1": {netip.MustParsePrefix("10.0.0.0/8")}}, nil)
	if err != nil || !strings.Contains(missing, "the daemons of router r1 have ended") {
		t.Errorf("%q, %v", missing, err)
	}
}
