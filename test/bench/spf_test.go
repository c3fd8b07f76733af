package bench

import (
	"fmt"
	"os/exec"
	"testing"
)

// TestSPF measures how long the OSPF engine, FRR and BIRD calculate after the same change of an
// area, side by side: TestSPFCurve of routing/ospf/interop, which has the engine and the daemons
// without a lab around them.
func TestSPF(t *testing.T) {
	load(t)
	cmd := exec.Command("scripts/go", "test", "./routing/ospf/interop", "-count=1", "-timeout=2h", "-run=SPFCurve", "-v",
		"-areas="+*areas, fmt.Sprintf("-pairs=%d", *pairs))
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	t.Logf("%v\n%s", cmd, out)
	if err != nil {
		t.Fatal(err)
	}
}
