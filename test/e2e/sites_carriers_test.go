package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestSitesGuarded proves that a machine that is no site of a lab cannot send into it by way of its
// tunnels; without the firewall's table it could.
func TestSitesGuarded(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h, m1, stranger := s.head, s.others[0], s.others[1]
	h.up("linear,2", "--on", "root@10.5.0.2", "--name", h.name)
	part := h.name + ".10.5.0.2"
	inFabric := "nsenter --net=/run/trivet/" + part + "/ns/fabric "
	found := regexp.MustCompile(`: (\S+?)(?:@\S+)?: <[^$]*vxlan id (\d+) `).FindStringSubmatch(m1.sh(inFabric + "ip -d link show type vxlan"))
	if found == nil {
		t.Fatal("the part has no tunnel")
	}
	stranger.sh("ip link add x address 02:00:00:00:00:77 type vxlan id " + found[2] + " remote 10.5.0.2 dstport 4789 && ip addr add 10.9.9.9/8 dev x && ip link set x up")
	arrives := func() bool {
		sends := stranger.command("sh", "-c", "while :; do ip neigh flush dev x; ping -c 1 -W 0.2 10.0.0.2; done") // it asks for the address each time
		must(t, stranger.start(sends))
		defer func() {
			_ = syscall.Kill(-sends.Process.Pid, syscall.SIGKILL)
			_ = sends.Wait()
		}()
		return m1.do(m1.command("sh", "-c", inFabric+"timeout 10 tcpdump -c 1 -i "+found[1]+" ether src 02:00:00:00:00:77")).code == 0
	}
	if arrives() {
		t.Error("a stranger's frame arrives")
	}
	m1.sh("nft delete table inet trivet-tunnels-" + part)
	if !arrives() {
		t.Error("without the table, none arrives: this test proves nothing")
	}
	stranger.sh("ip link del x")
	h.ok("down", h.name)
}

// TestSitesCarriers proves that the ways between machines are measured before a lab comes up: one
// that lets no tunnel through is named, both ways, and nothing is made; one that loses fragments is
// a warning and shown with the links that it affects; and so is a link that is asked for less delay
// than its way has. doctor measures the same, and the bandwidth.
func TestSitesCarriers(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h, m1 := s.head, s.others[0]
	up := []string{"up", "linear,6", "--on", "machines.yaml", "--name", h.name}
	m1.sh("nft add table inet wall && nft 'add chain inet wall in { type filter hook prerouting priority -450; }'")
	wall := func(rule string) { m1.sh("nft flush table inet wall; nft add rule inet wall in " + rule) }

	for _, rule := range []string{"ip saddr 10.5.0.3 udp dport 4789 drop", "ip saddr 10.5.0.1 udp dport 4789 drop"} {
		wall(rule)
		far := map[bool]string{true: "m2", false: "head"}[strings.Contains(rule, "10.5.0.3")]
		r := h.want(1, up...).String()
		contains(t, r, "by VXLAN is answered", "UDP port 4789", far+" (10.5.0.", "m1 (10.5.0.2)", "nothing is left of the lab")
		contains(t, h.want(0, "doctor", "--on", "machines.yaml").String(), "nothing gets through between", "1450 bytes")
	}

	wall("'ip saddr 10.5.0.3 ip frag-off & 0x3fff != 0 drop'")
	h.sh("ip link set to-m1 mtu 1600")
	h.sh("ip link set to-m2 mtu 1600")
	m1.sh("ip link set eth0 mtu 1600")
	out := h.up(up[1:]...)
	contains(t, out, "packets of 1,500 bytes do not arrive between m1 and m2, not even as fragments")
	shown := h.ok("inspect")
	for _, line := range []string{`head – m1 +1 +vxlan .* \d+ of 20 +1500 bytes *\n`, `m1 – m2 +1 +vxlan .* \d+ of 20 +1450 bytes, and no larger`,
		`s3-s2 .* vxlan +– +– \+ [\d.]+[um]s .* up *\n`, `s5-s4 .* vxlan .* up, packets of at most 1450 bytes`, `m1 +root@10.5.0.2 +4 +3 +[+-]\d+\.\d ms ± \d`} {
		if !regexp.MustCompile(line).MatchString(shown) {
			t.Errorf("no %s in\n%s", line, shown)
		}
	}
	got := jsonOf[struct {
		Sites struct {
			Carriers []struct {
				Sites []string
				Full  bool
				Whole int `json:"whole_bytes"`
			}
		}
	}](h, "inspect", "--json").Sites.Carriers
	if fmt.Sprint(got) != "[{[head m1] true 1500} {[m1 m2] false 1450}]" {
		t.Errorf("%+v", got)
	}
	h.ok("down", h.name)

	m1.sh("nft delete table inet wall")
	contains(t, h.ok("doctor", "--on", "machines.yaml"), "BANDWIDTH", "head – m2", " Mbit/s")
	h.sh("ip link set to-m1 mtu 1500; ip link set to-m2 mtu 1500")
	m1.sh("ip link set eth0 mtu 1500")
	s.unchanged(t)
}

// TestSitesEncrypted proves that with  carrier: wireguard  what links carry between machines is
// encrypted: nothing but WireGuard's packets leaves a machine, hosts reach each other with full
// frames, a link between machines has the delay that it is asked for, also after a change and once
// the daemon was killed, and nothing is left. Where the kernel has no WireGuard that is an error,
// before anything is made.
func TestSitesEncrypted(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h, m1 := s.head, s.others[0]
	h.sh("echo 'carrier: wireguard' >>machines.yaml")
	up := []string{"up", "linear,3", "--on", "machines.yaml", "--name", h.name}
	if exec.Command("ip", "link", "add", "wg-try", "type", "wireguard").Run() != nil {
		if os.Getenv("TRIVET_FULL_KERNEL") == "1" {
			t.Fatal("this kernel has no WireGuard")
		}
		contains(t, h.want(1, up...).String(), "this kernel has no WireGuard", "modprobe wireguard", "nothing is left of the lab")
		s.unchanged(t)
		return
	}
	must(t, exec.Command("ip", "link", "del", "wg-try").Run())
	m1.sh("nft add table inet count && nft 'add chain inet count out { type filter hook output priority 0; }' && " +
		"nft add rule inet count out udp dport 4789 counter && nft add rule inet count out udp dport 51820-52843 counter")
	contains(t, h.up(up[1:]...), "across: 2 links by VXLAN in WireGuard")
	contains(t, h.ok("ping", "--all"), "6 sent, 6 received")
	contains(t, h.exec("h1", "ping -c 1 -W 5 -M do -s 1472 h3"), "1 received")
	contains(t, h.ok("inspect"), "wireguard", "1370 bytes")
	h.ok("link", "set", "s1-s2", "delay=40ms") // a full kernel has netem
	eventually(t, "h3 answers after 80 to 200 ms", func() bool {
		var got struct {
			RTT struct{ Min float64 } `json:"rtt_ms"`
		}
		_ = json.Unmarshal([]byte(h.run("ping", "h1", "h3", "-c", "3", "--json").out), &got)
		return got.RTT.Min >= 80 && got.RTT.Min <= 200
	})
	contains(t, h.ok("inspect"), " 40ms + ")
	h.killDaemon()
	h.ok("resume", h.name)
	contains(t, h.ok("apply", "linear,4", "--lab", h.name), "changes made")
	contains(t, h.ok("ping", "--all"), "12 sent, 12 received")
	rules := m1.sh("nft list table inet count")
	if !regexp.MustCompile(`dport 4789 counter packets 0 `).MatchString(rules) || regexp.MustCompile(`dport 51820-52843 counter packets 0 `).MatchString(rules) {
		t.Error(rules)
	}
	contains(t, h.ok("doctor", "--on", "machines.yaml"), "1370 bytes", " Mbit/s")
	h.ok("down", h.name)
	m1.sh("nft delete table inet count")
	s.unchanged(t)
}

// TestSitesDelayed proves that a link between two machines whose kernels have no netem has the
// delay, jitter, loss and bandwidth that it is asked for, as one on a machine has: from the file,
// by link set, after a change of another link, and after the daemons at both ends were killed;
// each direction once, through every datapath; that full frames cross it; and that it can be cut
// and plugged, takes packets of its MTU and no larger ones, and leaves nothing.
func TestSitesDelayed(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs", "bridge"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			s := newSeveral(t, 1)
			h := s.head
			h.file("lab.yaml", `nodes:
  s1: {switch: {on: head}}
  s2: {switch: {on: m1}}
  h1: {host: {on: head}}
  h2: {host: {on: m1}}
  h3: {host: {on: head}}
  h4: {host: {on: m1}}
links:
  - h1 -- s1
  - s2 -- h2
  - s1 -- s2: {delay: 20ms}
  - h3 -- h4: {delay: 5ms, jitter: 1ms}
`)
			h.up("lab.yaml", "--on", "machines.yaml", "--name", h.name, "--datapath", datapath)
			rtt := func(from, to string, least, most float64) {
				t.Helper()
				eventually(t, fmt.Sprintf("%s answers after %v to %v ms", to, least, most), func() bool {
					var got struct {
						Received int
						RTT      struct{ Min float64 } `json:"rtt_ms"`
					}
					_ = json.Unmarshal([]byte(h.run("ping", from, to, "-c", "10", "-i", "10ms", "--json").out), &got)
					return got.Received == 10 && got.RTT.Min >= least && got.RTT.Min < most
				})
			}
			rtt("h1", "h2", 40, 50)
			rtt("h3", "h4", 6, 25)
			contains(t, h.exec("h1", "ping -c 1 -W 5 -M do -s 1472 h2"), "1 received")
			h.ok("link", "set", "s1-s2", "delay=60ms")
			rtt("h1", "h2", 120, 140)
			h.ok("link", "set", "s1-s2", "delay=10ms", "bandwidth=20mbit")
			s.holds(t, "s1-s2", "h1", "h2")
			rtt("h1", "h2", 20, 30)
			h.killDaemon()
			h.ok("resume", h.name)
			s.others[0].kill("*_[_]daemon*")
			eventually(t, "the head has resumed the part", func() bool { return h.run("exec", "h2", "--", "true").code == 0 })
			rtt("h1", "h2", 20, 30)
			h.ok("link", "set", "s1-s2", "down")
			contains(t, h.run("ping", "h1", "h2", "-c", "1").String(), "0 received")
			h.ok("link", "set", "s1-s2", "up", "loss=100%")
			contains(t, h.run("ping", "h1", "h2", "-c", "3", "-i", "10ms").String(), "0 received")
			h.ok("link", "set", "s1-s2", "loss=0", "delay=0")
			rtt("h1", "h2", 0, 10)
			for _, setting := range [][]string{{"mtu=1300"}, {"mtu=1000", "delay=2ms"}} {
				h.ok(append([]string{"link", "set", "s1-s2"}, setting...)...)
				size := map[bool]int{true: 1272, false: 972}[len(setting) == 1]
				for _, ends := range [][2]string{{"h1", "h2"}, {"h2", "h1"}} {
					ping := func(size int) string {
						return h.run("exec", "-n", ends[0], "--", "ping", "-c", "1", "-W", "1", "-M", "do", "-s", strconv.Itoa(size), ends[1]).String()
					}
					eventually(t, "a packet of the MTU crosses", func() bool { return strings.Contains(ping(size), "1 received") })
					contains(t, ping(size+5), "0 received") // Linux leaves 4 bytes for a tag
				}
			}
			h.ok("down", h.name)
			s.unchanged(t)
		})
	}
}
