package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinkSave proves that a changed link is written into the file that the lab came from, wherever
// the command is given, through a link to it, with the comments, the mode and the owner that it
// has; and that nothing else is left there.
func TestLinkSave(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := t.TempDir()
	text := "# two hosts\nnodes: {\"h[1-2]\": host, s1: {switch: {datapath: bridge}}}\nlinks:\n  - h1 -- s1: {delay: 1ms}  # short\n  - h2 -- s1\n"
	real := filepath.Join(dir, "real.yaml")
	for _, err := range []error{
		os.WriteFile(real, []byte(text), 0o640), os.Chmod(real, 0o640), os.Chown(real, 65534, 65533),
		os.Symlink("real.yaml", filepath.Join(dir, "lab.yaml")), os.Chmod(dir, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	up := m.command(trivet, "up", "--name", m.name, "lab.yaml")
	up.Dir = dir
	if r := m.do(up); r.code != 0 {
		t.Fatal(r)
	}
	set := m.command(trivet, "link", "set", "--lab", m.name, "--save", "h1-s1", "delay=7ms")
	set.Dir = t.TempDir()
	if r := m.do(set); r.code != 0 {
		t.Fatal(r)
	}
	now, err := os.ReadFile(real)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(text, "1ms", "7ms", 1); string(now) != want {
		t.Errorf("the file is\n%s\nand should be\n%s", now, want)
	}
	if got := m.sh("stat -c '%a %u %g' " + real + "; ls -A " + dir); got != "640 65534 65533\nlab.yaml\nreal.yaml" {
		t.Errorf("mode, owner and directory: %s", got)
	}
	m.ok("down")
}

// TestFullDisk proves that a lab whose directory is full goes down, and leaves nothing.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh("mkdir -p /run/trivet && mount -t tmpfs -o size=4m tmpfs /run/trivet")
	for _, died := range []bool{false, true} {
		m.up("linear,2", "--datapath", "bridge")
		m.sh("dd if=/dev/zero of=/run/trivet/" + m.name + "/full bs=4k 2>/dev/null || true")
		if died {
			m.killDaemon()
		}
		m.ok("down")
		if left := m.sh("ls -A /run/trivet"); left != "" {
			t.Errorf("daemon dead %v: left are %s", died, left)
		}
	}
	m.sh("umount /run/trivet")
}
