package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// stream is a ping that goes on until the test ends it.
type stream struct {
	t   *testing.T
	m   *machine
	cmd *exec.Cmd
	out *output

	stalls int // of the lab's Open vSwitch before it began

	overtaking bool // answers may overtake each other
}

// stream starts one from a node, with its pings so many seconds after each other. It does not need
// the lab's daemon. (A ping of a number would not do: after the last it waits for answers twice as
// long as the slowest took, and a busy machine may be slower.)
func (m *machine) stream(node, interval, to string) *stream {
	m.t.Helper()
	cmd := m.command("nsenter", "--net=/run/trivet/"+m.name+"/ns/net/"+node, "ping", "-n", "-i", interval, to)
	s := &stream{t: m.t, m: m, stalls: m.stalls(), cmd: cmd, out: m.startOutput(cmd)}
	s.more(20)
	return s
}

var answer = regexp.MustCompile(`icmp_seq=(\d+) ttl=(\d+).*\n`)

// more waits until n more pings have been answered.
func (s *stream) more(n int) {
	s.t.Helper()
	count := func() int { return strings.Count(s.out.String(), " ttl=") }
	n += count()
	eventually(s.t, fmt.Sprint(n, " pings are answered"), func() bool { return count() >= n })
}

// until waits until an answer comes with a TTL.
func (s *stream) until(ttl string) {
	s.t.Helper()
	eventually(s.t, "an answer has the TTL "+ttl, func() bool { return strings.Contains(s.out.String(), " ttl="+ttl+" ") })
}

// end ends it and returns, of the pings up to the last that was answered, which are missing, and
// how often each TTL came. An answer that comes twice, or after a later one, is an error.
func (s *stream) end() (missing []int, ttls map[string]int) {
	s.t.Helper()
	must(s.t, s.cmd.Process.Signal(syscall.SIGINT))
	wait(s.t, s.cmd)
	last := 0
	seen := map[int]bool{}
	ttls = map[string]int{}
	for _, found := range answer.FindAllStringSubmatch(s.out.String(), -1) {
		var seq int
		fmt.Sscan(found[1], &seq)
		switch {
		case seen[seq]:
			s.t.Errorf("answer %d comes twice", seq)
		case seq < last && !s.overtaking:
			s.t.Errorf("answer %d comes after %d", seq, last)
		}
		seen[seq], last = true, max(last, seq)
		ttls[found[2]]++
	}
	for seq := 1; seq < last; seq++ {
		if !seen[seq] {
			missing = append(missing, seq)
		}
	}
	return missing, ttls
}

// unbroken ends it: no ping may have been lost, unless the machine had no time for the lab's Open
// vSwitch, which forwards in user space. It returns how many were sent, of which the answers of the
// last may be under way, and how many were lost.
func (s *stream) unbroken(through string) (sent, lost int) {
	s.t.Helper()
	if missing, _ := s.end(); len(missing) > 0 {
		lost = len(missing)
		if s.m.stalls() > s.stalls {
			s.t.Logf("Open vSwitch has stalled, and pings %v were lost", missing)
		} else {
			s.t.Errorf("through %s, pings %v were lost", through, missing)
		}
	}
	_, statistics, _ := strings.Cut(s.out.String(), "ping statistics ---\n")
	if _, err := fmt.Sscan(statistics, &sent); err != nil {
		s.t.Errorf("%v: %s", err, s.out)
	}
	return sent, lost
}

// stalls is how often the lab's Open vSwitch had to wait for longer than a second for its turn, by
// its own word; 0 where there is none.
func (m *machine) stalls() int {
	m.t.Helper()
	return strings.Count(m.sh("cat /run/trivet/*/ovs/ovs-vswitchd.log 2>/dev/null || true"), "Unreasonably long")
}

// twice pings an address from a node, two times, each of which must be answered; more are ping's
// options. (In one ping of two, the last answer would have to come within a second.)
func (m *machine) twice(node, to string, more ...string) string {
	m.t.Helper()
	ping := "ping -n -c 1 -W 30 " + strings.Join(append(more, to), " ")
	return m.exec(node, ping) + m.exec(node, ping)
}

// brain is a controller in a process of its own, for a topology, at a port; it knows after a
// restart what it knew before.
type brain struct {
	m    *machine
	args []string
	cmd  *exec.Cmd
	log  string // the file of what it says
}

func (m *machine) brain(port int, topology string) *brain {
	m.t.Helper()
	b := &brain{m: m, log: filepath.Join(m.dir, "controller.log"), args: []string{"controller", "--listen", fmt.Sprint("tcp:127.0.0.1:", port),
		"--topology", topology, "--database", filepath.Join(m.dir, "controller.db"), "--api", "none"}}
	b.start()
	m.t.Cleanup(func() {
		b.kill()
		if text, _ := os.ReadFile(b.log); m.t.Failed() {
			m.t.Logf("the controller said:\n%s", text)
		}
	})
	return b
}

func (b *brain) start() {
	b.m.t.Helper()
	b.cmd = b.m.command(trivet, b.args...)
	log, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(b.m.t, err)
	defer log.Close()
	b.cmd.Stdout, b.cmd.Stderr = log, log
	must(b.m.t, b.m.start(b.cmd))
}

func (b *brain) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}
