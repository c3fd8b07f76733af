package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

const ownInterfaces = `name: own
routes: as-written
nodes:
  h1: {host: {address: 10.1.0.1/24}}
  h2: {host: {address: 10.1.0.2/24}}
  h3: {host: {address: 10.9.0.3/24}}
  b: {host: {interfaces: {br0: {bridge: [b-eth0, b-eth1], address: 10.1.0.9/24}}}}
  r1:
    router:
      datapath: kernel
      interfaces: {vx: {vxlan: 100, local: 172.20.0.1, remote: 172.20.0.2, address: 10.9.0.1/24}}
  r2:
    router:
      datapath: kernel
      interfaces:
        br1: {bridge: [vx, r2-eth1], address: 10.9.0.2/24}
        vx: {vxlan: 100, local: 172.20.0.2, remote: 172.20.0.1}
links:
  - h1 -- b
  - h2 -- b
  - r1 -- r2: {from: {address: 172.20.0.1/30}, to: {address: 172.20.0.2/30}}
  - r2 -- h3
`

// ipLink is a device as iproute2 describes it.
type ipLink struct {
	Index     int      `json:"ifindex"`
	Name      string   `json:"ifname"`
	Master    string   `json:"master"`
	MTU       int      `json:"mtu"`
	Flags     []string `json:"flags"`
	Addresses []struct {
		Local  string `json:"local"`
		Prefix int    `json:"prefixlen"`
		Family string `json:"family"`
	} `json:"addr_info"`
}

// device is a device of a node; its name is empty if there is none.
func (m *machine) device(node, name string) (dev ipLink) {
	m.t.Helper()
	var all []ipLink
	must(m.t, json.Unmarshal([]byte(m.exec(node, "ip -json addr show")), &all))
	if i := slices.IndexFunc(all, func(d ipLink) bool { return d.Name == name }); i >= 0 {
		dev = all[i]
	}
	return dev
}

// has says whether a device has an address, without its length.
func (d ipLink) has(address string) bool {
	for _, a := range d.Addresses {
		if a.Local == address {
			return true
		}
	}
	return false
}

// TestInterfaces proves that interfaces of nodes that every kernel has are made as the file says,
// and carry traffic: a bridge in a host, and a VXLAN between routers with a bridge at one end. It
// proves that apply sets in place what can be, makes anew what cannot, removes what is gone, and
// undoes all of it when it fails; that a link that is made anew, or was down, is what it was to
// them; that they survive the daemon; and that verify tells what was changed by hand.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	file := m.file("own.yaml", ownInterfaces)
	m.up(file)
	reach := func(when string) {
		t.Helper()
		for _, pair := range [][2]string{{"h1", "10.1.0.2"}, {"h1", "10.1.0.9"}, {"h3", "10.9.0.1"}, {"r1", "10.9.0.2"}} {
			if r := m.run("exec", pair[0], "--", "ping", "-c", "3", "-W", "5", "-i", "0.2", pair[1]); r.code != 0 {
				t.Fatalf("%s: %s does not reach %s: %s", when, pair[0], pair[1], r.out)
			}
		}
	}
	reach("up")
	m.quiet("up")
	contains(t, m.exec("h3", "cat /etc/hosts"), "10.1.0.9 b", "10.9.0.1 r1", "10.9.0.2 r2")
	contains(t, m.ok("inspect"), "10.1.0.9/24", "br0 bridge b-eth0 b-eth1")
	if d := m.device("b", "b-eth0"); d.Master != "br0" || slices.ContainsFunc(d.Addresses, func(a struct {
		Local  string `json:"local"`
		Prefix int    `json:"prefixlen"`
		Family string `json:"family"`
	}) bool {
		return a.Family == "inet"
	}) {
		t.Errorf("a port of the bridge: %+v", d)
	}

	// In place: another address, an MTU. Anew: another number. Gone, and come: a port.
	was, vx := m.device("r1", "vx"), m.device("r2", "vx")
	edited := strings.NewReplacer("{bridge: [b-eth0, b-eth1], address: 10.1.0.9/24}", "{bridge: b-eth0, address: 10.1.0.9/24}",
		"remote: 172.20.0.2, address: 10.9.0.1/24", "remote: 172.20.0.2, mtu: 1400, address: 10.9.0.11/24",
		"vxlan: 100, local: 172.20.0.2", "vxlan: 200, local: 172.20.0.2").Replace(ownInterfaces)
	edited = strings.Replace(edited, "  - h2 -- b\n", "  - h2 -- b: {to: {address: none}}\n", 1)
	second := m.file("second.yaml", edited)
	contains(t, m.ok("apply", second, "--dry-run"), "interfaces.vx vxlan 100", "vxlan 200", "interfaces.br0 bridge b-eth0 b-eth1")
	m.ok("apply", second)
	if is := m.device("r1", "vx"); is.Index != was.Index || is.MTU != 1400 || !is.has("10.9.0.11") || is.has("10.9.0.1") {
		t.Errorf("set in place, of %+v became %+v", was, is)
	}
	if is := m.device("r2", "vx"); is.Index == vx.Index || is.Master != "br1" {
		t.Errorf("made anew, of %+v became %+v", vx, is)
	}
	if is := m.device("b", "b-eth1"); is.Master != "" {
		t.Errorf("b-eth1 is still a port: %+v", is)
	}
	m.quiet("apply")
	m.ok("apply", file)
	reach("apply and back")
	if is := m.device("r1", "vx"); is.MTU == 1400 || is.has("10.9.0.11") {
		t.Errorf("back again: %+v", is)
	}

	// What somebody has made by hand in the way of an apply is left, and so is the lab.
	m.exec("r1", "ip link add theirs type bridge")
	vx = m.device("r2", "vx")
	broken := strings.NewReplacer("vx: {vxlan: 100, local: 172.20.0.1", "theirs: {bridge: r1-eth1}, vx: {vxlan: 100, mtu: 1300, local: 172.20.0.1",
		"br1: {bridge: [vx, r2-eth1]", "br1: {bridge: [r2-eth1]").Replace(ownInterfaces) + "  - r1 -- h4\n"
	broken = strings.Replace(broken, "nodes:\n", "nodes:\n  h4: host\n", 1)
	r := m.want(1, "apply", m.file("broken.yaml", broken))
	contains(t, r.err, "r1: interface theirs: there is a device of that name that somebody else has made", "the lab is as it was")
	if is := m.device("r2", "vx"); is.Master != "br1" || m.device("r1", "vx").MTU == 1300 {
		t.Errorf("after a change that was undone: %+v", is)
	}
	m.exec("r1", "ip link del theirs")
	reach("a change that was undone")

	m.ok("link", "set", "h1-b", "delay=1ms") // another kind of device, where the kernel has no netem
	reach("a delay")
	m.ok("link", "set", "h1-b", "delay=none")
	m.ok("link", "set", "r1-r2", "down")
	m.want(1, "exec", "h3", "--", "ping", "-c", "1", "-W", "1", "10.9.0.1")
	m.ok("link", "set", "r1-r2", "up")
	reach("a link that was down")

	m.killDaemon()
	m.ok("resume")
	reach("resume")
	m.quiet("resume")
	m.exec("b", "ip link set b-eth0 nomaster")
	m.exec("r1", "ip link del vx")
	state := m.looked()
	contains(t, strings.Join(state.State.Wrong, "\n"), "b has another place for b-eth0", "r1 no longer has the device vx")

	// None of them any more: ports are interfaces like others.
	plain := ownInterfaces
	for _, line := range strings.Split(ownInterfaces, "\n") {
		if at := strings.Index(line, "interfaces:"); at >= 0 || strings.HasPrefix(line, "        ") {
			plain = strings.Replace(plain, line+"\n", "", 1)
		}
	}
	plain = strings.Replace(plain, "  r1:\n", "  b: host\n  r1:\n", 1)
	m.ok("apply", m.file("plain.yaml", plain))
	for node, name := range map[string]string{"b": "br0", "r1": "vx", "r2": "br1"} {
		if is := m.device(node, name); is.Name != "" {
			t.Errorf("%s still has %+v", node, is)
		}
	}
	m.ok("down")
	m.unchanged(before)
}

// TestInterfacesLacking proves that a kernel that cannot make a kind of interfaces is told before
// anything is made: of which node, and what would help; and by apply, which changes nothing.
func TestInterfacesLacking(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if m.do(m.command("ip", "link", "add", "trivettest", "type", "dummy")).code == 0 {
		t.Skip("this kernel makes dummies")
	}
	before := m.snapshot()
	const plain = "nodes: {h1: host, h2: host}\nlinks: [h1 -- h2]\n"
	file := m.file("dummy.yaml", strings.Replace(plain, "h2: host", "h2: {host: {interfaces: {d: {dummy: true}}}}", 1))
	contains(t, m.want(1, "up", file).err, "host h2: interface d: this kernel cannot make a dummy", "modprobe dummy")
	m.unchanged(before)
	m.up(m.file("plain.yaml", plain))
	contains(t, m.want(1, "apply", file).err, "modprobe dummy")
	m.pingAll(2)
	m.ok("down")
}

// TestInterfacesFullKernel proves of the kinds of interfaces that this kernel may lack that they
// are made and do what they are for: VLANs on one link between which a router routes, a bond that
// one of its links may fail of, a VRF that keeps its networks apart, tunnels by GRE and VXLAN over
// the bond, and a dummy; and that verify finds nothing wrong, also after a change of each and back.
func TestInterfacesFullKernel(t *testing.T) {
	if os.Getenv("TRIVET_FULL_KERNEL") != "1" {
		t.Skip("this may be a kernel without 802.1Q, bonds and VRFs; make slow PARTS=vm-interfaces runs the test in one that has them")
	}
	m := newMachine(t)
	m.sh("ip link add try type gre remote 192.0.2.1 local 192.0.2.2 && ip link del try") // the module brings devices of its own
	before := m.snapshot()
	text, err := os.ReadFile(example("interfaces.yaml"))
	must(t, err)
	example := strings.Replace(string(text), "nodes:\n", "name: own\ndatapath: bridge\nnodes:\n", 1)
	file := m.file("own.yaml", example)
	m.up(file)
	ping := func(from, to string) bool {
		return m.run("exec", from, "--", "ping", "-c", "2", "-W", "5", "-i", "0.3", to).code == 0
	}
	all := func(when string) {
		t.Helper()
		for _, pair := range [][2]string{{"h10", "10.0.20.2"}, {"h20", "10.0.10.1"}, {"h10", "10.0.30.2"}, {"h30", "10.0.30.3"}, {"red1", "10.0.2.2"}, {"h20", "10.5.0.1"}, {"r1", "10.9.0.2"}, {"r1", "10.100.0.2"}} {
			if !ping(pair[0], pair[1]) {
				t.Fatalf("%s: %s does not reach %s", when, pair[0], pair[1])
			}
		}
		for _, pair := range [][2]string{{"red1", "10.0.30.2"}, {"h30", "10.0.1.2"}} {
			if m.run("exec", pair[0], "--", "ping", "-c", "1", "-W", "1", pair[1]).code == 0 {
				t.Fatalf("%s: %s reaches %s out of its VRF", when, pair[0], pair[1])
			}
		}
		m.quiet(when)
	}
	all("up")
	contains(t, m.exec("r1", "ip -d link show r1-eth0.10"), "vlan protocol 802.1Q id 10", "LOOSE_BINDING")

	// Frames are tagged on the wire.
	if out := m.exec("h10", "timeout 60 tcpdump -e -n -c 1 -i h10-eth0 icmp & while kill -0 $! 2>/dev/null; do ping -c 1 -W 1 10.0.10.1 > /dev/null; done; wait"); !strings.Contains(out, "vlan 10") {
		t.Error("a ping in VLAN 10 is no tagged frame: ", out)
	}

	active := func() string {
		return strings.Fields(strings.SplitN(m.exec("r1", "ip -d link show bond0"), "active_slave", 2)[1])[0]
	}
	first := active()
	m.exec("r2", "ip link set "+map[string]string{"r1-eth1": "r2-eth0", "r1-eth2": "r2-eth1"}[first]+" down")
	eventually(t, "the bond has taken its other link", func() bool { return active() != first && ping("h10", "10.0.30.2") })
	m.exec("r2", "ip link set "+map[string]string{"r1-eth1": "r2-eth0", "r1-eth2": "r2-eth1"}[first]+" up")
	eventually(t, "the link is back", func() bool { return strings.Contains(m.exec("r1", "cat /sys/class/net/"+first+"/carrier"), "1") })

	changed := strings.NewReplacer("r1-eth0.20: {vlan: 20,", "r1-eth0.20: {vlan: 21,", "h20-eth0.20: {vlan: 20,", "h20-eth0.20: {vlan: 21,",
		"mode: active-backup", "mode: balance-xor", "table: 10", "table: 1000", "gre: 10.0.0.1, local: 10.0.0.2, address: 10.9.0.2/30", "gre: 10.0.0.1, local: 10.0.0.2, mtu: 1400, address: 10.9.0.2/30",
		"vxlan: 100,", "vxlan: 101,", "dummy0: {dummy: true, address: 10.5.0.1/32}", "dummy1: {dummy: true, address: 10.5.0.1/32}").Replace(example)
	m.ok("apply", m.file("changed.yaml", changed))
	all("changed")
	contains(t, m.exec("r2", "ip route show table 1000"), "10.0.1.0/24 dev r2-eth4")
	m.ok("apply", file)
	all("changed back")

	m.ok("link", "set", "r1-s1", "down")
	m.ok("link", "set", "r1-s1", "up")
	m.ok("link", "set", "r2-red2", "down")
	m.ok("link", "set", "r2-red2", "up")
	m.killDaemon()
	m.ok("resume")
	all("links down and up, and resume")
	m.ok("down")

	// A static route over a VRF is in its table, and comes back there with its link.
	m.up(m.file("vrf.yaml", `
nodes:
  v: {host: {interfaces: {red: {vrf: v-eth0, table: 300}}, routes: 10.66.0.0/16 via 10.0.0.2}}
  w: host
links: [w -- v]
`))
	const route = "10.66.0.0/16 via 10.0.0.2 dev v-eth0 proto static"
	contains(t, m.exec("v", "ip route show table 300"), route)
	m.ok("link", "set", "w-v", "down")
	m.ok("link", "set", "w-v", "up")
	contains(t, m.exec("v", "ip route show table 300"), route)
	m.quiet("a VRF's link was down")
	contains(t, m.ok("save", "--dry-run"), "nothing to save")
	m.ok("down")
	m.unchanged(before)
}
