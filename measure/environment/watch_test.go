package environment

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/cgroup"
)

// ownTime is the processor time of this process, in seconds.
func ownTime(t *testing.T) float64 {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// TestWatch proves that a watch sees what the kernel accounts to this process while it works:
// processor time and memory, and that the machine was busy at least as much.
func TestWatch(t *testing.T) {
	w, err := StartWatch(WatchOptions{Interval: 20 * time.Millisecond, Processes: []Process{{"this test", os.Getpid()}, {"nobody", math.MaxInt32 - 1}}})
	if err != nil {
		t.Fatal(err)
	}
	before := ownTime(t)
	const size = 64 << 20
	memory := make([]byte, size)
	for ownTime(t)-before < 0.3 {
		for i := 0; i < size; i += 4096 {
			memory[i]++
		}
	}
	u := w.Stop()
	used := ownTime(t) - before
	if len(u.Processes) != 1 || u.Processes[0].Ended {
		t.Fatalf("processes: %+v", u.Processes)
	}
	p := u.Processes[0]
	if got := p.User + p.System; got < 0.25 || got > used+0.05 {
		t.Errorf("%.2f s seen, %.2f s used", got, used)
	}
	if p.PSS < size {
		t.Errorf("PSS of %d bytes, with %d in use", p.PSS, size)
	}
	if all := float64(u.Busy) * u.Seconds * float64(u.Processors); all < 0.2 || u.Busy > 1 || u.BusiestCore < u.Busy-0.01 {
		t.Errorf("the machine worked for %.2f s: %+v", all, u)
	}
	if u.Looks < 2 || u.Seconds < 0.1 || u.Cost <= 0 || u.Cost > used+0.05 || u.Switches == 0 || u.Softnet == nil {
		t.Errorf("%+v", u)
	}
	if !strings.Contains(strings.Join(u.Missing, "\n"), "process nobody") {
		t.Errorf("missing: %v", u.Missing)
	}
	if again := w.Stop(); again.Looks != u.Looks {
		t.Error("a second stop looks again")
	}
	if _, err := json.Marshal(u); err != nil {
		t.Error(err)
	}
	_ = memory[size/2]
}

// TestShortWatch proves that a watch stopped at once has no shares rather than wrong ones, and can
// be written.
func TestShortWatch(t *testing.T) {
	w, err := StartWatch(WatchOptions{NoPerf: true})
	if err != nil {
		t.Fatal(err)
	}
	u := w.Stop()
	if b, err := json.Marshal(u); err != nil || u.Looks < 1 || u.Perf != nil {
		t.Errorf("%s, %v", b, err)
	}
	if u.Busy < 0 || u.Busy > 1 {
		t.Errorf("busy: %v", u.Busy)
	}
}

// TestEnded proves that a process that ends while it is watched is marked, and not mistaken for
// another.
func TestEnded(t *testing.T) {
	cmd := exec.Command("sleep", "0.1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w, err := StartWatch(WatchOptions{Interval: 10 * time.Millisecond, Processes: []Process{{"sleep", cmd.Process.Pid}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(30 * time.Millisecond)
	if u := w.Stop(); len(u.Processes) != 1 || !u.Processes[0].Ended {
		t.Errorf("%+v", u.Processes)
	}
}

// TestCgroup proves that the processor time of a cgroup is that of the processes in it, also after
// they have ended.
func TestCgroup(t *testing.T) {
	dir := ""
	for _, root := range []string{"/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		dir = filepath.Join(root, "trivet-environment-test-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(dir, 0o755) == nil {
			break
		}
	}
	if _, err := (&machine{root: "/"}).group(dir); err != nil {
		_ = os.Remove(dir)
		t.Skipf("no cgroup that counts processor time can be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	w, err := StartWatch(WatchOptions{Interval: 50 * time.Millisecond, Cgroups: []Cgroup{{"work", dir}, {"none", dir + "-none"}}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `echo 0 > "$0/cgroup.procs" && i=0 && while [ $i -lt 200000 ]; do i=$((i + 1)); done`, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	u := w.Stop()
	used := cmd.ProcessState.UserTime().Seconds() + cmd.ProcessState.SystemTime().Seconds()
	if len(u.Cgroups) != 1 || u.Cgroups[0].CPU < used/2 || u.Cgroups[0].CPU > used+0.05 || !strings.Contains(strings.Join(u.Missing, "\n"), "cgroup none") {
		t.Errorf("%+v, used %.3f s; missing %v", u.Cgroups, used, u.Missing)
	}
}

// TestPerf proves that events are counted, or that it is said why not: page faults are at least
// those made meanwhile.
func TestPerf(t *testing.T) {
	stat, err := (&machine{root: "/"}).stat()
	if err != nil {
		t.Fatal(err)
	}
	p := openPerf(slices.Sorted(maps.Keys(stat.cores)))
	const pages = 5000
	memory, err := unix.Mmap(-1, 0, pages*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	_ = unix.Munmap(memory)
	counters := p.close()
	if len(counters)+len(p.missing) != len(perfEvents) {
		t.Errorf("%v, missing %v: some events are neither", counters, p.missing)
	}
	for _, c := range counters {
		if c.Share <= 0 || c.Share > 1 || c.Value < 0 || c.Name == "page-faults" && c.Value < pages*0.9 || c.Name == "cycles" && c.Value < pages {
			t.Errorf("%+v", c)
		}
	}
	for _, m := range p.missing {
		t.Log(m)
	}
}

// TestClock proves that jumps of the wall clock are seen, of both signs, and that slewing and slow
// looks are none.
func TestClock(t *testing.T) {
	var w clockWatch
	offset := 1e9
	for i, step := range []float64{0, 0, 0.0002, -0.0002, 2, 0, -0.5, 0} { // in a second each
		offset += step
		w.observe(clockReading{raw: 50 + float64(i), offset: offset, doubt: 2e-6})
	}
	offset += 0.003
	w.observe(clockReading{raw: 58, offset: offset, doubt: 0.01}) // a look that took 10 ms can say nothing of 3 ms
	w.observe(clockReading{doubt: math.Inf(1)})
	if len(w.out.Jumps) != 2 || w.out.Jumps[0] != (Jump{4, 2}) || math.Abs(w.out.Jumps[1].By+0.5) > 1e-6 || math.Abs(w.out.Largest-2) > 1e-6 || math.Abs(w.out.Rate-1.503/8) > 1e-6 {
		t.Errorf("%+v", w.out)
	}
	a, b := readClocks(), readClocks()
	if a.raw > b.raw || math.Abs(float64(time.Now().UnixNano())/1e9-(b.raw+b.offset)) > 60 {
		t.Errorf("%+v, %+v", a, b)
	}
}

// TestParsers proves that odd but possible contents of /proc are read right: counters that have run
// over, names of processes that look like columns, lines that are cut.
func TestParsers(t *testing.T) {
	softnet := func(lines ...string) (Softnet, error) {
		text := strings.ReplaceAll(strings.Join(lines, ""), "\n", " 0 0 0 0 0 0 0 0 0 0\n")
		return (&machine{root: tree(t, map[string]string{"proc/net/softnet_stat": text})}).softnet()
	}
	before, err1 := softnet("ffffffff 00000001 00000000\n", "00000000 00000000 00000002\n")
	after, err2 := softnet("00000004 00000003 00000000\n", "00000001 00000000 00000002\n")
	if got := after.less(before); err1 != nil || err2 != nil || got != (Softnet{6, 2, 0}) {
		t.Errorf("%+v, %v, %v", got, err1, err2)
	}
	for _, bad := range []string{"1 2", "x y z\n"} {
		if _, err := softnet(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, err := (&machine{root: tree(t, map[string]string{"proc/stat": "intr 1 2\n"})}).stat(); err == nil {
		t.Error("a file without processors was taken")
	}
	m := &machine{root: tree(t, map[string]string{
		"proc/stat":             "cpu  1000 0 1000 8000 0 0 0 0 0 0\ncpu0 1000 0 1000 8000 0 0 0 0 0 0\nintr 5 6\nctxt 77\nprocs_running 3\n",
		"proc/7/stat":           "7 (a) S 1) (b) R 1 1 1 0 -1 4 1 0 0 0 250 50 0 0 20 0 1 0 12345 1 1 " + strings.Repeat("0 ", 28) + "\n",
		"proc/8/stat":           "8 (x) S\n",
		"proc/7/task/7/status":  "Name:\tx\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t1\n",
		"proc/7/task/9/status":  "voluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t0\n",
		"proc/7/smaps_rollup":   "0-f ---p 0 0 0 [rollup]\nRss:     100 kB\nPss:      12 kB\nPss_Anon:  4 kB\n",
		"proc/pressure/cpu":     "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
		"cg/cpu.stat":           "usage_usec 1500000\nuser_usec 1\nnr_throttled 2\nthrottled_usec 250000\n",
		"cg/cgroup.procs":       "7\n",
		"cg/below/cgroup.procs": "8\n9\n",
		"v1/cpuacct.usage":      "2500000000\n",
		"v1/cpu.stat":           "nr_periods 1\nthrottled_time 500000000\n",
	})}
	s, err := m.stat()
	if err != nil || s.switches != 77 || s.running != 3 || s.total.busy() != 0.2 || len(s.cores) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	p, err := m.process(7)
	if err != nil || p != (processTimes{2.5, 0.5, 12345}) {
		t.Errorf("process: %+v, %v", p, err)
	}
	if _, err := m.process(8); err == nil {
		t.Error("half a line was taken")
	}
	v, i := m.switches(7)
	bytes, _ := m.pss(7)
	wait, _ := m.pressure()
	if v != 7 || i != 1 || bytes != 12<<10 || wait != 2.5e6 {
		t.Errorf("switches %d, %d; PSS %d; pressure %v", v, i, bytes, wait)
	}
	two, _ := m.group("cg")
	one, _ := m.group("v1")
	if two != (groupTimes{1.5, 0.25}) || one != (groupTimes{2.5, 0.5}) || len(cgroup.Below(filepath.Join(m.root, "cg"))) != 3 {
		t.Errorf("groups: %+v, %+v, %v", two, one, cgroup.Below(filepath.Join(m.root, "cg")))
	}
}

// BenchmarkLook measures what a look costs; the watch of one process looks five times a second by
// default.
func BenchmarkLook(b *testing.B) {
	w := &Watch{machine: machine{root: "/"}, options: WatchOptions{Processes: []Process{{"this", os.Getpid()}}}, memory: time.Now().Add(time.Hour)}
	w.meet()
	for b.Loop() {
		w.look()
	}
}

// BenchmarkWeigh measures what looking at the memory of one process costs.
func BenchmarkWeigh(b *testing.B) {
	w := &Watch{machine: machine{root: "/"}, options: WatchOptions{Processes: []Process{{"this", os.Getpid()}}}}
	w.meet()
	for b.Loop() {
		w.weigh()
	}
}

// TestOthers proves that a program which starves the machine is named, with what it used, in the
// usage and in the reasons against a figure; and that what is measured, what it has started and
// what is in its cgroup are not.
func TestOthers(t *testing.T) {
	name := fmt.Sprintf("spin%d", os.Getpid()) // others may run this test on this machine
	shell := filepath.Join(t.TempDir(), name)
	if err := os.Symlink("/bin/sh", shell); err != nil {
		t.Fatal(err)
	}
	spin := func() *exec.Cmd {
		cmd := exec.Command(shell, "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	w, err := StartWatch(WatchOptions{Interval: 50 * time.Millisecond, NoPerf: true})
	if err != nil {
		t.Fatal(err)
	}
	busy := spin()
	used := func() float64 {
		times, err := w.process(busy.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return times.user + times.system
	}
	for used() < 0.5 {
		time.Sleep(10 * time.Millisecond)
	}
	u := w.Stop()
	for _, o := range u.Others {
		if o.Name == name {
			t.Errorf("a child of this process is a stranger: %+v", o)
		}
	}
	// The same processes, seen by somebody whose child it is not.
	seconds := u.Seconds
	for key, p := range w.others.seen {
		if key.pid == busy.Process.Pid {
			p.parent = 1
		}
	}
	maps.DeleteFunc(w.others.seen, func(key otherKey, _ *otherProcess) bool { return key.pid != busy.Process.Pid }) // only the hungriest are told of
	u.Others = w.hungriest()
	if len(u.Others) == 0 || !slices.ContainsFunc(u.Others, func(o OtherUsage) bool {
		return o.Name == name && o.CPU >= 0.4 && o.CPU <= 1.1*seconds && o.Processes == 1
	}) {
		t.Errorf("%+v of %.2f s", u.Others, seconds)
	}
	u = Usage{Looks: 1, Seconds: 10, Busy: 0.97, Others: []OtherUsage{{"100%s", 9, 3}, {"cc1", 2, 40}, {"cron", 0.3, 1}}}
	if v := Judge(Evidence{Usage: &u}, DefaultLimits); len(v.Reasons) != 1 || v.Reasons[0].Text != "CPU 97 %: the figure may be the processors', not the network's; other programs used processors: 100%s 0.9, cc1 0.2" {
		t.Errorf("%+v", v)
	}
	w.options.Own = []string{"/bench-"}
	for key, p := range w.others.seen {
		if key.pid == busy.Process.Pid {
			p.group = "0::/trivet/bench-1/h1\n"
		}
	}
	if slices.ContainsFunc(w.hungriest(), func(o OtherUsage) bool { return o.Name == name && o.CPU >= 0.4 }) {
		t.Error("what is in the lab's cgroup is a stranger")
	}
}
