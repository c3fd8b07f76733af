package e2e

import (
	"os"
	"strings"
	"testing"
)

// frrFar is FRR as somebody else would have set it up: in a network of its own, at the other end of
// a cable in the machine's eth1, with the address 10.0.0.2/24 on a device and 192.0.2.9 of its own.
type frrFar struct {
	m      *machine
	device string
}

// farRouter starts FRR at the far end of eth1: untagged, or in a VLAN.
func (m *machine) farRouter(vlan, config string) *frrFar {
	m.t.Helper()
	device := "far1" + vlan
	m.sh(`ip netns add world
		ip link add eth1 type veth peer name far1 netns world
		ip link set eth1 up; ip -n world link set far1 up; ip -n world link set lo up
		ip -n world addr add 192.0.2.9/32 dev lo`)
	if vlan != "" {
		m.sh("ip -n world link add link far1 name " + device + " type vlan id " + vlan[1:] + " && ip -n world link set " + device + " up")
	}
	m.sh("ip -n world addr add 10.0.0.2/24 dev " + device + `
		install -d -o frr -g frr /run/frr
		for daemon in zebra ospfd; do ip netns exec world /usr/lib/frr/$daemon -d -A 127.0.0.1; done`)
	f := &frrFar{m, device}
	f.configure("interface "+device, config, "router ospf", "ospf router-id 9.9.9.9", "network 192.0.2.9/32 area 1", "network 10.0.0.0/16 area 1")
	return f
}

// configure types lines at FRR's prompt, in configuration mode.
func (f *frrFar) configure(lines ...string) {
	f.m.t.Helper()
	command := "vtysh -c 'configure terminal'"
	for _, line := range strings.Split(strings.Join(lines, "\n"), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			command += " -c '" + line + "'"
		}
	}
	f.m.sh(command)
}

// at types lines for the interface.
func (f *frrFar) at(lines ...string) {
	f.m.t.Helper()
	f.configure(append([]string{"interface " + f.device}, lines...)...)
}

// physicalVLAN is the VLAN of the tests that need the kernel to have 802.1Q.
const physicalVLAN = ".20"

// wantVLANs skips a test where the kernel has no VLANs, which a full one must have.
func wantVLANs(m *machine) {
	m.t.Helper()
	m.sh("ip link add probe0 type veth peer name probe1")
	has := m.do(m.command("ip", "link", "add", "link", "probe0", "name", "probe.7", "type", "vlan", "id", "7")).code == 0
	m.sh("ip link del probe0")
	if !has {
		if os.Getenv("TRIVET_FULL_KERNEL") == "1" {
			m.t.Fatal("this kernel has no VLANs")
		}
		m.t.Skip("this kernel has no VLANs (802.1Q); make test-vm runs the test in one that has them")
	}
}

// TestPhysicalRouter proves that a router which Trivet has not configured, FRR at the other end of
// an interface of the machine, becomes a Full neighbour of the example's r1, that each has the
// other's routes and hosts reach what is behind it, and that after down the interface is what it
// was; also in a VLAN that exists, which is taken, and in one that does not, which is made and
// removed, also by down of a lab whose daemon was killed, while its trunk stays where it is.
func TestPhysicalRouter(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(example("physical-router.yaml"))
	must(t, err)
	for _, c := range []struct{ name, vlan string }{{"untagged", ""}, {"vlan that exists", physicalVLAN}, {"vlan that is made", physicalVLAN}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if c.vlan != "" {
				wantVLANs(m)
			}
			f := m.farRouter(c.vlan, "")
			f.configure("router ospf", "no network 192.0.2.9/32 area 1", "no network 10.0.0.0/16 area 1", "network 192.0.2.9/32 area 0", "network 10.0.0.0/24 area 0")
			if c.name == "vlan that exists" {
				m.sh("ip link add link eth1 name eth1.20 type vlan id 20 && ip link set eth1.20 up")
			}
			const look = "while ip -6 addr | grep -q tentative; do sleep 0.02; done; ip -d link; ip addr"
			before, was := m.snapshot(), m.sh(look)
			file := m.file("physical.yaml", strings.ReplaceAll(string(text), "interface:eth1", "interface:eth1"+c.vlan))
			m.up(file)
			eventually(t, "r1 and FRR are Full", func() bool { return m.full()["r1 "] })
			eventually(t, "r2 has FRR's route", func() bool { return strings.Contains(m.ok("routes", "r2"), "192.0.2.9/32") })
			eventually(t, "FRR has a route to h1", func() bool { return m.run("exec", "h1", "--", "ping", "-c", "1", "-W", "1", "192.0.2.9").code == 0 })
			if text := m.ok("ospf", "neighbors"); strings.Contains(text, "hears") {
				t.Error("routers that agree are said not to:\n", text)
			}
			if c.vlan != "" {
				contains(t, m.sh("ip -d link show eth1"), "eth1")
				if c.name == "vlan that is made" {
					m.killDaemon()
				}
			}
			contains(t, m.ok("down"), "nothing left")
			m.unchanged(before)
			if now := m.sh(look); now != was {
				t.Errorf("the interfaces are not what they were:\n%s", lineDiff(was, now))
			}
		})
	}
}

// TestPhysicalVLANErrors proves that a VLAN that cannot be made is refused with the reason and what
// to do, and that nothing is left then.
func TestPhysicalVLANErrors(t *testing.T) {
	m := newMachine(t)
	m.sh("ip link add eth1 type veth peer name far1; ip link set far1 up")
	before := m.snapshot()
	up := func(links string, words ...string) {
		t.Helper()
		file := m.file("vlan.yaml", "nodes: {r1: {router: {ospf: area 0}}, r2: router}\nlinks: ["+links+", r1 -- r2]\n")
		contains(t, m.want(1, "up", "--name", m.name, file).err, words...)
		m.unchanged(before)
	}
	up("r1 -- interface:eth9.20", "the machine has no interface eth9.20, and no eth9 to make VLAN 20 of; there are: ", "eth1")
	up("r1 -- interface:eth9", "the machine has no interface eth9; there are: ", "eth1")
	up("r1 -- interface:eth1.4095", "the machine has no interface eth1.4095; there are: ")
	up("r1 -- interface:eth1.20", "interface eth1, which is to carry VLAN 20, is down:  sudo ip link set eth1 up")
	m.sh("ip link set eth1 up mtu 1400")
	before = m.snapshot()
	up("r1 -- interface:eth1.20", "interface eth1 has an MTU of 1400", "sudo ip link set eth1 mtu 1500")
	up("r1 -- interface:eth1, r2 -- interface:eth1.20", "vlan.yaml:2:", "a lab cannot take both")
	m.sh("ip link set eth1 mtu 1500")
	wantVLANs(m)
	m.sh("ip link add link eth1 name office type vlan id 20")
	before = m.snapshot()
	up("r1 -- interface:eth1.20", "VLAN 20 of eth1 is there already under another name: write interface:office")
}

// TestMismatchWithFRR proves that each disagreement with a real router is named while it lasts,
// with both values and the cure, in the list of neighbours and in the log, and no more once the
// router agrees, when the two become Full.
func TestMismatchWithFRR(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const right = `ip ospf authentication message-digest
		ip ospf message-digest-key 1 md5 walnut
		ip ospf hello-interval 1
		ip ospf dead-interval 4
		ip ospf retransmit-interval 3`
	f := m.farRouter("", right)
	m.up(m.file("mismatch.yaml", `nodes: {r1: {router: {ospf: area 1}}, h1: host}
links:
  - r1 -- interface:eth1: {from: {address: 10.0.0.1/24}, ospf: {hello: 1s, dead: 4s, retransmit: 3s, auth: {type: md5, key: walnut}}}
  - r1 -- h1
`))
	full := func() bool { return m.full()["r1 "] && !strings.Contains(m.ok("ospf", "neighbors"), "hears") }
	eventually(t, "r1 and FRR are Full", full)
	address := func(now, then string) {
		m.sh("ip -n world addr del " + now + " dev far1; ip -n world addr add " + then + " dev far1")
	}
	restart := func() { m.sh("ip -n world link set far1 down; ip -n world link set far1 up") }
	id := func(id string) { // which it does not change while it has neighbours
		f.configure("router ospf", "ospf router-id "+id)
		m.sh("vtysh -c 'clear ip ospf process'")
	}
	for _, c := range []struct {
		name         string
		wrong, right func()
		want         string
	}{
		{"hello", func() { f.at("ip ospf hello-interval 2") }, func() { f.at("ip ospf hello-interval 1") },
			"r1-eth0 hears 10.0.0.2 with hello 2 s, here 1 s: set `ospf: {hello: 2s}` on this link, or 1 s there"},
		{"dead", func() { f.at("ip ospf dead-interval 20") }, func() { f.at("ip ospf dead-interval 4") },
			"r1-eth0 hears 10.0.0.2 with dead 20 s, here 4 s: set `ospf: {dead: 20s}` on this link, or 4 s there"},
		{"area", func() { f.configure("router ospf", "no network 10.0.0.0/16 area 1", "network 10.0.0.0/16 area 7") },
			func() { f.configure("router ospf", "no network 10.0.0.0/16 area 7", "network 10.0.0.0/16 area 1") },
			"r1-eth0 hears 10.0.0.2 with area 0.0.0.7, here 0.0.0.1: set `ospf: area 0.0.0.7` on this link, or area 0.0.0.1 there"},
		{"stub", func() { f.configure("router ospf", "area 1 stub") }, func() { f.configure("router ospf", "no area 1 stub") },
			"r1-eth0 hears 10.0.0.2 with stub area yes, here no: write `areas: {0.0.0.1: stub}` in the router's `ospf`"},
		{"authentication type", func() { f.at("no ip ospf authentication") }, func() { f.at("ip ospf authentication message-digest") },
			"r1-eth0 hears 10.0.0.2 with authentication type none, here cryptographic: "},
		{"secret", func() { f.at("no ip ospf message-digest-key 1", "ip ospf message-digest-key 1 md5 hazel") },
			func() { f.at("no ip ospf message-digest-key 1", "ip ospf message-digest-key 1 md5 walnut") },
			"r1-eth0 hears 10.0.0.2 with key 1 with another secret, here key 1 (md5): "},
		{"key id", func() { f.at("no ip ospf message-digest-key 1", "ip ospf message-digest-key 9 md5 walnut") },
			func() { f.at("no ip ospf message-digest-key 9", "ip ospf message-digest-key 1 md5 walnut") },
			"r1-eth0 hears 10.0.0.2 with key 9, here key 1 (md5): "},
		{"router id", func() { id("0.0.0.1") }, func() { id("9.9.9.9") },
			"r1-eth0 hears 10.0.0.2 with the router id 0.0.0.1, which r1 has: "},
		{"mask", func() { address("10.0.0.2/24", "10.0.0.2/25") }, func() { address("10.0.0.2/25", "10.0.0.2/24") },
			"r1-eth0 hears 10.0.0.2 with network mask 255.255.255.128, here 255.255.255.0: "},
		{"subnet", func() { address("10.0.0.2/24", "10.0.1.2/24") }, func() { address("10.0.1.2/24", "10.0.0.2/24") },
			"r1-eth0 hears 10.0.1.2 with subnet 10.0.1.2, here 10.0.0.0/24: "},
		{"larger MTU", func() { m.sh("ip -n world link set far1 mtu 1600"); restart() }, func() { m.sh("ip -n world link set far1 mtu 1500"); restart() },
			"r1-eth0 hears 10.0.0.2 with MTU 1600, here 1500: set an MTU of 1500 there"},
		{"smaller MTU", func() { m.sh("ip -n world link set far1 mtu 1400"); restart() }, func() { m.sh("ip -n world link set far1 mtu 1500"); restart() },
			"r1-eth0 hears 10.0.0.2 with MTU 1400, here 1500: set an MTU of 1500 there"},
		{"network type", func() { f.at("ip ospf network point-to-point") }, func() { f.at("ip ospf network broadcast") },
			"r1-eth0 hears 10.0.0.2 with network type point-to-point, here broadcast: set `ospf: {network: point-to-point}` on this link"},
	} {
		c.wrong()
		eventually(t, c.name+" is named", func() bool { return strings.Contains(m.ok("ospf", "neighbors"), c.want) })
		contains(t, m.ok("logs"), c.want)
		c.right()
		eventually(t, c.name+" is right again", full)
	}
	m.ok("down")
}

// TestRackRouter proves the same of two machines with kernels of their own: on one FRR, which
// Trivet has not configured, on a trunk; on the other the example, with a VLAN of the trunk, which
// carries the way between the machines as well.
func TestRackRouter(t *testing.T) {
	r := newRack(t, 1)
	text, err := os.ReadFile(example("physical-router.yaml"))
	must(t, err)
	r.file("physical.yaml", strings.ReplaceAll(string(text), "interface:eth1", "interface:eth0.20"))
	if code, out := r.do(r.at(1, `export PATH=/usr/sbin:/sbin:$PATH
		ip link set lo up; ip link add link eth0 name eth0.20 type vlan id 20; ip link set eth0.20 up
		ip addr add 10.0.0.2/24 dev eth0.20; ip addr add 192.0.2.9/32 dev lo
		install -d -o frr -g frr /run/frr
		for daemon in zebra ospfd; do /usr/lib/frr/$daemon -d -A 127.0.0.1 </dev/null >/dev/null 2>&1; done
		vtysh -c 'configure terminal' -c 'router ospf' -c 'ospf router-id 9.9.9.9' -c 'network 192.0.2.9/32 area 0' -c 'network 10.0.0.0/24 area 0'`)); code != 0 {
		t.Fatal(out)
	}
	_, was := r.do("ip -br link; ip -br -4 addr")
	r.trivet("up", r.dir+"/physical.yaml")
	reached := func() bool {
		code, _ := r.do(trivet + " exec h1 -- ping -c 1 -W 5 192.0.2.9")
		return code == 0
	}
	patiently(t, "h1 reaches what is behind the router", reached)
	_, list := r.do(trivet + " ospf neighbors r1")
	contains(t, list, "9.9.9.9", "Full", "10.0.0.2")
	r.trivet("down")
	if _, now := r.do("ip -br link; ip -br -4 addr"); now != was {
		t.Errorf("the machine is not what it was:\n%s", differing(was, now))
	}
}
