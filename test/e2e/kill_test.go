package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// everything is a lab that uses all that a lab can make on a machine, in small.
const everything = `
management: true
nodes:
  s1: {switch: {datapath: bridge}}
  s2: {switch: {datapath: ovs}}
  s3: {switch: {datapath: ovs}}
  r1: {router: {datapath: kernel}}
  nat0: nat
  h1: {host: {isolate: pid, start: "sleep 1000 & sleep 0.01", stop: "true"}}
  h2: {host: {cpu: 0.5, dirs: [/mnt]}}
  h3: host
links:
  - [s1 -- h1, s1 -- r1, s1 -- nat0]
  - [s2 -- h2, s2 -- r1]
  - s3 -- h3
  - s2 -- s3
  - h2 -- h3: {delay: 5ms, bandwidth: 10mbit}
  - s1 -- interface:ext0: {to: {take: true}}
`

// withExternal gives the machine an interface that a lab can take, up and with addresses.
func (m *machine) withExternal() {
	m.t.Helper()
	m.sh(`ip link add ext0 type veth peer name ext1
		ip addr add 192.0.2.9/24 dev ext0; ip addr add 2001:db8::9/64 dev ext0 nodad
		ip link set ext0 up; ip link set ext1 up
		for d in ext0 ext1; do while ! ip -br link show $d | grep -q ' UP '; do sleep 0.02; done; done`)
}

// killAt brings the lab up with a daemon that dies at a step; where it gets so far, up must say
// what happened.
func (m *machine) killAt(file string, step int) (cameUp bool) {
	m.t.Helper()
	up := m.command(trivet, "up", "--name", m.name, "--wait", "3m", file)
	up.Env = append(up.Env, fmt.Sprintf("TRIVET_KILL_AT_STEP=%d", step))
	if r := m.do(up); r.code == 0 {
		return true
	} else if !strings.Contains(r.err, "daemon") || !strings.Contains(r.err, "trivet down") {
		m.t.Errorf("step %d: up should say that the daemon is gone and what to do: %s", step, r)
	}
	return false
}

// TestKilledDaemon proves that down cleans up after a daemon that died at any step of coming up:
// for n = 1, 2, … it dies at the n-th, until it gets through.
func TestKilledDaemon(t *testing.T) {
	t.Parallel()
	const lanes = 4 // machines that share the steps
	for lane := range lanes {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withExternal()
			file := m.file("everything.yaml", everything)
			before := m.snapshot()
			stride := lanes
			if testing.Short() {
				stride *= 4
			}
			for n := 1 + lane; ; n += stride {
				up := m.killAt(file, n)
				contains(t, m.ok("down"), "nothing left")
				if d := m.snapshot().differs(before); d != "" {
					t.Fatalf("killed at step %d:\n%s", n, d)
				}
				if up {
					if n < 10 {
						t.Errorf("the lab came up after %d steps: is TRIVET_KILL_AT_STEP heeded?", n)
					}
					return
				}
			}
		})
	}
}

// TestKilledAnywhere proves the same for kill -9 at any moment, between steps and before the first,
// of the daemon or of the command: after that, the lab is whole, or gone, or down removes what
// there is.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"daemon", "command", "interrupted"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withExternal()
			file := m.file("everything.yaml", everything)
			before := m.snapshot()
			rounds := 12
			if testing.Short() {
				rounds = 4
			}
			moments := newRandom(t)
			for i := range rounds {
				after := time.Duration(moments.Int64N(int64(time.Duration(i+1) * 40 * time.Millisecond)))
				m.disturb(victim, file, after)
				if victim != "interrupted" {
					m.run("down") // where the lab is gone, or never was, there is nothing to do
				}
				if d := m.snapshot().differs(before); d != "" {
					t.Fatalf("%s, after %s:\n%s", victim, after, d)
				}
			}
		})
	}
}

// disturb starts up and kills the daemon, kills the command, or interrupts the command.
func (m *machine) disturb(victim, file string, after time.Duration) {
	m.t.Helper()
	up := m.command(trivet, "up", "--name", m.name, "--wait", "3m", file)
	out := m.startOutput(up)
	time.Sleep(after)
	switch victim {
	case "command":
		_ = up.Process.Kill()
		wait(m.t, up)
		// What is under way goes on to its end: whole.
		eventually(m.t, "a lab whose command was killed is whole or not there", func() bool {
			labs := jsonOf[[]struct{ State string }](m, "ls")
			return len(labs) == 1 && labs[0].State == "up" || !strings.Contains(strings.Join(m.snapshot(), "\n"), "__daemon")
		})
	case "daemon":
		m.kill("*_[_]daemon*")
		wait(m.t, up)
	case "interrupted":
		_ = up.Process.Signal(unix.SIGINT)
		wait(m.t, up)
		if code := up.ProcessState.ExitCode(); code == 0 {
			m.ok("down") // it was up before the signal came
		} else if left := m.ok("ls"); !strings.Contains(left, "no lab") {
			m.t.Fatalf("interrupted after %s, with exit %d: %s\nthe lab is neither whole nor gone: %s", after, code, out, left)
		}
	}
}

// kill kills the machine's processes whose command lines match a shell pattern (which must not
// match itself).
func (m *machine) kill(pattern string) {
	m.t.Helper()
	m.sh(`for p in /proc/[0-9]*; do case "$(tr '\0' ' ' 2>/dev/null <$p/cmdline || true)" in ` + pattern + `) kill -9 ${p#/proc/} || true;; esac; done`)
}

// TestKilledDown proves that a down that is killed, as is its daemon, can be repeated.
func TestKilledDown(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withExternal()
	file := m.file("everything.yaml", everything)
	before := m.snapshot()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	moments := newRandom(t)
	for range rounds {
		after := time.Duration(moments.Int64N(int64(100 * time.Millisecond)))
		m.up(file)
		down := m.command(trivet, "down")
		m.startOutput(down)
		time.Sleep(after)
		m.kill("*_[_]daemon*|*trivet*[d]own*")
		wait(t, down)
		m.run("down")
		if d := m.snapshot().differs(before); d != "" {
			t.Fatalf("killed %s into down:\n%s", after, d)
		}
	}
}

// TestReboot proves that down cleans up where files have survived and nothing else has, as after a
// reboot of a machine that keeps its run directory.
func TestReboot(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up("linear,2", "--datapath", "bridge")
	m.killDaemon()
	m.sh("umount -l /run/trivet/*/ns")
	labs := jsonOf[[]struct{ Name, State string }](m, "ls")
	if len(labs) != 1 || labs[0].State != "orphaned" {
		t.Errorf("a lab without a daemon: %+v", labs)
	}
	contains(t, m.want(1, "exec", "h1", "true").err, "trivet down")
	contains(t, m.want(1, "up", "--name", m.name, "minimal").err, "trivet down "+m.name)
	m.ok("down")
	m.unchanged(before)
}

// TestExternalInterface proves that an interface of the machine joins the lab and comes back as it
// was.
func TestExternalInterface(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"bridge", "ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withExternal()
			m.sh("ip addr add 10.0.0.99/8 dev ext1")
			before := m.snapshot()
			m.up(m.file("e.yaml", "nodes: {\"h[1-2]\": host, s1: {switch: {datapath: "+datapath+"}}}\nlinks: [\"s1 -- h[1-2]\", \"s1 -- interface:ext0\": {to: {take: true}}]\n"))
			m.pingAll(2)
			m.ok("ping", "h1", "10.0.0.99", "-c", "2", "-i", "10ms", "--timeout", "30s")
			m.ok("down")
			eventually(t, "the machine is as it was", func() bool { return m.snapshot().differs(before) == "" })
		})
	}
}
