// Package cgroup groups the processes of labs: it finds, limits and ends them through cgroups,
// version 2 or 1.
package cgroup

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/internal/rundir"
	"trivet.dev/trivet/topology"
)

// Hierarchies are the machine's hierarchies in which a lab's nodes get groups of their own:
// trivet/<lab>/<node> below each mount point; see Group for what a lab's is called. Version 2 is
// used where it is mounted; version 1 only for controllers that version 2 does not have.
type Hierarchies struct {
	V2     string // mount point, "" if there is none
	CPU    string // of a version 1 cpu controller, "" if version 2 has it
	CPUSet string // the same for cpuset
	Memory string // the same for memory
	Any    string // without version 2: a version 1 hierarchy to find processes by, preferably not that of cpu
}

// Find reads what is mounted.
func Find() (Hierarchies, error) {
	var c Hierarchies
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return c, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		mount, super, ok := strings.Cut(lines.Text(), " - ")
		words, what := strings.Fields(mount), strings.Fields(super)
		if !ok || len(words) < 5 || len(what) < 3 {
			continue
		}
		switch where := words[4]; what[0] {
		case "cgroup2":
			c.V2 = cmp.Or(c.V2, where)
		case "cgroup":
			options := strings.Split(what[2], ",")
			if slices.Contains(options, "cpu") {
				c.CPU = where
			}
			if c.Any == "" || c.Any == c.CPU {
				c.Any = where
			}
			if slices.Contains(options, "cpuset") {
				c.CPUSet = where
			}
			if slices.Contains(options, "memory") {
				c.Memory = where
			}
		}
	}
	if c.V2 == "" && c.Any == "" {
		return c, errors.New("no cgroups are mounted: mount -t cgroup2 none /sys/fs/cgroup")
	}
	return c, nil
}

// Hybrid reports whether the machine has controllers of version 1 beside version 2.
func (c Hierarchies) Hybrid() bool { return c.V2 != "" && (c.CPU != "" || c.CPUSet != "") }

// roots are the mount points in use; processes are found through the first.
func (c Hierarchies) roots() []string {
	out := []string{cmp.Or(c.V2, c.Any)}
	for _, r := range []string{c.CPU, c.CPUSet} {
		if r != "" && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// V2Has reports whether version 2 has a controller.
func (c Hierarchies) V2Has(controller string) bool {
	b, err := os.ReadFile(filepath.Join(c.V2, "cgroup.controllers"))
	return c.V2 != "" && err == nil && slices.Contains(strings.Fields(string(b)), controller)
}

// Of is the directory of a lab's group. Below it each node has a group of its name; anything else
// the lab runs has one whose name begins with a dot: .ovs, .controller-NAME.
func (c Hierarchies) Of(lab string) string { return group(c.roots()[0], lab) }

// Kill kills every process in the group of a node, or of another program of the lab.
func (c Hierarchies) Kill(lab, name string) error {
	top := filepath.Join(c.Of(lab), name)
	if _, err := os.Stat(top); err != nil {
		return err
	}
	if writeFile(filepath.Join(top, "cgroup.kill"), "1") == nil {
		return nil
	}
	// Linux before 5.14, or version 1: processes started meanwhile are found in the next round.
	for ends := patience.KilledEnd.Begin(); killAll(top); time.Sleep(2 * time.Millisecond) {
		if ends.Over() {
			return fmt.Errorf("processes in %s do not end", top)
		}
	}
	return nil
}

// Start starts a command in a group of its own, below one with a lab's name: for a command that is
// not Trivet's but is watched and found again as a lab is.
func (c Hierarchies) Start(lab, name string, cmd *exec.Cmd) error {
	if err := c.MakeLab(lab); err != nil {
		return err
	}
	return c.StartGroup(lab, name, cmd)
}

// StartGroup starts a command in a group of its own in an existing lab.
func (c Hierarchies) StartGroup(lab, name string, cmd *exec.Cmd) error {
	if err := c.Make(lab, &topology.Node{Name: name}); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is in the group, too, and must end
		dir, err := c.Bear(cmd, lab, name)
		if err == nil {
			err = cmd.Start()
			dir.Close()
		}
		done <- err
	}()
	return <-done
}

// Group is the path of a lab's group, or one within it, below the group of all labs.
func Group(lab string, path ...string) string {
	return filepath.Join(append([]string{rundir.Named(lab)}, path...)...)
}

// group is the path of a lab's group, or one within it, below a hierarchy's mount point; without a
// lab, that of all labs.
func group(root string, path ...string) string {
	top := filepath.Join(root, "trivet")
	if len(path) == 0 {
		return top
	}
	return filepath.Join(top, Group(path[0], path[1:]...))
}

// MakeLab makes the group of a lab.
func (c Hierarchies) MakeLab(lab string) error {
	for _, root := range c.roots() {
		err := os.MkdirAll(group(root, lab), 0o755)
		// Labs that go down may remove the group above meanwhile.
		for others := patience.LabGroup.Begin(); errors.Is(err, os.ErrNotExist) && !others.Over(); {
			err = os.MkdirAll(group(root, lab), 0o755)
		}
		if err != nil {
			return fmt.Errorf("make the cgroup of %s: %w", lab, err)
		}
	}
	return nil
}

// Make makes the group of a node, unless it exists, and sets its limits. It fails if the lab's
// group is gone: what starts while a lab goes down must leave nothing.
func (c Hierarchies) Make(lab string, n *topology.Node) error {
	for _, root := range c.roots() {
		if err := makeDir(group(root, lab, n.Name)); err != nil {
			return fmt.Errorf("make the cgroup of %s: %w", n.Name, err)
		}
	}
	if c.CPUSet != "" && (c.CPUSet == c.CPU || c.CPUSet == c.roots()[0]) { // all processes will be in it
		if err := c.pinV1(lab, n.Name, ""); err != nil {
			return fmt.Errorf("make the cgroup of %s: %w", n.Name, err)
		}
	}
	return c.Set(lab, &topology.Node{}, n)
}

func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// Set sets those limits of a node that differ from old's.
func (c Hierarchies) Set(lab string, old, n *topology.Node) error {
	if n.CPU != old.CPU {
		if err := c.Limit(lab, n.Name, n.CPU); err != nil {
			return fmt.Errorf("limit the CPU of %s: %w", n.Name, err)
		}
	}
	if !slices.Equal(n.Cores, old.Cores) {
		if err := c.pin(lab, n); err != nil {
			return fmt.Errorf("pin %s to cores: %w", n.Name, err)
		}
	}
	return nil
}

// cpuPeriod is the bandwidth period of the kernel's CPU controller: the kernel's default.
const cpuPeriod = 100 * time.Millisecond

// quotaOf returns a limit in microseconds per period, as the kernel takes it; the minimum is 1 ms.
func quotaOf(cpu topology.CPU) int64 {
	return max(1000, int64(cpu.Processors()*float64(cpuPeriod.Microseconds())))
}

// Limit limits the CPU time of all processes of a node, or of another group of a lab, together.
func (c Hierarchies) Limit(lab, node string, cpu topology.CPU) error {
	quota := strconv.FormatInt(quotaOf(cpu), 10)
	none := cpu == topology.CPU{}
	switch {
	case c.V2Has("cpu"):
		if err := c.delegate(lab, "cpu"); err != nil {
			return err
		}
		if none {
			quota = "max"
		}
		return writeFile(group(c.V2, lab, node, "cpu.max"), fmt.Sprintf("%s %d", quota, cpuPeriod.Microseconds()))
	case c.CPU != "":
		if none {
			quota = "-1"
		}
		if err := writeFile(group(c.CPU, lab, node, "cpu.cfs_quota_us"), quota); err != nil || none {
			return err
		}
		return c.join(c.CPU, lab, node)
	case none:
		return nil
	}
	return errors.New("this machine has no cpu cgroup controller mounted")
}

// join moves a node's processes into its group in a version 1 hierarchy, if they are not in it yet:
// thread by thread, as one that is just about to start a process (see Bear) must go there too, but
// not the process that it belongs to.
func (c Hierarchies) join(root, lab, node string) error {
	threads := "tasks"
	if c.V2 != "" {
		threads = "cgroup.threads"
	}
	for at := group(root, lab, node); ; {
		there, moved := listed(at, "tasks"), false
		for _, thread := range listed(filepath.Join(c.Of(lab), node), threads) {
			if slices.Contains(there, thread) {
				continue
			}
			err := writeFile(filepath.Join(at, "tasks"), strconv.Itoa(thread))
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			moved = true // it may have started others meanwhile
		}
		if !moved {
			return nil
		}
	}
}

// List formats processors as the kernel and container engines read them: 0,2,3.
func List(cores []int) string {
	words := lists.Map(cores, strconv.Itoa)
	return strings.Join(words, ",")
}

func (c Hierarchies) pin(lab string, n *topology.Node) error {
	cores := List(n.Cores)
	switch {
	case c.V2Has("cpuset"):
		if err := c.delegate(lab, "cpuset"); err != nil {
			return err
		}
		return writeFile(group(c.V2, lab, n.Name, "cpuset.cpus"), cores+"\n")
	case c.CPUSet != "":
		return c.pinV1(lab, n.Name, cores)
	case cores == "":
		return nil
	}
	return errors.New("this machine has no cpuset cgroup controller mounted")
}

// pinV1 also sets the memory nodes of each group on the path: version 1 accepts no process without
// them. Without cores, the node gets all of the machine's.
func (c Hierarchies) pinV1(lab, node, cores string) error {
	above := c.CPUSet
	for _, path := range []string{group(c.CPUSet), group(c.CPUSet, lab), group(c.CPUSet, lab, node)} {
		if err := inheritV1(above, path); err != nil {
			return err
		}
		above = path
	}
	if cores == "" {
		return nil
	}
	return writeFile(filepath.Join(above, "cpuset.cpus"), cores)
}

// inheritV1 gives a version 1 group the memory nodes and processors of its parent.
func inheritV1(above, group string) error {
	for _, file := range []string{"cpuset.mems", "cpuset.cpus"} {
		b, err := os.ReadFile(filepath.Join(above, file))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(group, file), strings.TrimSpace(string(b))); err != nil {
			return err
		}
	}
	return nil
}

// delegate lets the groups of a lab use a version 2 controller.
func (c Hierarchies) delegate(lab, controller string) error {
	for _, path := range []string{c.V2, group(c.V2), group(c.V2, lab)} {
		if err := writeFile(filepath.Join(path, "cgroup.subtree_control"), "+"+controller); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(name, value string) error { return os.WriteFile(name, []byte(value), 0o644) }

// Bear makes a command start in the group of a node, or in one below it. With version 1, the
// command must be a child of the calling thread, which must be locked and end soon; with version 2,
// it starts in the returned directory, which must be closed (it may be nil) once the command has
// started. The group below is made only in the hierarchy through which processes are found; limits
// are the node's.
func (c Hierarchies) Bear(cmd *exec.Cmd, lab, node string, below ...string) (*os.File, error) {
	found := append([]string{lab, node}, below...)
	if len(below) > 0 {
		at := group(c.roots()[0], found...)
		err := makeDir(at)
		if err == nil && c.roots()[0] == c.CPUSet {
			err = inheritV1(filepath.Dir(at), at)
		}
		if err != nil {
			return nil, fmt.Errorf("make a cgroup of %s: %w", node, err)
		}
	}
	for i, root := range c.roots() {
		at := group(root, lab, node)
		if i == 0 {
			at = group(root, found...)
		}
		if root == c.V2 || i > 0 && !limited(at) && !pinned(at) {
			continue
		}
		if err := writeFile(filepath.Join(at, "tasks"), strconv.Itoa(unix.Gettid())); err != nil {
			return nil, fmt.Errorf("enter the cgroup of %s: %w", node, err)
		}
	}
	if c.V2 == "" {
		return nil, nil
	}
	for n := range found { // the new process and all its threads would hang until it is thawed
		at := filepath.Join(group(c.V2, found[:n+1]...), "cgroup.freeze")
		if text, err := os.ReadFile(at); err == nil && strings.TrimSpace(string(text)) == "1" {
			return nil, fmt.Errorf("%s is frozen, and nothing can begin in it: %s is 1", node, at)
		}
	}
	dir, err := os.Open(group(c.V2, found...))
	if err != nil {
		return nil, err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return dir, nil
}

// Enter moves the calling process into the group of a node, which is made unless it exists.
func (c Hierarchies) Enter(lab, node string) error {
	if err := c.Make(lab, &topology.Node{Name: node}); err != nil {
		return err
	}
	for i, root := range c.roots() {
		at := group(root, lab, node)
		if i > 0 && !limited(at) && !pinned(at) {
			continue
		}
		if err := writeFile(filepath.Join(at, "cgroup.procs"), strconv.Itoa(os.Getpid())); err != nil {
			return fmt.Errorf("enter the cgroup of %s: %w", node, err)
		}
	}
	return nil
}

// limited reports whether a group of version 1's cpu controller has a limit. Without one, a node's
// processes stay out of the group: the scheduler treats a whole group like a single process outside
// of any group, and most processes are outside unless systemd puts them into groups.
func limited(path string) bool {
	b, err := os.ReadFile(filepath.Join(path, "cpu.cfs_quota_us"))
	return err == nil && strings.TrimSpace(string(b)) != "-1"
}

// pinned reports whether a version 1 cpuset has been given processors.
func pinned(path string) bool {
	b, err := os.ReadFile(filepath.Join(path, "cpuset.cpus"))
	return err == nil && strings.TrimSpace(string(b)) != ""
}

// Remove ends every process in a group, a lab's or one below it, and removes the group.
func (c Hierarchies) Remove(path ...string) error {
	ends := patience.KilledEnd.Begin()
	for _, root := range c.roots() {
		top := group(root, path...)
		if _, err := os.Stat(top); err != nil {
			continue
		}
		if err := writeFile(filepath.Join(top, "cgroup.kill"), "1"); err != nil {
			killAll(top)
		}
		for {
			err := removeTree(top)
			if err == nil {
				break
			}
			if ends.Over() {
				return fmt.Errorf("processes in %s do not end: %w", top, err)
			}
			time.Sleep(2 * time.Millisecond)
			killAll(top)
		}
		_ = os.Remove(group(root)) // this succeeds only for the last lab
	}
	return nil
}

// killAll ends the processes in a tree of groups, for kernels that cannot do it in one step. It
// says whether there were any.
func killAll(top string) (some bool) {
	for _, pid := range Below(top) {
		if pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
			some = true
		}
	}
	return some
}

// Processes lists the processes in the group of a node, or of anything else the lab runs.
func (c Hierarchies) Processes(lab, name string) []int {
	return Below(filepath.Join(c.Of(lab), name))
}

// Below lists the processes in a tree of groups.
//
// Version 1 also shows a process of which only some thread is in the tree: a daemon that is
// starting a process there (see Bear). Its first thread is elsewhere, and it is left out. One that
// is not listed because it has ended, while others of its process have not, is not elsewhere.
func Below(top string) []int {
	_, err := os.Stat(filepath.Join(top, "tasks")) // only version 1 has it
	pids := listed(top, "cgroup.procs")
	if err != nil {
		return pids
	}
	threads := listed(top, "tasks")
	slices.Sort(threads)
	return slices.DeleteFunc(pids, func(pid int) bool {
		_, here := slices.BinarySearch(threads, pid)
		return !here && process.Started(pid) != 0
	})
}

// listed reads the numbers in such a file of each group of a tree. Processes of another PID
// namespace, which are shown as 0, are left out: signalling 0 would signal our own process group.
func listed(top, file string) (out []int) {
	_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		b, _ := os.ReadFile(filepath.Join(path, file))
		for word := range strings.FieldsSeq(string(b)) {
			if id, err := strconv.Atoi(word); err == nil && id > 0 {
				out = append(out, id)
			}
		}
		return nil
	})
	return out
}

// removeTree removes groups, innermost first.
func removeTree(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs)
	for _, d := range dirs {
		if e := unix.Rmdir(d); e != nil && e != unix.ENOENT {
			err = errors.Join(err, e)
		}
	}
	return err
}
