package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// siteFaults are what may happen to a lab over several machines, each with what ends it, if
// anything needs to.
var siteFaults = []struct {
	name   string
	do     func(s *several)
	mended func(s *several)
}{
	{"the head's daemon is killed", func(s *several) { s.head.kill("*_[_]daemon*") }, nil},
	{"a part's daemon is killed", func(s *several) { s.others[0].kill("*_[_]daemon*") }, nil},
	{"the program at a site is killed", func(s *several) { s.others[0].kill("*program/trivet-*_[_]site*") }, nil},
	{"an SSH connection is killed", func(s *several) { s.others[0].kill(sshSessions) }, nil},
	{"a machine is cut off", func(s *several) { s.head.sh("ip link set to-m1 down") }, func(s *several) { s.head.sh("ip link set to-m1 up") }},
	{"a machine is no longer heard", func(s *several) {
		s.others[0].sh("nft add table inet mute && nft 'add chain inet mute out { type filter hook output priority 0; policy drop; }'")
	}, func(s *several) {
		s.others[0].sh("nft delete table inet mute")
		s.others[0].kill(sshSessions) // TCP would tell it in some minutes only that its connection is gone
	}},
}

// TestSitesFaults proves that whatever happens to a lab over three machines while it comes up,
// changes or goes down, at any moment, the command ends, with an error that names the machine,
// the lab or a switch unless it has succeeded; and that down then leaves nothing anywhere, or, of a
// machine that it cannot reach, what goes by itself.
func TestSitesFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range siteFaults {
		t.Run(strings.ReplaceAll(fault.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			s := newSeveral(t, 2)
			h := s.head
			list, err := os.ReadFile(filepath.Join(h.dir, "machines.yaml"))
			must(t, err)
			h.file("machines.yaml", string(list)+"keep: 5s\n")
			moments := newRandom(t)
			up := []string{"up", "linear,6", "--on", "machines.yaml", "--name", h.name, "--wait", "1m"}
			for _, op := range []string{"up", "apply", "down"} {
				words := map[string][]string{"up": up, "apply": {"apply", "linear,8", "--lab", h.name}, "down": {"down", h.name}}[op]
				if op != "up" {
					h.ok(up...)
				}
				cmd := h.command(trivet, words...)
				out := h.startOutput(cmd)
				most := map[string]int64{"up": 900, "apply": 500, "down": 700}[op]
				after, begin := time.Duration(moments.Int64N(most))*time.Millisecond, time.Now()
				time.Sleep(after)
				fault.do(s)
				wait(t, cmd)
				code := cmd.ProcessState.ExitCode()
				t.Logf("%s, %s into %s: exit %d after %s: %s", fault.name, after.Round(10*time.Millisecond), op, code, time.Since(begin).Round(10*time.Millisecond), lastLine(out.String()))
				if code != 0 && !strings.Contains(out.String(), "m1") && !strings.Contains(out.String(), h.name) && !strings.Contains(out.String(), "daemon") &&
					!strings.Contains(out.String(), "switch s") {
					t.Errorf("%s, %s into %s: %s", fault.name, after, op, out)
				}
				if fault.mended != nil {
					fault.mended(s)
				}
				h.run("down", h.name) // where it is gone, there is nothing to do
				s.unchanged(t)
				if t.Failed() {
					t.Fatalf("%s, %s into %s: %s", fault.name, after, op, out)
				}
			}
		})
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// TestSitesTwoHeads proves that a lab that would take the part of another head's lab at a machine
// is refused, and that the other one is left alone; and that labs of two heads share machines.
func TestSitesTwoHeads(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h, other := s.head, s.others[0]
	other.env = h.env // its user and keys
	h.file("theirs.yaml", "machines:\n  m2: root@10.5.0.3\n")
	h.up("linear,6", "--on", "machines.yaml", "--name", h.name)
	theirs := func(name string) []string {
		return []string{"up", "linear,2", "--on", filepath.Join(h.dir, "theirs.yaml"), "--name", name, "--wait", "3m"}
	}
	contains(t, other.want(1, theirs(h.name)...).String(), "site m2:", "there is already a lab "+h.name+".m2", "nothing is left of the lab")
	contains(t, h.ok("ping", "--all"), "30 sent, 30 received")
	second := h.name + "-theirs"
	other.ok(theirs(second)...)
	contains(t, other.ok("ping", "--all", "--lab", second), "2 sent, 2 received")
	other.ok("down", second)
	contains(t, h.ok("ping", "--all"), "30 sent, 30 received")
	h.ok("down", h.name)
	s.unchanged(t)
}

// TestSitesFull proves that a machine whose disk is full is named when a lab comes up, and that
// nothing is left of the lab, there or elsewhere.
func TestSitesFull(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h, m1 := s.head, s.others[0]
	m1.sh("mkdir -p /run/trivet && mount -t tmpfs -o size=1M full /run/trivet && head -c 1M /dev/zero >/run/trivet/full || true")
	r := h.want(1, "up", "linear,6", "--on", "machines.yaml", "--name", h.name).String()
	contains(t, r, "site m1:", "no space left on device", "nothing is left of the lab")
	m1.sh("umount /run/trivet && rmdir /run/trivet")
	s.unchanged(t)
	h.up("linear,6", "--on", "machines.yaml", "--name", h.name)
	h.ok("down", h.name)
	s.unchanged(t)
}
