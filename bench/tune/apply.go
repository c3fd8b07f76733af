package tune

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/lack"
)

// Names of cgroups: that of the labs, that for processes moved out of a lab's way, and that of lab
// daemons. (A lab's own group must not hold its daemon, as going down ends everything in it.)
const (
	labsGroup   = "trivet"
	othersGroup = "trivet-others"
	daemonGroup = ".daemon"
)

// disableIPv6 is the setting that new devices in the machine's namespace inherit. Existing devices
// keep their addresses: somebody may be logged in by them.
var disableIPv6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6"

func (p *plan) apply(file string, permanent bool) (func() error, error) {
	j, err := begin(file, permanent)
	if err != nil {
		return nil, err
	}
	j.What = p.what()
	err = p.change(j)
	if err == nil {
		return j.undo, nil
	}
	if undone := j.undo(); undone != nil {
		err = errors.Join(err, fmt.Errorf("and it could not be undone in full: %w", undone))
	}
	return nil, err
}

func (p *plan) change(j *journal) error {
	if p.ipv6Off {
		if err := j.write(disableIPv6, "1", ""); err != nil {
			return fmt.Errorf("switch off IPv6: %w", err)
		}
	}
	if err := p.machine.change(j, p.groups.CPUSet); err != nil { // before processors are assigned
		return err
	}
	if len(p.isolate) == 0 && len(p.pins) == 0 {
		return nil
	}
	switch v2 := p.groups.V2; {
	case carriesCPUSets(v2):
		return version2{v2, p.mounts.V2, j}.change(p)
	case p.groups.CPUSet != "":
		return version1{p.groups.CPUSet, p.mounts.CPUSet, p.groups.V2, j}.change(p)
	}
	return errNoCPUSets
}

var errNoCPUSets = lack.New("this machine has no cpuset cgroup controller mounted, which isolating processors and pinning nodes need", "; ",
	"is this a container? Run the command on the machine itself")

// carriesCPUSets says whether a hierarchy of version 2 has the cpuset controller.
func carriesCPUSets(v2 string) bool {
	return v2 != "" && has(filepath.Join(v2, "cgroup.controllers"), "cpuset")
}

// has says whether a file contains a word.
func has(file, word string) bool {
	b, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(b)), word)
}

// groupsOf returns the cgroups of a lab's parts, below the lab's, with their processors.
func (p *plan) groupsOf(labDir string) map[string]CPUs {
	out := map[string]CPUs{}
	entries, _ := os.ReadDir(labDir)
	for _, e := range entries {
		switch name := e.Name(); {
		case !e.IsDir():
		case name == ".ovs":
			out[name] = p.of(datapath)
		case strings.HasPrefix(name, ".controller-"):
			out[name] = p.of(controller)
		case len(p.cores[name]) > 0:
			out[name] = p.cores[name]
		case slices.Contains(p.nodes, name):
			out[name] = p.of(nodes)
		default: // of a switch: it contains only users' commands
			out[name] = p.of("")
		}
	}
	return out
}

// version2 is cgroups version 2: the group of all labs becomes a partition, whose processors the
// kernel withdraws from everything else.
type version2 struct {
	root, mount string // in tests, root is a group below the mount point
	j           *journal
}

func (v version2) change(p *plan) error {
	labs := filepath.Join(v.root, labsGroup)
	if err := v.j.share(labs); err != nil {
		return err
	}
	if err := v.delegate(v.root); err != nil {
		return err
	}
	if len(p.isolate) > 0 {
		if err := v.partition(labs, p.isolate); err != nil {
			return err
		}
	}
	if p.lab == "" {
		return nil
	}
	own := filepath.Join(labs, cgroup.Group(p.lab))
	for _, dir := range []string{labs, own} {
		if err := v.delegate(dir); err != nil {
			return err
		}
	}
	for name, cpus := range p.groupsOf(own) {
		if err := v.j.write(filepath.Join(own, name, "cpuset.cpus"), cpus.String(), ""); err != nil {
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	cpus := p.ofDaemon()
	if len(cpus) == 0 {
		return nil
	}
	from, err := groupOf(p.daemon, "")
	if err != nil {
		return err
	}
	daemon := filepath.Join(labs, daemonGroup)
	back := filepath.Join(v.mount, from, "cgroup.procs")
	if err := v.j.make(daemon, back); err != nil {
		return err
	}
	if err := v.j.write(filepath.Join(daemon, "cpuset.cpus"), cpus.String(), ""); err != nil {
		return fmt.Errorf("pin the lab's daemon: %w", err)
	}
	return v.j.move(p.daemon, filepath.Join(daemon, "cgroup.procs"), back)
}

// delegate lets the groups below a directory have processors of their own.
func (v version2) delegate(dir string) error {
	file := filepath.Join(dir, "cgroup.subtree_control")
	if has(file, "cpuset") {
		return nil
	}
	if err := v.j.note(change{File: file, Before: "-cpuset"}); err != nil {
		return err
	}
	return os.WriteFile(file, []byte("+cpuset"), 0o644)
}

// partition gives a group exclusive processors.
func (v version2) partition(dir string, cpus CPUs) error {
	if err := v.j.write(filepath.Join(dir, "cpuset.cpus"), cpus.String(), ""); err != nil {
		return fmt.Errorf("isolate %s: %w", cpus, err)
	}
	file := filepath.Join(dir, "cpuset.cpus.partition")
	if err := v.j.write(file, "root", ""); err != nil {
		return fmt.Errorf("isolate %s: %w", cpus, err)
	}
	b, err := os.ReadFile(file)
	if got := strings.TrimSpace(string(b)); err != nil || got != "root" {
		return fmt.Errorf("isolate %s: the kernel does not make it a partition of its own: %s", cpus, got)
	}
	return nil
}

// version1 is a cpuset hierarchy of version 1. It has no partitions: all other processes are moved
// to the other processors.
type version1 struct {
	root, mount string
	v2          string // where the lab's processes are found; "": here
	j           *journal
}

func (v version1) change(p *plan) error {
	tasks := filepath.Join(v.root, "tasks")
	if len(p.isolate) > 0 {
		others := filepath.Join(v.root, othersGroup)
		if err := v.group(others, p.all.without(p.isolate), tasks); err != nil {
			return fmt.Errorf("isolate %s: %w", p.isolate, err)
		}
		evict(v.root, filepath.Join(others, "tasks"))
	}
	if p.lab == "" {
		return nil
	}
	labs, within := filepath.Join(v.root, labsGroup), p.of("")
	own := filepath.Join(labs, cgroup.Group(p.lab))
	if err := v.j.share(labs); err != nil {
		return err
	}
	for _, dir := range []string{labs, own} {
		if err := v.group(dir, within, tasks); err != nil {
			return err
		}
	}
	for name, cpus := range p.groupsOf(own) {
		if err := v.pin(p, name, cpus, tasks); err != nil {
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	cpus := p.ofDaemon()
	if len(cpus) == 0 {
		return nil
	}
	from, err := groupOf(p.daemon, "cpuset")
	if err != nil {
		return err
	}
	daemon := filepath.Join(labs, daemonGroup)
	if err := v.group(daemon, cpus, tasks); err != nil {
		return fmt.Errorf("pin the lab's daemon: %w", err)
	}
	return v.j.move(p.daemon, filepath.Join(daemon, "cgroup.procs"), filepath.Join(v.mount, from, "cgroup.procs"))
}

// pin assigns processors to a lab's group, and moves the lab's processes there, which in version 1
// are at the root until then.
func (v version1) pin(p *plan, name string, cpus CPUs, tasks string) error {
	dir := filepath.Join(v.root, labsGroup, cgroup.Group(p.lab, name))
	if err := v.group(dir, cpus, tasks); err != nil {
		return err
	}
	if v.v2 == "" {
		return nil
	}
	for _, pid := range tasksOf(filepath.Join(v.v2, labsGroup, cgroup.Group(p.lab, name), "cgroup.procs")) {
		from, err := groupOf(pid, "cpuset")
		if err != nil {
			continue // the process has ended
		}
		if err := v.j.move(pid, filepath.Join(dir, "cgroup.procs"),
			filepath.Join(v.mount, from, "cgroup.procs")); err != nil {
			return err
		}
	}
	return nil
}

// group makes a group with processors and memory; when that is undone, its tasks are moved to the
// root first.
func (v version1) group(dir string, cpus CPUs, tasks string) error {
	if err := v.j.make(dir, tasks); err != nil {
		return err
	}
	mems, err := os.ReadFile(filepath.Join(v.root, "cpuset.mems"))
	if err != nil {
		return err
	}
	if err := v.j.write(filepath.Join(dir, "cpuset.mems"), strings.TrimSpace(string(mems)), tasks); err != nil {
		return err
	}
	return v.j.write(filepath.Join(dir, "cpuset.cpus"), cpus.String(), tasks)
}

// groupOf returns the cgroup of a process: that of version 2 if no controller is named.
func groupOf(pid int, controller string) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			err = fs.ErrNotExist
		}
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		words := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(words) == 3 && slices.Contains(strings.Split(words[1], ","), controller) {
			return words[2], nil
		}
	}
	return "", fmt.Errorf("process %d is in no cgroup of %q", pid, controller)
}
