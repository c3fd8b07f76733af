package e2e

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

func kernelLimit(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/ipv4/neigh/default/gc_thresh1")
	must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	must(t, err)
	return n
}

// TestLimits proves that limits of the kernel as a whole are raised for a lab that needs it, stay
// raised while any lab does, and are as before after the last. It uses the network of the tests'
// own machine, where these limits are seen, so it runs alone.
func TestLimits(t *testing.T) {
	before := kernelLimit(t)
	m := sharedMachine(t)
	m.ok("up", "--name", m.name+"a", "single,2", "--datapath", "bridge")
	first := kernelLimit(t)
	hosts := int(math.Sqrt(float64(first))) + 10 // more pairs than the machine allows for
	if hosts > 1000 {
		t.Skipf("another lab has raised the limit to %d; a bridge has not so many ports", first)
	}
	m.ok("up", "--name", m.name+"b", "single,"+strconv.Itoa(hosts), "--datapath", "bridge")
	second := kernelLimit(t)
	if first < before || second < hosts*(hosts-1) {
		t.Errorf("%d hosts have %d neighbours; the limit was %d, with 2 hosts %d, with these %d", hosts, hosts*(hosts-1), before, first, second)
	}
	m.ok("down", m.name+"b")
	if now := kernelLimit(t); now != first {
		t.Errorf("with the larger lab gone the limit is %d, not %d", now, first)
	}
	m.ok("down", m.name+"a")
	if now := kernelLimit(t); now != before {
		t.Errorf("with the last lab gone the limit is %d, not %d", now, before)
	}
}

// TestSideBySide proves that labs with the same nodes and addresses do not meet, and that one's
// down leaves the other whole.
func TestSideBySide(t *testing.T) {
	for _, datapath := range []string{"bridge", "ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			a, b := m.name+"a", m.name+"b"
			m.ok("up", "--name", a, "--wait", "3m", "linear,2", "--datapath", datapath)
			m.ok("up", "--name", b, "--wait", "3m", "linear,2", "--datapath", datapath)
			contains(t, m.want(1, "ping", "--all").err, "--lab", a, b)
			m.pingAll(2, "--lab", a)
			m.pingAll(2, "--lab", b)
			m.ok("exec", "--lab", a, "h1", "--", "ip", "link", "set", "h1-eth0", "down")
			m.want(3, "ping", "--all", "--lab", a, "--timeout", "300ms")
			m.pingAll(2, "--lab", b)
			m.ok("down", a)
			m.pingAll(2)
			m.ok("down", "--all")
			m.unchanged(before)
		})
	}
}
