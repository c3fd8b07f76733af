package e2e

import (
	"strings"
	"testing"
)

// TestResumeInterrupted proves that a lab which is being resumed can be taken down by the user who
// brought it up: resuming ends, and the daemon lives until all is gone, for which its many bridges
// take a while.
func TestResumeInterrupted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const owner, program = 65534, "/run/trivet-program" // where every user may run it
	m.sh("cp " + trivet + " " + program + " && chmod 755 " + program)
	before := m.snapshot()
	m.sh("ovs-testcontroller -vsyslog:off --unixctl=none ptcp:7001:127.0.0.1 >/dev/null 2>&1 &")
	eventually(t, "the controller listens", func() bool { return m.sh("ss -Htln 'sport = 7001' | wc -l") == "1" })
	up := m.command(trivet, "up", "--wait", "50s", "--name", m.name, m.file("lab.yaml", `
nodes:
  e1: {switch: {datapath: embedded, controller: "tcp:127.0.0.1:7001"}}
  "b[1-100]": {switch: {datapath: bridge, controller: none}}
  h1: host
links: ["e1 -- h1", "e1 -- b[1-100]"]
`))
	up.Env = append(up.Env, "SUDO_UID=65534")
	if r := m.do(up); r.code != 0 {
		t.Fatal(r)
	}
	m.sh("kill -9 " + m.pids("ptcp:700[1]")[0])
	m.killDaemon()
	resume := m.command(trivet, "resume")
	out := m.startOutput(resume)
	eventually(t, "a daemon resumes the lab", func() bool { return !strings.Contains(m.ok("ls"), "orphaned") })
	down := m.as(owner, "down")
	down.Path, down.Args[0] = program, program
	r := m.do(down)
	if r.code != 0 {
		t.Error("the owner: ", r)
	}
	if _ = resume.Wait(); !strings.Contains(out.String(), "the lab goes down") {
		t.Errorf("resume says: %s\ndown says: %s", out, r)
	}
	m.unchanged(before)
}
