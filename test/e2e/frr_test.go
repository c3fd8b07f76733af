package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// withDaemons skips where FRR or BIRD is not installed.
func (m *machine) withDaemons() {
	m.t.Helper()
	for _, p := range []string{"/usr/lib/frr/ospfd", "/usr/sbin/bird"} {
		if _, err := exec.LookPath(p); err != nil {
			m.t.Skip("needs the Debian packages frr and bird2: ", err)
		}
	}
}

// realRouters is a lab of three FRR routers and one BIRD, each with a host; LINKS joins the
// routers.
const realRouters = `
controller: none
defaults: {link: {ospf: {hello: 1s, dead: 20s}}} # a busy machine keeps no router silent for so long
nodes:
  "r[1-3]": {router: {datapath: frr, ospf: area 0}}
  r4: {router: {datapath: bird, ospf: area 0}}
  "h[1-4]": host
links:
  - "r[1-4] -- h[1-4]"
LINKS`

func (m *machine) realRouters(links string) string {
	return m.file("lab.yaml", strings.Replace(realRouters, "LINKS", links, 1))
}

// TestRealRouters proves that FRR and BIRD run as nodes and find each other by OSPF, with and
// without authentication, before up returns: at once all hosts reach each other; that their own
// clients work in the nodes; and that nothing of them is left.
func TestRealRouters(t *testing.T) {
	t.Parallel()
	for name, links := range map[string]string{
		"line":      "  - r1 -- r2 -- r3 -- r4\n",
		"ring":      "  - r1 -- r2 -- r3 -- r4 -- r1\n",
		"broadcast": "  - r1 -- r2: {ospf: {network: broadcast, auth: {type: md5, key: walnut, id: 7}}}\n  - r2 -- r3\n  - r3 -- r4: {ospf: {network: broadcast, auth: {type: md5, key: walnut}}}\n",
		"areas":     "  - r1 -- r2: {ospf: area 1}\n  - r2 -- r3\n  - r3 -- r4: {ospf: {area: 2, auth: {type: simple, key: walnut}}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withDaemons()
			m.sh("mount -t tmpfs trivet-test /var/tmp")
			before := m.snapshot()
			file := m.realRouters(links)
			if name == "areas" {
				file = m.file("lab.yaml", strings.NewReplacer("r[1-3]\": {router: {datapath: frr, ospf: area 0}}", "r[2-3]\": {router: {datapath: frr, ospf: area 0}}\n  r1: {router: {datapath: frr, ospf: area 1}}",
					"bird, ospf: area 0", "bird, ospf: area 2", "LINKS", links).Replace(realRouters))
			}
			m.up(file)
			m.pingAll(12)
			contains(t, m.exec("r2", "vtysh -c 'show ip ospf neighbor'"), "Full")
			contains(t, m.exec("r4", "birdc show ospf neighbors"), "Full")
			if full := m.full(); !full["r1 r2"] || !full["r2 r1"] || !full["r3 r4"] || !full["r4 r3"] {
				t.Errorf("trivet ospf neighbors says that those are Full: %v", full)
			}
			contains(t, m.want(1, "ospf", "neighbors", "h1").err, "h1 does not speak OSPF; those that do are r1, r2, r3, r4")
			contains(t, m.want(1, "ospf", "database").err, "trivet ospf database r")
			contains(t, m.ok("ospf", "database", "r4"), "Area 0.0.0.")
			if out := m.exec("r2", "vtysh -c 'show run' 2>&1"); strings.Contains(out, "%") {
				t.Error("vtysh complains: ", out)
			}
			if out := m.sh("ls -A /var/tmp"); out != "" { // where FRR leaves a directory when it is killed
				t.Error("in the machine's /var/tmp there is ", out)
			}
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
		})
	}
}

// TestRealRoutersHeal proves that in a ring of FRR and BIRD traffic goes round a link that fails,
// and that apply tells the daemons that run of another cost, which moves traffic, and ends those of
// a router that goes.
func TestRealRoutersHeal(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	before := m.snapshot()
	m.up(m.realRouters("  - r1 -- r2 -- r3 -- r4 -- r1\n"))
	hops := func(want string) func() bool { // the TTL of an answer tells how many routers it has met
		return func() bool {
			return strings.Contains(m.run("exec", "-n", "h1", "--", "ping", "-c1", "-W1", "h4").out, "ttl="+want)
		}
	}
	eventually(t, "r1 and r4 are neighbours", hops("62"))
	m.ok("link", "set", "r1-r4", "down")
	eventually(t, "traffic goes round", hops("60"))
	eventually(t, "and all of it", func() bool { return m.run("ping", "--all").code == 0 })
	// BIRD 2.0.12 says so only 5 s after its last word (RFC 2328 12.4, MinLSInterval). A link that
	// is back by then makes it forget the way over it, until something else changes.
	eventually(t, "r4 has told the others", func() bool {
		out := m.run("exec", "-n", "r2", "--", "vtysh", "-c", "show ip ospf database router 0.0.0.4").out
		return strings.Contains(out, "0.0.0.3") && !strings.Contains(out, "0.0.0.1")
	})
	m.ok("link", "set", "r1-r4", "up")
	eventually(t, "traffic goes straight again", hops("62"))
	old := m.sh("cat /run/trivet/" + m.name + "/routers/r1/etc/run/ospfd.pid")
	m.ok("apply", m.realRouters("  - r1 -- r2 -- r3 -- r4\n  - r4 -- r1: {ospf: {cost: 50}}\n"))
	eventually(t, "the long way is the cheaper one", hops("60"))
	if pid := m.sh("cat /run/trivet/" + m.name + "/routers/r1/etc/run/ospfd.pid"); pid != old {
		t.Errorf("ospfd was restarted: process %s, now %s", old, pid)
	}
	m.ok("apply", m.file("less.yaml", strings.NewReplacer("r[1-3]", "r[1-2]", "r[1-4] -- h[1-4]\"", "r[1-2] -- h[1-2]\"\n  - r4 -- h[3-4]", "LINKS", "  - r1 -- r2\n  - r4 -- r1\n").Replace(realRouters)))
	eventually(t, "the rest is whole", func() bool { return m.run("ping", "--all").code == 0 })
	if n := len(m.pids("lib/frr/ospf[d]")); n != 2 {
		t.Errorf("%d processes of ospfd run for two routers", n)
	}
	m.ok("down")
	m.unchanged(before)
}

// TestRealRoutersDie proves that routing daemons that have died are named by ls and inspect, and
// started again by an apply of the same file, which says so, and then all is as it was.
func TestRealRoutersDie(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	before := m.snapshot()
	file := m.realRouters("  - r1 -- r2 -- r3 -- r4\n")
	m.up(file)
	contains(t, m.ok("apply", file), "0 changes made")
	m.sh("kill -9 $(cat /run/trivet/" + m.name + "/routers/r2/etc/run/ospfd.pid) " + strings.Join(m.pids("sbin/bir[d]"), " "))
	const ospfd, bird = "ospfd of router r2", "bird of router r4"
	eventually(t, "ls says what has died", func() bool {
		out := m.ok("ls")
		return strings.Contains(out, ospfd) && strings.Contains(out, bird)
	})
	contains(t, m.ok("inspect"), ospfd, bird)
	contains(t, m.ok("apply", "--dry-run", file), "2 changes to make")
	contains(t, m.ok("apply", file), ospfd+" has ended: started again", bird+" has ended: started again", "2 changes made")
	if out := m.ok("ls") + m.ok("inspect"); strings.Contains(out, "have ended") {
		t.Errorf("after apply: %s", out)
	}
	eventually(t, "they are neighbours again", func() bool { return m.run("ping", "--all").code == 0 })
	contains(t, m.ok("apply", file), "0 changes made")
	m.ok("down")
	m.unchanged(before)
}

// TestRealRoutersDaemonDies proves that routing daemons outlive the lab's, and end with down; and
// so they do whenever in coming up the lab's daemon died.
func TestRealRoutersDaemonDies(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	before := m.snapshot()
	m.up(m.realRouters("  - r1 -- r2 -- r3 -- r4\n"))
	m.kill("*_[_]daemon*")
	if n := len(m.pids("lib/frr/ospf[d]")); n != 3 {
		t.Errorf("%d processes of ospfd run", n)
	}
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
	file := m.file("small.yaml", "controller: none\nnodes: {r1: {router: {datapath: frr, ospf: area 0}}, r2: {router: {datapath: bird}}, h1: host}\nlinks: [r1 -- h1, r2 -- h1]\n")
	for step := 1; !m.killAt(file, step); step++ {
		m.ok("down")
		m.unchanged(before)
	}
	m.ok("down")
	m.unchanged(before)
}

// TestRealRoutersRefused proves that what is not installed, and what a daemon cannot do, is said
// before anything is made; and that FRR without OSPF routes by the routes of the file.
func TestRealRoutersRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	before := m.snapshot()
	sha := m.realRouters("  - r1 -- r2: {ospf: {auth: {type: sha256, key: walnut}}}\n")
	contains(t, m.want(1, "up", "--name", m.name, sha).err, "router r1", "FRR has no sha256; use md5")
	m.unchanged(before)
	m.up("line,3", "--nodes", "router", "--datapath", "frr")
	m.pingAll(2)
	m.ok("down")
	m.unchanged(before)
	m.sh("mount -t tmpfs none /usr/lib/frr")
	before = m.snapshot()
	contains(t, m.want(1, "up", "--name", m.name, "line,3", "--nodes", "router", "--datapath", "frr").err, "FRR is not installed: apt install frr")
	m.unchanged(before)
}

// TestRealRoutersAttacked proves that who speaks for the user frr, as which FRR's daemons run,
// gains nothing over root by the files of a router: it can place no link where root writes, opens
// or runs something, and what it puts where its own daemons write is neither followed nor given
// away.
func TestRealRoutersAttacked(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	before := m.snapshot()
	victim := m.file("victim", "root's\n")
	must(t, os.Chmod(victim, 0o600))
	m.up(m.realRouters("  - r1 -- r2 -- r3 -- r4\n"))
	dir := "/run/trivet/" + m.name + "/routers/r1"
	// Every name that root uses there, and every directory it is in, as the attacker would like to
	// have them.
	m.sh(`cd ` + dir + ` && find . -print | sed 's,$,.new,' >` + m.dir + `/names && find . -print >>` + m.dir + `/names && chmod 644 ` + m.dir + `/names
		setpriv --reuid frr --regid frr --clear-groups sh -c 'while read -r name; do
			ln -sfnT ` + victim + ` "$name"; rm -f "$name.moved"; mv -T "$name" "$name.moved" && ln -s ` + victim + ` "$name"
		done' <` + m.dir + `/names >/dev/null 2>&1; true`)
	if found := m.sh("cd " + dir + " && find . -type l ! -path './etc/run/*' -o ! -user root ! -path './etc/run' ! -path './etc/run/*'"); found != "" {
		t.Errorf("the user frr has placed or owns these: %s", found)
	}
	m.run("apply", m.realRouters("  - r1 -- r2 -- r3 -- r4: {ospf: {cost: 7}}\n  - r4 -- r1: {ospf: {cost: 50}}\n"))
	if got := m.sh("stat -c '%U %a' " + victim + " && cat " + victim); got != "root 600\nroot's\n" && got != "root 600\nroot's" {
		t.Errorf("the victim is now: %s", got)
	}
	m.ok("down")
	m.unchanged(before)
	m.sh("test -e " + victim)
}
