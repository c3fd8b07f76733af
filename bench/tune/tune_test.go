package tune

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/cgroup"
)

// Lists are read as the kernel and people write them, and written as the kernel does.
func TestCPUs(t *testing.T) {
	for text, want := range map[string]string{"": "", "none": "", "0": "0", "1-3,5\n": "1-3,5", "3, 1,2": "1-3", "2,2": "2", "0-1,3-4": "0-1,3-4"} {
		c, err := ParseCPUs(text)
		if err != nil || c.String() != want {
			t.Errorf("%q: %v %v, not %s", text, c, err, want)
		}
	}
	for _, text := range []string{"a", "3-1", "-1", "1,,2", "1-", "99999", "1;2"} {
		if c, err := ParseCPUs(text); err == nil {
			t.Errorf("%q is read as %v", text, c)
		}
	}
}

// What is read can be written and read again.
func FuzzParseCPUs(f *testing.F) {
	f.Add("1-3,5")
	f.Add("0")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCPUs(text)
		if err != nil {
			return
		}
		if again, err := ParseCPUs(c.String()); err != nil || !slices.Equal(c, again) {
			t.Fatalf("%q: %v, then %v %v", text, c, again, err)
		}
	})
}

// Wrong settings are refused before anything is changed.
func TestRefused(t *testing.T) {
	asRoot(t)
	t.Setenv("TRIVET_RUN_DIR", t.TempDir())
	all, err := online()
	if err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]Settings{
		"all the processors":          {Isolate: all.String()},
		"is not a list of processors": {Isolate: "x"},
		"is not among":                {Isolate: "4000"},
		"a lab must be up":            {Nodes: "0"},
		"there is no lab":             {Nodes: "0", Lab: "nobody"},
	} {
		if _, err := Apply(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v does not say %q", s, err, want)
		}
	}
	if (Settings{Isolate: "none", Nodes: "none"}).Any() {
		t.Error("none is something")
	}
	if what, err := Restore(); err != nil || what != nil {
		t.Errorf("there is something to undo: %v %v", what, err)
	}
}

// A lab's processes get their processors, all else is kept off them, and restoring leaves every
// process and every file as it was: in real cgroups, below one that the test has made.
func TestApply(t *testing.T) {
	b := newBed(t)
	restore, err := b.plan().apply(b.file, false)
	if err != nil {
		t.Fatal(err)
	}
	b.tuned(t)
	if _, err := b.plan().apply(b.file, false); !errors.Is(err, errTuned) {
		t.Errorf("tuned a second time: %v", err)
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	b.restored(t)
}

// What a process that was killed had changed is undone by the next that wants to change something.
func TestAfterCrash(t *testing.T) {
	b := newBed(t)
	if _, err := b.plan().apply(b.file, false); err != nil {
		t.Fatal(err)
	}
	j, err := load(b.file)
	if err != nil {
		t.Fatal(err)
	}
	j.Started++ // another process had this number
	if err := j.save(); err != nil {
		t.Fatal(err)
	}
	restore, err := b.plan().apply(b.file, false)
	if err != nil {
		t.Fatal(err)
	}
	b.tuned(t)
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	b.restored(t)
}

// Recover undoes what a process left that was killed; what is in force, or is to stay, it leaves
// alone.
func TestRecover(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TRIVET_RUN_DIR", dir)
	b := newBed(t)
	b.file = filepath.Join(dir, "tuned.json")
	for _, c := range []struct {
		permanent, killed bool
	}{{false, false}, {true, false}, {false, true}} {
		if _, err := b.plan().apply(b.file, c.permanent); err != nil {
			t.Fatal(err)
		}
		j, err := load(b.file)
		if err != nil {
			t.Fatal(err)
		}
		if c.killed {
			j.Started++ // another process had this number
			if err := j.save(); err != nil {
				t.Fatal(err)
			}
		}
		if err := Recover(); err != nil {
			t.Fatal(err)
		}
		if c.killed {
			b.restored(t)
			continue
		}
		b.tuned(t)
		if err := j.undo(); err != nil {
			t.Fatal(err)
		}
	}
}

// Where one change cannot be made, those before it are undone.
func TestFails(t *testing.T) {
	b := newBed(t)
	p := b.plan()
	p.pins[nodes] = CPUs{4000}
	if _, err := p.apply(b.file, false); err == nil {
		t.Fatal("pinned to a processor that there is not")
	}
	b.restored(t)
}

// A lab that goes down while the machine is tuned leaves nothing behind that would make restoring
// fail.
func TestLabGone(t *testing.T) {
	b := newBed(t)
	restore, err := b.plan().apply(b.file, false)
	if err != nil {
		t.Fatal(err)
	}
	_ = b.node.Process.Kill()
	_ = b.node.Wait()
	for _, root := range []string{b.groups.CPUSet, b.groups.V2} {
		for _, dir := range []string{"trivet/" + cgroup.Group("x", "h1"), "trivet/" + cgroup.Group("x")} {
			if root != "" {
				_ = os.Remove(filepath.Join(root, dir))
			}
		}
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.file); err == nil {
		t.Error("the journal is still there")
	}
}

// The setting for new devices is switched over and back.
func TestIPv6(t *testing.T) {
	asRoot(t)
	was, err := os.ReadFile(disableIPv6)
	if err != nil {
		t.Skip("this kernel has no IPv6")
	}
	own := filepath.Join(t.TempDir(), "disable_ipv6") // the machine's own is not for a test to change
	if err := os.WriteFile(own, was, 0o644); err != nil {
		t.Fatal(err)
	}
	defer func(real string) { disableIPv6 = real }(disableIPv6)
	disableIPv6 = own
	restore, err := (&plan{ipv6Off: true}).apply(filepath.Join(t.TempDir(), "tuned.json"), true)
	if err != nil {
		t.Fatal(err)
	}
	if now, _ := os.ReadFile(own); strings.TrimSpace(string(now)) != "1" {
		t.Errorf("it is %q", now)
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	if now, _ := os.ReadFile(own); strings.TrimSpace(string(now)) != strings.TrimSpace(string(was)) {
		t.Errorf("it is %q again, not %q", now, was)
	}
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// lacking skips a test for what the machine does not have; where it is promised to have everything,
// that is a failure.
func lacking(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("TRIVET_FULL_KERNEL") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// bed is a small machine of its own: cgroups with a lab's node, its daemon, and something that is
// none of them.
type bed struct {
	groups, mounts      cgroup.Hierarchies
	all                 CPUs
	file                string
	node, daemon, other *exec.Cmd
	before              string // where the three may run
}

func newBed(t *testing.T) *bed {
	t.Helper()
	asRoot(t)
	real, err := cgroup.Find()
	if err != nil {
		lacking(t, "%v", err)
	}
	b := &bed{mounts: real, file: filepath.Join(t.TempDir(), "tuned.json")}
	if b.all, err = online(); err != nil || len(b.all) < 2 {
		lacking(t, "one processor (%s) cannot be shared out", b.all)
	}
	name := fmt.Sprintf("trivet-test-%d", os.Getpid())
	switch {
	case real.V2 != "" && has(filepath.Join(real.V2, "cgroup.controllers"), "cpuset"):
		b.groups.V2 = version2Root(t, filepath.Join(real.V2, name), b)
	case real.CPUSet != "":
		b.groups.V2, b.groups.CPUSet = filepath.Join(real.V2, name), filepath.Join(real.CPUSet, name)
		makeGroups(t, b.groups.V2, b.groups.CPUSet)
		for _, f := range []string{"cpuset.mems", "cpuset.cpus"} {
			value, err := os.ReadFile(filepath.Join(real.CPUSet, f))
			if err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(b.groups.CPUSet, f), strings.TrimSpace(string(value)))
		}
		makeGroups(t, filepath.Join(b.groups.CPUSet, "trivet"), filepath.Join(b.groups.CPUSet, "trivet/"+cgroup.Group("x")), filepath.Join(b.groups.CPUSet, "trivet/"+cgroup.Group("x", "h1")))
	default:
		lacking(t, "no cpuset controller is mounted here")
	}
	makeGroups(t, filepath.Join(b.groups.V2, "rest"), filepath.Join(b.groups.V2, "trivet"), filepath.Join(b.groups.V2, "trivet/"+cgroup.Group("x")), filepath.Join(b.groups.V2, "trivet/"+cgroup.Group("x", "h1")))
	b.node, b.daemon, b.other = b.sleep(t, "trivet/"+cgroup.Group("x", "h1")), b.sleep(t, "rest"), b.sleep(t, "rest")
	b.before = b.where(t)
	return b
}

// version2Root makes a partition for the test: partitions are made in partitions only.
func version2Root(t *testing.T, root string, b *bed) string {
	if len(b.all) < 3 {
		lacking(t, "two processors for the test and one for the rest of the machine are needed")
	}
	b.all = b.all[len(b.all)-2:]
	top := filepath.Join(filepath.Dir(root), "cgroup.subtree_control")
	if !has(top, "cpuset") {
		lacking(t, "the machine's groups have no cpusets of their own, and a test does not change that")
	}
	makeGroups(t, root)
	put(t, filepath.Join(root, "cpuset.cpus"), b.all.String())
	put(t, filepath.Join(root, "cpuset.cpus.partition"), "root")
	if !has(filepath.Join(root, "cpuset.cpus.partition"), "root") {
		lacking(t, "the kernel makes no partition for the test")
	}
	return root
}

func makeGroups(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
	}
}

func put(t *testing.T, file, value string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sleep starts a process in a group of version 2, and at the root of version 1, as labs do.
func (b *bed) sleep(t *testing.T, in string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for _, procs := range []string{filepath.Join(b.groups.V2, in), b.groups.CPUSet} {
		if procs != "" {
			if err := enter(filepath.Join(procs, "cgroup.procs"), cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	return cmd
}

func (b *bed) plan() *plan {
	last := len(b.all) - 1
	return &plan{groups: b.groups, mounts: b.mounts, all: b.all, isolate: b.all[last:], lab: "x", nodes: []string{"h1"},
		pins: map[part]CPUs{nodes: b.all[last:]}, daemon: b.daemon.Process.Pid, serves: []part{datapath, controller}}
}

// where says where the three processes may run, and which groups they are in.
func (b *bed) where(t *testing.T) string {
	t.Helper()
	var s strings.Builder
	for _, cmd := range []*exec.Cmd{b.node, b.daemon, b.other} {
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&s, "%s\n%s", allowed(t, cmd), groups)
	}
	return s.String()
}

func allowed(t *testing.T, cmd *exec.Cmd) CPUs {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:")
	line, _, _ := strings.Cut(strings.TrimSpace(list), "\n")
	c, err := ParseCPUs(line)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *bed) tuned(t *testing.T) {
	t.Helper()
	last := len(b.all) - 1
	for name, of := range map[string]struct {
		cmd  *exec.Cmd
		want CPUs
	}{"the node": {b.node, b.all[last:]}, "the daemon": {b.daemon, b.all[last:]}, "all else": {b.other, b.all[:last]}} {
		if got := allowed(t, of.cmd); !slices.Equal(got, of.want) {
			t.Errorf("%s may run on %s, not on %s", name, got, of.want)
		}
	}
}

func (b *bed) restored(t *testing.T) {
	t.Helper()
	if now := b.where(t); now != b.before {
		t.Errorf("restored it is\n%s\nand was\n%s", now, b.before)
	}
	for _, root := range []string{b.groups.CPUSet, b.groups.V2} {
		for _, dir := range []string{othersGroup, "trivet/" + daemonGroup} {
			if _, err := os.Stat(filepath.Join(root, dir)); root != "" && err == nil {
				t.Errorf("%s is still there", dir)
			}
		}
	}
	if _, err := os.Stat(b.file); err == nil {
		t.Error("the journal is still there")
	}
}
