package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// figure is the file of the network of figure 10.
const figure = "ospf-figure-10.yaml"

// TestFigure10 proves by the example that a network of routing nodes and one of FRR exchange their
// routes by OSPF, as in figures 10 to 12 of "Routing emulation": traceroute shows the way among
// routing nodes, and on through the other network.
func TestFigure10(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withDaemons()
			text := m.sh("cat " + example(figure))
			m.up(m.file("net.yaml", "datapath: "+datapath+"\n"+text))
			eventually(t, "r4 and r6 are neighbours", func() bool { return m.full()["r4 r6"] })
			m.pingAll(6)
			if got := strings.Join(m.trace("vm1", "192.168.6.3"), " "); got != "192.168.1.1 192.168.3.3 192.168.5.5 192.168.6.3" {
				t.Errorf("figure 11: the way is %s", got)
			}
			if got := strings.Join(m.trace("vm1", "10.1.9.3"), " "); got != "192.168.1.1 192.168.2.2 192.168.4.4 192.168.7.6 10.1.8.7 10.1.9.3" {
				t.Errorf("figure 12: the way is %s", got)
			}
			contains(t, m.exec("r7", "ip route"), "192.168.6.0/24 via 10.1.8.6")
			contains(t, m.ok("routes", "r1"), "10.1.9.0/24")

			pcap := filepath.Join(m.dir, "ospf.pcap")
			m.ok("ospf", "capture", "r4", "-w", pcap)
			if _, err := exec.LookPath("tshark"); err != nil {
				t.Skip(err)
			}
			contains(t, m.sh("tshark -r "+pcap+" 2>/dev/null"), "Hello Packet", "DB Description", "LS Request", "LS Update", "LS Acknowledge")
		})
	}
}

// TestAttack proves by the example what figure 13 of "Routing emulation" shows: a host poses as a
// neighbour of a routing node, is seen as one, and draws traffic to itself, of hosts elsewhere too;
// when it falls silent traffic goes as before. A router in whose name it speaks takes its LSA back.
// Where packets are authenticated the same program achieves nothing, and is counted.
func TestAttack(t *testing.T) {
	if r := exec.Command("/usr/bin/python3", "-c", "import scapy"); r.Run() != nil {
		t.Skip("needs the Debian package python3-scapy")
	}
	t.Parallel()
	m := newMachine(t)
	quicker := func(name string) string {
		text := m.sh("cat " + example("attack/"+name))
		return m.file("attack.yaml", strings.Replace(text, "dead: 8s", "dead: 4s", 1))
	}
	m.up(quicker("attack.yaml"))
	m.pingAll(6)
	way := func(want string) func() bool {
		return func() bool {
			hops := m.trace("alice", "10.0.2.2")
			return len(hops) == 3 && hops[1] == want
		}
	}
	const byR2, byR3 = "172.16.0.2", "172.16.0.10"
	patiently(t, "alice's way to bob is by r2", way(byR2))
	events := m.watchEvents()

	m.exec("mallory", "ip addr add 10.0.2.2/32 dev lo")
	stop := m.attack("network 10.0.2.2/32")
	m.t.Cleanup(func() {
		if t.Failed() {
			t.Log(m.run("ospf", "neighbors").out, m.run("ospf", "database").out, m.run("ospf", "interfaces", "r3").out)
		}
	})
	patiently(t, "alice's packets go to mallory", way(byR3))
	patiently(t, "mallory is a neighbour, and all believe what it says", func() bool { // it may have been away for a moment
		database, routes := m.ok("ospf", "database"), m.ok("routes", "r2")
		return m.full()["r3 mallory"] && strings.Contains(database, "192.0.2.66") && strings.Contains(database, "10.0.2.2/32 1") &&
			strings.Contains(routes, "10.0.2.2/32") // though bob is beside it
	})
	stop()
	patiently(t, "alice's packets go to bob again", way(byR2))
	m.exec("mallory", "ip addr del 10.0.2.2/32 dev lo")
	m.pingAll(6)
	for _, word := range []string{`"neighbor":"192.0.2.66"`, `"to":"Full"`, `"to":"Down"`, "event: ospf_neighbor", "event: ospf_run", "event: rerouted"} {
		patiently(t, "the stream of events has "+word, func() bool { return strings.Contains(events(), word) })
	}

	stop = m.attack("external 0.0.0.0/0")
	patiently(t, "r1 has a default route", func() bool { return strings.Contains(m.ok("routes", "r1"), "0.0.0.0/0") })
	stop()

	stop = m.attack("disguise 192.0.2.2")
	patiently(t, "r2 outdoes an LSA in its name", func() bool { // whose sequence number is far above r2's own
		for line := range strings.Lines(m.ok("ospf", "database")) {
			if f := strings.Fields(line); len(f) > 7 && f[1] == "router" && f[2] == "192.0.2.2" && f[7] > "0x80001000" && strings.Contains(line, "10.0.2.0/24") {
				return true
			}
		}
		return false
	})
	stop()
	patiently(t, "all hosts reach each other", func() bool { return m.run("ping", "--all").code == 0 })

	m.ok("apply", quicker("authenticated.yaml"))
	stop = m.attack("network 10.0.2.2/32")
	patiently(t, "packets without the key are refused", func() bool { return strings.Contains(m.ok("ospf", "interfaces", "r3"), "authentication type 0") })
	time.Sleep(2 * time.Second) // in which it says Hello again
	for _, n := range jsonOf[[]ospfNeighbor](m, "ospf", "neighbors") {
		if n.Neighbor == "mallory" && n.State != "Down" {
			t.Error("without the key mallory is a neighbour: ", n)
		}
	}
	contains(t, m.ok("ospf", "neighbors"), "r3-eth2 hears 10.0.3.2 with authentication type none, here cryptographic: ")
	if text := m.ok("routes", "r1"); strings.Contains(text, "192.0.2.66") || strings.Contains(text, "10.0.2.2/32") {
		t.Error("without the key mallory is heard: ", text)
	}
	stop()
	patiently(t, "alice's packets go to bob", way(byR2))
}

// TestFigure13 proves by the example that an instance becomes a neighbour of the border router of
// figure 13, and that the router beyond has the network which it announces: on each datapath of
// routing nodes, and with real routers in their place.
func TestFigure13(t *testing.T) {
	t.Parallel()
	if r := exec.Command("/usr/bin/python3", "-c", "import scapy"); r.Run() != nil {
		t.Skip("needs the Debian package python3-scapy")
	}
	for _, datapath := range []string{"embedded", "ovs", "frr"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withDaemons()
			m.up("--datapath", datapath, example("attack/figure-13.yaml"))
			patiently(t, "the two reach each other", func() bool { return m.run("ping", "--all").code == 0 })
			defer m.attackFrom("vm1", "network 10.99.0.0/24")()
			neighbors, routes := func() string { return m.ok("ospf", "neighbors") }, func() string { return m.ok("routes", "r1") }
			if datapath == "frr" {
				neighbors, routes = func() string { return m.exec("br-r3", "vtysh -c 'show ip ospf neighbor'") }, func() string { return m.exec("r1", "ip route") }
			}
			patiently(t, "vm1 is a neighbour", func() bool {
				for line := range strings.Lines(neighbors()) {
					if strings.Contains(line, "192.168.3.3") && strings.Contains(line, "Full") {
						return true
					}
				}
				return false
			})
			patiently(t, "r1 believes it", func() bool { return strings.Contains(routes(), "10.99.0.0/24") })
		})
	}
}

// patiently waits as eventually does, for what takes a Python program and OSPF's timers their time.
func patiently(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(4 * time.Minute); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("this does not come true: ", what)
		}
	}
}

// attack runs the example's program in mallory until stop is called.
func (m *machine) attack(args string) (stop func()) { return m.attackFrom("mallory", args) }

func (m *machine) attackFrom(node, args string) (stop func()) {
	m.t.Helper()
	program := filepath.Join(filepath.Dir(example("attack/neighbor.py")), "neighbor.py")
	log := m.file("attack.log", "")
	pid := m.exec(node, "/usr/bin/python3 "+program+" "+args+" </dev/null >"+log+" 2>&1 & echo $!")
	return func() {
		text, _ := os.ReadFile(log)
		m.t.Logf("%s:\n%s", args, text)
		m.exec(node, "kill "+pid)
	}
}

// watchEvents reads the controller's stream of events from now on; what is returned tells what has
// come.
func (m *machine) watchEvents() func() string {
	m.t.Helper()
	socket := fmt.Sprintf("/proc/%d/root/run/trivet/%s/daemon.sock", m.init.Process.Pid, m.name)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	r, err := client.Get("http://lab/v1/controller/events")
	must(m.t, err)
	m.t.Cleanup(func() { r.Body.Close() })
	var mu sync.Mutex
	var text strings.Builder
	go func() {
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			mu.Lock()
			text.WriteString(lines.Text() + "\n")
			mu.Unlock()
		}
	}()
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}
