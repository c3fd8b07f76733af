package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFailedApply proves that an apply that fails, at whatever stage, says why and leaves the lab
// what it was, with all that the stages before had changed; and that the corrected file does all
// that it asks for.
func TestFailedApply(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"bridge", "ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			text := "datapath: " + datapath + `
nodes:
  s[1-2]: switch
  h1: {host: {cpu: 0.5, routes: [192.0.2.0/24 via 10.0.0.2]}}
  h[2-3]: host
links: [s1 -- h1, s2 -- h2, s2 -- h3, s1 -- s2: {delay: 5ms}]
`
			name := m.name + ".yaml" // MACs depend on it
			m.up(m.file(name, text))
			m.pingAll(6)
			state := func() string {
				out := "limits:\n" // looked for where they are: elsewhere other labs come and go
				for _, g := range m.cgroups() {
					if filepath.Base(g) == "h1" {
						out += m.sh("cat " + g + "/cpu.max " + g + "/cpu.cfs_quota_us 2>/dev/null || true")
					}
				}
				for _, n := range []string{"h1", "h2", "h3", "s1"} {
					out += "\n" + m.exec(n, "ip -br addr | grep -v fe80 | sort; ip route; cat /etc/hosts")
				}
				return cut(out, "@if")
			}
			was := state()
			// Something is made, set, made anew and taken away.
			good := strings.NewReplacer("cpu: 0.5, routes: [192.0.2.0/24 via 10.0.0.2]", "cpu: 0.7", "h[2-3]", "h2", ", s2 -- h3, s1 -- s2: {delay: 5ms}",
				", s1 -- s2, s1 -- h4: {delay: 20ms}").Replace(text)
			for _, bad := range [][2]string{
				{"h4: {host: {dirs: [/etc/passwd/dir]}}", "/etc/passwd: not a directory"},
				{"h4: {host: {address: 10.0.0.9/24, start: exit 7}}", "exit status 7"},
				{"h4: {host: {cores: [4000]}}", "no core 4000"},
			} {
				contains(t, m.want(1, "apply", m.file(name, strings.Replace(good, "links:", "  "+bad[0]+"\nlinks:", 1))).err, bad[1])
				if now := state(); now != was {
					t.Fatalf("%s: before:\n%s\nafter:\n%s", bad[1], was, now)
				}
				contains(t, m.ok("apply", m.file(name, text)), "0 changes made")
				m.pingAll(6)
				if ms := m.rtt("h1", "h2"); ms < 10*slewed {
					t.Errorf("%s: over a link with a delay of 5 ms a ping takes %g ms", bad[1], ms)
				}
			}
			m.ok("apply", m.file(name, strings.Replace(good, "links:", "  h4: {host: {address: 10.0.0.9/24}}\nlinks:", 1)))
			m.pingAll(6)
			if ms := m.rtt("h1", "h4"); ms < 40*slewed {
				t.Errorf("over a new link with a delay of 20 ms a ping takes %g ms", ms)
			}
			contains(t, m.want(1, "exec", "h3", "true").err, "there is no node h3")
			m.ok("apply", m.file(name, text))
			m.pingAll(6)
			if now := state(); now != was {
				t.Errorf("changed there and back: before:\n%s\nafter:\n%s", was, now)
			}
			m.ok("down")
			m.unchanged(before)
		})
	}
}

// TestKilledInChange proves that a lab whose daemon is killed in the middle of a change is not
// resumed as if it were whole, and that a change which can be neither made nor undone, since Open
// vSwitch is killed meanwhile, is told as that, and lets nothing be done but going down.
func TestKilledInChange(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"daemon", "ovs-vswitchd"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			m.up("linear,2", "--datapath", "ovs", "--controller", "none")
			vswitchd := m.pids("ovs-vswitch[d]")[0]
			m.sh("kill -STOP " + vswitchd) // so that the change does not end
			apply := m.command(trivet, "apply", "linear,3", "--datapath", "ovs", "--controller", "none")
			out := m.startOutput(apply)
			eventually(t, "the change has begun and three hosts are there", func() bool {
				return m.do(m.command("test", "-e", "/run/trivet/"+m.name+"/changing", "-a", "-e", "/run/trivet/"+m.name+"/ns/net/h3")).code == 0
			})
			if victim == "daemon" {
				m.killDaemon()
				wait(t, apply)
				contains(t, m.ok("ls"), "in the middle of a change", "trivet down "+m.name)
				contains(t, m.want(1, "resume").err, "in the middle of a change", "trivet down "+m.name)
			} else {
				m.sh("kill -9 " + vswitchd)
				wait(t, apply)
				contains(t, out.String(), "could not be undone", "take the lab down")
				contains(t, m.want(1, "link", "set", "s1-s2", "down").err, "an earlier change has failed", "take the lab down")
			}
			m.ok("down")
			m.unchanged(before)
		})
	}
}

// TestDeadOpenVSwitch proves that the death of a program of Open vSwitch is noted, also under a
// daemon that has taken the lab over, and that changes say what is to be done instead of "0 changes
// made".
func TestDeadOpenVSwitch(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	for _, victim := range []string{"ovs-vswitch[d]", "ovsdb-serve[r]"} {
		m.up("minimal", "--datapath", "ovs", "--controller", "none")
		if victim == "ovsdb-serve[r]" {
			m.killDaemon()
			m.ok("resume")
		}
		m.sh("kill -9 " + m.pids(victim)[0])
		eventually(t, "it is noted", func() bool { return strings.Contains(m.ok("ls"), "Open vSwitch; take the lab down") })
		contains(t, m.ok("inspect"), "Open vSwitch; take the lab down")
		contains(t, m.want(1, "apply", "minimal", "--datapath", "ovs", "--controller", "none").err, "Open vSwitch has ended", "take the lab down")
		contains(t, m.want(1, "link", "set", "s1-h1", "down").err, "Open vSwitch has ended", "take the lab down")
		m.ok("down")
	}
	m.unchanged(before)
}

// TestChangeOnFullDisk proves that a change on a disk that is full, or nearly, or fills up
// meanwhile, is made, or not, or undone, and says which; and that the lab can be changed and
// resumed then, once there is room. Where somebody takes all room at every moment, it may be that a
// change can be neither made nor undone; that is said.
func TestChangeOnFullDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	lab := func(hosts int, start string) string {
		return m.file(m.name+".yaml", fmt.Sprintf("nodes: {s1: switch, \"h[1-%d]\": host, last: {host: {start: '%s'}}}\nlinks: [\"s1 -- h[1-%d]\", s1 -- last]\n", hosts, start, hosts))
	}
	m.up(lab(2, ""))
	const fill = "dd if=/dev/zero of=/run/full bs=4k oflag=append conv=notrunc 2>/dev/null || true"
	m.sh("mount -o remount,size=8M /run; " + fill)
	contains(t, m.want(1, "link", "set", "s1-h1", "down").err, "nothing was changed", "no space left")
	contains(t, m.want(1, "apply", lab(40, "")).err, "nothing was changed", "no space left")
	m.pingAll(6)
	m.killDaemon()
	m.sh("rm /run/full")
	m.ok("resume")
	for _, c := range []struct {
		room  int // KiB
		start string
		says  string
	}{
		{100, "", "nothing was changed"},
		{500, fill, ""},                       // what was kept is enough to write down what the lab is
		{500, fill + "; exit 3", "as it was"}, // and to undo it
		{500, "while sleep 0.001; do " + fill + "; done & " + fill, "?"},
	} {
		m.sh(fill + fmt.Sprintf("; truncate -s -%dK /run/full", c.room))
		r := m.run("apply", lab(40, c.start))
		if r.code == 0 && c.says != "" && c.says != "?" || r.code != 0 && (c.says == "" || !strings.Contains(r.err, strings.Trim(c.says, "?"))) {
			t.Fatalf("with %d KiB and %q: %s", c.room, c.start, r)
		}
		for _, pid := range m.pids("while?slee[p]") {
			m.sh("kill -9 " + pid + " || :") // one of a loop ends by itself
		}
		eventually(t, "the last one that fills the disk has ended", func() bool { return len(m.pids("if=/dev/zer[o]")) == 0 })
		if c.says == "?" && strings.Contains(r.err, "take the lab down") { // who fills the disk took the room to undo it, too
			t.Logf("neither made nor undone: %s", r)
			m.sh("rm /run/full")
			m.ok("down")
			return
		}
		hosts := 2
		if r.code == 0 {
			hosts = 40
		}
		contains(t, m.exec("h1", "cat /etc/hosts; ping -c 1 -W 30 last"), fmt.Sprintf(" h%d\n", hosts))
		m.sh("rm /run/full")
		m.killDaemon()
		m.ok("resume")
		m.ok("apply", lab(2, ""))
		m.pingAll(6)
	}
	m.ok("down")
}

// TestFailedApplyOfEverything proves the same of all that a lab is made of, when all of it is made
// anew, goes, or comes. But for the numbers that the kernel gives, also the machine around the lab
// is as it was: its interfaces, its firewall, its cgroups.
func TestFailedApplyOfEverything(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withExternal()
	before := m.snapshot()
	m.up(m.file("everything.yaml", everything))
	m.pingAll(6)
	numbers := regexp.MustCompile(`\b[0-9a-f:]*\d[0-9a-f:]*\b`)
	look := func() (out snapshot) {
		for _, line := range m.snapshot() {
			if !strings.HasPrefix(line, "process") && !strings.HasSuffix(line, "/routers d---------") && !strings.Contains(line, "/commands/h4.log ") && !strings.Contains(line, "/renewed ") { // what ran in nodes that were made anew
				out = append(out, numbers.ReplaceAllString(line, "#"))
			}
		}
		slices.Sort(out)
		return out
	}
	up := look()
	changed := strings.NewReplacer(
		"s1: {switch: {datapath: bridge}}", "s1: {switch: {datapath: ovs}}", "s3: {switch: {datapath: ovs}}", "s3: {switch: {datapath: bridge}}",
		"{datapath: kernel}", "{datapath: frr}", "nat0: nat", "r2: {router: {datapath: frr}}", ", s1 -- nat0]", ", s1 -- r2]",
		"cpu: 0.5, dirs: [/mnt]", "cpu: 0.2", "isolate: pid, ", "", "delay: 5ms, bandwidth: 10mbit", "bandwidth: 10mbit",
		"  - s1 -- interface:ext0: {to: {take: true}}\n", "  - s2 -- interface:ext0: {to: {take: true}}\n  - s3 -- h4: {delay: 5ms}\n").Replace(everything)
	bad := strings.Replace(changed, "links:", "  h4: {host: {start: exit 7}}\nlinks:", 1)
	contains(t, m.want(1, "apply", m.file("everything.yaml", bad)).err, "exit status 7")
	contains(t, m.ok("apply", m.file("everything.yaml", everything)), "0 changes made")
	m.pingAll(6)
	if d := look().differs(up); d != "" {
		t.Error(d)
	}
	m.ok("apply", m.file("everything.yaml", strings.Replace(changed, "links:", "  h4: host\nlinks:", 1)))
	m.pingAll(12)
	m.ok("down")
	m.unchanged(before)
}
