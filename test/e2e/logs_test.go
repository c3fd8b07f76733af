package e2e

import (
	"strings"
	"syscall"
	"testing"
)

// TestLogs proves that logs tells what nodes have printed and what has happened to links, of all
// nodes or of those that are named, and with -f goes on until the lab is gone; and that a program
// that prints without end does not fill the memory that logs are in.
func TestLogs(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up(m.file("lab.yaml", `
nodes:
  h1: {host: {start: "echo I am h1; while echo and I say this again and again, and again and again; do :; done & sleep 0.1"}}
  h2: {host: {start: echo I am h2}}
  h10: {host: {start: echo I am h10}}
  s1: {switch: {datapath: bridge, controller: none}}
links: ["s1 -- h1", "s1 -- h2", "s1 -- h10"]
`))
	following := m.command(trivet, "logs", "-f", "h10")
	out := m.startOutput(following)
	m.ok("link", "set", "s1-h2", "delay=5ms")
	m.ok("link", "set", "s1-h10", "down")
	contains(t, m.ok("logs"), "==> commands/h1.log", "I am h2", "I am h10", "link s1-h2  delay=5ms", "link s1-h10  down")
	contains(t, m.ok("logs", "h10"), "I am h10", "link s1-h10  down")
	if text := m.ok("logs", "h2", "h10"); strings.Contains(text, "h1 ") || strings.Contains(text, "again") {
		t.Errorf("the logs of h2 and h10 speak of h1: %s", text)
	}
	contains(t, m.want(1, "logs", "h3").err, "there is no node h3")
	eventually(t, "logs -f tells of the link", func() bool { return strings.Contains(out.String(), "link s1-h10  down") })
	eventually(t, "the log of h1 was cut", func() bool {
		return strings.Contains(m.sh("head -c 200 /run/trivet/"+m.name+"/commands/h1.log"), "were dropped")
	})
	m.ok("down")
	wait(t, following)
	if s := following.ProcessState.Sys().(syscall.WaitStatus); s.ExitStatus() != 0 {
		t.Errorf("logs -f of a lab that went down: exit %d\n%s", s.ExitStatus(), out)
	}
	m.unchanged(before)
}
