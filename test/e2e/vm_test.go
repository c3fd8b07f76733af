package e2e

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"trivet.dev/trivet/bench/verify"
	"trivet.dev/trivet/datapath/vm"
)

// bootKernel is where a kernel for virtual machines is if /boot has none, fetched once.
var bootKernel = sync.OnceValues(func() (string, error) {
	if _, err := vm.FindKernel(""); err == nil {
		return "", nil
	}
	out, err := exec.Command("../vm/vmrun", "--kernel", "cloud", "--fetch").Output()
	return strings.TrimSpace(string(out)), err
})

// withMachines skips where virtual machines cannot be had.
func (m *machine) withMachines() {
	m.t.Helper()
	m.withDaemons()
	kernel, err := bootKernel()
	if err != nil {
		m.t.Skip("no kernel for virtual machines: ", err)
	}
	if kernel != "" {
		m.env = append(m.env, vm.KernelVariable+"="+kernel)
	}
	if err := vm.Lacks(kernel); err != nil {
		m.t.Skip(err)
	}
}

// TestVirtualMachines proves that routers in virtual machines find each other, and an FRR router in
// a namespace, by OSPF before up returns, over plain links and over one that is impaired; that
// commands run in them, with their input, output, terminal and exit code; that a cable that is
// pulled is one to them, too; that one that dies is named, and started again by apply; that they go
// on while the lab's daemon is dead, and are found by the next one; and that nothing is left of
// them.
func TestVirtualMachines(t *testing.T) {
	m := newMachine(t)
	m.withMachines()
	before := m.snapshot()
	const text = `
controller: none
defaults: {link: {ospf: {hello: 1s, dead: 10s}}}
nodes:
  "r[1-2]": {router: {datapath: vm, ospf: area 0}}
  r3: {router: {datapath: frr, ospf: area 0}}
  "h[1-3]": host
links:
  - "r[1-3] -- h[1-3]"
  - r2 -- r3
  - r3 -- r1
  - r1 -- r2: {delay: 5ms}
`
	file := m.file("lab.yaml", text)
	m.up(file, "--wait", "300s")
	m.pingAll(6)
	if full := m.full(); !full["r1 r2"] || !full["r2 r1"] || !full["r1 r3"] {
		t.Errorf("trivet ospf neighbors says that those are Full: %v", full)
	}
	contains(t, m.ok("ospf", "database", "r1"), "Area 0.0.0.0")
	contains(t, m.ok("ping", "r1", "h2", "-c", "2"), "2 received")

	host := strings.TrimSpace(m.sh("uname -r"))
	if inside := strings.TrimSpace(m.exec("r1", "uname -r")); inside == host {
		t.Errorf("the kernel of r1 is the machine's, %s", host)
	}
	m.want(7, "exec", "r1", "--", "sh", "-c", "exit 7")
	m.want(127, "exec", "r1", "--", "sh", "-c", "no-such-program")
	if r := m.runIn(strings.NewReader("walnut\n"), "exec", "r1", "--", "cat"); r.out != "walnut\n" {
		t.Errorf("cat says %q, %q", r.out, r.err)
	}
	contains(t, m.sh("script -qec '"+trivet+" exec r1 -- tty' /dev/null"), "/dev/pts/")
	m.exec("r1", "echo walnut >/etc/walnut")
	if _, err := os.Stat("/etc/walnut"); err == nil {
		t.Error("r1 has written to the machine's files")
	}
	contains(t, m.exec("r1", "mount -o remount,rw / 2>&1; mkdir -p /tmp/low && mount -t virtiofs root /tmp/low && echo walnut >/tmp/low/etc/walnut 2>&1 || echo refused"), "refused")

	m.ok("link", "set", "r1-r3", "down")
	eventually(t, "r1 sees that the cable is pulled", func() bool { return strings.Contains(m.exec("r1", "ip link show r1-eth1"), "NO-CARRIER") })
	m.ok("link", "set", "r1-r3", "up")
	eventually(t, "and plugged", func() bool { return !strings.Contains(m.exec("r1", "ip link show r1-eth1"), "NO-CARRIER") })

	m.sh("kill -9 " + strings.Join(m.pids("/qemu-system*/routers/r2/"), " "))
	const dead = "virtual-machine of router r2"
	eventually(t, "ls says what has died", func() bool { return strings.Contains(m.ok("ls"), dead) })
	contains(t, m.run("exec", "r2", "--", "true").err, "has ended")
	contains(t, m.ok("apply", file), dead+" has ended: started again")
	eventually(t, "it is a neighbour again", func() bool { return m.run("ping", "--all").code == 0 })

	machines := m.pids("/qemu-system*-nodefaults")
	m.kill("*_[_]daemon*")
	m.ok("resume")
	eventually(t, "packets flow over the new devices of the impaired link", func() bool { return m.run("ping", "--all").code == 0 })
	contains(t, m.ok("apply", m.file("lab.yaml", strings.Replace(text, "delay: 5ms", "delay: 1ms", 1))), "1 change")
	if now := m.pids("/qemu-system*-nodefaults"); strings.Join(now, " ") != strings.Join(machines, " ") {
		t.Errorf("machines were %v and are %v", machines, now)
	}
	m.pingAll(6)
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}

// TestVirtualMachinesRefused proves that what virtual machines cannot do is said before anything is
// made.
func TestVirtualMachinesRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withMachines()
	file := m.file("lab.yaml", "nodes: {r1: {router: {datapath: vm, nat: true, dirs: [/var/lib/x]}}, h1: host}\nlinks: [r1 -- h1, 'r1 -- interface:eth9']\n")
	contains(t, m.want(1, "up", file).err, "lab.yaml:1:", "router r1: nat: not for virtual machines", "router r1: dirs: not for virtual machines",
		"link r1-eth9: a virtual machine cannot have an interface of the machine")
}

// ownMachine is the example's lab of FRR's own configurations, with r1 in a virtual machine.
func (m *machine) ownMachine() (lab string, change func(name, old, new string)) {
	m.t.Helper()
	m.withMachines()
	lab, change = m.ownLab()
	change("own.yaml", "r[1-2]: {router: {config: {frr: frr/*.conf}}}",
		"r1: {router: {datapath: vm, config: {frr: frr/r1.conf}}}\n  r2: {router: {config: {frr: frr/r2.conf}}}")
	return lab, change
}

// TestVirtualMachinesOwnFRR proves that a router in a virtual machine runs FRR as its owner has
// configured it, and has routes by BGP from one in a namespace; that apply changes addresses, of
// its links as well, and what the daemons run as the machine and the session go on, and starts and
// ends daemons; and that a line that FRR's grammar refuses is told with its place before anything
// is made.
func TestVirtualMachinesOwnFRR(t *testing.T) {
	m := newMachine(t)
	before := m.snapshot()
	lab, change := m.ownMachine()
	change("frr/r1.conf", "router bgp 65001\n", "router bgp 65001\n frobnicate\n")
	contains(t, m.want(1, "up", lab).err, "frr/r1.conf:21  frr of r1: Unknown command")
	change("frr/r1.conf", " frobnicate\n", "")
	m.up(lab, "--wait", "300s")
	m.reaches("h1", "h2")
	if r := m.verified(); !r.Holds() {
		t.Error(r.Says(verify.Wrong))
	}
	contains(t, m.exec("r1", "ip route show proto bgp; ls -ld /var/log/frr"), "10.1.2.0/24", " frr frr ")

	machine := m.pids("/qemu-system*/routers/r1/")
	session := func() string {
		return m.exec("r1", "cat /etc/frr/run/bgpd.pid; vtysh -c 'show bgp neighbors' | grep 'Connections established'")
	}
	first := session()
	change("frr/r1.conf", "  network 10.1.1.0/24", "  network 10.1.3.0/24\n  network 192.0.2.1/32")
	change("frr/r1.conf", "10.1.1.1/24", "10.1.3.1/24")
	change("frr/r1.conf", "interface lo\n", "interface lo\n ip address 192.0.2.11/32\n")
	change("frr/r1.conf", "router ospf\n", "router rip\n!\nrouter ospf\n")
	contains(t, m.ok("apply", lab), "router r1   config frr")
	const own = "lo 127.0.0.1/8\nlo 192.0.2.1/32\nlo 192.0.2.11/32\nr1-eth0 10.1.3.1/24\nr1-eth1 10.0.0.1/30"
	if got := m.exec("r1", "ip -4 -o address show | awk '{print $2, $4}'"); got != own {
		t.Errorf("r1 has addresses that its configuration does not give:\n%s", got)
	}
	contains(t, m.exec("r1", "vtysh -c 'show running-config'; test -e /etc/frr/run/ripd.vty && echo ripd runs"), "router rip", "ripd runs")
	m.reaches("h1", "h2")
	change("frr/r1.conf", "router rip\n!\n", "")
	change("frr/r1.conf", " ip address 192.0.2.11/32\n", "")
	m.ok("apply", lab)
	if is := session(); is != first {
		t.Errorf("bgpd's process and its sessions were %q, and are %q", first, is)
	}
	as := m.exec("r1", "vtysh -c 'show running-config'")
	if has := as + m.exec("r1", "ip address show lo; pgrep -a ripd || true"); strings.Contains(has, "192.0.2.11") || strings.Contains(has, "rip") {
		t.Errorf("what was taken away is there:\n%s", has)
	}
	if now := m.pids("/qemu-system*/routers/r1/"); strings.Join(now, " ") != strings.Join(machine, " ") {
		t.Errorf("the machine was %v and is %v", machine, now)
	}
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}

// TestVirtualMachinesOwnFRRRefused proves that a line that only a daemon in a router's machine
// refuses is told with its place in the file and undone, as the machine goes on.
func TestVirtualMachinesOwnFRRRefused(t *testing.T) {
	m := newMachine(t)
	lab, change := m.ownMachine()
	m.up(lab, "--wait", "300s")
	machine := m.pids("/qemu-system*/routers/r1/")
	as := m.exec("r1", "vtysh -c 'show running-config'")
	change("frr/r1.conf", "router bgp 65001\n", "router bgp 65001\n neighbor 10.0.0.2 peer-group none\n")
	contains(t, m.want(1, "apply", lab).err, `frr/r1.conf:21  frr of r1: "neighbor 10.0.0.2 peer-group none": bgpd refuses it: Configure the peer-group first`, "the lab is as it was")
	if now := m.exec("r1", "vtysh -c 'show running-config'"); now != as {
		t.Errorf("after a change that was refused it has\n%s, not\n%s", now, as)
	}
	m.reaches("h1", "h2")
	if now := m.pids("/qemu-system*/routers/r1/"); strings.Join(now, " ") != strings.Join(machine, " ") {
		t.Errorf("the machine was %v and is %v", machine, now)
	}
	m.ok("down")
}

// TestVirtualMachinesOwnFRRSaved proves that save writes what somebody has changed by vtysh in a
// router's machine, also after the lab was resumed, and once; that apply of what it wrote leaves
// the machine as it is; and that one that died is started with the same again.
func TestVirtualMachinesOwnFRRSaved(t *testing.T) {
	m := newMachine(t)
	lab, _ := m.ownMachine()
	m.up(lab, "--wait", "300s")
	machine := m.pids("/qemu-system*/routers/r1/")
	contains(t, m.ok("save"), "nothing to save")
	m.exec("r1", "vtysh -c 'configure' -c 'router bgp 65001' -c 'neighbor 10.0.0.9 remote-as 65009'")
	m.killDaemon()
	m.ok("resume")
	contains(t, m.ok("save", "--dry-run"), "+ neighbor 10.0.0.9 remote-as 65009")
	contains(t, m.ok("save"), "r1.conf")
	contains(t, m.ok("save"), "nothing to save")
	m.ok("apply", lab)
	contains(t, m.ok("save"), "nothing to save")
	if now := m.pids("/qemu-system*/routers/r1/"); strings.Join(now, " ") != strings.Join(machine, " ") {
		t.Errorf("the machine was %v and is %v", machine, now)
	}
	m.sh("kill -9 " + strings.Join(machine, " "))
	eventually(t, "ls says that it has died", func() bool { return strings.Contains(m.ok("ls"), "virtual-machine of router r1") })
	contains(t, m.ok("apply", lab), "started again")
	contains(t, m.exec("r1", "vtysh -c 'show running-config'"), "neighbor 10.0.0.9 remote-as 65009")
	m.reaches("h1", "h2")
	contains(t, m.ok("down"), "nothing left")
}
