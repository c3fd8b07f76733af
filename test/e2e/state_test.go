package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// looked runs verify without sending anything; the exit code must say the same as the result.
func (m *machine) looked(args ...string) (r verify.Result) {
	m.t.Helper()
	out := m.run(append([]string{"verify", "--look", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out.out), &r); err != nil {
		m.t.Fatal(err, out)
	}
	if want := map[bool]int{true: 0, false: 5}[r.Holds()]; out.code != want {
		m.t.Fatalf("want exit %d: %s", want, out)
	}
	return r
}

// quiet proves that nothing is wrong and nothing is noted, but for what differs from the file.
func (m *machine) quiet(after string, fromFile ...string) {
	m.t.Helper()
	r := m.looked()
	rest := strings.Join(append(r.Says(verify.Wrong), r.Notes...), "\n")
	for _, f := range fromFile {
		if !strings.Contains(rest, f) {
			m.t.Errorf("after %s: %q is not said: %s", after, f, rest)
		}
	}
	if n := strings.Count(rest, "\n") + 1; rest != "" && n > len(fromFile) {
		m.t.Errorf("after %s, nobody has changed anything by hand: %s", after, rest)
	}
}

const stateLab = `
nodes: {h1: host, h2: host, h3: host, s1: switch, s2: switch, r1: {router: {datapath: kernel}}}
links:
  - h1 -- s1: {bandwidth: 100mbit, delay: 2ms}
  - h2 -- s1
  - s1 -- s2: {bandwidth: 50mbit}
  - s2 -- r1
  - r1 -- h3
`

// TestState proves, of each kind of switch, that what somebody changes in a lab by hand is found
// and named: wrong where it contradicts the file, else a note, which --strict makes an error; and
// that nothing is said any more once it is undone. apply --dry-run says the same.
func TestState(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs", "bridge"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			file := m.file("state.yaml", "datapath: "+datapath+"\n"+stateLab)
			m.up(file)
			m.quiet("up")
			for _, x := range []struct {
				node, do, undo string
				wrong          bool
				says           string
			}{
				{"h2", "ip addr add 10.99.0.1/24 dev h2-eth0", "ip addr del 10.99.0.1/24 dev h2-eth0", false, "h2 has an address nobody asked for: 10.99.0.1/24"},
				{"h2", "ip addr add 10.0.1.2/32 dev lo", "ip addr del 10.0.1.2/32 dev lo", true, "h2 has the address 10.0.1.2 of h1"},
				{"h2", "ip route add blackhole 10.0.2.0/24", "ip route del blackhole 10.0.2.0/24", true, "nothing reaches 10.0.2."},
				{"h2", "ip route add 10.0.2.2 via 10.0.1.2", "ip route del 10.0.2.2", true, "10.0.2.2/32 via 10.0.1.2"},
				{"h2", "ip route replace default via 10.0.1.2", "ip route replace default via 10.0.1.1 proto static", true, "not via 10.0.1.1"},
				{"h2", "ip route add 192.0.2.0/24 via 10.0.1.2", "ip route del 192.0.2.0/24", false, "192.0.2.0/24 via 10.0.1.2"},
				{"h2", "ip route add default via 10.0.1.2 table 77; ip rule add from 10.0.1.3 lookup 77", "ip rule del lookup 77; ip route flush table 77", true, "lookup 77"},
				{"h2", "ip rule add to 10.0.2.0/24 prohibit", "ip rule del prohibit", true, "prohibit"},
				{"h2", "ip rule add to 192.0.2.0/24 lookup 88", "ip rule del lookup 88", false, "h2 has a rule nobody asked for: ipv4 32765: from all to 192.0.2.0/24 lookup 88"},
				{"h2", "ip neigh replace 10.0.1.2 lladdr 02:00:00:00:00:99 dev h2-eth0", "ip neigh del 10.0.1.2 dev h2-eth0", true, "02:00:00:00:00:99"},
				{"h2", "sysctl -qw net.ipv4.ip_forward=1", "sysctl -qw net.ipv4.ip_forward=0", true, "h2 is a host and forwards"},
				{"r1", "sysctl -qw net.ipv4.ip_forward=0", "sysctl -qw net.ipv4.ip_forward=1", true, "r1 is a router and does not forward"},
				{"r1", "sysctl -qw net.ipv4.conf.all.rp_filter=1", "sysctl -qw net.ipv4.conf.all.rp_filter=0", false, "ipv4.rp_filter is 1, was 0"},
				{"h2", "sysctl -qw net.ipv4.conf.h2-eth0.proxy_arp=1", "sysctl -qw net.ipv4.conf.h2-eth0.proxy_arp=0", false, "proxy_arp of h2-eth0"},
				{"r1", "nft add table ip t; nft add chain ip t f '{type filter hook forward priority 0;}'; nft add rule ip t f ip saddr 10.0.1.2 drop", "nft delete table ip t", true, "ip t: chain"},
				{"r1", "nft add table ip mine", "nft delete table ip mine", false, "ip mine"},
				{"h3", "tc qdisc add dev h3-eth0 root tbf rate 10mbit burst 3000 limit 30000", "tc qdisc del dev h3-eth0 root", false, "tbf"},
				{"h3", "ethtool -K h3-eth0 tso off", "ethtool -K h3-eth0 tso on", false, "-segmentation off"},
				{"h3", "ip link set h3-eth0 mtu 1400", "ip link set h3-eth0 mtu 1500", false, "1400, was 1500"},
				{"h3", "ip link add br7 type bridge", "ip link del br7", false, "br7"},
				{"r1", "ip link set r1-eth0 down", "ip link set r1-eth0 up", true, "r1"},
			} {
				m.ok("exec", x.node, "--", "sh", "-c", x.do)
				r := m.looked()
				wrong, notes := strings.Join(r.Says(verify.Wrong), "\n"), strings.Join(r.Notes, "\n")
				if x.wrong && !strings.Contains(wrong, x.says) || !x.wrong && (wrong != "" || !strings.Contains(notes, x.says)) {
					t.Errorf("%s: %q is not said, wrong: %t:\n✗ %s\n! %s", x.do, x.says, x.wrong, wrong, notes)
				}
				if x.do != "ip link set r1-eth0 down" { // there, apply says it in other words
					if said := m.ok("apply", file, "--dry-run"); !strings.Contains(said, "the lab is not as it was made") {
						t.Errorf("%s: apply --dry-run says nothing: %s", x.do, said)
					}
				}
				if !x.wrong {
					m.want(5, "verify", "--look", "--strict")
				}
				m.ok("exec", x.node, "--", "sh", "-c", x.undo)
				eventually(t, "all is as it was after "+x.undo, func() bool { r := m.looked("--strict"); return r.Holds() })
			}
			contains(t, m.ok("apply", file, "--dry-run"), "0 changes to make")
		})
	}
}

// TestStateOfTrivet proves that what Trivet does by itself, or because the file or its user says
// so, is never taken for somebody else's: up with routers of every kind, NAT, commands and a
// schedule, link set, links down and up, apply, a swap, resume; and that what somebody has done
// before stays told through all of it.
func TestStateOfTrivet(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs", "bridge"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			file := m.file("state.yaml", "datapath: "+datapath+"\n"+stateLab)
			m.up(file)
			m.ok("link", "set", "h2-s1", "delay=3ms", "loss=1%", "mtu=1400")
			m.quiet("link set", "h2-s1: delay none in state.yaml, 3ms in the lab")
			m.want(5, "verify", "--look", file)
			m.want(5, "verify", "--look", "--strict")
			m.ok("link", "set", "h2-s1", "delay=none", "loss=none", "mtu=none")
			m.quiet("link set back")
			m.ok("verify", "--look", "--strict", "--file", file)
			for _, link := range []string{"h2-s1", "r1-h3"} {
				m.ok("link", "set", link, "down")
				m.quiet(link+" down", link+": up in state.yaml, down in the lab")
				m.ok("link", "set", link, "up")
				m.quiet(link + " up")
			}
			m.killDaemon()
			m.ok("resume")
			m.quiet("resume")

			// From here on there is something of somebody's, and that is all there is to say.
			m.ok("exec", "h2", "--", "ip", "addr", "add", "10.99.0.1/24", "dev", "h2-eth0")
			m.ok("exec", "h2", "--", "ip", "route", "add", "192.0.2.0/24", "via", "10.0.1.1")
			foreign := []string{"10.99.0.1/24 at h2-eth0", "192.0.2.0/24 via 10.0.1.1"}
			m.ok("link", "set", "h2-s1", "down")
			m.quiet("down with something of somebody's", append(foreign, "down in the lab")...)
			m.ok("link", "set", "h2-s1", "up")
			m.quiet("up with it", foreign...)
			m.ok("link", "set", "h2-s1", "delay=3ms")
			m.quiet("link set with it", append(foreign, "3ms in the lab")...)
			m.killDaemon()
			m.ok("resume")
			m.quiet("resume with it", append(foreign, "3ms in the lab")...)
			for _, other := range []string{"bridge", "ovs", "embedded"} {
				m.file("state.yaml", "datapath: "+other+"\n"+strings.Replace(stateLab, "h3: host,", "h3: host, h4: host,", 1)+"  - h4 -- s2\n")
				m.ok("apply", file)
				m.quiet("a swap to "+other, foreign...)
			}
		})
	}
}

// TestStateOfRouters proves the same of labs whose routers run daemons, with NAT, commands of the
// file, a schedule and management addresses: all of it is asked for, as it is after resume.
func TestStateOfRouters(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "kernel", "frr", "bird"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			router := "{router: {ospf: area 0}}"
			if datapath == "kernel" { // which does not speak it
				router = "router"
			}
			m.up(m.file("routers.yaml", strings.ReplaceAll(`
ipv6: assigned
management: true
nodes:
  h1: {host: {start: "ip addr add 10.77.0.1/24 dev lo; sysctl -qw net.ipv4.ip_forward=1; nft add table inet mine"}}
  h2: host
  h3: host
  s1: switch
  r1: ROUTER
  r2: ROUTER
  gw: nat
links: [h1 -- s1: {delay: 2ms}, h2 -- s1, s1 -- r1, r1 -- r2: {delay: 5ms}, r2 -- h3, r1 -- gw]
schedule:
  - "at 1s: h2 -- s1 delay=4ms"
  - "at 2s: h2 run ip addr add 10.88.0.1/24 dev h2-eth0"
`, "ROUTER", router)), "--datapath", datapath)
			m.quiet("up")
			eventually(t, "the schedule has run", func() bool { return strings.Contains(m.ok("exec", "h2", "--", "ip", "addr"), "10.88.0.1/24") })
			eventually(t, "what it did is asked for", func() bool { r := m.looked("--strict"); return r.Holds() })
			m.killDaemon()
			m.ok("resume")
			m.quiet("resume")
		})
	}
}

// TestLookSendsNothing proves that verify --look sends nothing: no device of the lab, loopbacks
// among them, counts a packet more than before, while a verify that sends is counted.
func TestLookSendsNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("silent.yaml", "datapath: bridge\ncontroller: none\n"+stateLab))
	counted := func() (all string) {
		for _, n := range []string{"h1", "h2", "h3", "r1", "s1"} { // s1 for both switches
			all += m.exec(n, "cd /sys/class/net; grep . */statistics/tx_packets") + "\n"
		}
		return all
	}
	eventually(t, "a look leaves all counters as they were", func() bool { // a kernel may say something by itself
		before := counted()
		m.looked()
		return counted() == before
	})
	before := counted()
	m.verified()
	if counted() == before {
		t.Error("packets are not counted")
	}
	m.ok("down")
}
