package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestTune proves that a lab's nodes run on the processors that trivet bench tune gives them, those
// that start later too, that it is undone by --restore, and that nothing is left then.
func TestTune(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up("line,2", "--datapath", "ovs")
	allowed := func() string { return m.exec("h1", "grep Cpus_allowed_list /proc/self/status") }
	was := allowed()
	first := strings.FieldsFunc(strings.TrimSpace(strings.TrimPrefix(was, "Cpus_allowed_list:")), func(r rune) bool { return r == '-' || r == ',' })[0]
	r := m.run("bench", "tune", "--pin", "nodes="+first, "--pin", "datapath="+first)
	if strings.Contains(r.err, "no cpuset cgroup controller") && os.Getenv("TRIVET_FULL_KERNEL") != "1" {
		t.Skip("no cpuset controller is mounted here")
	}
	contains(t, r.out, "tuned")
	if got := strings.Fields(allowed()); len(got) != 2 || got[1] != first {
		t.Errorf("h1 runs on %s, not on %s", got, first)
	}
	contains(t, m.want(1, "bench", "tune", "--pin", "nodes="+first).err, "tuned already", "--restore")
	m.pingAll(2)
	contains(t, m.ok("bench", "tune", "--restore"), "undone")
	if now := allowed(); now != was {
		t.Errorf("h1 runs on %s, and did on %s", now, was)
	}
	contains(t, m.ok("bench", "tune", "--restore"), "nothing was tuned")
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}
