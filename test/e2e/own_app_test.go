package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOwnApp proves that an app that one line has compiled into the program is listed, runs in a
// lab as the built-in ones do, with its entries called by its name, and answers by the API of the
// lab.
func TestOwnApp(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	own := filepath.Join(m.dir, "own")
	file, err := filepath.Abs("../../cmd/trivet/apps.go")
	must(t, err)
	line := m.file("apps.go", "package main\n\nimport _ \"trivet.dev/trivet/examples/mute\"\n")
	build := exec.Command("../../scripts/go", "build", "-trimpath", "-buildvcs=false", "-overlay", m.file("overlay.json", fmt.Sprintf(`{"Replace": {%q: %q}}`, file, line)),
		"-o", own, "../../cmd/trivet")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ok := func(args ...string) string {
		t.Helper()
		r := m.do(m.command(own, args...))
		if r.code != 0 {
			t.Fatal(r)
		}
		return r.out
	}
	mute := func(method string) {
		t.Helper()
		mac := ok("exec", "-n", "h1", "--", "cat", "/sys/class/net/h1-eth0/address")
		m.sh("curl -sf -X " + method + " --unix-socket /run/trivet/" + m.name + "/daemon.sock http://lab/v1/controller/apps/mute/" + mac)
	}
	reaches := func() bool {
		return m.do(m.command(own, "exec", "-n", "h1", "--", "ping", "-c1", "-W1", "10.0.0.2")).code == 0
	}
	contains(t, ok("controller", "--help"), "routing, balance, learning, mute (")
	before := m.snapshot()
	ok("up", "--name", m.name, "--wait", "3m", "minimal")
	eventually(t, "h1 reaches h2", reaches)
	mute("PUT")
	eventually(t, "h1 is silent", func() bool { return !reaches() })
	contains(t, ok("flows", "s1"), "mute", "drop")
	mute("DELETE")
	eventually(t, "h1 speaks again", reaches)
	ok("down")
	m.unchanged(before)
}
