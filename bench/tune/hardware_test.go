package tune

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/lack"
)

// machine makes a tree like that of sysfs: two cores of two threads, 0 and 2, 1 and 3, with two
// policies of their frequency.
func machine(t *testing.T, smt string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	was := cpuDir
	cpuDir = dir
	t.Cleanup(func() { cpuDir = was })
	files := map[string]string{"smt/control": smt}
	for cpu, siblings := range map[string]string{"cpu0": "0,2", "cpu1": "1,3", "cpu2": "0,2", "cpu3": "1,3"} {
		files[cpu+"/topology/thread_siblings_list"] = siblings
	}
	for policy, governor := range map[string]string{"policy0": "powersave", "policy1": "schedutil"} {
		files["cpufreq/"+policy+"/scaling_governor"] = governor
		files["cpufreq/"+policy+"/scaling_available_governors"] = "performance powersave schedutil"
	}
	for name, text := range files {
		set(t, filepath.Join(dir, name), text+"\n")
	}
	return dir
}

func set(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func in(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestHardware proves that threads and governors are changed as asked for, and become what they
// were, of each policy its own: by the process that changed them, and by another after it was
// killed; and that what cgroups of version 1 lose when threads go is given back to them, to those
// above first.
func TestHardware(t *testing.T) {
	dir := machine(t, "on")
	cpusets := t.TempDir()
	set(t, filepath.Join(cpusets, "cpuset.cpus"), "0-3")
	set(t, filepath.Join(cpusets, "docker", "cpuset.cpus"), "0-3")
	set(t, filepath.Join(cpusets, "docker", "a", "cpuset.cpus"), "2-3")
	set(t, filepath.Join(cpusets, "empty", "cpuset.cpus"), "\n")
	settings := Settings{SMT: "off", Governor: "performance"}
	if !settings.Any() || settings.Processors() {
		t.Error("what they are not is what they are")
	}
	look := func() string {
		return strings.Join([]string{in(t, dir+"/smt/control"), in(t, dir+"/cpufreq/policy0/scaling_governor"), in(t, dir+"/cpufreq/policy1/scaling_governor")}, " ")
	}
	for _, killed := range []bool{false, true} {
		p, err := settings.read(CPUs{0, 1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		if p.all.String() != "0-1" || strings.Join(p.what(), ", ") != "SMT off, governor performance" {
			t.Errorf("%s are left; %q", p.all, p.what())
		}
		p.groups.CPUSet = cpusets
		file := filepath.Join(t.TempDir(), "tuned.json")
		undo, err := p.apply(file, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := look(); got != "off performance performance" {
			t.Errorf("changed to %s", got)
		}
		set(t, filepath.Join(cpusets, "docker", "cpuset.cpus"), "0-1") // as the kernel does
		set(t, filepath.Join(cpusets, "docker", "a", "cpuset.cpus"), "0-1")
		if killed {
			j, err := load(file)
			if err != nil {
				t.Fatal(err)
			}
			var order []string
			for _, c := range j.Changes {
				if strings.HasPrefix(c.File, cpusets) {
					order = append(order, strings.TrimPrefix(c.File, cpusets))
				}
			}
			if got := strings.Join(order, " "); got != "/docker/a/cpuset.cpus /docker/cpuset.cpus" {
				t.Errorf("kept: %s", got) // the last is undone first
			}
			undo = j.undo
		}
		if err := undo(); err != nil {
			t.Fatal(err)
		}
		if got := look(); got != "on powersave schedutil" {
			t.Errorf("killed %v: undone to %s", killed, got)
		}
		if a, b := in(t, cpusets+"/docker/cpuset.cpus"), in(t, cpusets+"/docker/a/cpuset.cpus"); a != "0-3" || b != "2-3" {
			t.Errorf("killed %v: cpusets are %s and %s", killed, a, b)
		}
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the journal is left: %v", err)
		}
	}
}

// TestHardwareRefused proves what is said where a machine has no threads to switch, no governors or
// not this one: each is something that it lacks, so that cells of an experiment are left out; and
// that words which are none, and processors that go with the threads, are mistakes.
func TestHardwareRefused(t *testing.T) {
	for _, c := range []struct {
		smt      string // of the machine
		settings Settings
		says     string
		lacks    bool
	}{
		{"notsupported", Settings{SMT: "off"}, "have one thread each, as far as its kernel knows (notsupported)", true},
		{"notimplemented", Settings{SMT: "on"}, "have one thread each", true},
		{"forceoff", Settings{SMT: "on"}, "leave nosmt=force out", true},
		{"on", Settings{SMT: "maybe"}, "write on or off", false},
		{"on", Settings{Governor: "ondemand"}, `has no "ondemand"; it has performance, powersave, schedutil`, true},
		{"on", Settings{SMT: "off", Isolate: "3"}, "processor 3 is not among those", true},
		{"on", Settings{SMT: "none", Governor: "none"}, "", false},
		{"off", Settings{SMT: "off"}, "", false},
	} {
		machine(t, c.smt)
		_, err := c.settings.read(CPUs{0, 1, 2, 3})
		var lacking *lack.Error
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || errors.As(err, &lacking) != c.lacks {
			t.Errorf("%+v on a machine with %s: %v", c.settings, c.smt, err)
		}
	}
	dir := machine(t, "on")
	for _, gone := range []string{"smt", "cpufreq"} {
		if err := os.RemoveAll(filepath.Join(dir, gone)); err != nil {
			t.Fatal(err)
		}
	}
	for says, s := range map[string]Settings{"cannot switch the threads": {SMT: "off"}, "does not set the frequency": {Governor: "performance"}} {
		if _, err := s.read(CPUs{0}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
