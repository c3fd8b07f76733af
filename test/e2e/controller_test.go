package e2e

import (
	"os/exec"
	"testing"
)

// TestController proves that the built-in controller brings up labs in which every host
// reaches every other at the first try, in trees and in networks with loops, and that
// a lab goes on when a link of a loop fails.
func TestController(t *testing.T) {
	for _, c := range []struct {
		what  string
		hosts int
	}{{"linear,3", 3}, {"tree,2,3", 9}, {"ring,5", 5}, {"fat-tree,4", 8}} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			contains(t, m.up(c.what, "--datapath", "ovs", "--controller", "trivet"), "up in")
			m.pingAll(c.hosts * (c.hosts - 1))
			if c.what == "ring,5" {
				m.ok("link", "set", "s1-s2", "down")
				eventually(t, "the ring heals", func() bool { return m.run("ping", "--all", "--timeout", "1s").code == 0 })
			}
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
		})
	}
}

// TestControllerKilled proves that a lab's traffic does not notice that its controller, a
// process of its own, is killed and started again: a continuous ping loses nothing, and hosts
// that are silent until then reach each other at the first try.
func TestControllerKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	start := func() *exec.Cmd {
		cmd := m.command(trivet, "controller", "--listen", "tcp:127.0.0.1:6653")
		m.startOutput(cmd).waitFor(t, "controller listens")
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	first := start()
	m.up("ring,4", "--datapath", "ovs", "--controller", "tcp:127.0.0.1:6653")
	reached := func(to string) func() bool {
		return func() bool { return m.run("exec", "h1", "--", "ping", "-c1", "-W1", to).code == 0 }
	}
	eventually(t, "h1 reaches h2", reached("h2"))
	pings := m.stream("h1", "0.05", "10.0.0.2")
	kill(first)
	pings.more(20)
	second := start()
	eventually(t, "h1 reaches h3", reached("h3"))
	pings.more(20)
	pings.unbroken("the controller's death and return")
	m.pingAll(12)
	m.ok("down")
	kill(second)
}
