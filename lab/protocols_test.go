package lab

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// Proves that a lab is refused whose routing nodes should speak a protocol that no app of the
// controller speaks, and only then.
func TestSpokenByApps(t *testing.T) {
	top, err := topology.Generate("ring,3", topology.GenerateOptions{Nodes: topology.Router})
	if err != nil {
		t.Fatal(err)
	}
	top.Node("r1").Protocols.Set(&topology.OSPF{})
	resolved, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.Embedded, Controlled: topology.Embedded, Controller: topology.ControllerTrivet})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	var p topology.Problems
	if checkSpoken(&p, resolved, []string{"ospf", "routing"}); p.Err() != nil {
		t.Error(p)
	}
	checkSpoken(&p, resolved, []string{"routing"})
	if len(p) != 1 || !strings.Contains(p.Error(), "router r1: no app of the controller speaks OSPF; use datapath frr or bird") {
		t.Error(p)
	}
}
