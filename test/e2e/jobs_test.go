package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestBackground proves that what is started in the background of a node goes on: at the prompt,
// by exec and by a shell, from a terminal and from none, with and without a PID namespace; that
// jobs lists it, also after the daemon has died, by the PID that it has in the node, and nothing
// that is in the foreground; and that it ends with the lab.
func TestBackground(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up(m.file("x.yaml", "nodes: {s1: switch, h1: host, h2: {host: {isolate: pid}}}\nlinks: [s1 -- h1, s1 -- h2]\n"), "--datapath", "bridge")
	contains(t, m.ok("jobs"), "nothing runs in the background")

	y := m.terminal("cli")
	y.sees("", "trivet> ")
	for _, h := range []string{"h1", "h2"} {
		y.sees(h+" python3 -m http.server 80 &\n", "trivet> ")
		y.sees(h+" nohup sleep 20001 >/dev/null 2>&1 &\n", "trivet> ")
		y.sees(h+" setsid sleep 20002 &\n", "trivet> ")
		y.sees(h+" yes & sleep 0.2\n", "y\r\ny") // it prints without end
		y.sees("", "trivet> ")
	}
	eventually(t, "h1 serves", func() bool { return m.run("exec", "h2", "--", "curl", "-sf", "http://10.0.0.1").code == 0 })
	eventually(t, "h2 serves", func() bool { return m.run("exec", "h1", "--", "curl", "-sf", "http://10.0.0.2").code == 0 })
	y.sees("jobs h2\n", "h2     ")
	y.types("h1 sleep 20003\n") // in the foreground
	eventually(t, "it runs", func() bool { return len(m.pids("slee[p]?20003")) > 0 })

	sh := m.terminal("exec", "h1", "--", "sh", "-c", "sleep 20004 & exit 7")
	sh.ends(7)
	sh = m.terminal("shell", "h1")
	sh.types("sleep 20005 &\nexit 8\n")
	sh.ends(8)
	m.want(9, "exec", "h2", "--", "sh", "-c", "sleep 20006 >/dev/null & exit 9")

	running := func() (out []string) {
		for _, j := range jsonOf[[]struct{ Node, Command string }](m, "jobs") {
			out = append(out, j.Node+" "+j.Command)
		}
		return out
	}
	want := func(words ...string) {
		t.Helper()
		got := strings.Join(running(), "\n") + "\n"
		for _, w := range words {
			if !strings.Contains(got, w+"\n") {
				t.Errorf("%q is not listed in\n%s", w, got)
			}
		}
		for _, w := range []string{"__leader", "20003"} {
			if strings.Contains(got, w) {
				t.Errorf("%q is listed in\n%s", w, got)
			}
		}
	}
	onTerminals := []string{"python3 -m http.server 80", "h1 sleep 20001", "h2 sleep 20001", "h1 sleep 20002", "h2 sleep 20002",
		"h1 yes", "h2 yes", "h1 sleep 20004", "h1 sleep 20005"}
	want(append(onTerminals, "h2 sleep 20006")...)
	y.interrupts()
	if len(m.pids("slee[p]?20003")) > 0 {
		t.Error("Ctrl-C does not end what is in the foreground")
	}
	want(onTerminals...)
	y.types("exit\n")
	y.ends(0)
	m.killDaemon()
	m.ok("resume")
	want(onTerminals...)
	for _, j := range jsonOf[[]struct {
		PID     int
		Command string
	}](m, "jobs", "h1") {
		if j.Command == "yes" || j.Command == "sleep 20004" {
			m.sh(fmt.Sprint("kill ", j.PID))
		}
	}
	for _, j := range jsonOf[[]struct {
		PID        int
		MachinePID int `json:"machine_pid"`
		Command    string
	}](m, "jobs", "h2") {
		if j.PID == j.MachinePID || j.PID < 2 {
			t.Errorf("h2 has PIDs of its own: %+v", j)
		}
		if j.Command == "yes" {
			m.exec("h2", fmt.Sprint("kill ", j.PID))
		}
	}
	eventually(t, "jobs that are ended are gone, and who led their terminals", func() bool {
		got := strings.Join(running(), "\n")
		return !strings.Contains(got, " yes") && !strings.Contains(got, "20004") && len(m.pids("__leader*slee[p]?20004")) == 0
	})
	contains(t, m.want(1, "jobs", "h9").err, "there is no node h9")
	m.ok("down")
	m.unchanged(before)
}
