package e2e

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// slewed is the least that a clock shows of the time that has passed, while it is being set
// (adjtimex(2): 500 ppm).
const slewed = 1 - 500e-6

// rtt is the least round trip time of a few pings, in milliseconds.
func (m *machine) rtt(a, b string) float64 {
	m.t.Helper()
	p := jsonOf[pings](m, "ping", a, b, "-c", "4", "-i", "20ms", "--timeout", "30s")
	return p.RTT.Min
}

// TestApplyMovesAddresses proves that neighbours know at once where an address is that another host
// has after apply: of two that swap theirs, one that is at another switch now, and one that is new.
func TestApplyMovesAddresses(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"bridge", "ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			file := func(hosts string) string {
				text := "ipv6: assigned\ndatapath: " + datapath + "\nnodes:\n  s[1-2]: switch\n"
				links := "links: [s1 -- s2"
				for i, h := range strings.Fields(hosts) {
					text += fmt.Sprintf("  %s: {host: {addresses: [10.0.0.%d/24, 'fd00::%d/64']}}\n", h, i+1, i+1)
					links += fmt.Sprintf(", %s -- s%d", h, 1+i%2)
				}
				return m.file("hosts.yaml", text+links+"]\n")
			}
			m.up(file("h1 h2 h3 h4"))
			m.pingAll(12)
			m.pingAll(12, "-6")
			for _, hosts := range []string{"h2 h1 h3 h4", "h2 h1 h4 h3", "h5 h1 h4 h3", "h1 h3 h4 h5"} {
				m.ok("apply", file(hosts))
				m.pingAll(12)
				m.pingAll(12, "-6")
			}
			m.ok("down")
			m.unchanged(before)
		})
	}
}

// TestApplyFailMode proves that apply follows what a switch does without a controller, in both
// directions and after a resume.
func TestApplyFailMode(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			file := func(mode string) string {
				return m.file(mode+".yaml", "nodes: {s1: {switch: {datapath: "+datapath+", controller: none, fail_mode: "+mode+"}}, h1: host, h2: host}\nlinks: [s1 -- h1, s1 -- h2]\n")
			}
			m.up(file("secure"), "--name", m.name)
			m.want(3, "ping", "h1", "h2", "-c", "1")
			forwards := func() bool { return m.run("ping", "h1", "h2").code == 0 } // Open vSwitch takes a moment
			m.ok("apply", file("standalone"))
			eventually(t, "it forwards", forwards)
			m.ok("apply", file("secure"))
			m.want(3, "ping", "h1", "h2", "-c", "1")
			m.kill("*_[_]daemon*")
			m.ok("resume")
			m.want(3, "ping", "h1", "h2", "-c", "1")
			m.ok("apply", file("standalone"))
			eventually(t, "it forwards again", forwards)
			m.ok("down")
		})
	}
}

// TestLinkSet proves that links change while the lab runs, whatever they are made of before and
// after: hosts keep addresses, routes and reachability.
func TestLinkSet(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"bridge", "ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up(m.file("l.yaml", fmt.Sprintf(`
datapath: %s
ipv6: assigned
nodes: {s1: switch, s2: switch, h1: host, h2: host, r1: {router: {datapath: kernel}}, h3: host}
links: [s1 -- h1, s2 -- h2, s1 -- s2, s2 -- r1, r1 -- h3]
`, datapath)))
			m.pingAll(6)
			for _, link := range []string{"s1-s2", "s1-h1", "r1-h3", "s2-r1"} {
				state := func() string {
					return m.exec("h1", "ip -br addr; ip route; ip -6 route | grep -v fe80") + m.exec("h3", "ip -br addr | grep -v fe80; ip route; ip -6 route | grep -v fe80") + m.exec("r1", "ip route; ip -6 route | grep -v fe80")
				}
				stateBefore := cut(state(), "@if")
				m.ok("link", "set", link, "delay=20ms")
				eventually(t, link+" has a delay of 20 ms, and no pings over it take long", func() bool {
					ms := m.rtt("h1", "h3")
					if ms < 40*slewed {
						t.Errorf("%s has a delay of 20 ms; a ping over it took %g ms", link, ms)
					}
					return ms <= 400
				})
				m.ok("link", "set", link, "delay=none", "bandwidth=50mbit")
				m.pingAll(6)
				m.ok("link", "set", link, "bandwidth=none")
				m.pingAll(6)
				m.pingAll(6, "-6")
				if now := cut(state(), "@if"); now != stateBefore {
					t.Errorf("%s was changed and changed back; before:\n%s\nafter:\n%s", link, stateBefore, now)
				}
				m.ok("link", "set", link, "down")
				if r := m.run("ping", "h1", "h3", "-c", "1", "--timeout", "300ms"); r.code != 3 {
					t.Errorf("%s is down, and a ping over it: %s", link, r)
				}
				m.ok("link", "set", link, "up")
				m.ok("ping", "h1", "h3", "-c", "1", "--timeout", "30s")
				m.pingAll(6)
				if now := cut(state(), "@if"); now != stateBefore {
					t.Errorf("%s was down and up; before:\n%s\nafter:\n%s", link, stateBefore, now)
				}
			}
			contains(t, m.want(1, "link", "set", "s1-h7", "down").err, "there is no link s1-h7")
			contains(t, m.want(1, "link", "set", "s1-s2", "dealy=3ms").err, "did you mean delay")
		})
	}
}

// cut removes what follows a mark up to the next blank: peers of veth devices have numbers that
// change.
func cut(text, mark string) string {
	words := strings.Split(text, mark)
	for i := range words[1:] {
		_, words[i+1], _ = strings.Cut(words[i+1], " ")
	}
	return strings.Join(words, " ")
}

// TestLinkOfRing proves that when a link of a ring goes down, the one that was kept out against
// loops takes over.
func TestLinkOfRing(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"bridge", "ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up("ring,4", "--datapath", datapath)
			for _, link := range []string{"s1-s2", "s2-s3", "s3-s4", "s4-s1"} {
				m.ok("link", "set", link, "down")
				m.pingAll(12)
				m.ok("link", "set", link, "up")
				m.pingAll(12)
			}
		})
	}
}

// TestSchedule proves that events happen at their times after up: links change, commands run.
func TestSchedule(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	start := time.Now()
	m.up(m.file("s.yaml", `
datapath: bridge
nodes: {s1: switch, h1: host, h2: host}
links: [s1 -- h1, s1 -- h2]
schedule:
  - at 1s: s1 -- h1 delay=30ms
  - at 1200ms: h2 run touch `+m.dir+`/happened
  - at 2s: s1 -- h2 down
`))
	r := m.run("ping", "h1", "h2", "-c", "4", "-i", "20ms", "--json")
	if time.Since(start) < time.Second { // a slow machine may come too late to see it
		var p pings
		if must(t, json.Unmarshal([]byte(r.out), &p)); r.code != 0 || p.RTT.Min > 30 {
			t.Error("the event at 1 s has happened early: ", r)
		}
	}
	down := func() bool { return strings.Contains(lineWith(m.ok("inspect"), "s1-h2"), "down") }
	eventually(t, "the link goes down at 2 s", down)
	// Where the machine stalls, events become due together.
	eventually(t, "the delay is set at 1 s", func() bool { return strings.Contains(lineWith(m.ok("inspect"), "s1-h1"), "30ms") })
	eventually(t, "the command runs at 1.2 s", func() bool {
		_, err := os.Stat(filepath.Join(m.dir, "happened"))
		return err == nil
	})
}

// TestSwaps proves that apply makes switches of each datapath, with the lab's controller and
// without one, of those of each other, and that hosts reach each other after it.
func TestSwaps(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	kinds := []string{"embedded, controller: trivet", "ovs, controller: trivet", "embedded, controller: none", "ovs, controller: none", "bridge, controller: none"}
	file := func(kind string) string {
		return m.file("swap.yaml", "nodes:\n  \"s[1-3]\": {switch: {datapath: "+kind+"}}\n  \"h[1-3]\": host\nlinks: [\"s[1-3] -- h[1-3]\", s1 -- s2 -- s3 -- s1]\n")
	}
	m.up(file(kinds[0]))
	for i, one := range kinds {
		for _, other := range kinds[i+1:] { // both ways between the two, and over to the next
			for _, kind := range []string{one, other, one} {
				m.ok("apply", file(kind))
				m.pingAll(6)
			}
		}
	}
	m.ok("down")
}

func lineWith(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			return line
		}
	}
	return ""
}

// TestApply proves that an edited file changes the lab by just the difference: first only said,
// then done, with everything else left alone (a device's counters go on counting).
func TestApply(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	text := "datapath: bridge\nnodes:\n  s[1-2]: switch\n  h[1-3]: host\nlinks:\n  - s1 -- h1\n  - s1 -- h2\n  - s2 -- h3\n  - s1 -- s2\n"
	file := m.file("a.yaml", text)
	m.up(file)
	m.pingAll(6)
	identity := func() string { // a device that is made anew has another number in its namespace, or fewer packets
		return m.exec("h1", "readlink /proc/self/ns/net; cat /sys/class/net/h1-eth0/iflink /sys/class/net/h1-eth0/address")
	}
	was := identity()
	packets := m.exec("h1", "cat /sys/class/net/h1-eth0/statistics/rx_packets")
	m.file("a.yaml", strings.Replace(strings.Replace(text, "h[1-3]", "h[1-4]", 1), "s1 -- s2\n", "s1 -- s2: {delay: 20ms}\n  - s2 -- h4\n", 1))
	said := m.ok("apply", "--dry-run", file)
	contains(t, said, "h4", "s1-s2", "20ms", "3 changes")
	m.pingAll(6) // nothing was done
	done := m.ok("apply", file)
	contains(t, done, "3 changes made")
	m.pingAll(12)
	if mac := m.exec("h4", "cat /sys/class/net/h4-eth0/address"); !strings.Contains(m.ok("inspect", "--json", "--name", m.name, file), mac) {
		t.Errorf("%s is not the MAC that h4 has where it is there from the beginning", mac)
	}
	if ms := m.rtt("h1", "h4"); ms < 40*slewed {
		t.Errorf("the new delay: %g ms", ms)
	}
	if now := identity(); now != was {
		t.Errorf("h1 is another one:\n%s\n%s", was, now)
	}
	var n1, n2 int
	_, _ = fmt.Sscan(packets, &n1)
	_, _ = fmt.Sscan(m.exec("h1", "cat /sys/class/net/h1-eth0/statistics/rx_packets"), &n2)
	if n2 <= n1 {
		t.Errorf("h1's counters were reset: %d, then %d", n1, n2)
	}
	m.file("a.yaml", text)
	contains(t, m.ok("apply", file), "3 changes made")
	m.pingAll(6)
	contains(t, m.ok("apply", file), "0 changes made")
	contains(t, m.want(1, "exec", "h4", "true").err, "there is no node h4")
	m.ok("down")
	m.unchanged(before)
}

// TestCapture proves that a capture is a file that tcpdump reads, with the packets of the link in
// it; and what it says when the daemon is killed.
func TestCapture(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"bridge", "ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up("linear,2", "--datapath", datapath)
			for _, at := range []string{"h1", "s1-h1", "h1-s1"} {
				file := filepath.Join(m.dir, at+".pcap")
				cmd := m.command(trivet, "capture", at, "-w", file)
				out := m.startOutput(cmd)
				out.waitFor(t, "capturing")
				eventually(t, "the capture has begun", func() bool { info, err := os.Stat(file); return err == nil && info.Size() >= 24 })
				m.ok("ping", "h1", "h2", "-c", "3", "-i", "10ms", "--timeout", "30s")
				eventually(t, "the packets are in the file", func() bool { info, _ := os.Stat(file); return info.Size() > 24+6*90 })
				must(t, cmd.Process.Signal(unix.SIGINT))
				wait(t, cmd)
				if code := cmd.ProcessState.ExitCode(); code != 0 {
					t.Errorf("a capture that is ended exits with %d: %s", code, out)
				}
				contains(t, m.sh("tcpdump -n -r "+file+" icmp 2>/dev/null"), "10.0.0.1 > 10.0.0.2: ICMP echo request", "10.0.0.2 > 10.0.0.1: ICMP echo reply")
			}
			contains(t, m.want(1, "capture", "h9", "-w", "/dev/null").err, "there is no node or link h9")
			file := filepath.Join(m.dir, "killed.pcap")
			cmd := m.command(trivet, "capture", "h1", "-w", file)
			out := m.startOutput(cmd)
			eventually(t, "the capture has begun", func() bool { info, err := os.Stat(file); return err == nil && info.Size() >= 24 })
			m.killDaemon()
			wait(t, cmd)
			contains(t, out.String(), "the daemon of lab "+m.name+" has ended without an answer (its log: ")
		})
	}
}

// TestJSON proves the shapes that scripts read.
func TestJSON(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	up := jsonOf[map[string]any](m, "up", "--name", m.name, "linear,2", "--datapath", "bridge")
	if up["name"] != m.name || up["state"] != "up" || up["seconds"].(float64) <= 0 {
		t.Errorf("up: %v", up)
	}
	ls := jsonOf[[]map[string]any](m, "ls")
	if len(ls) != 1 || ls[0]["name"] != m.name || ls[0]["state"] != "up" || ls[0]["nodes"] != 4.0 || ls[0]["links"] != 3.0 {
		t.Errorf("ls: %v", ls)
	}
	inspect := jsonOf[map[string]any](m, "inspect")
	if len(inspect["topology"].(map[string]any)["nodes"].([]any)) != 4 || inspect["state"] != "up" || len(inspect["wires"].([]any)) != 3 {
		t.Errorf("inspect: %v", inspect)
	}
	m.pingAll(2)
	m.ok("link", "set", "s1-s2", "down")
	r := m.want(3, "ping", "--all", "--json", "--timeout", "300ms")
	var lost pings
	must(t, json.Unmarshal([]byte(r.out), &lost))
	if lost.Sent != 2 || lost.Received != 0 || lost.Loss != 1 {
		t.Errorf("ping over a link that is down: %+v", lost)
	}
	m.ok("link", "set", "s1-s2", "up")
	iperf := jsonOf[map[string]any](m, "iperf", "h1", "h2", "-t", "1")
	if iperf["bits_per_second"].(float64) < 1e6 || iperf["protocol"] != "tcp" {
		t.Errorf("iperf: %v", iperf)
	}
	v := jsonOf[[]map[string]any](m, "validate", example("campus.yaml"))
	if len(v) != 1 || v[0]["valid"] != true {
		t.Errorf("validate: %v", v)
	}
	apply := jsonOf[map[string]any](m, "apply", "linear,2", "--datapath", "bridge", "--dry-run")
	if len(apply["changes"].([]any)) != 0 || apply["same"] != 7.0 {
		t.Errorf("apply: %v", apply)
	}
	if doctor := jsonOf[[]map[string]any](m, "doctor"); len(doctor) < 5 || doctor[0]["what"] != "kernel" {
		t.Errorf("doctor: %v", doctor)
	}
	if down := jsonOf[map[string]any](m, "down"); down["state"] != "down" || down["name"] != m.name {
		t.Errorf("down: %v", down)
	}
}

// TestFiles proves that topologies convert from every format to every other that can be written,
// and that the result is valid and has the same nodes and links; and that pictures are well-formed.
func TestFiles(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	sources := []string{"campus.yaml", "campus.mn", "campus.py", "c3-edge.yml", "two-sites.yaml"}
	count := func(file string) [2]int {
		i := jsonOf[struct {
			Topology struct {
				Nodes []struct{ Kind string }
				Links []any
			}
		}](m, "inspect", file, "--controller", "none")
		nodes := 0
		for _, n := range i.Topology.Nodes {
			if n.Kind != "controller" { // which some formats have as nodes, others as addresses
				nodes++
			}
		}
		return [2]int{nodes, len(i.Topology.Links)}
	}
	for _, from := range sources {
		want := count(example(from))
		for _, to := range []string{"trivet .yaml", "miniedit .mn", "mininet .py", "c3edge .yml", "clab .clab.yml"} {
			if from == "two-sites.yaml" && to != "trivet .yaml" {
				continue // routers, which the other formats have other notions of
			}
			format, ending, _ := strings.Cut(to, " ")
			file := filepath.Join(m.dir, strings.ReplaceAll(from, ".", "-")+ending)
			m.ok("convert", example(from), file, "--to", format)
			if got := count(file); got != want {
				t.Errorf("%s as %s has %v nodes and links, not %v", from, format, got, want)
			}
		}
	}
	picture := filepath.Join(m.dir, "campus.svg")
	m.ok("graph", example("campus.yaml"), "-o", picture)
	svg, err := os.ReadFile(picture)
	must(t, err)
	if err := xml.Unmarshal(svg, new(struct {
		XMLName xml.Name `xml:"svg"`
	})); err != nil {
		t.Errorf("the picture is no SVG: %v: %.200s", err, svg)
	}
	contains(t, m.ok("graph", example("campus.yaml")), "40 hosts", "s1: h[1-4]")
	var schema map[string]any
	must(t, json.Unmarshal([]byte(m.ok("schema")), &schema))
}

// TestCompletion proves that shells get completions, with the lab's nodes.
func TestCompletion(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		contains(t, m.ok("completion", shell), "trivet")
	}
	m.up("minimal", "--datapath", "bridge")
	contains(t, m.ok("__complete", "exec", ""), "h1\n", "h2\n")
	contains(t, m.ok("__complete", "down", ""), m.name)
	contains(t, m.ok("__complete", "inspect", "--lab", ""), m.name)
	contains(t, m.ok("__complete", "link", "set", "s1-"), "s1-h1")
	contains(t, m.ok("__complete", "link", "set", "s1-h1", "del"), "delay=")
	contains(t, m.ok("__complete", "up", ""), "fat-tree", "linear")
	// A bash without the package bash-completion.
	said := m.sh(`bash --norc --noprofile -c '
		source <(` + trivet + ` completion bash)
		try() { COMP_LINE=$1; COMP_POINT=${#1}; COMP_TYPE=9; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=(); __start_trivet; echo "${COMPREPLY[*]}"; }
		PATH=` + filepath.Dir(trivet) + `:$PATH
		try "trivet up fat" trivet up fat
		try "trivet up --datapath=em" trivet up --datapath = em
		try "trivet exec " trivet exec ""' 2>/dev/null`)
	if said != "fat-tree\nembedded\ns1 h1 h2" {
		t.Errorf("a bare bash completes: %q", said)
	}
}

// TestOutside proves that a NAT router leads out of the lab, beyond the machine.
func TestOutside(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	// A world that knows no way back to the lab's addresses, nor to those between lab and machine.
	m.sh(`ip netns add world
		ip link add out type veth peer name in netns world
		ip addr add 198.51.100.1/24 dev out; ip link set out up
		ip -n world addr add 198.51.100.2/24 dev in; ip -n world link set in up; ip -n world link set lo up
		while ! ip -br link show out | grep -q ' UP '; do sleep 0.02; done`)
	before := m.snapshot()
	m.up(m.file("o.yaml", "datapath: bridge\nnodes: {s1: switch, h1: host, h2: host, nat0: nat}\nlinks: [s1 -- h1, s1 -- h2, s1 -- nat0]\n"))
	m.pingAll(2)
	m.ok("ping", "h1", "198.51.100.2", "-c", "2", "-i", "10ms", "--timeout", "30s")
	m.ok("down")
	m.unchanged(before)
}

// TestOutsideOnly proves that a NAT router opens the machine to the lab alone. Where the machine
// did not forward before, a neighbour finds no router in it, neither to another network nor into
// the lab, while two labs come and go; where it did, it goes on with what it did, and again nobody
// gets into the lab. The lab reaches the world in both cases, and answers find it.
func TestOutsideOnly(t *testing.T) {
	t.Parallel()
	for before, reaches := range map[string]bool{"0": false, "1": true} {
		t.Run("ip_forward "+before, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.sh(`echo ` + before + ` >/proc/sys/net/ipv4/ip_forward
				for i in 1 2; do
					ip netns add world$i; ip link add out$i type veth peer name in netns world$i
					ip addr add 198.51.10$i.1/24 dev out$i; ip link set out$i up
					ip -n world$i addr add 198.51.10$i.2/24 dev in; ip -n world$i link set in up; ip -n world$i link set lo up
					ip -n world$i route add default via 198.51.10$i.1
					while ! ip -br link show out$i | grep -q ' UP '; do sleep 0.02; done
				done`)
			state := m.snapshot()
			file := m.file("o.yaml", "datapath: bridge\nnodes: {s1: switch, h1: host, nat0: nat}\nlinks: [s1 -- h1, s1 -- nat0]\n")
			ping := func(to string) bool {
				return m.do(m.command("ip", "netns", "exec", "world1", "ping", "-c", "3", "-i", "0.1", "-W", "1", to)).code == 0
			}
			m.ok("up", "--name", m.name, "--wait", "3m", file)
			second := m.name + "b"
			m.ok("up", "--name", second, "--wait", "3m", file)
			for _, lab := range []string{m.name, second} {
				m.ok("ping", "--lab", lab, "h1", "198.51.101.2", "-c", "2", "-i", "10ms", "--timeout", "30s")
				m.ok("ping", "--lab", lab, "h1", "198.51.102.2", "-c", "2", "-i", "10ms", "--timeout", "30s")
				router := strings.Fields(m.ok("exec", "--lab", lab, "-n", "nat0", "--", "ip", "-br", "-4", "addr", "show", "uplink"))[2]
				if router, _, _ = strings.Cut(router, "/"); ping(router) {
					t.Errorf("a neighbour gets into lab %s, at %s", lab, router)
				}
				if other := map[bool]string{true: second, false: m.name}[lab == m.name]; m.run("ping", "--lab", other, "h1", router, "-c", "3", "-i", "100ms", "--timeout", "2s").code == 0 {
					t.Errorf("lab %s gets into lab %s, at %s", other, lab, router)
				}
			}
			if ping("198.51.102.2") != reaches {
				t.Errorf("a neighbour reaches another network by the machine: %v", !reaches)
			}
			m.ok("down", second)
			m.ok("ping", "--lab", m.name, "h1", "198.51.102.2", "-c", "2", "-i", "10ms", "--timeout", "30s")
			if ping("198.51.102.2") != reaches {
				t.Errorf("with one lab left, a neighbour reaches another network by the machine: %v", !reaches)
			}
			m.killDaemon()
			if ping("198.51.102.2") != reaches {
				t.Errorf("with a dead daemon, a neighbour reaches another network by the machine: %v", !reaches)
			}
			m.ok("resume", m.name)
			m.ok("ping", "h1", "198.51.101.2", "-c", "2", "-i", "10ms", "--timeout", "30s")
			m.killDaemon()
			m.ok("down")
			m.unchanged(state)
		})
	}
}
