package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checked is what trivet rack check prints of a machine.
type checked struct {
	Name, Machine, Lab string
	Findings           []struct {
		What, Says, Cure string
		OK, Needed       bool
	}
}

// checkedRack is the output of trivet rack check --json.
type checkedRack []checked

func readChecked(t *testing.T, out string) (r checkedRack) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// is fails the test unless something was found of a machine, and said in these words; what is wrong
// must have a cure.
func (r checkedRack) is(t *testing.T, machine, what string, ok bool, words ...string) {
	t.Helper()
	var have []string
	for _, m := range r {
		for _, f := range m.Findings {
			if m.Name != machine {
				continue
			}
			have = append(have, fmt.Sprintf("%s: %v: %s", f.What, f.OK, f.Says))
			lacks := func(word string) bool { return !strings.Contains(f.Says, word) }
			if f.What == what && f.OK == ok && (ok || f.Cure != "") && !slices.ContainsFunc(words, lacks) {
				return
			}
		}
	}
	t.Errorf("%s: %s is not %v (%q), but:\n%s", machine, what, ok, words, strings.Join(have, "\n"))
}

// dropVLAN makes a port of a bridge lose what leaves there with the tag of a VLAN. The program is
// classic BPF: behind the addresses come 0x8100 and the tag.
const dropVLAN = "tc qdisc replace dev %[1]s clsact && tc filter add dev %[1]s egress pref %[2]d protocol all bpf bytecode " +
	"'7,40 0 0 12,21 0 3 33024,40 0 0 14,84 0 0 4095,21 1 0 %[2]d,6 0 0 4294967295,6 0 0 2' direct-action"

// dhcpServer answers every discovery with an offer of 10.5.0.99 (RFC 2131, section 4.3.1).
const dhcpServer = `import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.setsockopt(socket.SOL_SOCKET, 25, sys.argv[1].encode())
s.bind(("", 67))
while True:
    q, _ = s.recvfrom(2000)
    own = socket.inet_aton(sys.argv[2])
    a = b"\x02" + q[1:8] + b"\0\0\x80\0" + bytes(4) + socket.inet_aton("10.5.0.99") + own + bytes(4) + q[28:236] + b"\x63\x82\x53\x63\x35\x01\x02\x36\x04" + own + b"\xff"
    s.sendto(a, ("255.255.255.255", 68))
`

// macOf is the MAC of a machine's eth0; what it sees of /sys is another's.
func macOf(m *machine) string {
	m.t.Helper()
	return strings.Fields(m.sh("ip -br link show eth0"))[2]
}

// TestRackCheckSegment proves, on machines that are namespaces, that trivet rack init finds the
// devices and writes a file that serves, and that trivet rack check tells from one another: a rack
// that is as it should be; two devices at each other's ports; a VLAN that a port does not let
// through; an address that two have; a second DHCP server; a device that is not there, and one that
// is but does not let us in.
func TestRackCheckSegment(t *testing.T) {
	s := newSeveral(t, 3)
	h := s.head
	contains(t, h.ok("rack", "init"), "10.5.0.2", "OpenSSH", "rack.yaml: 3 devices")
	found := readChecked(t, h.run("rack", "check", "--json", "rack.yaml").out)
	found.is(t, "dev-3", "VLAN 3", true)
	contains(t, h.run("rack", "init", "--inner", "hub").String(), "exit 1", "rack.yaml exists: --force replaces it")

	const rack = "gateway: {inner: hub}\ndevices:\n  m1: root@10.5.0.2\n  m2: root@10.5.0.3\n  m3: root@10.5.0.4\n"
	h.file("rack.yaml", rack)
	check := func(args ...string) checkedRack {
		t.Helper()
		r := h.run(append([]string{"rack", "check", "--json", "rack.yaml"}, args...)...)
		return readChecked(t, r.out)
	}

	found = check()
	for i, name := range []string{"m1", "m2", "m3"} {
		found.is(t, name, "reach it over SSH", true)
		found.is(t, name, fmt.Sprintf("VLAN %d", i+2), true, "arrives both ways, tagged, packets of 1500 bytes too")
		found.is(t, name, "address", true, "is its alone")
		found.is(t, name, "MTU", true)
	}
	found.is(t, "gateway", "trunk", true)
	found.is(t, "gateway", "DHCP", true, "nobody gives out addresses")
	if found := check("m2"); len(found) != 2 || found[1].Name != "m2" {
		t.Errorf("of one device: %+v", found)
	}
	contains(t, h.run("rack", "check", "rack.yaml", "m9").String(), "rack.yaml has no device m9", "m1, m2, m3")

	for _, drop := range []struct{ port, vlan int }{{1, 2}, {2, 3}, {3, 4}, {3, 2}, {3, 3}} {
		h.sh(fmt.Sprintf(dropVLAN, fmt.Sprintf("to-m%d", drop.port), drop.vlan))
	}
	h.sh("ip neigh replace 10.5.0.3 lladdr " + macOf(s.others[1]) + " dev hub nud permanent")
	s.others[2].sh("ip addr add 10.5.0.3/32 dev eth0")
	other := macOf(s.others[2])
	for _, m := range []*machine{s.others[2], h} {
		nic, address := "eth0", "10.5.0.4"
		if m == h {
			nic, address = "hub", "10.5.0.1"
		}
		must(t, m.start(m.command("/usr/bin/python3", m.file("dhcp.py", dhcpServer), nic, address)))
	}
	eventually(t, "both servers listen", func() bool {
		return strings.Contains(s.others[2].sh("cat /proc/net/udp"), ":0043 ") && strings.Contains(h.sh("cat /proc/net/udp"), ":0043 ")
	})
	h.file("rack.yaml", rack+"  m4: root@10.5.0.9\n")
	found = check()
	found.is(t, "m1", "VLAN 2", false, "m1 and m2 are swapped: VLAN 2 arrives at m2, and VLAN 3 at m1")
	found.is(t, "m2", "VLAN 3", false, "m2 and m1 are swapped: VLAN 3 arrives at m1, and VLAN 2 at m2")
	found.is(t, "m3", "VLAN 4", false, "VLAN 4 does not arrive; its port lets through VLAN 1 (untagged), VLAN 9 only", "it arrives at m1, m2")
	found.is(t, "m2", "address", false, "m2 has 10.5.0.3, and so has "+other)
	found.is(t, "gateway", "DHCP", false, "a second DHCP server: 10.5.0.4 ("+other+"), which is m3, offers 10.5.0.99")
	found.is(t, "m4", "reach it over SSH", false)
	found.is(t, "m4", "address", false, "nobody on the segment has 10.5.0.9")
	table := h.run("rack", "check", "rack.yaml")
	contains(t, table.String(), "exit 1", "MACHINE", "m1 and m2 are swapped", "→ exchange their cables at the switch")

	h.file(".ssh/known_hosts", "")
	h.sh("rm -f " + filepath.Join(h.dir, ".ssh/known_hosts"))
	found = check("m1")
	found.is(t, "m1", "reach it over SSH", false, "its host key is not known")
	found.is(t, "m1", "address", true, "answers ARP for 10.5.0.2: it is on and connected")
}

// newSwitchedRack boots a rack whose machines a switch joins, which is a machine, too: a bridge
// that looks at VLANs. Its port eth0 is the gateway's, eth1 that of m1, and so on; all are untagged
// in VLAN 1. configure gives ports tags:  vid 2 of eth1.
func newSwitchedRack(t *testing.T, n int) (r *rack, configure func(commands string)) {
	t.Helper()
	wires := map[string][]string{"head": {"w0"}, "switch": {"w0"}}
	for i := 1; i <= n; i++ {
		w := fmt.Sprintf("w%d", i)
		wires[fmt.Sprintf("m%d", i)], wires["switch"] = []string{w}, append(wires["switch"], w)
	}
	r = newWiredRack(t, n, wires, func(r *rack) {
		r.boot("switch", 250, fmt.Sprintf(`ip addr flush dev eth0; ip link add br0 type bridge vlan_filtering 1; ip link set br0 up
			for p in $(seq 0 %d); do ip link set eth$p master br0 up; done
			cd %s; while :; do [ -e switch.cmd ] || { sleep 0.05; continue; }; mv switch.cmd switch.now; sh -ex switch.now >switch.out 2>&1 && mv switch.now switch.done; done`, n, r.dir))
	})
	return r, func(commands string) {
		t.Helper()
		os.Remove(filepath.Join(r.dir, "switch.done"))
		r.file("switch.new", commands)
		must(t, os.Rename(filepath.Join(r.dir, "switch.new"), filepath.Join(r.dir, "switch.cmd")))
		eventually(t, "the switch takes "+commands, func() bool {
			_, err := os.Stat(filepath.Join(r.dir, "switch.done"))
			return err == nil
		})
	}
}

// TestRackCheck proves, on virtual machines that a switch with VLANs joins, that trivet rack check
// finds nothing wrong with a rack as it should be, and finds: devices at each other's ports, a port
// that is not tagged in its VLAN, the gateway's port in no VLAN at all, a full disk before and
// after the program is there, a second DHCP server and a device without power; that it may look
// while a lab is up; and that trivet rack selftest on the good rack brings a lab up past which
// nothing gets, leaves nothing, and writes a report without keys.
func TestRackCheck(t *testing.T) {
	r, configure := newSwitchedRack(t, 3)
	r.file("rack.yaml", fmt.Sprintf("gateway: {inner: eth0}\nkeep: 20s\ndevices:\n  m1: {ssh: root@10.5.0.2, key: %[1]s/own}\n  m2: {ssh: root@10.5.0.3, key: %[1]s/own}\n  m3: {ssh: root@10.5.0.4, key: %[1]s/own}\n", r.dir))
	check := func(devices ...string) checkedRack {
		t.Helper()
		_, out := r.do(trivet + " rack check --json " + r.dir + "/rack.yaml " + strings.Join(devices, " "))
		return readChecked(t, out)
	}
	const good = "for v in 2 3 4; do bridge vlan add dev eth0 vid $v; bridge vlan add dev eth$((v-1)) vid $v; done\n"
	configure(good)
	code, out := r.do(trivet + " rack check --all " + r.dir + "/rack.yaml")
	t.Logf("%s", out)
	if code != 0 {
		t.Errorf("a rack as it should be: exit %d", code)
	}
	contains(t, out, "0 things wrong", "arrives both ways, tagged, packets of 1500 bytes too")

	code, out = r.do("cd " + r.dir + " && " + trivet + " rack selftest rack.yaml --file report.md")
	t.Logf("%s", out)
	report, err := os.ReadFile(filepath.Join(r.dir, "report.md"))
	must(t, err)
	steps := string(report)
	if code == 0 {
		contains(t, steps, "everything held")
	} else { // delays are measured by clocks, which virtual machines do not keep together
		contains(t, steps, "something did not hold", "| verify | **NO** |", "addresses 2/2 ", "names 4/4 ", "reach 2/2 ", "isolated from outside ")
		if n := strings.Count(steps, "**NO**"); n > 1 {
			t.Errorf("%d steps did not hold", n)
		}
	}
	contains(t, steps, "| check | ok |", "| up | ok |", "| ping --all | ok |", "m1: 0 of 7 arrived; m2: 0 of 7 arrived", "m1: 6 of 7 arrived", // the switch lets no strange VLAN through
		"| down | ok |", "| the devices are what they were | ok |")
	for _, secret := range []string{"PRIVATE", "ssh-ed25519", r.dir + "/own"} {
		if strings.Contains(string(report), secret) {
			t.Errorf("the report has %s in it", secret)
		}
	}

	r.trivet("up", "linear,2", "--on", r.dir+"/rack.yaml", "--name", "lab")
	found := check()
	found.is(t, "m1", "VLAN 2", true, "it is in a lab")
	found.is(t, "m3", "VLAN 4", true, "arrives both ways")
	r.all("lab", 2)
	r.trivet("down", "lab")

	configure("bridge vlan del dev eth1 vid 2; bridge vlan del dev eth2 vid 3; bridge vlan add dev eth1 vid 3; bridge vlan add dev eth2 vid 2; bridge vlan add dev eth3 vid 4 untagged\n")
	r.do(r.at(1, "mount -t tmpfs -o size=1m none /root/.cache"))
	r.do(r.at(2, "mount -t tmpfs -o size=8m none /tmp"))
	found = check()
	found.is(t, "m1", "reach it over SSH", false, "its disk is full")
	found.is(t, "m2", "disk", false, "/tmp is full: 8 MB of 8 MB")
	found.is(t, "m3", "VLAN 4", false, "VLAN 4 arrives without its tag")
	r.do(r.at(1, "umount /root/.cache"))
	r.do(r.at(2, "umount /tmp"))
	found = check()
	found.is(t, "m1", "VLAN 2", false, "m1 and m2 are swapped: VLAN 2 arrives at m2, and VLAN 3 at m1")
	found.is(t, "m2", "VLAN 3", false, "m2 and m1 are swapped")

	configure("for v in 2 3 4; do bridge vlan del dev eth0 vid $v; done\n")
	r.file("dhcp.py", dhcpServer)
	r.do(r.at(3, fmt.Sprintf("/usr/bin/python3 %s/dhcp.py eth0 10.5.0.4 </dev/null >/dev/null 2>&1 & sleep 1", r.dir)))
	found = check()
	found.is(t, "gateway", "trunk", false, "no VLAN arrives at any device")
	found.is(t, "gateway", "DHCP", false, "not this machine, but another DHCP server: 10.5.0.4", "which is m3, offers 10.5.0.99")
	found.is(t, "m1", "VLAN 2", false, "VLAN 2 does not arrive; its port lets through VLAN 1 (untagged) only")
	r.cut("m2")
	found = check("m2")
	found.is(t, "m2", "reach it over SSH", false)
	found.is(t, "m2", "address", false, "nobody on the segment has 10.5.0.3")
}
