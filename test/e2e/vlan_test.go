package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// vlanLab has hosts in two VLANs at two switches, and h5, which sees frames as they are on a trunk.
const vlanLab = `name: vlans
learning: %s
nodes:
  h[1-4]: host
  h5: host
  s[1-2]: {switch: {datapath: %s, controller: %s}}
links:
  - s1 -- h1: {vlan: 10}
  - s1 -- h2: {vlan: 20}
  - s2 -- h3: {vlan: 10}
  - s2 -- h4: {vlan: 20}
  - s1 -- s2: {trunk: [10, 20]}
  - s1 -- h5: {from: {trunk: [10, 20]}, to: {address: none}}
`

// apart verifies the lab: so many pairs of hosts reach each other, and so many are kept apart. What
// verify makes of delays on a busy machine is no matter.
func (m *machine) apart(when string, reach, apart int) {
	m.t.Helper()
	r := m.run("verify", "--quick", "--json")
	var v verify.Result
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		m.t.Fatalf("%s: %v: %s", when, err, r)
	}
	if v.Reach.OK != reach || v.Reach.Of != reach || v.Apart.OK != apart || v.Apart.Of != apart {
		m.t.Fatalf("%s: reach %d of %d, apart %d of %d, want %d and %d", when, v.Reach.OK, v.Reach.Of, v.Apart.OK, v.Apart.Of, reach, apart)
	}
}

// vlans proves of a datapath and a controller that hosts reach those in their VLAN, and no others;
// that frames have tags on trunks, of those VLANs alone, and none at hosts; that apply moves ports
// to other VLANs, takes all away and gives them back; and that it stays so over a daemon's death.
func vlans(t *testing.T, datapath, controller, learning string) *machine {
	m := newMachine(t)
	before := m.snapshot()
	text := fmt.Sprintf(vlanLab, learning, datapath, controller)
	file := m.file("vlans.yaml", text)
	m.up(file)
	m.apart("up", 4, 8)
	contains(t, m.ok("inspect"), "VLANS", "10,20")
	if got := m.exec("h1", "ping -c 2 -i 0.2 -W 5 -M do -s 1472 10.0.0.3"); !strings.Contains(got, "2 received") {
		t.Error("full packets over the trunk: ", got)
	}

	// Broadcasts of both VLANs come by the trunk, with their tags; what h5 sends with a tag is
	// answered with that tag, and only if the VLAN has somebody of that address.
	const ask = `import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(("h5-eth0", 0))
me = s.getsockname()[4]
for vlan, to in ((10, 3), (20, 4), (20, 3), (30, 3)):
    s.send(b"\xff" * 6 + me + struct.pack("!HHHHHBBH", 0x8100, vlan, 0x806, 1, 0x800, 6, 4, 1) + me + bytes([10, 0, 0, 99]) + bytes(6) + bytes([10, 0, 0, to]))
`
	m.file("ask.py", ask)
	seen := m.exec("h5", "timeout 60 tcpdump -l -e -n -i h5-eth0 arp > "+m.dir+"/seen 2> "+m.dir+"/err & pid=$!; "+
		"until grep -q listening "+m.dir+"/err; do sleep 0.1; done; "+
		"for i in 1 2 3; do python3 "+m.dir+"/ask.py; sleep 0.3; done; kill $pid; wait; cat "+m.dir+"/seen")
	contains(t, seen, "vlan 10, p 0, ethertype ARP", "Reply 10.0.0.3 is-at", "Reply 10.0.0.4 is-at")
	for _, line := range strings.Split(seen, "\n") {
		vlan := map[bool]string{true: "vlan 10,", false: "vlan 20,"}[strings.Contains(line, "10.0.0.3 is-at")]
		if strings.Contains(line, "Reply") && !strings.Contains(line, vlan) {
			t.Error("an answer with another tag: ", line)
		}
	}
	if got := m.exec("h1", "timeout 3 tcpdump -l -e -n -c 1 -i h1-eth0 vlan 2>/dev/null & p=$!; ping -c 2 -i 0.3 10.0.0.3 > /dev/null; kill $p 2>/dev/null; wait"); got != "" {
		t.Error("h1 sees a tag: ", got)
	}

	moved := m.file("moved.yaml", strings.Replace(text, "s1 -- h2: {vlan: 20}", "s1 -- h2: {vlan: 10}", 1))
	contains(t, m.ok("apply", moved, "--dry-run"), "vlan 20 → 10")
	m.ok("apply", moved)
	m.apart("h2 has moved", 6, 6)
	m.killDaemon()
	m.ok("resume")
	m.apart("resume", 6, 6)
	m.quiet("resume")
	m.ok("apply", file)
	m.apart("h2 is back", 4, 8)
	none := strings.NewReplacer("{vlan: 10}", "{}", "{vlan: 20}", "{}", ": {trunk: [10, 20]}", "", "from: {trunk: [10, 20]}, ", "").Replace(text)
	m.ok("apply", m.file("none.yaml", none))
	m.apart("no VLANs", 12, 0)
	m.ok("apply", file)
	m.apart("VLANs again", 4, 8)
	m.ok("link", "set", "s1-s2", "down")
	m.ok("link", "set", "s1-s2", "up")
	m.apart("the trunk was down", 4, 8)
	cut := m.file("cut.yaml", strings.Replace(text, "s1 -- s2: {trunk: [10, 20]}", "s1 -- s2: {trunk: 10}", 1))
	m.ok("apply", cut)
	m.apart("the trunk without VLAN 20", 2, 10)
	if controller == "trivet" {
		contains(t, m.want(3, "path", "h2", "h4").out, "sends no frames of VLAN 20")
		contains(t, m.ok("path", "h1", "h3"), "h1 → s1 → s2 → h3")
	}
	m.ok("apply", file)
	m.apart("the whole trunk", 4, 8)
	t.Cleanup(func() {
		if !t.Failed() {
			m.ok("down")
			m.unchanged(before)
		}
	})
	return m
}

// TestVLANs proves that switches of each datapath that this kernel has tell VLANs apart, with and
// without Trivet's controller; that verify says so when they do not, here as somebody has changed a
// port's VLAN by hand; and that Open vSwitch with a controller is refused.
func TestVLANs(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{{"embedded", "trivet", "proactive"}, {"embedded", "trivet", "reactive"}, {"embedded", "none", "proactive"}, {"ovs", "none", "proactive"}} {
		t.Run(strings.Join(c[:], " "), func(t *testing.T) {
			t.Parallel()
			m := vlans(t, c[0], c[1], c[2])
			if c[0] != "ovs" {
				return
			}
			m.exec("s1", "ovs-vsctl set port s1-eth2 tag=10")
			r := m.want(5, "verify", "--quick")
			contains(t, r.out, "h2 gets answers from h1 at 10.0.0.1 (icmp, tcp, udp), which is in another VLAN", "apart 4/8")
			m.exec("s1", "ovs-vsctl set port s1-eth2 tag=20")
			contains(t, m.ok("save", "--dry-run"), "nothing to save")
		})
	}
	m := newMachine(t)
	r := m.want(1, "up", m.file("refused.yaml", fmt.Sprintf(vlanLab, "proactive", "ovs", "trivet")))
	contains(t, r.err, "refused.yaml:8:5", "Open vSwitch tells VLANs of ports apart only where it forwards by learning", "use controller: none")
}

// TestVLANsFullKernel proves the same of Linux bridges, and of a router that routes between VLANs
// by one link (examples/vlans.yaml), with each datapath: in a kernel that has 802.1Q and bridges
// that filter.
func TestVLANsFullKernel(t *testing.T) {
	if os.Getenv("TRIVET_FULL_KERNEL") != "1" {
		t.Skip("this may be a kernel whose bridges do not tell VLANs apart; make slow PARTS=vm-interfaces runs the test in one that does")
	}
	m := newMachine(t)
	before := m.snapshot()
	text := fmt.Sprintf(vlanLab, "proactive", "bridge", "none")
	file := m.file("vlans.yaml", text)
	hears := func(when, from, address string, want bool) {
		t.Helper()
		if got := m.run("exec", from, "--", "ping", "-c", "2", "-i", "0.3", "-W", "3", address).code == 0; got != want {
			t.Fatalf("%s: an answer from %s to %s: %v", when, address, from, got)
		}
	}
	m.up(file)
	m.apart("up", 4, 8)
	m.ok("apply", m.file("moved.yaml", strings.Replace(text, "s1 -- h2: {vlan: 20}", "s1 -- h2: {vlan: 10}", 1)))
	hears("h2 has moved", "h1", "10.0.0.2", true)
	hears("h2 has moved", "h4", "10.0.0.2", false)
	m.killDaemon()
	m.ok("resume")
	m.ok("apply", m.file("none.yaml", strings.NewReplacer("{vlan: 10}", "{}", "{vlan: 20}", "{}", ": {trunk: [10, 20]}", "", "from: {trunk: [10, 20]}, ", "").Replace(text)))
	hears("no VLANs", "h1", "10.0.0.4", true)
	m.ok("apply", file)
	hears("VLANs again", "h1", "10.0.0.4", false)
	hears("VLANs again", "h1", "10.0.0.3", true)
	m.exec("s1", "bridge vlan del dev s1-eth2 vid 20; bridge vlan add dev s1-eth2 vid 10 pvid untagged")
	contains(t, m.want(5, "verify", "--quick").out, "which is in another VLAN")
	m.ok("down")
	m.unchanged(before)

	for _, datapath := range []string{"embedded", "bridge"} {
		m := newMachine(t)
		controller := map[string]string{"embedded": "trivet", "bridge": "none"}[datapath]
		m.up(example("vlans.yaml"), "--datapath", datapath, "--controller", controller)
		m.ok("ping", "--all", "--timeout", "30s")
		if got := m.exec("h1", "traceroute -n -q 1 -w 2 10.20.0.11"); !strings.Contains(got, "10.10.0.1 ") {
			t.Error("between VLANs by way of the router: ", got)
		}
		m.ok("down")
	}
}
