package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRoutingNodes proves that labs of routing nodes come up so that every host reaches every other
// at the first try, over IPv4 and IPv6, and that nothing of them is left.
func TestRoutingNodes(t *testing.T) {
	t.Parallel()
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

// TestRoutersAnswer proves that routing nodes are routers to those who ask: traceroute shows each
// of ten in order, they answer to ping on any of their addresses, refuse TCP and UDP, and say what
// cannot be reached.
func TestRoutersAnswer(t *testing.T) {
	m := newMachine(t)
	m.up("linear,10", "--nodes", "router", "--ipv6", "assigned")
	trace := func(args string) []string {
		var hops []string
		for line := range strings.Lines(m.exec("h1", "traceroute -n -q 1 -w 20 "+args)) {
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
	m.exec("h1", "ping -c 1 -W 30 10.0.10.1 && ping -c 1 -W 30 172.16.0.1 && ping -6 -c 1 -W 30 $(ip -6 route show default | awk '{print $3}')")
	for _, group := range []string{"224.0.0.1", "224.0.0.2", "ff02::1", "ff02::2"} {
		contains(t, m.exec("h1", "ping -c 1 -W 30 -I h1-eth0 "+group), "1 received")
	}
	m.exec("h1", "traceroute -n -q 1 -w 20 -p 40000 172.16.0.2 | tail -1 | grep -w 172.16.0.2") // UDP: port unreachable
	contains(t, m.exec("h1", "python3 -c 'import socket; socket.create_connection((\"10.0.5.1\", 80), 60)' 2>&1 || true"), "ConnectionRefused")
	contains(t, m.exec("h1", "ping -c 1 -W 30 203.0.113.1 || true"), "Destination Net Unreachable")
	contains(t, m.exec("h1", "ping -c 1 -W 30 10.0.10.77 || true"), "Destination Host Unreachable")
}

// TestReroute proves that routing nodes go round a link that fails under traffic: packets are lost
// once, between the failure and the other way, none is doubled or reordered, and none has gone in
// circles: each that arrives has a TTL of one of the two ways.
func TestReroute(t *testing.T) {
	m := newMachine(t)
	m.up("ring,6", "--nodes", "router")
	m.pingAll(30)
	ping := m.stream("h1", "0.002", "10.0.3.2")
	ping.until("61") // 3 routers between them
	m.ok("link", "set", "r1-r2", "down")
	ping.until("59") // or, round the ring, 5; the answer starts with 64
	ping.more(300)
	missing, ttls := ping.end()
	if len(ttls) != 2 {
		t.Errorf("TTLs %v, want 61 before and 59 after", ttls)
	}
	if n := len(missing); n > 0 && missing[n-1]-missing[0] >= n {
		t.Errorf("pings %v were lost, not only those between the failure and the other way", missing)
	}
	m.ok("link", "set", "r1-r2", "up")
	m.pingAll(30)
}

// TestReactive proves that where routes come with the first packet, none of a stream's packets is
// lost or doubled while its route is installed; and that at each of the two entries on its way, for
// the route and for the host at its end, one is overtaken at the most: docs/routing.md.
func TestReactive(t *testing.T) {
	m := newMachine(t)
	m.up(m.file("reactive.yaml", `
routing: reactive
nodes: {"r[1-4]": router, "h[1-4]": host}
links: ["r[1-4] -- h[1-4]", r1 -- r2 -- r3 -- r4]
`))
	script := m.file("udp.py", `
import os, socket, struct, sys, time
came = os.path.dirname(__file__) + "/came" # a byte for each packet: the sender keeps less on the way than a route that is awaited lets wait
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == "recv":
    s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20) # SO_RCVBUFFORCE
    s.bind(("", 9999)); s.settimeout(60); seen = []
    count = open(came, "wb", buffering=0)
    print("ready", flush=True)
    try:
        while True:
            seen.append(struct.unpack("!I", s.recv(100)[:4])[0]); count.write(b".")
            if seen[-1] == 999: s.settimeout(1)
    except TimeoutError: pass
    print(len(seen), len(set(seen)), [pair for pair in zip(seen, seen[1:]) if pair[0] > pair[1]])
else:
    os.sched_setaffinity(0, {0}) # packets of two processors may overtake each other
    for i in range(1000):
        time.sleep(0.0005)
        end = time.monotonic() + 60
        while i - os.path.getsize(came) > 128 and time.monotonic() < end: time.sleep(0.001)
        s.sendto(struct.pack("!I", i) + b"x" * 60, (sys.argv[2], 9999))
`)
	receiver := m.command(trivet, "exec", "-n", "h4", "--", "python3", script, "recv")
	received := m.startOutput(receiver)
	received.waitFor(t, "ready")
	m.exec("h1", "python3 "+script+" send 10.0.4.2")
	if wait(t, receiver); !strings.Contains(received.String(), "1000 1000 [") || strings.Count(received.String(), "(") > 2 {
		t.Errorf("received, different, reordered: %q, want 1000 1000 []", received)
	}
	m.pingAll(12)
}

// TestControllerRestart proves that routers and switches forward on while their controller is
// killed and comes back: a ping over them loses nothing, no entry is installed anew that was right
// already, and hosts that have not spoken yet are reached.
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
	controller := m.brain(6680, file)
	m.up(file)
	healthy := func(a, b string) {
		t.Helper()
		eventually(t, a+" reaches "+b, func() bool { return m.run("ping", a, b, "-c", "1", "--timeout", "1s").code == 0 })
	}
	healthy("h1", "h2")
	healthy("h1", "h3")
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
	for again := 3; ; again-- {
		ping, stalls := m.stream("h1", "0.02", "10.0.3.2"), m.stalls()
		controller.kill()
		ping.more(50)
		controller.start()
		healthy("h4", "h6")
		ping.more(50)
		if missing, _ := ping.end(); len(missing) == 0 {
			break
		} else if again == 1 || m.stalls() == stalls { // else the machine had no time for Open vSwitch, which forwards in user space
			t.Fatalf("through the controller's restart, pings %v were lost", missing)
		}
	}
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
