package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// commandsLab is a lab whose nodes of every kind that may have one run start commands, which say in
// a file that they ran.
const commandsLab = `
controller: none
nodes:
  s1: {switch: {start: "echo s1 >> OUT"}}
  c1: {controller: {address: "tcp:127.0.0.1:6699", start: "echo c1 >> OUT; sleep 7701 &"}}
  h1: {host: {start: "echo h1 one >> OUT; setsid sleep 7711 &", stop: "echo h1 stop >> OUT"}}
  h2: {host: {start: "echo h2 >> OUT; sleep 7721 &", stop: "echo h2 stop >> OUT"}}
  h3: {host: {start: "echo h3 >> OUT", stop: "echo h3 stop >> OUT"}}
links: [s1 -- h1, s1 -- h2, s1 -- h3]
`

// TestApplyCommands proves that after apply nodes run what their file says, as after up: those that
// are new or made anew run their start, those that go their stop; where the start differs, what the
// old one left running, also in a session of its own, is ended, and the new one runs. A start that
// fails undoes the change, says why, and brings back what was ended. --dry-run says it all.
func TestApplyCommands(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	out := filepath.Join(m.dir, "out")
	ran := func() string { return m.sh("sort " + out + " | tr '\\n' ','; : >" + out) }
	sleeps := func() string {
		return m.sh(`for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline 2>/dev/null || true; echo; done | sed -n 's/^sleep \(77..\) $/\1/p' | sort | tr '\n' ' '`)
	}
	file := func(replace ...string) string {
		return m.file("commands.yaml", strings.ReplaceAll(strings.NewReplacer(replace...).Replace(commandsLab), "OUT", out))
	}
	is := func(when, wantRan, wantSleeps string) {
		t.Helper()
		if r := ran(); r != wantRan {
			t.Fatalf("%s: ran %q, not %q", when, r, wantRan)
		}
		// What a shell begins in the background is a copy of the shell at first.
		eventually(t, when+" there run the sleeps "+wantSleeps, func() bool { return sleeps() == wantSleeps })
	}
	m.up(file())
	is("after up", "c1,h1 one,h2,h3,s1,", "7701 7711 7721")
	changes := []string{"h1 one", "h1 two", "7711", "7712", "h2 >> OUT", "h2 anew >> OUT", "h2 stop >> OUT\"", "h2 stop >> OUT\", isolate: pid",
		"h3: {host: {start: \"echo h3 >> OUT\", stop: \"echo h3 stop >> OUT\"}}", "h4: {host: {start: \"echo h4 >> OUT; sleep 7741 &\"}}", "s1 -- h3", "s1 -- h4"}
	edited := file(changes...)
	contains(t, m.ok("apply", "--dry-run", edited), "! h1 runs its stop command: echo h1 stop", "! h1 ends what its start command left running: echo h1 one",
		"! h1 runs its start command: echo h1 two", "! h2 runs its stop command: echo h2 stop", "! h2 runs its start command: echo h2 anew", "! h3 runs its stop command: echo h3 stop",
		"! h4 runs its start command: echo h4")
	is("after a dry run", "", "7701 7711 7721")

	failing := file(append([]string{"sleep 7701 &", "sleep 7702 & echo what is wrong; exit 3"}, changes...)...)
	contains(t, m.want(1, "apply", failing).err, "c1: \"echo c1", "exit status 3\n    what is wrong", "the lab is as it was")
	is("after a start that fails", "c1,c1,h1 one,h1 stop,h1 stop,h1 two,h2,h2 anew,h2 stop,h2 stop,h3,h3 stop,h4,", "7701 7711 7721")

	m.ok("apply", file(changes...))
	is("after apply", "h1 stop,h1 two,h2 anew,h2 stop,h3 stop,h4,", "7701 7712 7721 7741")
	contains(t, m.ok("apply", file(changes...)), "0 changes made")
	is("after an apply of the same", "", "7701 7712 7721 7741")
	m.killDaemon()
	m.ok("resume")
	m.ok("apply", file())
	is("after resume, and apply of the first", "h1 one,h1 stop,h2,h2 stop,h3,", "7701 7711 7721")
	m.pingAll(6)
	m.ok("down")
	is("after down", "h1 stop,h2 stop,h3 stop,", "")
	m.unchanged(before)
}

// TestStartMayFail proves that a start command that fails is a warning where the file says so, as
// MiniEdit's files do, with the command, its node and what it printed; the lab is up.
func TestStartMayFail(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.file("fails.yaml", "controller: none\nnodes: {h1: {host: {start: 'echo no such thing; exit 3', start_may_fail: true}}, h2: host}\nlinks: [h1 -- h2]\n")
	m.ok("convert", filepath.Join(m.dir, "fails.yaml"), filepath.Join(m.dir, "fails.mn"))
	for _, name := range []string{"fails.yaml", "fails.mn"} {
		contains(t, m.up(filepath.Join(m.dir, name), "--controller", "none", "--run-commands"), "warning", "h1", "exit status 3", "no such thing", "up in")
		m.pingAll(2)
		m.ok("down")
	}
}

// TestExecWithoutNamespaces proves that programs run in nodes that have no namespaces of their own,
// as routing nodes, switches and controllers, under cgroups of each version that the machine has,
// alone and together; that they are in groups of their nodes, and that down ends them.
func TestExecWithoutNamespaces(t *testing.T) {
	t.Parallel()
	for kind, hide := range map[string]string{"as mounted": "none", "version 1": "cgroup2", "version 2": "cgroup"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.sh("awk '$3 == \"" + hide + "\" {print $2}' /proc/self/mounts | while read dir; do umount -l $dir; done")
			if m.sh("grep -c ' cgroup2\\? ' /proc/self/mounts || true") == "0" {
				t.Skip("the machine mounts no cgroups of " + kind)
			}
			before := m.snapshot()
			m.up(m.file("exec.yaml", `
nodes: {r1: router, s1: switch, h1: host, h2: host, c1: {controller: {address: "tcp:127.0.0.1:6699"}}}
links: [s1 -- h1, s1 -- r1, r1 -- h2]
`))
			for _, node := range []string{"r1", "s1", "c1", "h1"} {
				contains(t, m.exec(node, "cat /proc/self/cgroup; sleep 7799 >/dev/null 2>&1 &"), "/trivet/"+m.name+"/"+node)
			}
			contains(t, m.want(1, "iperf", "h1", "r1", "-t", "1").err, "r1 is a routing node", "kernel")
			m.ok("iperf", "h1", "h2", "-t", "1")
			if n := len(m.pids("sleep?779[9]")); n != 4 {
				t.Errorf("%d of 4 programs run", n)
			}
			m.ok("down")
			m.unchanged(before)
		})
	}
}

// TestPrivateDirs proves that the directories which nodes have of their own need not be there: they
// are made in the node alone, also one below another, beside all that is there on the machine; up
// says what that means. In those in memory anybody may write. What a node is shown is made on the
// machine, and gone after the last lab that has it, unless something is in it.
func TestPrivateDirs(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh("mkdir -p /run/dirs/deep && echo old >/run/dirs/file && ln -s deep /run/dirs/link && echo deep >/run/dirs/deep/file")
	before := m.snapshot()
	file := m.file("dirs.yaml", `
controller: none
nodes:
  h1: {host: {dirs: [/run/dirs/a/b, /run/dirs/a/b/c, /run/dirs/in: /run/dirs/out/h1, /run/dirs/name: /etc/hostname, /e2e-root/a]}}
  h2: {host: {dirs: [/run/dirs/a/b]}}
links: [h1 -- h2]
`)
	contains(t, m.up(file), "h1 and 1 more: the machine has no /run/dirs/a/b; new files in /run/dirs stay in each of them", "h1: the machine has no /e2e-root/a; new files in / stay in h1")
	m.exec("h1", "touch /run/dirs/a/b/c/mine /run/dirs/in/file /e2e-root/a/x /run/dirs/new; echo new >/run/dirs/file; echo new >/run/dirs/link/made; cmp /run/dirs/name /etc/hostname")
	contains(t, m.exec("h1", "cat /etc/hosts; ip -br link; ping -c 1 -W 30 h2"), "10.0.0.2 h2", "h1-eth0", "1 received")
	if out := m.exec("h2", "ls -A /run/dirs/a/b; [ ! -e /e2e-root ] || echo e2e-root"); out != "" {
		t.Error("h2 sees what h1 has of its own: ", out)
	}
	if out := m.exec("h1", "stat -c %a /run/dirs/a/b /run/dirs/a /run/dirs/in; setpriv --reuid 65534 --clear-groups touch /run/dirs/a/b/socket"); out != "1777\n755\n755" {
		t.Errorf("modes are %q; a directory in memory is everybody's, what leads there and what is shown is root's", out)
	}
	disk := func(when string) {
		t.Helper()
		if out := m.sh("[ ! -e /e2e-root ] || echo e2e-root; cd /run/dirs; find . -mindepth 1 | sort | xargs; cat file deep/made"); out != "./deep ./deep/file ./deep/made ./file ./link ./out ./out/h1 ./out/h1/file\nnew\nnew" {
			t.Errorf("%s there are on the machine %s", when, out)
		}
	}
	disk("while the lab is up")
	m.ok("up", "--name", m.name+"b", file)
	m.ok("down", m.name)
	if out := m.sh(trivet + " exec h1 -- sh -c 'touch /run/dirs/a/b/c/mine; find /run/dirs/[aio]* -type f | sort | xargs'"); out != "/run/dirs/a/b/c/mine /run/dirs/in/file /run/dirs/out/h1/file" {
		t.Error("after the other lab is down, this one sees ", out)
	}
	third := "  h3: {host: {dirs: [/run/dirs/a/b]}}\nlinks: [h1 -- h2, h2 -- h3]\n"
	text, err := os.ReadFile(file)
	must(t, err)
	contains(t, m.ok("apply", m.file("three.yaml", strings.Replace(string(text), "links: [h1 -- h2]\n", third, 1)), "--lab", m.name+"b"),
		"+ host h3", "h1 and 2 more: the machine has no /run/dirs/a/b; new files in /run/dirs stay in each of them")
	contains(t, m.ok("apply", file, "--lab", m.name+"b"), "- host h3")
	m.killDaemon()
	disk("when the daemon is dead")
	m.ok("down")
	disk("afterwards")
	m.sh("rm -r /run/dirs/out /run/dirs/deep/made")
	m.unchanged(before)
}

// TestPrivateDirsRefused proves that a directory which cannot be made in a node is an error that
// says why, and that nothing is left of the lab.
func TestPrivateDirsRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh("mkdir /run/many; cd /run/many; seq 4200 | xargs touch; touch /run/file; ln -s gone /run/dangling")
	before := m.snapshot()
	for path, why := range map[string]string{
		"/run/many/x":       "/run/many/x is not there: cover /run/many: it holds more than 4096 files",
		"/run/file/x":       "/run/file",
		"/run/file":         "/run/file: not a directory",
		"/run/dangling":     "/run/dangling is a symbolic link to gone, which is not there",
		"/run/dangling/x/y": "/run/dangling is a symbolic link to gone, which is not there",
	} {
		file := m.file("refused.yaml", "controller: none\nnodes: {h1: {host: {dirs: ["+path+"]}}, h2: host}\nlinks: [h1 -- h2]\n")
		contains(t, m.want(1, "up", "--name", m.name, file).err, "h1: dirs: ", why)
		m.unchanged(before)
	}
}

// TestPrivateDirsStranger proves that a stranger's file, in any format, has root make no directory
// on the machine: not by a name that means something there (/etc/nologin keeps everybody out), not
// through a link, with --no-commands or without.
func TestPrivateDirsStranger(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh("mkdir /run/etc && ln -s /run/etc " + m.dir + "/link")
	yaml := m.file("lab.yaml", "controller: none\nnodes: {h1: {host: {dirs: [/run/etc/nologin, "+m.dir+"/link/other/deep]}}, h2: host}\nlinks: [h1 -- h2]\n")
	m.ok("convert", yaml, m.dir+"/lab.mn")
	script := m.file("lab.py", "from mininet.net import Mininet\nnet = Mininet(controller=None)\nnet.addLink(net.addHost('h1', privateDirs=['/run/etc/nologin', '"+m.dir+"/link/other/deep']), net.addHost('h2'))\nnet.start()\n")
	for _, file := range []string{yaml, m.dir + "/lab.mn", script} {
		for _, flags := range [][]string{nil, {"--no-commands"}, {"--run-commands"}} {
			m.ok(append([]string{"up", "--name", m.name, file}, flags...)...)
			m.exec("h1", "touch /run/etc/nologin/x "+m.dir+"/link/other/deep/x && ls -d /run/etc/other/deep")
			m.killDaemon()
			if out := m.sh("ls -A /run/etc"); out != "" {
				t.Errorf("%s %v: root has made %s in a directory of the machine", file, flags, out)
			}
			m.ok("down")
		}
	}
}

// TestIperfTogether proves that several measurements of throughput to one host can be under way at
// once, beside a server of the user's own.
func TestIperfTogether(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("linear,3", "--datapath", "bridge")
	m.exec("h1", "iperf3 -s -D -p 5201; while ! ss -ltn | grep -q :5201; do sleep 0.02; done")
	errs := make(chan error, 3)
	for _, from := range []string{"h2", "h3", "h2"} {
		cmd := m.command(trivet, "iperf", from, "h1", "-t", "2")
		out := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = out, out
		must(t, m.start(cmd))
		go func() {
			err := cmd.Wait()
			if err != nil {
				err = fmt.Errorf("iperf %s h1: %w: %s", from, err, out)
			}
			errs <- err
		}()
	}
	for range 3 {
		must(t, <-errs)
	}
}
