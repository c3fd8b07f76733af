package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// experimentFile is a file of experiments/.
func experimentFile(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs("../../experiments/" + name)
	must(t, err)
	return file
}

// TestCable proves that paper 1's emulation network, on one machine, is what the paper has: what a
// Pi sends another goes up the gateway's cable and down again, each time in the VLAN of the Pi
// there, and s1 decides where to; without the cable no Pi reaches another, nor the gateway.
func TestCable(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ovs-ofctl"); err != nil {
		t.Skip("ovs-ofctl is not installed (Debian: openvswitch-switch)")
	}
	m := newMachine(t)
	m.up(experimentFile(t, "1-c3-edge/emulated.yaml"))
	m.pingAll(7 * 6)
	packets := func(way string) int {
		t.Helper()
		found := regexp.MustCompile(`(?s)` + way + ` pkts=(\d+)`).FindStringSubmatch(m.exec("nic", "ovs-ofctl dump-ports nic 7"))
		if found == nil {
			t.Fatalf("no counters of the cable: %s", m.exec("nic", "ovs-ofctl dump-ports nic 7"))
		}
		n, err := strconv.Atoi(found[1])
		must(t, err)
		return n
	}
	in, out := packets("rx"), packets("tx")
	m.exec("p1", "ping -c 50 -i 0.01 -W 2 p2")
	for way, more := range map[string]int{"up": packets("rx") - in, "down": packets("tx") - out} {
		if more < 100 || more > 130 { // ARP and what the controller sends besides
			t.Errorf("50 echoes and 50 replies went %s the cable as %d packets", way, more)
		}
	}
	for pi := 1; pi <= 2; pi++ {
		m.exec("s1", fmt.Sprintf("ovs-ofctl dump-flows s1 table=1 | grep output:%d", pi))
	}
	m.ok("link", "set", "hw-nic", "down")
	for _, to := range []string{"p2", "gateway"} {
		if r := m.run("exec", "p1", "--", "ping", "-c", "1", "-W", "1", to); r.code == 0 {
			t.Errorf("p1 reaches %s without the cable: %s", to, r)
		}
	}
}
