package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/topology"
)

// ospfNeighbor is what trivet ospf neighbors --json lists.
type ospfNeighbor struct {
	Router, Neighbor, Interface, State string
	RouterID                           string `json:"router_id"`
}

// full lists the neighbours that are Full, as "router neighbor".
func (m *machine) full() map[string]bool {
	m.t.Helper()
	out := map[string]bool{}
	for _, n := range jsonOf[[]ospfNeighbor](m, "ospf", "neighbors") {
		if n.State == "Full" {
			out[n.Router+" "+n.Neighbor] = true
		}
	}
	return out
}

// trace returns the addresses on the way from a node.
func (m *machine) trace(from, to string) (hops []string) {
	m.t.Helper()
	for line := range strings.Lines(m.exec(from, "traceroute -I -n -q 1 -w 20 "+to)) {
		if words := strings.Fields(line); words[0] != "traceroute" {
			hops = append(hops, words[1])
		}
	}
	return hops
}

// TestOSPFRing proves that routing nodes that speak OSPF reach each other at the first try after
// up; that a link that fails is gone round when the command returns, and used again when it is up;
// and that each is a router of its own in the one database.
func TestOSPFRing(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up(m.file("ring.yaml", `
nodes: {"r[1-6]": {router: {ospf: area 0}}, "h[1-6]": host}
links: ["r[1-6] -- h[1-6]", r1 -- r2 -- r3 -- r4 -- r5 -- r6 -- r1]
`), "--datapath", datapath, "--ipv6", "assigned")
			m.pingAll(30)
			m.pingAll(30, "-6") // which OSPF version 2 knows nothing of
			if full := m.full(); len(full) != 12 || !full["r1 r6"] {
				t.Errorf("%d of 12 neighbours are Full: %v", len(full), full)
			}
			contains(t, m.ok("routes", "r1"), "ospf")
			if got := fmt.Sprint(m.trace("h1", "h3")); got != "[10.0.1.1 172.16.0.2 172.16.0.6 10.0.3.2]" {
				t.Errorf("the way is %s", got)
			}
			m.ok("link", "set", "r1-r2", "down")
			m.pingAll(30)
			if got := len(m.trace("h1", "h3")); got != 6 {
				t.Errorf("the way round has %d hops, not 6", got)
			}
			m.ok("link", "set", "r1-r2", "up")
			if got := len(m.trace("h1", "h3")); got != 4 {
				t.Errorf("the way has %d hops again, not 4", got)
			}
			contains(t, m.ok("ospf", "spf-log", "r4"), "r1-eth")
			lsas := jsonOf[[]struct{ Type, Router, Content string }](m, "ospf", "database")
			if len(lsas) != 6 || lsas[0].Type != "router" || !strings.Contains(lsas[0].Content, "r2 1") {
				t.Errorf("the database is %+v", lsas)
			}
			r := m.want(1, "ospf", "routes", "r7")
			contains(t, r.err, `there is no router "r7"`)
		})
	}
}

// TestOSPFSwitched proves that routing nodes on a switch with a host at it find each other by
// packets over the switch, elect a designated router, and carry traffic.
func TestOSPFSwitched(t *testing.T) {
	m := newMachine(t)
	m.up(m.file("switched.yaml", `
nodes: {"r[1-3]": {router: {ospf: area 0}}, "h[1-3]": host, s1: switch, h9: host}
links:
  - r[1-3] -- h[1-3]
  - r[1-3] -- s1: {ospf: {hello: 1s, dead: 4s}}
  - s1 -- h9
`))
	eventually(t, "all three routers are Full", func() bool { return len(m.full()) == 6 })
	eventually(t, "r1 has the network behind r3", func() bool {
		return strings.Contains(m.ok("routes", "r1"), "10.0.3.0/24")
	})
	eventually(t, "hosts reach each other", func() bool { return m.run("exec", "-n", "h1", "--", "ping", "-c", "1", "-W", "1", "h3").code == 0 })
	states := map[string]int{}
	for _, i := range jsonOf[[]struct {
		State  string
		Inside bool
	}](m, "ospf", "interfaces") {
		states[i.State]++
		if i.Inside {
			t.Errorf("interface %+v", i)
		}
	}
	if states["DR"] != 1 || states["Backup"] != 1 {
		t.Errorf("interfaces are in states %v", states)
	}
}

// TestOSPFWithFRR proves by the example that FRR takes routing nodes for its own kind: it becomes
// Full with them, hosts behind both reach each other, a link that fails between them is gone round.
// A router that is added by apply is known to FRR, and no adjacency has begun anew for it. A
// controller that starts anew is Full again.
func TestOSPFWithFRR(t *testing.T) {
	t.Parallel()
	if _, err := routerd.Of(topology.FRR).Path("ospfd"); err != nil {
		t.Skip(err)
	}
	text, err := os.ReadFile(example("ospf-with-frr.yaml"))
	must(t, err)
	for _, datapath := range []string{"ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			// Only what the file leaves open: a datapath on the command line would be FRR's as
			// well.
			file := m.file("net.yaml", "datapath: "+datapath+"\n"+string(text))
			m.up(file)
			eventually(t, "FRR is Full with two routing nodes", func() bool {
				f := m.full()
				return f["r1 frr"] && f["r3 frr"]
			})
			m.pingAll(12)
			contains(t, m.exec("frr", "vtysh -c 'show ip ospf database router'"), "Link State ID: 192.0.2.2")
			contains(t, m.ok("ospf", "neighbors", "frr"), "r1 ", "192.0.2.1", "Full ")
			if got := len(m.trace("h1", "h4")); got != 3 {
				t.Errorf("the way to FRR's host has %d hops, not 3", got)
			}
			m.ok("link", "set", "frr-r1", "down")
			eventually(t, "traffic goes round", func() bool {
				return m.run("exec", "-n", "h1", "--", "ping", "-c", "1", "-W", "1", "h4").code == 0 && len(m.trace("h1", "h4")) == 5
			})
			m.ok("link", "set", "frr-r1", "up")
			eventually(t, "traffic is back", func() bool { return m.full()["r1 frr"] && len(m.trace("h1", "h4")) == 3 })

			before := m.descriptions("r3")
			more := strings.Replace(string(text), "r3: {router", "r5: {router: {ospf: area 0, loopback: 192.0.2.5}}\n  r3: {router", 1)
			must(t, os.WriteFile(file, []byte("datapath: "+datapath+"\n"+more+"  - r2 -- r5\n"), 0o644))
			m.ok("apply", file)
			eventually(t, "FRR knows the router that was added", func() bool {
				return strings.Contains(m.exec("frr", "ip route"), "192.0.2.5")
			})
			m.exec("frr", "ping -c 1 -W 30 192.0.2.5")
			if after := m.descriptions("r3"); after != before || before == 0 {
				t.Errorf("r3 had sent %d Database Descriptions before a router was added, and %d after", before, after)
			}

			pcap := filepath.Join(m.dir, "ospf.pcap")
			m.ok("ospf", "capture", "r1", "-w", pcap)
			contains(t, m.sh("tcpdump -nvr "+pcap+" 2>/dev/null"), "tos 0xc0, ttl 1", "Hello", "Database Description", "LS-Update")

			m.killDaemon()                                        // and with it the controller, with all that it knew of FRR
			if r := m.run("resume"); r.code != 0 && r.code != 4 { // 4: up, and OSPF has not converged yet
				t.Errorf("resume: %s%s", r.out, r.err)
			}
			eventually(t, "FRR is Full again with the controller's successor", func() bool {
				f := m.full()
				return f["r1 frr"] && f["r3 frr"]
			})
			eventually(t, "traffic flows the short way again", func() bool {
				return m.run("ping", "--all", "--timeout", "1s").code == 0 && len(m.trace("h1", "h4")) == 3
			})
		})
	}
}

// descriptions counts the Database Description packets that a router has sent.
func (m *machine) descriptions(router string) (count int) {
	m.t.Helper()
	for _, i := range jsonOf[[]struct{ Sent map[string]int }](m, "ospf", "interfaces", router) {
		count += i.Sent["Database Description"]
	}
	return count
}

// TestOSPFControllerRestart proves that routing nodes that speak OSPF forward on while their
// controller is killed and comes back: routes to each other, and to what one of them redistributes,
// are not taken out until OSPF has them again.
func TestOSPFControllerRestart(t *testing.T) {
	m := newMachine(t)
	// The same network for both: a lab does not ask routers of another controller for OSPF.
	const network = `
nodes: {"r[1-3]": {router: {datapath: ovs%s}}, r4: {router: {datapath: ovs%s}}, s1: switch, "h[1-4]": host}
links: [r1 -- s1 -- h1, "r[2-3] -- h[2-3]", r4 -- h4: {ospf: off}, r1 -- r2 -- r3 -- r4]
`
	file := m.file("lab.yaml", "controller: \"tcp:127.0.0.1:6681\"\n"+fmt.Sprintf(network, "", ""))
	brain := m.file("controller.yaml", fmt.Sprintf(network, ", ospf: area 0", ", ospf: {area: 0, redistribute: [connected]}"))
	controller := m.brain(6681, brain)
	m.up(file)
	eventually(t, "all hosts reach each other", func() bool { return m.run("ping", "--all", "--timeout", "1s").code == 0 })
	ping := m.stream("h1", "0.02", "10.0.4.2")
	controller.kill()
	ping.more(50)
	controller.start()
	ping.more(250) // five seconds, in which routers find each other again
	ping.unbroken("the controller's restart")
}

// TestAreaRangeDrops proves that a border router drops what goes to a part of its area range that
// nobody has, where it would go in a circle between it and the router whose default route it
// follows: nothing comes back, no TTL has expired anywhere, the flow table has the entry, also
// where routes are installed on demand; what is there is reached.
func TestAreaRangeDrops(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"proactive", "reactive"} {
		t.Run(routing, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up(m.file("range.yaml", `
routing: `+routing+`
nodes:
  r1: {router: {ospf: {area: 0, redistribute: [default]}}}
  r2: {router: {ospf: {area: 0, areas: {1: {ranges: [10.1.0.0/16]}}}}}
  r3: {router: {ospf: area 1}}
  h[1-3]: host
links:
  - r1 -- r2
  - r2 -- r3: {ospf: area 1}
  - [r1 -- h1, r2 -- h2]
  - r3 -- h3: {from: {address: 10.1.5.1/24}, to: {address: 10.1.5.2/24}}
`))
			m.twice("h1", "10.1.5.2")
			contains(t, m.ok("routes", "r1"), "10.1.0.0/16")
			contains(t, m.ok("routes", "r2"), "0.0.0.0/0", "10.1.0.0/16 ", "drop")
			for _, from := range []string{"h1", "h2", "h3"} {
				out := m.exec(from, "ping -n -t 30 -c 3 -W 2 10.1.99.9 || true")
				contains(t, out, "100% packet loss")
				if strings.Contains(out, "exceeded") || strings.Contains(out, "From ") {
					t.Errorf("%s hears of an address that nobody has:\n%s", from, out)
				}
			}
			entry := map[string]string{"proactive": "nw_dst=10.1.0.0/16", "reactive": "nw_dst=10.1.99.9"}[routing]
			dropped := false
			for line := range strings.Lines(m.ok("flows", "r2")) {
				dropped = dropped || strings.Contains(line, entry) && strings.Contains(line, "drop")
			}
			if !dropped {
				t.Errorf("r2 has no entry that drops %s:\n%s", entry, m.ok("flows", "r2"))
			}
			m.twice("h1", "10.1.5.2")
			contains(t, m.want(3, "path", "h1", "10.1.99.9").out, "r2", "drop")
		})
	}
}

// TestOSPFLargerThanMTU proves that OSPF packets larger than the MTU go both ways in fragments: FRR
// and BIRD become Full with a router of 60 neighbours and one of 130 loopback addresses, and so do
// routing nodes with an FRR that has as many; and each has a route to all of them.
func TestOSPFLargerThanMTU(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	loopbacks := func(net int) string {
		var list []string
		for i := range 130 {
			list = append(list, fmt.Sprintf("10.200.%d.%d", net, i+1))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	m.up(m.file("large.yaml", `
defaults: {link: {ospf: {hello: 1s, dead: 4s}}}
nodes:
  hub: {router: {ospf: area 0}}
  "r[1-60]": {router: {ospf: area 0}}
  many: {router: {ospf: {area: 0, router_id: 9.0.0.1}, loopback: `+loopbacks(1)+`}}
  frr: {router: {ospf: {area: 0, router_id: 9.0.0.2}, datapath: frr, loopback: `+loopbacks(2)+`}}
  bird: {router: {ospf: {area: 0, router_id: 9.0.0.3}, datapath: bird}}
links: ["hub -- r[1-60]", hub -- many, hub -- frr, many -- frr, many -- bird, hub -- bird]
`))
	eventually(t, "all are Full", func() bool {
		f := m.full()
		return f["hub frr"] && f["many frr"] && f["hub bird"] && f["many bird"]
	})
	count := func(text, what string) int { return strings.Count(text, what) }
	for node, command := range map[string]string{"frr": "ip route", "bird": "ip route"} {
		eventually(t, node+" has routes to everything", func() bool {
			routes := m.exec(node, command)
			return count(routes, "172.16.") >= 60 && count(routes, "10.200.1.") == 130 && (node == "frr" || count(routes, "10.200.2.") == 130)
		})
	}
	eventually(t, "a routing node has routes to everything", func() bool {
		routes := m.ok("routes", "r60")
		return count(routes, "10.200.1.") >= 130 && count(routes, "10.200.2.") >= 130
	})
	m.exec("frr", "ping -c 1 -W 20 10.200.1.130")
	m.exec("bird", "ping -c 1 -W 20 10.200.2.130")
}
