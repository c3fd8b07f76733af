package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"trivet.dev/trivet/controller/foreign"
)

// TestSitesControllers proves that switches at other machines are met by controllers of others at
// the head: those that the lab runs, and one that the user runs at the head's 127.0.0.1; also after
// the head, or the connection of a part, has died; that `apply` changes from one to another; and
// that down leaves nothing.
func TestSitesControllers(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		for _, c := range foreign.All() {
			if datapath == "embedded" && c.Embedded == "" {
				continue // it does not speak what these switches do
			}
			t.Run(datapath+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				s := newSeveral(t, 2)
				h := s.head
				h.withControllers(c.Name)
				lab := []string{"linear,6", "--datapath", datapath, "--controller", c.Name}
				contains(t, h.up(append(lab, "--on", "machines.yaml", "--name", h.name)...), "up in", "controller "+c.Name)
				all := func(when string) {
					t.Helper()
					eventually(t, when+" all answer", func() bool { return h.run("ping", "--all", "--timeout", "30s").code == 0 })
				}
				all("at first")
				if got := h.ok("inspect", "--lab", h.name); strings.Contains(got, "at-head") {
					t.Errorf("inspect names a socket instead of a controller:\n%s", got)
				}
				h.ok("link", "set", "s2-s3", "down")
				contains(t, h.run("ping", "h1", "h6", "-c", "1").String(), "0 received")
				h.ok("link", "set", "s2-s3", "up")
				all("with the link up again")
				h.killDaemon()
				contains(t, h.run("resume", h.name).String(), "resumed")
				all("after the head's death")
				s.others[0].kill(sshSessions)
				eventually(t, "the head is connected again", func() bool { return h.run("exec", "h3", "--", "true").code == 0 })
				all("after the connection's death")
				h.ok("apply", "linear,6", "--datapath", datapath, "--controller", "trivet")
				all("with Trivet's controller")
				h.ok(append([]string{"apply"}, lab...)...)
				all("with " + c.Name + " again")
				h.ok("down", h.name)
				s.unchanged(t)
			})
		}
		t.Run(datapath+"/address", func(t *testing.T) {
			t.Parallel()
			s := newSeveral(t, 2)
			h := s.head
			if _, err := exec.LookPath("ovs-testcontroller"); err != nil {
				t.Skip(err)
			}
			own := h.command("ovs-testcontroller", "--unixctl="+h.dir+"/control", "ptcp:6699:127.0.0.1")
			must(t, h.start(own))
			contains(t, h.up("linear,6", "--datapath", datapath, "--controller", "tcp:127.0.0.1:6699", "--on", "machines.yaml", "--name", h.name), "up in")
			eventually(t, "all answer", func() bool {
				return strings.Contains(h.run("ping", "--all", "--timeout", "30s").String(), "30 received")
			})
			must(t, own.Process.Kill())
			_ = own.Wait()
			h.ok("down", h.name)
			s.unchanged(t)

			out := h.run("up", "linear,6", "--datapath", "ovs", "--controller", "ssl:127.0.0.1:6699", "--on", "machines.yaml", "--name", h.name)
			contains(t, out.String(), "its controller ssl:127.0.0.1:6699 only at the head", "give an address at which the other machines reach it")
		})
	}
}
