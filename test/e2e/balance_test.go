package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// sends makes a host send to another as fast as TCP can, or as options of iperf3 say, and returns
// what ends that.
func (m *machine) sends(from, to string, options ...string) (end func()) {
	m.t.Helper()
	start := func(node string, args ...string) func() {
		cmd := m.command("nsenter", append([]string{"--net=/run/trivet/" + m.name + "/ns/net/" + node}, args...)...)
		m.startOutput(cmd)
		return func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	endServer := start(to, "iperf3", "-s")
	eventually(m.t, to+" listens", func() bool { return strings.Contains(m.exec(to, "ss -Hltn"), ":5201") })
	endClient := start(from, append([]string{"iperf3", "-c", m.addressOf(to, slices.Contains(options, "-6")), "-t", "1000"}, options...)...)
	return func() {
		endClient()
		endServer()
	}
}

// addressOf is a host's address of IPv4 or IPv6.
func (m *machine) addressOf(host string, v6 bool) string {
	m.t.Helper()
	both := strings.Fields(m.exec(host, "hostname -I")) // IPv4, then IPv6
	if v6 {
		return both[1]
	}
	return both[0]
}

// TestBalance proves what balance: load promises, on each datapath that routing nodes and switches
// have, with routes in advance and on demand: of two flows that fill a link one leaves it and
// nothing moves any more; both take the shortest path again when the network is idle; trivet says
// why. It proves that a path that a user installs is taken until a link of it fails, and again when
// that is back, that one that is none changes nothing, and that without balance: load nothing
// moves.
func TestBalance(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(example("balance.yaml"))
	must(t, err)
	for _, datapath := range []string{"embedded", "ovs"} {
		for _, routing := range []string{"proactive", "reactive", "switches"} {
			t.Run(datapath+" "+routing, func(t *testing.T) {
				t.Parallel()
				m := newMachine(t)
				before := m.snapshot()
				text := strings.Replace(string(example), "100mbit", "20mbit", 1)
				if routing == "switches" {
					text = strings.Replace(text, "r[1-5]: router", "r[1-5]: switch", 1)
				} else {
					text = "routing: " + routing + "\n" + text
				}
				m.up("--datapath", datapath, m.file("b.yaml", strings.Replace(text, "balance: load", "balance: {by: load, period: 1s}", 1)))
				over := func(host, router string) func() bool {
					return func() bool { return strings.Contains(m.run("path", "c2", host).out, "r1 → "+router+" →") }
				}
				both := func(router string) func() bool {
					return func() bool { return over("c3", router)() && over("c4", router)() }
				}
				m.pingAll(12)
				if !both("r2")() {
					t.Fatal("an idle network does not take the shortest path: ", m.ok("path", "c2", "c4"))
				}
				endFirst, endSecond := m.sends("c1", "c3"), m.sends("c2", "c4")
				apart := func() bool { return over("c3", "r3")() != over("c4", "r3")() }
				eventually(t, "one of two flows leaves the full link", apart)
				eventually(t, "balance and top say which, and why", func() bool {
					for _, args := range [][]string{{"balance"}, {"top", "--once"}} {
						if said := m.ok(args...); !strings.Contains(said, "r1, r3, r5, r4") || !strings.Contains(said, "used by others") {
							return false
						}
					}
					return true
				})
				type state struct{ Moves int }
				// Six looks, in none of which anything moves. A machine that stalls may have moved
				// something before: the flows are what it lets them be.
				eventually(t, "two flows on two ways settle", func() bool {
					first := jsonOf[state](m, "balance")
					time.Sleep(6 * time.Second)
					return jsonOf[state](m, "balance") == first && apart()
				})
				endFirst()
				endSecond()
				eventually(t, "both take the shortest path again", both("r2"))

				contains(t, m.ok("balance", "r1", "c4"), "r1, r2, r4", "r1, r3, r5, r4")
				m.ok("balance", "c4", "--install", "r1,r3,r5,r4")
				eventually(t, "the installed path is taken", over("c4", "r3"))
				contains(t, m.ok("path", "c2", "c4"), "a user has installed it")
				m.ok("link", "set", "r3-r5", "down")
				eventually(t, "the shortest path is taken where the installed one is broken", over("c4", "r2"))
				m.pingAll(12)
				m.ok("link", "set", "r3-r5", "up")
				eventually(t, "the installed path is taken again", over("c4", "r3"))
				contains(t, m.want(1, "balance", "c4", "--install", "r1,r4").err, "no link leads from r1 to r4")
				contains(t, m.want(1, "balance", "c4", "--install", "r1,r3").err, "does not have")
				if !over("c4", "r3")() {
					t.Error("a path that is none has changed something")
				}
				m.ok("balance", "c4", "--take-back")
				eventually(t, "the shortest path is taken", over("c4", "r2"))
				m.want(1, "balance", "c4", "--take-back")

				m.ok("apply", "--datapath", datapath, m.file("off.yaml", strings.Replace(text, "balance: load", "balance: off", 1)))
				endFirst, endSecond = m.sends("c1", "c3"), m.sends("c2", "c4")
				time.Sleep(4 * time.Second) // longer than it took to move
				if !both("r2")() {
					t.Error("traffic has moved without balance: load: ", m.ok("path", "c2", "c4"), m.ok("path", "c2", "c3"), m.ok("balance"))
				}
				endFirst()
				endSecond()
				contains(t, m.ok("down"), "nothing left")
				m.unchanged(before)
			})
		}
	}
}

// TestBalanceChoose proves of paths that are chosen as paper 2 can be read, on each datapath that
// routing nodes have: with choose: once, what begins beside a full path takes the longer one, which
// is idle, and stays there when the shortest is idle, until it ends; trivet says so, also of a lab
// that was resumed. With choose: always, which apply sets, a flow alone moves again and again, and
// when apply sets neither it comes to rest.
func TestBalanceChoose(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(example("balance.yaml"))
	must(t, err)
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			of := func(choose string) string {
				text := strings.Replace(string(example), "100mbit", "20mbit", 1)
				return m.file(choose+".yaml", strings.Replace(text, "balance: load", "balance: {by: load, period: 1s, choose: "+choose+"}", 1))
			}
			m.up("--datapath", datapath, of("once"))
			m.pingAll(12)
			over := func(host, router string) func() bool {
				return func() bool { return strings.Contains(m.run("path", "c2", host).out, "r1 → "+router+" →") }
			}
			type state struct {
				Moves  int
				Choose string
			}
			endFirst := m.sends("c1", "c3")
			time.Sleep(4 * time.Second) // longer than it takes to choose
			if !over("c3", "r2")() {
				t.Error("what begins in an idle network does not take the shortest path: ", m.ok("balance"))
			}
			endSecond := m.sends("c2", "c4")
			eventually(t, "what begins beside a full path takes the idle one", over("c4", "r3"))
			contains(t, m.ok("balance"), "paths are chosen by load when traffic begins, and stay (choose: once)", "r1, r3, r5, r4", "used by others")
			endFirst()
			first := jsonOf[state](m, "balance")
			time.Sleep(6 * time.Second)
			if got := jsonOf[state](m, "balance"); !over("c4", "r3")() || got != first {
				t.Errorf("it has moved, when the shortest path was idle: %v, %v", first, got)
			}
			m.killDaemon()
			m.ok("resume")
			if got := jsonOf[state](m, "balance"); got.Choose != "once" {
				t.Errorf("after resume paths are chosen %q", got.Choose)
			}
			endSecond()
			eventually(t, "it takes the shortest path when it has ended", over("c4", "r2"))

			m.ok("apply", "--datapath", datapath, of("always"))
			contains(t, m.ok("balance"), "paths are chosen by load every period, by all traffic (choose: always)")
			endFirst = m.sends("c1", "c3")
			eventually(t, "a flow alone moves again and again", func() bool { return jsonOf[state](m, "balance").Moves >= first.Moves+5 })
			m.ok("apply", "--datapath", datapath, of("busy"))
			eventually(t, "it comes to rest", func() bool {
				first := jsonOf[state](m, "balance")
				time.Sleep(6 * time.Second)
				return jsonOf[state](m, "balance") == first
			})
			endFirst()
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
		})
	}
}

// TestSwitchPaths proves of balance: load between switches, on each datapath, that hosts reach each
// other over links outside the spanning tree; that no packet is lost or comes twice when that is
// turned on and off by apply, nor when the daemon dies and is resumed; that a link that fails is
// left, and taken again; that a host whose cable is moved to another switch is found there; and
// that without it the tree is used.
func TestSwitchPaths(t *testing.T) {
	t.Parallel()
	const ring = `
balance: load
nodes:
  s[1-4]: switch
  h[1-4]: host
links:
  - s1 -- s2
  - s2 -- s3
  - s3 -- s4
  - s4 -- s1
  - s1 -- h1
  - s2 -- h2
  - s3 -- h3
  - s4 -- h4
`
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			tree := m.file("tree.yaml", strings.Replace(ring, "balance: load", "", 1))
			load := m.file("load.yaml", ring)
			moved := m.file("moved.yaml", strings.Replace(ring, "s4 -- h4", "s2 -- h4", 1))
			direct := func(a, b, path string) func() bool {
				return func() bool { return strings.Contains(m.run("path", a, b).out, a+" → "+path+" → "+b+" ") }
			}
			m.up("--datapath", datapath, tree)
			m.pingAll(12)
			// The tree from s1 has one of s2–s3 and s3–s4.
			if direct("h2", "h3", "s2 → s3")() && direct("h3", "h4", "s3 → s4")() {
				t.Fatal("the default takes links outside the tree")
			}
			ping := m.stream("h3", "0.01", "10.0.0.4")
			m.ok("apply", "--datapath", datapath, load)
			for i, pair := range []string{"h1 h2", "h2 h3", "h3 h4", "h4 h1"} {
				a, b, _ := strings.Cut(pair, " ")
				path := "s" + string(rune('1'+i)) + " → s" + string(rune('1'+(i+1)%4))
				eventually(t, pair+" take their own link", direct(a, b, path))
				eventually(t, pair+" take their own link back", direct(b, a, path[len("s1 → "):]+" → "+path[:2]))
			}
			contains(t, m.ok("path", "h3", "h4"), "the controller's path to h4, a shortest one")
			ping.more(20)
			ping.unbroken("paths are turned on")
			m.pingAll(12)

			ping = m.stream("h3", "0.01", "10.0.0.4")
			m.killDaemon()
			m.ok("resume")
			ping.more(20)
			ping.unbroken("the death and the resumption")
			if !direct("h3", "h4", "s3 → s4")() {
				t.Error("after resume: ", m.ok("path", "h3", "h4"))
			}

			m.ok("link", "set", "s3-s4", "down")
			eventually(t, "the other way round is taken", direct("h3", "h4", "s3 → s2 → s1 → s4"))
			m.pingAll(12)
			m.ok("link", "set", "s3-s4", "up")
			eventually(t, "the link is taken again", direct("h3", "h4", "s3 → s4"))
			m.pingAll(12)

			m.ok("apply", "--datapath", datapath, moved)
			m.pingAll(12)
			eventually(t, "the host is found where it is now", direct("h3", "h4", "s3 → s2"))
			m.ok("apply", "--datapath", datapath, load)
			m.pingAll(12)
			eventually(t, "the host is found where it was", direct("h3", "h4", "s3 → s4"))

			ping = m.stream("h3", "0.01", "10.0.0.4")
			m.ok("apply", "--datapath", datapath, tree)
			ping.more(20)
			ping.unbroken("paths are turned off")
			m.pingAll(12)
			for _, s := range []string{"s1", "s2", "s3", "s4"} {
				if flows := m.ok("flows", s); strings.Contains(flows, "metadata") {
					t.Error("something of paths is left: ", flows)
				}
			}
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
		})
	}
}

// TestBalanceParts proves of balance per part and per flow, on each datapath that routing nodes
// have, for IPv4 and IPv6, TCP and UDP, with routes in advance and on demand: what goes from one
// subnet to another fills two paths at once; it goes on over one when the other fails, and takes
// both again; the daemon that resumes the lab does, too; a path that a user installs is taken by
// all of it; and per prefix, which apply sets, it takes one path and no entry of a part is left.
func TestBalanceParts(t *testing.T) {
	t.Parallel()
	const square = `
ipv6: auto
balance: {by: load, period: 1s, per: PER}
nodes:
  c[1-2]: host
  r[1-4]: router
links:
  - c1 -- r1
  - c2 -- r4
  - r1 -- r2: {bandwidth: 20mbit}
  - r2 -- r4: {bandwidth: 20mbit}
  - r1 -- r3: {bandwidth: 20mbit}
  - r3 -- r4: {bandwidth: 20mbit}
`
	senders := map[string][]string{"TCP": {"-4", "-P", "16"}, "UDP of IPv6": {"-6", "-P", "16", "-u", "-b", "4M", "-l", "1200"}}
	for _, c := range []struct{ datapath, per, sends, routing string }{
		{"embedded", "part", "TCP", "reactive"}, {"embedded", "flow", "UDP of IPv6", "proactive"},
		{"ovs", "part", "UDP of IPv6", "proactive"}, {"ovs", "flow", "TCP", "reactive"},
	} {
		t.Run(c.datapath+" "+c.per, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			of := func(per string) string { return "routing: " + c.routing + strings.Replace(square, "PER", per, 1) }
			m.up("--datapath", c.datapath, m.file("p.yaml", of(c.per)))
			m.pingAll(2)
			to := m.addressOf("c2", strings.Contains(c.sends, "IPv6"))
			end := m.sends("c1", "c2", senders[c.sends]...)
			type link struct {
				From, To        string
				Used, Bandwidth float64
			}
			full := func(want ...string) func() bool { // and the others are not
				return func() bool {
					got := map[string]bool{}
					for _, l := range jsonOf[struct{ Links []link }](m, "balance").Links {
						if l.From == "r1" && l.Used > 0.8*l.Bandwidth {
							got[l.To] = true
						}
					}
					return len(got) == len(want) && !slices.ContainsFunc(want, func(r string) bool { return !got[r] })
				}
			}
			both := full("r2", "r3")
			eventually(t, "two paths fill up", both)
			name := map[string]string{"part": "/16 ", "flow": " → "}[c.per]
			contains(t, m.ok("balance"), "used by others", strings.ToLower(c.sends[:3])+" ", name)
			contains(t, m.ok("path", "c1", to), "on other paths: trivet balance")

			m.ok("link", "set", "r2-r4", "down")
			eventually(t, "the other path has it all", full("r3"))
			m.ok("link", "set", "r2-r4", "up")
			eventually(t, "two paths fill up again", both)
			m.killDaemon()
			m.ok("resume")
			eventually(t, "two paths fill up after resume", both)

			m.ok("balance", to, "--install", "r1,r3,r4")
			eventually(t, "all takes the path of the user's", full("r3"))
			m.ok("balance", to, "--take-back")
			eventually(t, "two paths fill up once it is taken back", both)

			m.ok("apply", "--datapath", c.datapath, m.file("whole.yaml", of("prefix")))
			eventually(t, "per prefix one path is taken", func() bool { return full("r2")() || full("r3")() })
			for _, r := range []string{"r1", "r2", "r3"} {
				if flows := m.ok("flows", r); strings.Contains(flows, "tp_src") || strings.Contains(flows, "CONTROLLER:128") {
					t.Errorf("entries of parts are left in %s:\n%s", r, flows)
				}
			}
			end()
			m.pingAll(2)
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
		})
	}
}
