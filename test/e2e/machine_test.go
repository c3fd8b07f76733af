package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/test/until"
)

// initVariable tells the test binary to be the first process of a machine.
const initVariable = "TRIVET_E2E_INIT"

// machine is a set of namespaces for one test; it ends, with all in it, when the test does.
type machine struct {
	t    *testing.T
	name string // prefix of the names of its labs, and of no other machine's: hence of one length
	dir  string // for the test's files, seen at the same path inside
	init *exec.Cmd
	env  []string

	started *children

	shared bool     // the network is that of the tests' own machine, in which others may be at work
	by     []string // runs commands at a machine that is there already: there is no init

	patient time.Duration // how long a command may take, if that is more than commandTime
}

var machines atomic.Int64

// newMachine starts a machine with a network of its own.
func newMachine(t *testing.T) *machine { return startMachine(t, unix.CLONE_NEWNET) }

// sharedMachine starts one with the network of the tests' own machine: only there does the kernel
// let its limits as a whole be seen and raised.
func sharedMachine(t *testing.T) *machine { return startMachine(t, 0) }

func startMachine(t *testing.T, network uintptr) *machine {
	t.Helper()
	m := &machine{t: t, name: fmt.Sprintf("e2e%d-%03d", os.Getpid(), machines.Add(1)), dir: t.TempDir(), started: &children{}, shared: network == 0}
	_ = os.Chmod(m.dir, 0o755)
	m.init = exec.Command("/proc/self/exe")
	m.init.Env = append(os.Environ(), initVariable+"=1")
	m.init.Stderr = os.Stderr
	m.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | network}
	life, err := m.init.StdinPipe() // the machine ends when this closes, so also when the tests are killed
	must(t, err)
	ready, err := m.init.StdoutPipe()
	must(t, err)
	must(t, m.init.Start())
	t.Cleanup(func() {
		if t.Failed() {
			load, _ := os.ReadFile("/proc/loadavg")
			pressure, _ := os.ReadFile("/proc/pressure/cpu")
			t.Logf("the machine's load %s, how tasks wait for processors:\n%s", bytes.TrimSpace(load), bytes.TrimSpace(pressure))
		}
		life.Close()
		m.started.reap()
		_ = m.init.Wait()
		m.cleanCgroups()
	})
	if n, err := ready.Read(make([]byte, 1)); n != 1 {
		t.Fatal("the machine did not start: ", err)
	}
	if !m.shared { // what the tests run on may forward, as where Docker is
		must(t, m.inside(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0o644) }))
	}
	return m
}

// runInit is the first process of a machine: it prepares it, and buries orphans until the tests let
// go.
func runInit() error {
	err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) { // nothing of the labs outside
		// Nor of containers, whose mounts end here as well when their directories go.
		if words := strings.Fields(line); words[0] == "trivet" || strings.HasPrefix(words[1], "/run/") || strings.HasPrefix(words[1], "/var/lib/") ||
			strings.Contains(words[1], "/containers/") || words[2] == "overlay" && words[1] != "/" {
			_ = unix.Unmount(words[1], unix.MNT_DETACH)
		}
	}
	if err := errors.Join(err,
		unix.Mount("proc", "/proc", "proc", 0, ""),
		unix.Mount("run", "/run", "tmpfs", 0, "mode=755"),
		os.Mkdir("/run/mount", 0o755)); err != nil { // umount(8) would make it
		return err
	}
	if err := ownFile("/sys/kernel/rcu_expedited", "0\n"); err != nil {
		return err
	}
	if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
		return fmt.Errorf("ip link set lo up: %w", err)
	}
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	os.Stdout.Write([]byte{1})
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// ownFile gives the machine a file of its own in place of one of the kernel's, which labs in
// several machines at a time would each want to restore.
func ownFile(path, content string) error {
	own := "/run/" + filepath.Base(path)
	if err := os.WriteFile(own, []byte(content), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(own, path, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount over %s: %w", path, err)
	}
	return os.Remove(own)
}

// inside runs f on a thread in the machine's namespaces; what f starts is born there.
func (m *machine) inside(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS)
		for _, kind := range []string{"pid", "net", "uts", "mnt"} {
			if err == nil {
				err = m.enter(kind)
			}
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (m *machine) enter(kind string) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", m.init.Process.Pid, kind))
	if err != nil {
		return err
	}
	defer ns.Close()
	return unix.Setns(int(ns.Fd()), 0)
}

// command prepares a command with the machine's environment; start starts it there.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	if m.by != nil {
		by, _ := filepath.Abs(m.by[0])
		name, args = by, slices.Concat(m.by[1:], []string{name}, args)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = m.dir
	for _, e := range os.Environ() { // no SUDO_UID, lab or run directory of who runs the tests
		if !strings.HasPrefix(e, "SUDO_") && !strings.HasPrefix(e, "TRIVET_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, m.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func (m *machine) start(cmd *exec.Cmd) error {
	begin := func() error { return m.inside(cmd.Start) }
	if m.init == nil {
		begin = cmd.Start
	}
	err := begin()
	if err == nil {
		m.started.mu.Lock()
		m.started.list = append(m.started.list, cmd)
		m.started.mu.Unlock()
	}
	return err
}

// children is what was started in a machine.
type children struct {
	mu   sync.Mutex
	list []*exec.Cmd
}

// reap waits for what a test that failed has not waited for: until then the machine's first process
// cannot end.
func (c *children) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.list {
		go func() { _, _ = cmd.Process.Wait() }()
	}
}

type result struct {
	args     string
	out, err string
	code     int
}

func (r result) String() string {
	return fmt.Sprintf("%s\nexit %d\nstdout: %s\nstderr: %s", r.args, r.code, r.out, r.err)
}

// commandTime bounds each command: nothing takes so long unless it hangs, but for what a cloud does
// on a busy machine.
const commandTime, cloudTime = 4 * time.Minute, 20 * time.Minute

// wait waits for a command that was started, and ends one that hangs. Where it does, it may say
// first.
func wait(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	waitWithin(t, commandTime, cmd)
}

func waitWithin(t *testing.T, limit time.Duration, cmd *exec.Cmd) {
	t.Helper()
	kill := time.AfterFunc(limit+5*time.Second, func() { _ = cmd.Process.Kill() })
	late := time.AfterFunc(limit, func() { _ = cmd.Process.Signal(unix.SIGQUIT) })
	err := cmd.Wait()
	kill.Stop()
	if !late.Stop() {
		said, _ := cmd.Stderr.(fmt.Stringer)
		t.Fatalf("%s hangs: %v\n%v", cmd, err, said)
	}
}

func (m *machine) do(cmd *exec.Cmd) result {
	m.t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Minute
	must(m.t, m.start(cmd))
	waitWithin(m.t, max(m.patient, commandTime), cmd)
	code := cmd.ProcessState.ExitCode()
	return result{filepath.Base(cmd.Path) + " " + strings.Join(cmd.Args[1:], " "), out.String(), errOut.String(), code}
}

// run runs trivet.
func (m *machine) run(args ...string) result {
	m.t.Helper()
	return m.do(m.command(trivet, args...))
}

// measure runs an experiment, all of whose runs must succeed, and returns what it prints.
func (m *machine) measure(args ...string) string {
	m.t.Helper()
	r := m.run(append([]string{"bench", "run"}, args...)...)
	if r.code != 0 {
		m.t.Fatal(r)
	}
	return r.String()
}

// runIn runs trivet with standard input.
func (m *machine) runIn(in io.Reader, args ...string) result {
	m.t.Helper()
	cmd := m.command(trivet, args...)
	cmd.Stdin = in
	return m.do(cmd)
}

// want runs trivet, which must exit with code.
func (m *machine) want(code int, args ...string) result {
	m.t.Helper()
	r := m.run(args...)
	if r.code != code {
		m.t.Fatalf("want exit %d: %s", code, r)
	}
	return r
}

// ok runs trivet, which must succeed, and returns what it prints.
func (m *machine) ok(args ...string) string {
	m.t.Helper()
	return m.want(0, args...).out
}

// sh runs a shell command of the machine, which must succeed.
func (m *machine) sh(script string) string {
	m.t.Helper()
	r := m.do(m.command("/bin/sh", "-ec", script))
	if r.code != 0 {
		m.t.Fatal(r)
	}
	return strings.TrimSpace(r.out)
}

// up brings a lab up under the machine's name, however long its controller takes.
func (m *machine) up(args ...string) string {
	m.t.Helper()
	return m.ok(append([]string{"up", "--name", m.name, "--wait", "3m"}, args...)...)
}

// exec runs a shell command in a node, which must succeed.
func (m *machine) exec(node, script string) string {
	m.t.Helper()
	return strings.TrimSpace(m.ok("exec", "-n", node, "--", "sh", "-c", script))
}

// file writes a file for the test and returns its path.
func (m *machine) file(name, text string) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	must(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(m.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// jsonOf runs trivet with --json and reads what it prints.
func jsonOf[T any](m *machine, args ...string) (v T) {
	m.t.Helper()
	out := m.ok(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		m.t.Fatalf("trivet %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return v
}

// eventually waits until a condition holds; what it waits for takes milliseconds unless it never
// happens.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	until.True(t, what, holds)
}

// newRandom draws random moments; TRIVET_SEED repeats those of a test that failed, as far as the
// machine does.
func newRandom(t *testing.T) *rand.Rand {
	seed, err := strconv.ParseUint(os.Getenv("TRIVET_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64N(1e9)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("its random moments are those of TRIVET_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Fatalf("%q is not in: %s", w, text)
		}
	}
}

// example is the path of an example of the repository.
func example(name string) string {
	path, _ := filepath.Abs("../../examples/" + name)
	return path
}
