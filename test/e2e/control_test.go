package e2e

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// What the commands say of the controller, as far as it matters here.
type (
	flowsJSON struct {
		Flows []struct {
			Switch, App, Match, Actions string
			ID                          int64
			Table, Priority             int
		}
		Pending, Silent []any
	}
	pathJSON struct {
		Arrives string
		Why     []string
		Ways    []struct {
			Arrives bool
			End     string
			Reason  string
			Hops    []struct {
				Switch, In, Out, Controller string
				Entries                     []struct{ App, Readable string }
			}
		}
	}
	routesJSON struct {
		Routes []struct {
			Router, Prefix, Source string
			User                   bool
			Hops                   []struct{ Interface, Via, Router string }
		}
		Added []any
	}
)

// switches are those of a way, in their order.
func switches(p pathJSON, way int) string {
	var names []string
	for _, h := range p.Ways[way].Hops {
		names = append(names, h.Switch)
	}
	return strings.Join(names, " ")
}

// TestFlows proves that in a lab of learning switches the flow entries, hosts and the way of a
// packet are shown as they are; that an entry which a user adds does what it says until it is
// deleted; and that what the controller knows is in its SQLite file.
func TestFlows(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up("linear,3")
	m.pingAll(6)
	p := jsonOf[pathJSON](m, "path", "h1", "h3")
	if p.Arrives != "yes" || switches(p, 0) != "s1 s2 s3" || p.Ways[0].Hops[1].In != "s2-eth2" || p.Ways[0].Hops[1].Out != "s2-eth3" {
		t.Errorf("path %+v", p)
	}
	contains(t, m.ok("path", "h1", "h3"), "h1 → s1 → s2 → s3 → h3", "why: s1, s2, s3: learned", "dl_dst=h3 actions=output:s1-eth2")
	contains(t, m.ok("hosts"), "h1", "10.0.0.1", "s1-eth1")
	contains(t, m.ok("flows", "s2"), "learning", "discovery", "in_port=s2-eth2,dl_src=h1 actions=goto_table:1")
	contains(t, m.ok("flows", "--groups"), "output:s2-eth3")

	contains(t, m.ok("flows", "s1", "--add", "priority=100,ip,nw_src=10.0.0.1,nw_dst=10.0.0.2,actions=drop"), "added 1")
	m.want(3, "ping", "h1", "h2", "-c", "1", "-W", "1s")
	m.ok("ping", "h1", "h3", "-c", "1", "--timeout", "30s")
	r := m.want(3, "path", "h1", "h2")
	contains(t, r.out, "✗", "dropped by the user's entry 1: ip,nw_src=10.0.0.1,nw_dst=10.0.0.2 actions=drop")
	m.database("SELECT count(*) FROM user_flows WHERE match = 'ip,nw_src=10.0.0.1,nw_dst=10.0.0.2' AND priority = 100", 1)
	contains(t, m.ok("flows", "--delete", "1"), "deleted 1")
	m.ok("ping", "h1", "h2", "-c", "1", "--timeout", "30s")
	for flow, reason := range map[string]string{"priority=1,nw_st=1.2.3.4,actions=drop": "column 12", "ip,actions=group:77": "the switch refuses",
		"priority=1,in_port=1,actions=drop": "an entry of an app"} {
		contains(t, m.want(1, "flows", "s1", "--add", flow).err, reason)
	}
	if f := jsonOf[flowsJSON](m, "flows"); len(f.Silent) != 0 || len(f.Flows) < 30 {
		t.Errorf("%d entries; silent %v", len(f.Flows), f.Silent)
	}
	m.database("SELECT count(*) FROM switches WHERE name IN ('s1','s2','s3') AND up = 1", 3)
	m.database("SELECT count(*) FROM links WHERE up = 1", 4)
	m.database("SELECT count(*) FROM hosts, json_each(addresses) WHERE value IN ('10.0.0.1','10.0.0.2','10.0.0.3')", 3)
	m.database("SELECT count(DISTINCT switch) FROM flows WHERE app = 'learning'", 3)
	m.database("SELECT count(*) FROM user_flows", 0)
	m.database("SELECT count(*) > 0 FROM packets_in WHERE protocol = 'arp'", 1)
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}

// database waits until a query of the lab's database gives a number: it is written about once a
// second. SQLite does not find its way into the machine's /run, so a copy is asked, log and all.
func (m *machine) database(query string, want int) {
	m.t.Helper()
	got := 0
	eventually(m.t, query+" gives "+fmt.Sprint(want), func() bool {
		dir := m.t.TempDir()
		m.sh("cp /run/trivet/" + m.name + "/controller.db* " + dir)
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "controller.db"))
		must(m.t, err)
		defer db.Close()
		return db.QueryRow(query).Scan(&got) == nil && got == want
	})
}

// TestRoutes proves that in a lab of routing nodes both ways round a ring are shown, with the
// reason, and their routes; that a static route which a user adds is taken until it is deleted,
// also across a change of the lab; and that it is in the database.
func TestRoutes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up("ring,4", "--nodes", "router")
	m.pingAll(12)
	p := jsonOf[pathJSON](m, "path", "h1", "h3")
	if p.Arrives != "yes" || len(p.Ways) != 2 || switches(p, 0) != "r1 r2 r3" || switches(p, 1) != "r1 r4 r3" || p.Ways[0].Hops[2].Controller != "" {
		t.Fatalf("path %+v", p)
	}
	contains(t, p.Why[0], "shortest path, cost 3, via r2 or r4 (2 of equal cost)")
	contains(t, m.ok("routes", "r1"), "r1-eth0", "connected", " r2 ", " r4 ", "shortest path")
	host := m.exec("h3", "ip -4 -o addr show dev h3-eth0 | sed 's/.*inet \\([^/]*\\).*/\\1/'")
	to := host + "/32"
	via := viaOf(t, jsonOf[routesJSON](m, "routes", "r1"), "r4")
	m.ok("routes", "r1", "--add", to+" via "+via)
	m.ok("link", "set", "h2-r2", "delay=1ms")
	eventually(t, "the static route is taken", func() bool {
		p := jsonOf[pathJSON](m, "path", "h1", "h3")
		return len(p.Ways) == 1 && switches(p, 0) == "r1 r4 r3" && strings.Contains(p.Why[0], "by static, via r4")
	})
	m.ok("ping", "h1", "h3", "-c", "2", "--timeout", "30s")
	m.database("SELECT count(*) FROM user_routes WHERE router = 'r1' AND prefix = '"+to+"'", 1)
	m.database("SELECT count(*) FROM routes WHERE router = 'r1' AND source = 'static' AND prefix = '"+to+"'", 1)
	m.database("SELECT count(DISTINCT router) FROM routes WHERE source = 'shortest path'", 4)
	m.ok("routes", "r1", "--delete", to)
	eventually(t, "both ways are taken again", func() bool { return len(jsonOf[pathJSON](m, "path", "h1", "h3").Ways) == 2 })
	m.database("SELECT count(*) FROM user_routes", 0)
	contains(t, m.want(1, "routes", "r1", "--add", "10.99.0.0/16 via 192.0.2.1").err, "is not a neighbour of r1")
	contains(t, m.want(1, "routes", "r7").err, `no router "r7"`)
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}

// viaOf is the address of a neighbour, by which some route leads.
func viaOf(t *testing.T, r routesJSON, neighbour string) string {
	t.Helper()
	for _, x := range r.Routes {
		for _, h := range x.Hops {
			if h.Router == neighbour {
				return h.Via
			}
		}
	}
	t.Fatalf("no route by %s in %+v", neighbour, r)
	return ""
}

// TestTop proves that what an iperf sends is seen on every link of its way, and not on others, the
// busiest first.
func TestTop(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up("linear,3")
	m.ok("link", "set", "s1-s2", "bandwidth=50mbit")
	m.pingAll(6)
	iperf := m.command(trivet, "iperf", "h1", "h2", "-t", "600")
	must(t, m.start(iperf))
	const megabit = 1e6
	eventually(t, "the way of the traffic is busy, and nothing else", func() bool {
		s := jsonOf[trafficJSON](m, "top", "--once")
		if len(s.Links) != 5 {
			return false
		}
		var busy []string
		for _, l := range s.Links {
			if slices.ContainsFunc(l.Directions[:], func(d directionJSON) bool { return d.Rate != nil && *d.Rate > megabit }) {
				busy = append(busy, l.joins())
			}
		}
		if len(busy) != 3 || busy[0] != "s1 s2" || !slices.Contains(busy, "h1 s1") || !slices.Contains(busy, "h2 s2") {
			return false
		}
		first := s.Links[0].Directions
		return max(*first[0].Share, *first[1].Share) > 0 && s.Links[1].Directions[0].Share == nil // the others have no bandwidth
	})
	eventually(t, "a person sees it too", func() bool {
		shown := m.ok("top", "--once")
		return !slices.ContainsFunc([]string{"LINK", "bit/s", "AT THE CONTROLLER", "arp"}, func(w string) bool { return !strings.Contains(shown, w) })
	})
	y := m.terminal("top")
	y.waitFor(t, "lab "+m.name+"   q or Ctrl-C quits")
	y.types("q")
	y.ends(0)
	must(t, iperf.Process.Signal(os.Interrupt))
	wait(t, iperf)
	m.ok("down")
}

// TestControllerAlone proves that a controller that runs by itself tells where its API is, answers
// there those who have its token and nobody else, and brings back after a restart what a user had
// added: from its database, or from an etcd, which it shares with no other.
func TestControllerAlone(t *testing.T) {
	t.Parallel()
	t.Run("database", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t)
		m.controllerAlone("--database", filepath.Join(m.dir, "c.db"))
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		version, err := exec.Command("etcd", "--version").Output()
		if err != nil || strings.HasPrefix(string(version), "etcd Version: 3.3") { // as Ubuntu 22.04 has it
			t.Skip("there is no etcd 3.4 or later: apt-get install etcd-server")
		}
		m := newMachine(t)
		const at = "http://127.0.0.1:2379"
		etcd := m.command("etcd", "--data-dir", filepath.Join(m.dir, "etcd"), "--listen-client-urls", at, "--advertise-client-urls", at,
			"--listen-peer-urls", "http://127.0.0.1:2380", "--logger", "zap", "--log-outputs", "/dev/null")
		must(t, m.start(etcd))
		eventually(t, "etcd listens", func() bool { return m.sh("curl -s "+at+"/health || true") != "" })
		m.controllerAlone("--store", at+"/lab")
		_ = etcd.Process.Kill()
		wait(t, etcd)
		contains(t, m.run("controller", "--listen", "tcp:127.0.0.1:6654", "--store", at+"/lab").err, at, "etcd")
	})
}

// controllerAlone runs a controller that keeps what users add in some way.
func (m *machine) controllerAlone(keep ...string) {
	t := m.t
	token := filepath.Join(m.dir, "token")
	args := append([]string{"controller", "--topology", "linear,2", "--api", "tcp:127.0.0.1:6680", "--token-file", token}, keep...)
	end := m.controllerUp(args)
	contains(t, m.want(1, append([]string{"controller", "--listen", "tcp:127.0.0.1:6654", "--api", "none"}, keep...)...).err, "another")
	m.up("linear,2", "--controller", "tcp:127.0.0.1:6653")
	ask := []string{"--api", "tcp:127.0.0.1:6680", "--token-file", token}
	reaches := func() bool { return m.run("ping", "h1", "h2", "-c", "1", "-W", "1s").code == 0 }
	eventually(t, "h1 reaches h2", reaches)
	contains(t, m.ok(append([]string{"flows", "s1"}, ask...)...), "learning")
	contains(t, m.want(1, "flows", "--api", "tcp:127.0.0.1:6680").err, "--token-file")
	if code := m.sh("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:6680/v1/controller/flows"); code != "401" {
		t.Errorf("without a token: %s", code)
	}
	for path, want := range map[string]string{"/v1/controller/topology": `"southbound":{"received":`, "/metrics": "trivet_openflow_recent_bytes{"} {
		contains(t, m.sh(`curl -s -H "Authorization: Bearer $(cat `+token+`)" http://127.0.0.1:6680`+path), want)
	}
	m.ok(append([]string{"flows", "s1", "--add", "priority=100,ip,nw_dst=10.0.0.2,actions=drop"}, ask...)...)
	eventually(t, "h1 does not reach h2", func() bool { return !reaches() }) // Open vSwitch follows a little later
	end()
	end = m.controllerUp(args)
	defer end()
	eventually(t, "the switches are back, with the entry", func() bool {
		if m.run(append([]string{"flows", "s1"}, ask...)...).code != 0 {
			return false // not connected yet
		}
		f := jsonOf[flowsJSON](m, append([]string{"flows", "s1"}, ask...)...)
		for _, x := range f.Flows {
			if x.App == "user" && x.ID == 1 && x.Actions == "drop" {
				return true
			}
		}
		return false
	})
	m.ok(append([]string{"flows", "--delete", "1"}, ask...)...)
	eventually(t, "h1 reaches h2 again", reaches)
	m.ok("down")
}

// controllerUp starts a controller and waits until it says where its API is.
func (m *machine) controllerUp(args []string) (end func()) {
	m.t.Helper()
	cmd := m.command(trivet, args...)
	log := filepath.Join(m.dir, "controller.txt")
	out := m.file("controller.txt", "")
	cmd.Args = append([]string{"sh", "-c", "exec \"$0\" \"$@\" >" + log + " 2>&1", trivet}, args...)
	cmd.Path = "/bin/sh"
	must(m.t, m.start(cmd))
	eventually(m.t, "the controller is up", func() bool { return strings.Contains(m.sh("cat "+out), "ask it by") })
	ended := false
	return func() {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(os.Interrupt)
			wait(m.t, cmd)
		}
	}
}
