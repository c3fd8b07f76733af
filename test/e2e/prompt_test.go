package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// typist is somebody at a terminal.
type typist struct {
	*output
	t   *testing.T
	tty *os.File
	cmd *exec.Cmd
}

// terminal starts trivet on a terminal of 80 columns.
func (m *machine) terminal(args ...string) *typist {
	m.t.Helper()
	return m.onTerminal(trivet, args...)
}

func (m *machine) onTerminal(program string, args ...string) *typist {
	m.t.Helper()
	ours, theirs, err := pty.Open()
	must(m.t, err)
	m.t.Cleanup(func() { ours.Close() })
	must(m.t, pty.Setsize(ours, &pty.Winsize{Rows: 24, Cols: 80}))
	cmd := m.command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(m.t, m.start(cmd))
	theirs.Close()
	return &typist{output: follow(ours), t: m.t, tty: ours, cmd: cmd}
}

func (y *typist) types(text string) {
	y.t.Helper()
	_, err := io.WriteString(y.tty, text)
	must(y.t, err)
}

// sees types, and waits for an answer that was not there before.
func (y *typist) sees(text, answer string) {
	y.t.Helper()
	before := strings.Count(y.String(), answer)
	y.types(text)
	for end := time.Now().Add(3 * time.Minute); strings.Count(y.String(), answer) <= before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			y.t.Fatalf("%q is not answered by %q; the terminal's last: %q", text, answer, y.String()[max(0, len(y.String())-2000):])
		}
	}
}

// interrupts types Ctrl-C until there is a prompt: it may come before what it is to end.
func (y *typist) interrupts() {
	y.t.Helper()
	before := strings.Count(y.String(), "trivet> ")
	eventually(y.t, "Ctrl-C ends what runs", func() bool {
		y.types("\x03")
		time.Sleep(50 * time.Millisecond)
		return strings.Count(y.String(), "trivet> ") > before
	})
}

func (y *typist) ends(code int) {
	y.t.Helper()
	wait(y.t, y.cmd)
	select {
	case <-y.ended: // all that it has said is here
	case <-time.After(time.Minute):
		y.t.Errorf("something it has left behind holds the terminal, which shows: %s", y)
	}
	if is := y.cmd.ProcessState.ExitCode(); is != code {
		y.t.Errorf("exit %d, want %d; the terminal shows: %s", is, code, y)
	}
}

// TestPromptTerminal proves that the prompt takes every line that is typed, also ahead of time and
// by programs in a node; that Ctrl-C ends what runs, and nothing after it; and that lines are
// edited, completed and remembered in a window of 80 columns.
func TestPromptTerminal(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.env = append(m.env, "TERM=xterm", "XDG_STATE_HOME="+m.dir)
	m.up("linear,2", "--datapath", "bridge")
	y := m.terminal("cli")
	y.waitFor(t, "trivet> ")

	var all strings.Builder
	for i := range 100 {
		fmt.Fprintf(&all, "h1 touch %s/f%d\n", m.dir, i)
	}
	y.types(all.String()) // at once: what touch does not read is the prompt's
	y.sees("nodes\n", "h1 h2 s1 s2")
	files, err := filepath.Glob(m.dir + "/f*")
	must(t, err)
	if len(files) != 100 {
		t.Fatalf("of 100 lines %d were run; the terminal shows: %s", len(files), y)
	}

	// A program takes what it reads, typed ahead or not; the rest is the prompt's.
	y.sees("h1 sh\necho in $(hostname)\nexit\nsh echo out $((40+2))\n", "out 42")
	contains(t, y.String(), "in h1\r\n")

	y.sees("h1 echo ready$((1+1)); exec sleep 1000\n", "ready2")
	y.interrupts()
	y.sees("h1 echo still $((40+2))\n", "still 42")
	line := "ping h1 192.0.2.1 -c 1000 -W 900s"
	y.sees(line+"\n", "trivet> "+line+"\r\n") // taken: what is typed before the prompt is there is shown twice
	y.interrupts()
	y.sees("h1 typed in vain\x03", "^C\r\ntrivet> ")
	y.sees("sh echo yet $((40+2))\n", "yet 42")
	if strings.Contains(y.String(), "signal received") {
		t.Error("what Ctrl-C has ended is told of commands after it: ", y)
	}

	y.sees("link s1-s2 down\nlinks\n", "(down)")
	y.sees("link s1 s2 up\npingall\n", "*** Results: 0% dropped (2/2 received)")
	y.sees("path h1\n", "usage: trivet path FROM TO")
	y.sees("inspect --json | sed -n 's/.*\"state\": \"up\".*/it is there/p'\n", "\r\nit is there\r\n")
	y.sees("up linear,3\n", "works only outside the prompt")
	y.sees("pingal\n", "did you mean pingall?")

	y.sees("link s1-s\t", "link s1-s2 ")
	y.sees("do\t\n", "link s1-s2 down")
	y.sees("insp\t\n", "s2-s1 ")
	y.sees("\t\t", "pingall")
	y.sees("\x12", "trivet> insp") // Ctrl-R: the last line
	y.sees("\x15s1-s2 down\x12\n", "trivet> ")
	y.sees("\x1b[A\x1b[A\x1b[D\x1b[Dx\x1b[Cy\n", "trivet> ") // up, left, insert
	long := "h1 echo " + strings.Repeat("0123456789 ", 12) + "end$((40+2))"
	y.sees(long+"\n", "0123456789 end42\r\ntrivet> ") // a Ctrl-D that comes earlier is the program's, as in any shell
	for line := range strings.SplitSeq(y.String(), "\r\n") {
		if strings.Contains(line, "trivet> h1 echo 0123") && len(line) > 400 {
			t.Error("a line that is longer than the window was not broken: ", line)
		}
	}
	y.types("\x04")
	y.ends(0)

	y = m.terminal("cli")
	y.sees("\x1b[A", "end$((40+2))") // the history is kept
	y.types("\x03exit\n")
	y.ends(0)

	y = m.terminal("cli")
	y.waitFor(t, "trivet> ")
	must(t, y.cmd.Process.Signal(unix.SIGTERM))
	y.ends(0)
}

// TestPromptScript proves Mininet's words and Trivet's in a script: it runs to its end, errors say
// the line, and its exit code is that of the first command that failed.
func TestPromptScript(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("minimal", "--datapath", "bridge")
	r := m.runIn(strings.NewReader("nodes\nh1 ping -c1 -W30 h2\npingall\nexit\nfalse\n"), "cli")
	contains(t, r.out+r.err, "h1", "1 packets transmitted, 1 received", "h1 -> h2 \nh2 -> h1 \n*** Results: 0% dropped (2/2 received)")
	if r.code != 0 {
		t.Error("all went well: ", r)
	}
	script := m.file("test.cli", "# a comment\nlink s1 h1 down\n\nh1 exit 7\nping h1 h2 -c 1 -W 1s\nh9 true\nh1 echo 'to # the end'\n")
	r = m.want(7, "cli", "--script", script)
	contains(t, r.out, "1 sent, 0 received", "to # the end")
	contains(t, r.err, script+":6  there is no node or command h9; did you mean h1?")
	contains(t, lineWith(m.ok("inspect"), "h1-s1")+lineWith(m.ok("inspect"), "s1-h1"), "down")
	m.want(3, "cli", "--script", m.file("lost.cli", "pingall -W 1s\nnodes\n"))
}

// TestPromptMininet proves that Mininet's words print at the prompt of a lab what lab sheets show.
func TestPromptMininet(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("linear,3")
	script := func(lines string) result { return m.run("cli", "--script", m.file("words.cli", lines)) }
	for lines, want := range map[string]string{
		"nodes":        "available nodes are: \nh1 h2 h3 s1 s2 s3\n",
		"net":          "s2 lo:  s2-eth1:h2-eth0 s2-eth2:s1-eth2 s2-eth3:s3-eth2\n",
		"intfs":        "s2: lo,s2-eth1,s2-eth2,s2-eth3\n",
		"ports":        "s2 lo:0 s2-eth1:1 s2-eth2:2 s2-eth3:3 \n",
		"links":        "h1-eth0<->s1-eth1 (OK OK)\n",
		"pingall":      "*** Ping: testing ping reachability\nh1 -> h2 h3 \nh2 -> h1 h3 \nh3 -> h1 h2 \n*** Results: 0% dropped (6/6 received)\n",
		"pingallfull":  "*** Results: \n h1->h2: 1/1, rtt min/avg/max/mdev ",
		"pingpair":     "h1 -> h2 \nh2 -> h1 \n*** Results: 0% dropped (2/2 received)\n",
		"pingpairfull": "h2 -> h1 \n*** Results: \n h1->h2: 1/1, rtt min/avg/max/mdev ",
		"pingall -c 2": "ping --all   12 sent, 12 received",
		"iperfudp":     "*** Iperf: testing UDP bandwidth between h1 and h3 \n*** Results: ['10M', '",
		"wait":         "s1 s2 s3 \n",
		"dpctl dump-aggregate | grep -c flow_count":      "*** s1 " + strings.Repeat("-", 72) + "\n1\n*** s2 ",
		"time h1 echo within":                            "within\n*** Elapsed time: 0.",
		"noecho h1 echo h2":                              "10.0.0.2\n",
		"help intfs":                                     "intfs: each node's interfaces\n",
		"help pingall":                                   "Usage:\n  trivet ping [--all",
		"pingall | sed -n 's/.* 0 % lost.*/none lost/p'": "none lost\n",
		"sh ovs-ofctl dump-ports-desc s2":                "3(s2-eth3): ",
		"sh ovs-vsctl list-br | tr '\\n' ' '":            "s1 s2 s3 ",
	} {
		r := script(lines + "\n")
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("%s does not say %q: %v", lines, want, r)
		}
	}
	for lines, want := range map[string]string{
		"nodes h1":           ":1  usage: nodes",
		"switch h1 stop":     ":1  h1 is no switch",
		"switch s1 pause":    ":1  switch s1 pause: write stop or start",
		"source":             ":1  usage: source FILE",
		"source /no.cli":     ":1  open /no.cli: no such file",
		"xterm h1":           ":1  xterm: there is no display (DISPLAY is not set)",
		"x h1 xeyes":         ":1  x: there is no display",
		"xterm h9":           ":1  there is no node h9",
		"py h1.IP()":         ":1  py: this prompt has no Python",
		"iperf h1":           ":1  usage: iperf [A B]",
		"iperfudp ten h1 h2": ":1  iperfudp ten: no rate; write one as 10M or 10mbit",
		"pingall soon":       ":1  pingall soon: write how many seconds",
	} {
		if r := script(lines + "\n"); r.code != 1 || !strings.Contains(r.err, want) {
			t.Errorf("%s does not say %q: %v", lines, want, r)
		}
	}

	// A switch that is stopped has no cables; one that starts has those at whose other ends nothing
	// is stopped, and not what was down before.
	down := func(lines string) (links []string) {
		t.Helper()
		for line := range strings.Lines(script(lines + "links\n").out) {
			if link, is := strings.CutSuffix(line, " (down)\n"); is {
				links = append(links, link)
			}
		}
		return links
	}
	for _, c := range []struct{ lines, want string }{
		{"link s1 s2 down\nswitch s2 stop\n", "[h2-eth0<->s2-eth1 s2-eth2<->s1-eth2 s3-eth2<->s2-eth3]"},
		{"switch s2 start\n", "[]"},
		{"link s1 s2 down\nswitch s2 stop\nswitch s3 stop\nswitch s2 start\n", "[s2-eth2<->s1-eth2 h3-eth0<->s3-eth1 s3-eth2<->s2-eth3]"},
		{"switch s3 start\nlink s1 s2 up\n", "[]"},
	} {
		if got := fmt.Sprint(down(c.lines)); got != c.want {
			t.Errorf("%q leaves %s down, want %s", c.lines, got, c.want)
		}
	}

	inner := m.file("inner.cli", "h1 exit 5\nh1 echo within\nexit\nh1 echo beyond\n")
	r := script("source " + inner + "\nh1 echo after\n")
	contains(t, r.out, "within\n", "after\n")
	if r.code != 5 || strings.Contains(r.out, "beyond") {
		t.Error("a file is done until its exit, and ends with the code of what has failed: ", r)
	}
	contains(t, script("source "+m.file("words.cli", "")+"\n").err, "would be read within itself")

	m.ok("apply", "linear,3", "--datapath", "ovs") // sh and dpctl find what forwards by now
	r = script("dpctl dump-flows | grep -c cookie=\nsh ovs-vsctl list-br | tr '\\n' ' '\nsh ovs-vsctl get-controller s1\n")
	contains(t, r.out, "*** s3 "+strings.Repeat("-", 72)+"\n", "s1 s2 s3 ", "unix:")
	if r.code != 0 {
		t.Error("Open vSwitch is found: ", r)
	}

	r = script("link s1 s2 down\npingall 1\n")
	contains(t, r.out, "h1 -> X X \nh2 -> X h3 \nh3 -> X h2 \n*** Results: 66% dropped (2/6 received)\n")
	if r.code != 3 {
		t.Error("pings are lost: ", r)
	}
}

// TestPromptWindows proves that xterm opens a terminal with a shell in a node and x runs a program
// there, which outlast Ctrl-C at the prompt and the prompt itself; and that Tab knows Mininet's
// words.
func TestPromptWindows(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	// What is after -e is a command; its terminal is a pipe that ends when somebody has a look.
	bin := m.dir + "/bin"
	must(t, os.Mkdir(bin, 0o755))
	program := "#!/bin/sh\necho \"$1 $2\" >" + m.dir + "/title\nshift 3\n(echo 'hostname >" + m.dir + "/where'; cat " + m.dir + "/more) | \"$@\"\n"
	must(t, os.WriteFile(bin+"/xterm", []byte(program), 0o755))
	must(t, os.WriteFile(bin+"/gnome-terminal", []byte("#!/bin/sh\necho cannot open display >&2\nexit 1\n"), 0o755))
	must(t, unix.Mkfifo(m.dir+"/more", 0o600))
	m.env = append(m.env, "TERM=xterm", "XDG_STATE_HOME="+m.dir, "DISPLAY=:77", "SHELL=/bin/sh", "PATH="+bin+":"+os.Getenv("PATH"))
	m.up("minimal", "--datapath", "bridge")
	holds := func(file, want string) {
		t.Helper()
		eventually(t, file+" holds "+want, func() bool {
			text, _ := os.ReadFile(m.dir + "/" + file)
			return string(text) == want+"\n"
		})
	}

	y := m.terminal("cli")
	y.waitFor(t, "trivet> ")
	y.sees("xter\th\t2\n", "xterm h2\r\ntrivet> ")
	holds("title", "-title Node: h2")
	holds("where", "h2")
	y.sees("gterm h1\n", "gnome-terminal of h1: cannot open display")
	y.sees("x h1 sh -c 'echo $DISPLAY in $(hostname) >x; exec sleep 20021'\n", "trivet> ")
	holds("x", ":77 in h1")
	y.sees("\x03", "^C\r\ntrivet> ")
	y.sees("switch \tst\t\t", "start  stop")
	y.sees("op\nlinks\n", "(down)")
	y.sees("time sh ec\x15help interf\x15help intf\t\n", "intfs: each node's interfaces")
	y.types("exit\n")
	y.ends(0)
	contains(t, m.ok("jobs", "h1"), "sleep 20021")
	must(t, os.WriteFile(m.dir+"/more", []byte("echo later in $(hostname) >"+m.dir+"/where\n"), 0))
	holds("where", "later in h2")

	m.env = append(m.env, "DISPLAY=localhost:10.0")
	contains(t, m.runIn(strings.NewReader("x h1 true\n"), "cli").err, "display localhost:10.0 is reached over this machine's network")
}

// TestTypedAhead proves that what is typed while a program runs in a node, and it does not read, is
// there for the shell afterwards.
func TestTypedAhead(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("linear,2", "--datapath", "bridge")
	y := m.onTerminal("sh", "-c", trivet+" exec h1 -- sh -c 'echo ready$((1+1)); while [ ! -e "+m.dir+"/go ]; do sleep 0.02; done'; read line; echo got $line; exit 7")
	y.waitFor(t, "ready2")
	y.types("ahead of time\n")
	y.waitFor(t, "ahead of time") // the node's terminal has echoed it: Trivet has taken it from ours
	must(t, os.WriteFile(m.dir+"/go", nil, 0o644))
	y.waitFor(t, "got ahead of time")
	y.ends(7)
}

// stuffing is a program that puts a line into its own terminal, after it has read one if it is to
// repeat that, and says whether it could.
const stuffing = `
import fcntl, sys, termios
line = sys.argv[1] + '\n' if len(sys.argv) > 1 else sys.stdin.readline()
try:
    for c in line.encode(): fcntl.ioctl(0, termios.TIOCSTI, bytes([c]))
    print('stuffed')
except OSError as e: print('refused by', e.strerror)
`

// TestTerminalStuffed proves that what a program in a node puts into its own terminal reaches
// nothing, with rights and without: neither the shell that started Trivet nor the prompt, not even
// where it repeats what was typed. What is typed does.
func TestTerminalStuffed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.env = append(m.env, "TERM=xterm", "XDG_STATE_HOME="+m.dir)
	m.up("linear,2", "--datapath", "bridge")
	m.sh("cp " + m.file("stuffing.py", stuffing) + " /run") // where anybody can read it
	program := "/usr/bin/python3 /run/stuffing.py"
	for who, rights := range map[string]string{"root": "", "nobody": "setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs "} {
		y := m.onTerminal("sh", "-c", trivet+" exec h1 -- "+rights+program+" 'touch "+m.dir+"/stuffed'; echo ready$((1+1)); read line; echo got $line")
		y.waitFor(t, "ready2")
		y.types("mine\n")
		y.ends(0)
		contains(t, y.String(), "refused by Operation not permitted", "got mine")

		y = m.onTerminal("sh", "-c", "read first; "+trivet+" exec h1 -- "+rights+program+"; echo ready$((1+1)); read line; echo got $line")
		y.types("\nonce\n") // the shell's first line, and the program's
		y.waitFor(t, "ready2")
		y.types("mine\n")
		y.ends(0)
		contains(t, y.String(), "refused by", "got mine")

		y = m.terminal("cli")
		y.waitFor(t, "trivet> ")
		y.sees("h1 "+rights+program+" 'sh touch "+m.dir+"/stuffed'\n", "refused by")
		y.sees("h1 "+rights+program+"\nsh echo once >>"+m.dir+"/"+who+"\n", "refused by")
		y.sees("sh echo then $((40+2))\n", "then 42")
		y.types("exit\n")
		y.ends(0)
		if times, _ := os.ReadFile(m.dir + "/" + who); len(times) > 0 {
			t.Errorf("%s: a line that a program has read and put into its terminal is run at the prompt", who)
		}
		if _, err := os.Stat(m.dir + "/stuffed"); err == nil {
			t.Errorf("%s: what a program put into its terminal is run at the prompt", who)
		}
	}
}
