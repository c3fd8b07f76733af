package tune

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/topology"
)

// cpuDir is the kernel's directory about processors
// (Documentation/ABI/testing/sysfs-devices-system-cpu).
var cpuDir = "/sys/devices/system/cpu"

func smtFile() string { return filepath.Join(cpuDir, "smt", "control") }

// hardware is what to change of the processors themselves, and their state before.
type hardware struct {
	smt      string // on, off; "": it stays
	governor string // "": it stays
}

// readHardware checks the settings against this machine.
func readHardware(s Settings) (h hardware, err error) {
	if given(s.SMT) {
		h.smt = s.SMT
		err = checkSMT(s.SMT)
	}
	if given(s.Governor) {
		h.governor = s.Governor
		err = errors.Join(err, checkGovernor(s.Governor))
	}
	return h, err
}

// checkSMT says why threads cannot be switched on or off.
func checkSMT(want string) error {
	if want != "on" && want != "off" {
		return topology.Mistaken("write on or off", "smt: %q is neither", want)
	}
	b, err := os.ReadFile(smtFile())
	switch now := strings.TrimSpace(string(b)); {
	case errors.Is(err, fs.ErrNotExist):
		return lack.New("smt: this kernel cannot switch the threads of cores", ": ", "it has no "+smtFile())
	case err != nil:
		return err
	case now == "on" || now == "off":
		return nil
	case now == "forceoff":
		return lack.New("smt: it was switched off for good when the machine was started", ": ",
			"leave nosmt=force out of the kernel's command line")
	default: // notsupported, notimplemented
		return lack.New(fmt.Sprintf("smt: the processors of this machine have one thread each, as far as its kernel knows (%s)", now), "; ",
			"a virtual machine has what its host shows it")
	}
}

// policies returns the files with the governors of the processors' frequency: each of one
// processor, or of several with the same clock.
func policies() []string {
	found, _ := filepath.Glob(filepath.Join(cpuDir, "cpufreq", "policy*", "scaling_governor"))
	return found
}

// checkGovernor says why processors cannot have a governor.
func checkGovernor(want string) error {
	files := policies()
	if len(files) == 0 {
		return lack.New("governor: the kernel of this machine does not set the frequency of its processors", "; ",
			"on a virtual machine set it at the host, else a driver (cpufreq) is missing")
	}
	for _, file := range files {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(file), "scaling_available_governors"))
		if err != nil {
			return err
		}
		if there := strings.Fields(string(b)); !slices.Contains(there, want) {
			return lack.New(fmt.Sprintf("governor: %s has no %q", filepath.Base(filepath.Dir(file)), want), "; ",
				"it has "+strings.Join(there, ", "))
		}
	}
	return nil
}

// left returns the processors that remain when threads are switched: if they are off, the first of
// each core.
func (h hardware) left(all CPUs) (out CPUs) {
	if h.smt != "off" {
		return all
	}
	for _, c := range all {
		b, err := os.ReadFile(fmt.Sprintf("%s/cpu%d/topology/thread_siblings_list", cpuDir, c))
		siblings, wrong := ParseCPUs(strings.TrimSpace(string(b)))
		if err != nil || wrong != nil || len(siblings) == 0 || siblings[0] == c {
			out = append(out, c)
		}
	}
	return out
}

// change switches threads, then sets the governor of the remaining processors. cpusets is the mount
// point of version 1's cpuset hierarchy, "" if there is none: its groups lose processors that go
// offline, and do not get them back by themselves.
func (h hardware) change(j *journal, cpusets string) error {
	if h.smt != "" {
		if h.smt == "off" && cpusets != "" {
			if err := j.keep(cpusets, "cpuset.cpus"); err != nil {
				return fmt.Errorf("smt: %w", err)
			}
		}
		if err := j.write(smtFile(), h.smt, ""); err != nil {
			return fmt.Errorf("smt: %w", err)
		}
	}
	if h.governor == "" {
		return nil
	}
	for _, file := range policies() {
		if err := j.write(file, h.governor, ""); err != nil {
			return fmt.Errorf("governor: %w", err)
		}
	}
	return nil
}

// what describes the changes for users.
func (h hardware) what() (out []string) {
	if h.smt != "" {
		out = append(out, "SMT "+h.smt)
	}
	if h.governor != "" {
		out = append(out, "governor "+h.governor)
	}
	return out
}

// keep records a file's content in each group below a directory, so that it is written again: in
// the groups above first, which must have what those below get.
func (j *journal) keep(root, file string) error {
	var changes []change
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == root { // the root's belong to the machine
			return nil
		}
		b, err := os.ReadFile(filepath.Join(path, file))
		if before := strings.TrimSpace(string(b)); err == nil && before != "" {
			changes = append(changes, change{File: filepath.Join(path, file), Before: before})
		}
		return nil
	})
	slices.Reverse(changes) // changes are undone in reverse order
	j.Changes = append(j.Changes, changes...)
	return errors.Join(err, j.save())
}
