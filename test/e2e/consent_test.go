package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// strangersFile is a script that has root run commands, of which it hides one behind an escape
// sequence, and show a directory of the machine.
const strangersFile = `from mininet.net import Mininet
net = Mininet()
h1 = net.addHost('h1', startCommand='touch DIR/ra%s; : \x1b[2K\x1b[1A' % 'n', stopCommand='touch DIR/stopped', privateDirs=[('/mnt', 'DIR/secrets')])
h2 = net.addHost('h2', ip='10.0.0.2/8')
net.addLink(h1, h2)
net.start()
h1.setARP('10.0.0.9', '02:00:00:00:00:09')
`

// TestRunCommands proves that nothing of what a file in a format of others has root do is done
// unless the user agrees: at a terminal yes alone does, a no, an end of input and Ctrl-C leave the
// machine as it was; without a terminal a flag does, and without a flag the error lists all of it.
// The same holds for what apply would newly do, and for bench. All that is shown commands the
// terminal nothing.
func TestRunCommands(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	must(t, os.Mkdir(filepath.Join(m.dir, "secrets"), 0o755))
	m.file("secrets/key", "secret\n")
	text := strings.ReplaceAll(strangersFile, "DIR", m.dir)
	file := m.file("net.py", text)
	ran := func(want bool, when, name string) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(m.dir, name)); (err == nil) != want {
			t.Errorf("%s: the command has run: %v", when, err == nil)
		}
		_ = os.Remove(filepath.Join(m.dir, name))
	}
	shown := []string{"touch " + m.dir + `/ran; : \x1b[2K\x1b[1A`, "touch " + m.dir + "/stopped", m.dir + "/secrets of the machine as /mnt", "net.py:3"}
	before := m.snapshot()

	contains(t, m.ok("validate", file), append(shown, "runs as root:")...)
	contains(t, m.ok("inspect", file), append(shown, "runs as root:")...)
	type errand struct{ Node, Kind, What, From string }
	if v := jsonOf[[]struct {
		RunsAsRoot []errand `json:"runs_as_root"`
	}](m, "validate", file); len(v[0].RunsAsRoot) != 3 || v[0].RunsAsRoot[1] != (errand{"h1", "stop", "touch " + m.dir + "/stopped", file + ":3"}) {
		t.Errorf("validate --json says %v", v)
	}

	up := []string{"up", "--name", m.name, file}
	refused := m.want(2, up...).err
	contains(t, refused, append(shown, "--run-commands", "--no-commands", "nothing was changed")...)
	if strings.ContainsRune(refused, '\x1b') {
		t.Errorf("a command of the file reaches the terminal: %q", refused)
	}
	contains(t, m.want(2, append(up, "--run-commands", "--no-commands")...).err, "exclude each other")
	for typed, code := range map[string]int{"n\n": 1, "\n": 1, "yet\n": 1, "\x04": 1, "y\x04\x04": 1, "\x03": 130} {
		y := m.terminal(up...)
		y.waitFor(t, "[y/N]")
		contains(t, y.String(), `\x1b[2K\x1b[1A`, "h1", "stop", "net.py:3")
		y.types(typed)
		y.ends(code)
	}
	m.unchanged(before)
	ran(false, "before a yes", "ran")

	y := m.terminal(up...)
	y.waitFor(t, "[y/N]")
	y.types("y\n")
	y.ends(0)
	contains(t, y.String(), "up in")
	ran(true, "after a yes", "ran")
	contains(t, m.exec("h1", "cat /mnt/key"), "secret")

	// What the lab does already needs no question; what is new does, and is not done unless it is
	// agreed.
	contains(t, m.ok("apply", file), "0 changes")
	edited := m.file("net.py", strings.Replace(text, "touch "+m.dir+"/ra", "touch "+m.dir+"/new; : ra", 1))
	contains(t, m.want(2, "apply", "--lab", m.name, edited).err, "touch "+m.dir+"/new", "--run-commands")
	contains(t, m.ok("apply", "--lab", m.name, "--dry-run", edited), "! h1 runs its start command: ip neigh", `\x1b[2K`)
	contains(t, m.ok("apply", "--lab", m.name, "--no-commands", edited), "0 changes")
	ran(false, "before an apply is agreed to", "new")
	contains(t, m.ok("apply", "--lab", m.name, "--run-commands", edited), "1 change made")
	ran(true, "apply --run-commands", "new")
	m.ok("down")
	ran(true, "down", "stopped")
	m.file("net.py", text)

	contains(t, m.ok(append(up, "--no-commands")...), "left out: 2 commands, 1 directory of the machine", "up in")
	if seen := m.exec("h1", "ls /mnt"); seen != "" {
		t.Errorf("a directory that nobody agreed to is in h1: %q", seen)
	}
	contains(t, m.exec("h1", "ip neigh show nud permanent"), "10.0.0.9") // what is harmless is done
	m.ok("down")
	ran(false, "--no-commands", "ran")
	ran(false, "--no-commands", "stopped")

	experiment := "topology: {file: net.py, WISH}\nprobes: [ping: {from: h1, to: h2, count: 1}]\n"
	x := m.file("x.yaml", strings.Replace(experiment, ", WISH", "", 1))
	contains(t, m.want(2, "bench", "run", x, "--unwatched").err, append(shown, "--run-commands", "run_commands: false")...)
	ran(false, "bench", "ran")
	m.ok("bench", "run", x, "--unwatched", "--run-commands", "--out", m.dir+"/1.jsonl")
	ran(true, "bench --run-commands", "ran")
	_ = os.Remove(m.dir + "/stopped")
	m.ok("bench", "run", m.file("x.yaml", strings.Replace(experiment, "WISH", "run_commands: true", 1)), "--unwatched", "--out", m.dir+"/2.jsonl")
	ran(true, "run_commands: true", "ran")
	_ = os.Remove(m.dir + "/stopped")
	m.ok("bench", "run", m.file("x.yaml", strings.Replace(experiment, "WISH", "run_commands: false", 1)), "--unwatched", "--out", m.dir+"/3.jsonl")
	ran(false, "run_commands: false", "ran")
	ran(false, "run_commands: false", "stopped")
	m.unchanged(before)
}

// TestRunCommandsOwn proves that Trivet's own files come up with their commands, of which up says
// how many there are, and without them by --no-commands; that a MiniEdit file is asked about for an
// interface of the machine; and that a long list is cut before a question.
func TestRunCommandsOwn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	own := m.file("own.yaml", "controller: none\nnodes: {s1: switch, h1: {host: {start: touch "+m.dir+"/ran}}}\nlinks: [s1 -- h1, s1 -- interface:ext0]\n"+
		"schedule: [at 1h: h1 run touch "+m.dir+"/late]\n")
	contains(t, m.ok("validate", own), "at 3600s", "/late", "interface", "ext0", "\nown.yaml:4:")
	m.sh("ip link add ext0 type veth peer name ext1; ip link set ext0 up; ip link set ext1 up")
	before := m.snapshot()
	contains(t, m.up(own, "--no-commands"), "left out: 2 commands, 1 interface of the machine")
	m.sh("test ! -e ran; ip link show ext0")
	m.ok("down")
	contains(t, m.up(own), "runs as root: 2 commands, 1 interface of the machine taken (trivet validate "+own)
	m.sh("test -e " + m.dir + "/ran")
	m.ok("down")
	m.unchanged(before)

	m.ok("convert", m.file("other.yaml", "nodes: {s1: switch, h1: host}\nlinks: [s1 -- h1, s1 -- interface:ext0]\n"), m.dir+"/other.mn")
	contains(t, m.want(2, "up", "--name", m.name, m.dir+"/other.mn").err, "s1", "interface", "ext0", "--run-commands")

	many := m.file("many.py", "from mininet.net import Mininet\nnet = Mininet()\nfor i in range(30): net.addHost('h%d' % i, startCommand='true ' + 'x' * 300)\nnet.start()\n")
	refused := m.want(2, "up", "--name", m.name, many).err
	contains(t, refused, "h19", "and 10 more: trivet validate", "(5 characters more)")
	if strings.Contains(refused, "h20") {
		t.Error("a long list is not cut: ", refused)
	}
	y := m.terminal("up", "--name", m.name, many)
	y.waitFor(t, "a: show all]")
	y.types("a\n")
	y.waitFor(t, "h29")
	y.types("n\n")
	y.ends(1)
}
