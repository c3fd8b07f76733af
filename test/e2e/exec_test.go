package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// TestExec proves that a program in a node behaves as one that is started directly: exit code,
// streams, environment, directory, output of any size; and that what it leaves in the background
// holds nobody up.
func TestExec(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("single,3", "--datapath", "bridge")
	t.Run("exit code", func(t *testing.T) {
		m := m.of(t)
		m.want(0, "exec", "h1", "--", "true")
		m.want(1, "exec", "h1", "--", "false")
		m.want(42, "exec", "h1", "sh", "-c", "exit 42")
		m.want(128+15, "exec", "h1", "--", "sh", "-c", "kill -TERM $$")
	})
	t.Run("streams", func(t *testing.T) {
		m := m.of(t)
		r := m.runIn(strings.NewReader("one\ntwo\n"), "exec", "h1", "--", "sh", "-c", "cat; echo three >&2")
		if r.out != "one\ntwo\n" || r.err != "three\n" {
			t.Error(r)
		}
		if r := m.runIn(strings.NewReader("not to be read"), "exec", "-n", "h1", "cat"); r.out != "" || r.code != 0 {
			t.Error("-n should give the program no input: ", r)
		}
	})
	t.Run("large output", func(t *testing.T) {
		m := m.of(t)
		data := bytes.Repeat([]byte("0123456789abcde\n"), 10<<20/16)
		m.file("large", string(data))
		r := m.run("exec", "-n", "h1", "--", "cat", filepath.Join(m.dir, "large"))
		if sha256.Sum256([]byte(r.out)) != sha256.Sum256(data) {
			t.Errorf("%d bytes went in, %d came out, not the same", len(data), len(r.out))
		}
		r = m.runIn(bytes.NewReader(data), "exec", "h1", "--", "sha256sum")
		contains(t, r.out, fmt.Sprintf("%x", sha256.Sum256(data)))
	})
	t.Run("slow reader", func(t *testing.T) {
		m := m.of(t)
		// The program has ended long before its last output is read.
		out := m.sh(trivet + " exec -n h1 -- head -c 3000000 /dev/zero | (sleep 1; wc -c)")
		if out != "3000000" {
			t.Errorf("a slow reader got %s of 3000000 bytes", out)
		}
	})
	t.Run("background", func(t *testing.T) {
		m := m.of(t)
		m.ok("exec", "h1", "--", "sh", "-c", "sleep 5000 & echo done")
		contains(t, m.sh("cat /proc/*/cmdline | tr '\\0' ' '"), "sleep 5000")
	})
	t.Run("not found", func(t *testing.T) {
		m := m.of(t)
		contains(t, m.want(127, "exec", "h1", "--", "no-such-program").err, "no-such-program", "not found")
		contains(t, m.want(1, "exec", "h11", "--", "true").err, "there is no node h11", "h1")
		contains(t, m.want(127, "exec", "h1", "--", "/no/such/program").err, "/no/such/program", "no such file")
		m.want(126, "exec", "h1", "--", "/etc/passwd")
		m.want(2, "exec", "h1")
	})
	t.Run("environment", func(t *testing.T) {
		m := m.of(t)
		m.env = append(m.env, "GREETING=hello world")
		if r := m.exec("h1", "echo $GREETING; pwd"); r != "hello world\n"+m.dir {
			t.Errorf("environment and directory: %q", r)
		}
	})
}

// of is the machine for a subtest.
func (m *machine) of(t *testing.T) *machine {
	c := *m
	c.t = t
	return &c
}

// TestSignals proves that signals for trivet exec reach the program, whose end then decides the
// exit code, and that a program whose client is killed does not go on.
func TestSignals(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("minimal", "--datapath", "bridge")
	for name, s := range map[string]syscall.Signal{"INT": unix.SIGINT, "TERM": unix.SIGTERM, "USR1": unix.SIGUSR1} {
		cmd := m.command(trivet, "exec", "-n", "h1", "--", "sh", "-c", "trap 'echo caught; exit 7' "+name+"; echo ready; while :; do sleep 0.05; done")
		out := m.startOutput(cmd)
		out.waitFor(t, "ready")
		must(t, cmd.Process.Signal(s))
		wait(t, cmd)
		if code := cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(out.String(), "caught") {
			t.Errorf("SIG%s: exit %d, output %q", name, code, out)
		}
	}
	cmd := m.command(trivet, "exec", "-n", "h1", "--", "sh", "-c", "echo ready; exec sleep 4321")
	out := m.startOutput(cmd)
	out.waitFor(t, "ready")
	must(t, cmd.Process.Kill())
	wait(t, cmd)
	eventually(t, "the program of a killed client ends", func() bool {
		return !strings.Contains(m.sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' || true"), "sleep 4321")
	})
}

// output is what a running command has printed so far.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ended chan struct{} // of what is followed
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) waitFor(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !strings.Contains(o.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q does not come; there is: %s", text, o)
		}
	}
}

func follow(r io.Reader) *output {
	o := &output{ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		_, _ = io.Copy(o, r)
	}()
	return o
}

// startOutput starts a command and follows what it prints.
func (m *machine) startOutput(cmd *exec.Cmd) *output {
	o := &output{}
	cmd.Stdout, cmd.Stderr = o, o
	must(m.t, m.start(cmd))
	return o
}

// ended says whether a command that was started has ended, without waiting for it.
func ended(cmd *exec.Cmd) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

// TestNode proves what a program sees in a node: its own name, devices and /etc/hosts, its own
// processes where they are isolated, and its cgroup.
func TestNode(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("n.yaml", `
nodes:
  h1: host
  h2: {host: {isolate: pid, dirs: [/mnt]}}
  h3: {host: {cpu: 0.2}}
  s1: {switch: {datapath: bridge}}
links: ["s1 -- h[1-3]"]
`))
	if name := m.exec("h1", "hostname"); name != "h1" {
		t.Errorf("h1's host name is %q", name)
	}
	if name := m.sh("hostname"); name == "h1" {
		t.Error("the machine is called h1 now")
	}
	if devices := m.exec("h1", "ls /sys/class/net"); devices != "h1-eth0\nlo" {
		t.Errorf("h1's devices in /sys: %q", devices)
	}
	m.exec("h1", "ping -c1 -W30 h2")
	contains(t, m.exec("h1", "getent hosts h2 h3"), "10.0.0.2", "10.0.0.3")
	contains(t, m.exec("h1", "cat /proc/self/cgroup"), "/trivet/"+m.name+"/h1")
	if first := m.exec("h2", "cat /proc/1/comm; ls -d /proc/[0-9]* | wc -l"); !strings.HasPrefix(first, "trivet\n") || len(strings.Split(first, "\n")) != 2 {
		t.Errorf("an isolated node's processes: %q", first)
	} else if n, _ := strconv.Atoi(strings.Split(first, "\n")[1]); n > 6 {
		t.Errorf("an isolated node sees %d processes", n)
	}
	m.exec("h2", "touch /mnt/mine")
	if seen := m.exec("h1", "ls /mnt") + m.sh("ls /mnt"); strings.Contains(seen, "mine") {
		t.Error("a node's own directory is seen outside")
	}
	// A program that only computes gets a fifth of a processor: about 0.2 s in a second of time.
	spin := m.exec("h3", `cut -d' ' -f1 /proc/uptime; timeout 3 sh -c 'while :; do :; done'; cut -d' ' -f1 /proc/uptime; cut -d' ' -f16,17 /proc/$$/stat`)
	var from, to, user, system float64
	_, err := fmt.Sscan(spin, &from, &to, &user, &system)
	must(t, err)
	if used := (user + system) / 100 / (to - from); used > 0.4 || used == 0 {
		t.Errorf("a node limited to 0.2 processors used %.2f", used)
	}
}

// TestShell proves that trivet shell on a terminal is one: a prompt, the size of the window,
// Ctrl-C.
func TestShell(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("minimal", "--datapath", "bridge")
	ours, theirs, err := pty.Open()
	must(t, err)
	defer ours.Close()
	must(t, pty.Setsize(ours, &pty.Winsize{Rows: 33, Cols: 111}))
	m.env = append(m.env, "SHELL=/bin/sh", "PS1=prompt> ", "TERM=dumb")
	cmd := m.command(trivet, "shell", "h2")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, m.start(cmd))
	theirs.Close()
	out := follow(ours)
	out.waitFor(t, "prompt> ")
	say := func(line, answer string) {
		_, err := io.WriteString(ours, line)
		must(t, err)
		out.waitFor(t, answer)
	}
	say("echo I am $(hostname) now\n", "I am h2 now")
	say("stty size\n", "33 111")
	must(t, pty.Setsize(ours, &pty.Winsize{Rows: 44, Cols: 99}))
	must(t, cmd.Process.Signal(unix.SIGWINCH))
	eventually(t, "the shell knows the new size", func() bool {
		_, _ = io.WriteString(ours, "stty size\n")
		time.Sleep(50 * time.Millisecond)
		return strings.Contains(out.String(), "44 99")
	})
	say("sleep 1000; echo slept\n", "sleep 1000")
	time.Sleep(200 * time.Millisecond)
	eventually(t, "Ctrl-C ends what the shell runs, also where the shell has only just started it", func() bool {
		_, _ = io.WriteString(ours, "\x03echo still $((40+2))\n")
		time.Sleep(50 * time.Millisecond)
		return strings.Contains(out.String(), "still 42")
	})
	contains(t, out.String(), "^C")
	_, err = io.WriteString(ours, "exit 9\n")
	must(t, err)
	wait(t, cmd)
	if code := cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("the shell's exit code: %d", code)
	}
}

// TestOVSTools proves that Open vSwitch's own commands, run in a switch of the lab, find the lab's
// Open vSwitch, as those of Mininet's scripts and of MiniEdit's start commands expect it.
func TestOVSTools(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("tools.yaml", "datapath: ovs\ncontroller: none\nnodes: {h1: host, s1: {switch: {start: ovs-vsctl set bridge s1 other-config:hello=start}}}\nlinks: [s1 -- h1]\n"))
	contains(t, m.exec("s1", "ovs-vsctl get bridge s1 other-config"), "hello=start")
	contains(t, m.exec("s1", "ovs-ofctl -O OpenFlow13 dump-flows s1"), "NORMAL")
}
