package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestFailedUp proves that an up that fails says why, exits with 1 and leaves nothing.
func TestFailedUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, says string }{
		{"start command", "nodes: {h1: {host: {start: 'sleep 500 & exit 3'}}, h2: host}\nlinks: [h1 -- h2]\n", "exit status 3"},
		{"interface that is not there", "nodes: {h1: host, s1: {switch: {datapath: bridge}}}\nlinks: [s1 -- h1, 's1 -- interface:eth99']\n", "no interface eth99"},
		{"processor that is not there", "nodes: {h1: {host: {cores: [4000]}}, h2: host}\nlinks: [h1 -- h2]\n", "pin h1 to cores"},
		{"directory that cannot be made", "nodes: {h1: {host: {dirs: [/etc/passwd/dir]}}, h2: host}\nlinks: [h1 -- h2]\n", "/etc/passwd: not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			r := m.want(1, "up", "--name", m.name, m.file("bad.yaml", c.file))
			contains(t, r.err, c.says)
			m.unchanged(before)
		})
	}
}

// TestUpTwice proves that a lab that is there is not touched by a second up, which says what to do.
func TestUpTwice(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("minimal", "--datapath", "bridge")
	contains(t, m.want(1, "up", "--name", m.name, "minimal").err, m.name, "is already up", "trivet down")
	m.pingAll(2)
}

// TestUpAtOnce proves that of many commands that bring up a lab of one name at the same time one
// does it, and the others say that it is there and change nothing.
func TestUpAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	results := make([]result, 4)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() { results[i] = m.run("up", "--name", m.name, "minimal", "--datapath", "bridge") })
	}
	group.Wait()
	whole := 0
	for _, r := range results {
		if r.code == 0 {
			whole++
		} else if !strings.Contains(r.err, "already") {
			t.Error("it does not say that the lab is there: ", r)
		}
	}
	if whole != 1 {
		t.Errorf("%d commands have brought the lab up: %v", whole, results)
	}
	m.pingAll(2)
	m.ok("down")
	m.unchanged(before)
}

// TestBadFiles proves that files with errors change nothing, and that all errors are told, with
// their lines.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	bad := m.file("bad.yaml", "nodes:\n  s1: switch\n  h[1-4]: host\nlinks:\n  - s1 -- h1: {dealy: 10ms}\n  - s1 -- h2: {bandwidth: 1gbti}\n")
	contains(t, m.want(1, "up", bad).err, "bad.yaml:5:", "did you mean delay", "bad.yaml:6:", "1gbti", "2 problems; nothing was changed")
	m.want(1, "validate", bad)
	wrong := m.file("wrong.yaml", "nodes: {s1: switch, h1: host}\nlinks:\n  - s1 -- h9\n  - s1 -- s1\n")
	contains(t, m.want(1, "up", wrong).err, "wrong.yaml:3:", "there is no node h9", "wrong.yaml:4:", "2 problems; nothing was changed")
	for name, text := range map[string]string{"empty.yaml": "", "binary.yaml": "\x00\x01\x02", "list.yaml": "- 1\n- 2\n", "x.mn": "{", "x.graphml": "<graphml>", "x.txt": "hello"} {
		if r := m.want(1, "up", m.file(name, text)); r.err == "" {
			t.Errorf("%s: no reason is given: %s", name, r)
		}
	}
	m.want(1, "up", "no-such-file.yaml")
	contains(t, m.want(1, "up", "linaer,3").err, "linear")
	m.want(2, "up")
	m.want(2, "nonsense")
	contains(t, m.want(2, "ospf", "neigbors").err, "there is no command", "did you mean neighbors")
	contains(t, m.want(2, "link", "unset").err, "there is no command")
	m.unchanged(before)
}

// TestWithoutALab proves that commands that need a lab say that there is none and how to get one.
func TestWithoutALab(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, args := range []string{"down", "ping --all", "exec h1 true", "inspect", "link set a-b down", "capture h1", "logs"} {
		contains(t, m.want(1, strings.Fields(args)...).err, "trivet up")
	}
	contains(t, m.ok("ls"), "no lab is up")
}

// TestLongRunDirectory proves that a run directory too long for a socket's name is an error that
// leaves nothing.
func TestLongRunDirectory(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	dir := m.dir + strings.Repeat("/deep", 20)
	must(t, os.MkdirAll(dir, 0o755))
	m.env = append(m.env, "TRIVET_RUN_DIR="+dir)
	contains(t, m.want(1, "up", "--name", m.name, "minimal", "--datapath", "bridge").err, "daemon.sock", "nothing is left")
	m.unchanged(before)
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
}

// TestSmallRunDirectory proves the same of one in which there is no room for a lab's state.
func TestSmallRunDirectory(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := "/run/small"
	m.sh("mkdir " + dir + " && mount -t tmpfs -o size=4k small " + dir)
	m.env = append(m.env, "TRIVET_RUN_DIR="+dir)
	contains(t, m.want(1, "up", "--name", m.name, "single,40", "--datapath", "bridge").err, "no space left")
	if left := m.sh("ls -A " + dir); left != "" {
		t.Errorf("files are left: %s", left)
	}
}

// TestTwoRunDirectories proves that two labs of one name, whose state is at different places, have
// nothing in common: their programs, limits, addresses and firewall are their own, as is what runs
// in them when the other one goes down; and that each down leaves the machine as it was before.
func TestTwoRunDirectories(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "bridge", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			m.file("lab.yaml", "nodes: {s1: switch, h1: {host: {cpu: 0.5}}, out: nat}\nlinks: [s1 -- h1, s1 -- out]\n")
			usual := m.env
			other := append(slices.Clone(usual), "TRIVET_RUN_DIR=/run/elsewhere")
			for i, env := range [][]string{usual, other} {
				m.env = env
				contains(t, m.up("lab.yaml", "--datapath", datapath), "up in")
				m.exec("h1", fmt.Sprintf("sleep 77%d >/dev/null 2>&1 &", 90+i))
			}
			runs := func(i int) bool { return len(m.pids(fmt.Sprintf("sleep?77%d", 90+i))) > 0 }
			m.env = other
			contains(t, m.ok("ping", "h1", "out", "-c", "1", "--timeout", "30s"), "1 received")
			contains(t, m.ok("down"), "nothing left")
			if runs(1) || !runs(0) {
				t.Errorf("one lab is down; its program runs: %v; that of the other runs: %v", runs(1), runs(0))
			}
			m.env = usual
			contains(t, m.ok("ping", "h1", "out", "-c", "1", "--timeout", "30s"), "1 received")
			contains(t, m.sh("nft list tables"), "trivet-"+m.name)
			contains(t, m.ok("ls"), " up ")
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
		})
	}
}
