package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMessages proves that who writes a command wrongly reads what is wrong and what to write, in
// Trivet's words: no error of Go's or of a library reaches the user, and nothing that cannot be
// meant is accepted.
func TestMessages(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("minimal", "--datapath", "bridge")
	for args, want := range map[string]string{
		"ping h1 h2 -c ten":         "--count ten: write a whole number, such as 5",
		"ping h1 h2 -i 10":          "--interval 10: write a time with its unit, such as 10s, 250ms or 1m30s",
		"ping h1 h2 --count=0":      "--count 0: write 1 or more",
		"ping h1 h2 --cout 3":       "trivet ping has no flag --cout; did you mean --count?",
		"iperf h1 h2 -t 0":          "--time 0: write 1 or more",
		"path h1 h2 --tcp 70000":    "--tcp 70000: write a number from 0 to 65535",
		"path h1":                   "an argument is missing after h1",
		"iperf h1 h2 h3":            "too many arguments: h1 h2 h3",
		"ls x":                      `trivet ls takes no arguments; "x" is one too many`,
		"pingall":                   "there is no command pingall; you may want  trivet ping --all",
		"status":                    "you may want  trivet ls",
		"isnpect":                   "did you mean inspect?",
		"ospf nieghbors":            "there is no command ospf nieghbors; did you mean neighbors?",
		"link h1-s1 down":           "write  trivet link set h1-s1 down",
		"up --lab x minimal":        "--lab is for labs that are up; the name of a new one is  --name x",
		"exec h1 --lab nix -- true": "there is no lab nix; there are " + m.name,
		"capture h9 -w /dev/null":   "there is no node or link h9; did you mean h1?",
		"up --name a/b minimal":     "write  --name a-b",
	} {
		r := m.run(strings.Fields(args)...)
		if r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("want %q: %s", want, r)
		}
	}
	m.ok("exec", "h1", "--lab", m.name, "--", "true")
	m.ok("exec", "h1", "--lab", m.name, "-n", "ls", "-l", "--", "/")
	contains(t, m.ok("up", "--datapath", "bridge", m.file("my lab.yaml", "nodes: {h1: host, h2: host}\nlinks: [h1 -- h2]\n")),
		`the lab is called my-lab: "my lab" cannot be a lab's name`)
	m.ok("down", "my-lab")
	broken := m.want(1, "validate", m.file("broken.mn", "nope\n"))
	contains(t, broken.out+broken.err, "broken.mn:1:1  this is not JSON: invalid character 'o'; a .mn file is JSON")
	if _, err := exec.LookPath("curl"); err == nil {
		said := m.sh("curl -s --unix-socket /run/trivet/" + m.name + "/daemon.sock http://lab/v1/ping -d nope")
		contains(t, said, "this is not JSON")
	}
}

// TestPingInterrupted proves that pings show replies as they come, and on Ctrl-C what there is so
// far.
func TestPingInterrupted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("minimal", "--datapath", "bridge")
	cmd := m.command(trivet, "ping", "h1", "h2", "-c", "100000", "-i", "50ms")
	out := m.startOutput(cmd)
	out.waitFor(t, "\n3   ")
	must(t, cmd.Process.Signal(unix.SIGINT))
	wait(t, cmd)
	contains(t, out.String(), "ping h1 → h2   ", " received, ", "median", "(interrupted)")
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit %d: %s", code, out)
	}
}

// TestLabsName proves that inspect and graph show a lab that is named, as it is, also where a
// generator is called so; and that commands that take something else say what the word is.
func TestLabsName(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := m.file("net.yaml", "nodes: {h1: host, h2: host}\nlinks: [h1 -- h2]\n")
	m.up(file)
	m.ok("up", "minimal", "--datapath", "bridge")
	m.ok("link", "set", "--lab", "minimal", "h1-s1", "delay=7ms")
	contains(t, m.ok("inspect", m.name), m.name+"  up", "h1-h2")
	contains(t, m.ok("inspect", "minimal"), "minimal  up", "7ms")
	contains(t, m.ok("inspect", "minimal", "--datapath", "bridge"), "minimal  not up")
	contains(t, m.ok("graph", m.name), "h1", "h2")
	for args, want := range map[string]string{
		"up minimal-":           `there is no generator "minimal-"`,
		"up " + m.name:          "is a lab that is up:  trivet apply --lab " + m.name + " FILE",
		"validate " + m.name:    "is a lab that is up:  trivet verify " + m.name,
		"run " + m.name:         "is a lab that is up:  trivet cli --lab " + m.name,
		"top " + m.name:         "is a lab that is up:  trivet top --lab " + m.name,
		"shell " + m.name:       "is a lab that is up:  trivet shell --lab " + m.name + " NODE",
		"cli " + file:           "is a topology; lab " + m.name + " is made of it:  trivet cli --lab " + m.name,
		"down " + file:          "is a topology; lab " + m.name + " is made of it:  trivet down " + m.name,
		"inspect s1":            "s1 is a node of lab minimal:  trivet shell --lab minimal s1",
		"s1 ip link":            "s1 is a node of lab minimal:  trivet exec --lab minimal s1 -- ip link",
		"verify h1-s1":          "h1-s1 is a link of lab minimal:  trivet verify minimal",
		"mn " + m.name:          "is a lab that is up:  trivet cli --lab " + m.name,
		"mn " + file:            "is a topology:  sudo trivet up " + file,
		"mn --custom " + file:   "--custom " + file + " is a topology:  sudo trivet up " + file,
		"mn --topo nix --mac x": "x is one too many; mn takes options only",
	} {
		if r := m.run(strings.Fields(args)...); r.code == 0 || !strings.Contains(r.out+r.err, want) {
			t.Errorf("want %q: %s", want, r)
		}
	}
	only := m.file("custom.py", "topos = {}\n")
	contains(t, m.run("run", only).err, "only defines topologies (topos), which mn brings up:  sudo trivet mn --custom "+only)
	contains(t, m.run("mn", "--test", "none", "--custom", m.file("other.py", "x = 1\n")).err, "it defines none of topos")
}
