package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestRoutingNodes proves that labs of routing nodes come up so that every host reaches every other
// at the first try, over IPv4 and IPv6, and that nothing of them is left.
func TestRoutingNodes(t *testing.T) {
	for _, c := range []struct {
		what  string
		hosts int
		flags string
	}{
		{"linear,10", 10, "--datapath ovs"}, {"ring,6", 6, "--datapath ovs"}, {"tree,2,3", 9, "--datapath ovs"}, {"fat-tree,4", 8, "--datapath ovs"}, {"mesh,5", 5, "--datapath ovs"},
		{"linear,10", 10, "--datapath embedded"}, {"tree,2,3", 9, "--datapath embedded"}, {"fat-tree,4", 8, "--datapath embedded"},
	} {
		t.Run(c.what+" "+c.flags, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			m.up(append([]string{c.what, "--nodes", "router", "--ipv6", "assigned"}, strings.Fields(c.flags)...)...)
			m.pingAll(c.hosts * (c.hosts - 1))
			m.pingAll(c.hosts*(c.hosts-1), "-6")
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
		})
	}
}

// TestRoutersAnswer proves that routing nodes are routers to those who ask: traceroute shows each of
// ten in order, they answer to ping on any of their addresses, refuse TCP and UDP, and say what cannot be reached.
func TestRoutersAnswer(t *testing.T) {
	m := newMachine(t)
	m.up("linear,10", "--nodes", "router", "--ipv6", "assigned")
	trace := func(args string) []string {
		var hops []string
		for line := range strings.Lines(m.exec("h1", "traceroute -n -q 1 -w 2 "+args)) {
			if words := strings.Fields(line); words[0] != "traceroute" {
				hops = append(hops, words[1])
			}
		}
		return hops
	}
	want := []string{"10.0.1.1"}
	for i := range 9 {
		want = append(want, fmt.Sprintf("172.16.0.%d", 4*i+2))
	}
	if got := trace("10.0.10.2"); fmt.Sprint(got) != fmt.Sprint(append(want, "10.0.10.2")) {
		t.Errorf("traceroute shows %v, want %v and the host", got, want)
	}
	if got := trace("-6 h10"); len(got) != 11 {
		t.Errorf("traceroute over IPv6 shows %v", got)
	}
	m.exec("h1", "ping -c 1 -W 2 10.0.10.1 && ping -c 1 -W 2 172.16.0.1 && ping -6 -c 1 -W 2 $(ip -6 route show default | awk '{print $3}')")
	m.exec("h1", "traceroute -n -q 1 -w 2 -p 40000 172.16.0.2 | tail -1 | grep -w 172.16.0.2") // UDP: port unreachable
	contains(t, m.exec("h1", "python3 -c 'import socket; socket.create_connection((\"10.0.5.1\", 80), 2)' 2>&1 || true"), "ConnectionRefused")
	contains(t, m.exec("h1", "ping -c 1 -W 2 203.0.113.1 || true"), "Destination Net Unreachable")
	contains(t, m.exec("h1", "ping -c 1 -W 3 10.0.10.77 || true"), "Destination Host Unreachable")
}

// TestReroute proves that routing nodes go round a link that fails under traffic: packets are lost for
// a short time only, none is doubled or reordered, and none has gone in circles: each that arrives has
// a TTL of one of the two ways.
func TestReroute(t *testing.T) {
	m := newMachine(t)
	m.up("ring,6", "--nodes", "router")
	m.pingAll(30)
	out := filepath.Join(m.dir, "ping.txt")
	done := make(chan string, 1)
	go func() {
		done <- m.run("exec", "-n", "h1", "--", "sh", "-c", "ping -n -i 0.002 -c 1500 10.0.3.2 > "+out+" 2>&1; true").err
	}()
	time.Sleep(time.Second)
	m.ok("link", "set", "r1-r2", "down")
	<-done
	text, err := os.ReadFile(out)
	must(t, err)
	replies := regexp.MustCompile(`icmp_seq=(\d+) ttl=(\d+)`).FindAllStringSubmatch(string(text), -1)
	ttls := map[string]int{}
	last := 0
	for _, r := range replies {
		var seq int
		fmt.Sscan(r[1], &seq)
		if seq <= last {
			t.Errorf("reply %d comes after %d", seq, last)
		}
		last = seq
		ttls[r[2]]++
	}
	// 3 routers between them, or, round the ring, 5; the reply starts with 64.
	if len(ttls) != 2 || ttls["61"] == 0 || ttls["59"] == 0 {
		t.Errorf("TTLs %v, want 61 before and 59 after", ttls)
	}
	if last != 1500 || len(replies) < 1300 {
		t.Errorf("%d of 1500 answered, the last is %d", len(replies), last)
	}
	m.ok("link", "set", "r1-r2", "up")
	m.pingAll(30)
}

// TestReactive proves that where routes come with the first packet, none of a stream's packets is
// lost, doubled or reordered while its route is installed.
func TestReactive(t *testing.T) {
	m := newMachine(t)
	m.up(m.file("reactive.yaml", `
routing: reactive
nodes: {"r[1-4]": router, "h[1-4]": host}
links: ["r[1-4] -- h[1-4]", r1 -- r2 -- r3 -- r4]
`))
	script := m.file("udp.py", `
import socket, struct, sys, time, collections
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == "recv":
    s.bind(("", 9999)); s.settimeout(3); seen = []
    print("ready", flush=True)
    try:
        while True: seen.append(struct.unpack("!I", s.recv(100)[:4])[0])
    except TimeoutError: pass
    print(len(seen), len(set(seen)), sum(a > b for a, b in zip(seen, seen[1:])))
else:
    start = time.perf_counter()
    for i in range(1000):
        while time.perf_counter() < start + i * 0.001: time.sleep(0)
        s.sendto(struct.pack("!I", i) + b"x" * 60, (sys.argv[2], 9999))
`)
	got := make(chan string, 1)
	go func() { got <- m.run("exec", "-n", "h4", "--", "python3", script, "recv").out }()
	time.Sleep(time.Second)
	m.exec("h1", "python3 "+script+" send 10.0.4.2")
	if r := <-got; !strings.Contains(r, "1000 1000 0") {
		t.Errorf("received, different, reordered: %q, want 1000 1000 0", r)
	}
	m.pingAll(12)
}

// TestControllerRestart proves that routers and switches forward on while their controller is killed and
// comes back: a ping over them loses nothing, no entry is installed anew that was right already, and hosts
// that have not spoken yet are reached within a second.
func TestControllerRestart(t *testing.T) {
	m := newMachine(t)
	file := m.file("restart.yaml", `
controller: "tcp:127.0.0.1:6680"
datapath: ovs
nodes:
  "r[1-3]": {router: {datapath: ovs}}
  "s[1-3]": switch
  "h[1-6]": host
links: [r1 -- r2 -- r3 -- r1, "r[1-3] -- s[1-3]", "s[1-3] -- h[1-3]", "s[1-3] -- h[4-6]"]
`)
	start := func() *exec.Cmd {
		c := m.command(trivet, "controller", "--listen", "tcp:127.0.0.1:6680", "--topology", file, "--database", filepath.Join(m.dir, "c.db"), "--api", "none")
		log, err := os.OpenFile(filepath.Join(m.dir, "controller.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		must(t, err)
		defer log.Close()
		c.Stdout, c.Stderr = log, log
		must(t, m.start(c))
		return c
	}
	controller := start()
	m.up(file)
	healthy := func(within time.Duration, args ...string) {
		t.Helper()
		for deadline := time.Now().Add(within); m.run(append([]string{"ping"}, args...)...).code != 0; {
			if time.Now().After(deadline) {
				text, _ := os.ReadFile(filepath.Join(m.dir, "controller.log"))
				t.Fatalf("%v is not answered within %s\n%s", args, within, text)
			}
		}
	}
	healthy(20*time.Second, "h1", "h2", "-c", "1", "--timeout", "1s")
	healthy(20*time.Second, "h1", "h3", "-c", "1", "--timeout", "1s")
	entries := func() map[string]string { // of all bridges, without counters and ages
		out := map[string]string{}
		sockets, err := filepath.Glob("/proc/" + fmt.Sprint(m.init.Process.Pid) + "/root/run/trivet/*/ovs/*.mgmt")
		must(t, err)
		for _, s := range sockets {
			text, err := exec.Command("ovs-ofctl", "-OOpenFlow13", "dump-flows", "unix:"+s).Output()
			must(t, err)
			for line := range strings.Lines(string(text)) {
				age := regexp.MustCompile(`duration=([0-9.]+)s`).FindStringSubmatch(line)
				if age != nil && strings.Contains(line, "0x74720003") {
					key := regexp.MustCompile(`(duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*, ?`).ReplaceAllString(line, "")
					out[filepath.Base(s)+" "+strings.TrimSpace(key)] = age[1]
				}
			}
		}
		return out
	}
	before := entries()
	if len(before) < 30 {
		t.Fatalf("%d entries of the routing app", len(before))
	}
	ping := make(chan string, 1)
	go func() {
		ping <- m.run("exec", "-n", "h1", "--", "sh", "-c", "ping -n -i 0.02 -c 400 10.0.3.2 | grep transmitted").out
	}()
	time.Sleep(time.Second)
	must(t, controller.Process.Kill())
	_ = controller.Wait()
	time.Sleep(time.Second)
	controller = start()
	returned := time.Now()
	t.Cleanup(func() { _ = controller.Process.Kill(); _ = controller.Wait() })
	healthy(10*time.Second, "h4", "h6", "-c", "1", "--timeout", "300ms")
	t.Logf("a new pair of hosts reach each other %s after the return", time.Since(returned).Round(time.Millisecond))
	contains(t, <-ping, "400 received")
	after := entries()
	for key, age := range before {
		var was, is float64
		fmt.Sscan(age, &was)
		if now, there := after[key]; !there {
			t.Errorf("gone: %s", key)
		} else if fmt.Sscan(now, &is); is < was {
			t.Errorf("installed anew: %s", key)
		}
	}
}
