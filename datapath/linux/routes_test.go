package linux

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// site is a lab that consists of nothing but its topology.
type site struct {
	datapath.Site
	topology *topology.Topology
}

func (s site) Topology() *topology.Topology { return s.topology }

// TestRoutesOfTheDead proves that if a routing daemon ends while its routes are being read, before
// its end is noticed, its router counts as one whose daemons have ended; it is not an error that
// takes the lab down.
func TestRoutesOfTheDead(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	top := &topology.Topology{}
	top.AddNode(topology.Router, "r1").Datapath = topology.FRR
	f := newFabric(site{topology: top})
	f.setProcess("r1", "zebra", &daemon{cmd: cmd, ended: make(chan struct{})})
	_, missing, err := f.missingRoute(t.Context(), map[string][]netip.Prefix{"r1": {netip.MustParsePrefix("10.0.0.0/8")}}, nil)
	if err != nil || !strings.Contains(missing, "the daemons of router r1 have ended") {
		t.Errorf("%q, %v", missing, err)
	}
}
