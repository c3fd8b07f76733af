package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// newNode is the machine with Neutron's agents of the OpenStack of the tests, where many are at
// work at once. Its cloud.yaml has the lab there, with the credentials of an administrator.
func newNode(t *testing.T) *machine {
	t.Helper()
	if os.Getenv("TRIVET_OPENSTACK") == "" {
		t.Skip("needs an OpenStack: make test-openstack")
	}
	m := &machine{t: t, name: fmt.Sprintf("e2e%d-%03d", os.Getpid(), machines.Add(1)), dir: t.TempDir(), started: &children{}, shared: true,
		by: []string{"../openstack/stack", "node"}, patient: cloudTime}
	m.env = []string{"TRIVET_LAB=" + m.name} // other tests have theirs there
	m.file("cloud.yaml", "openstack: {cloud: admin, instances: 0}\n")
	t.Cleanup(func() { // after the test's own, which says what went wrong
		m.started.reap()
		m.cleanCgroups()
	})
	return m
}

// tenant is an ordinary member of a project, with things of its own there that are called after a
// test.
type tenant struct {
	t      *testing.T
	prefix string
	made   []string // commands that remove what was made, the last first
}

// newClients is one whose networks the machine's lab has ports in, and so goes down before they do.
func newClients(t *testing.T, m *machine) *tenant {
	c := &tenant{t: t, prefix: strings.ReplaceAll(t.Name(), "/", "-") + "-" + m.name + "-"}
	t.Cleanup(func() { c.do(c.made...) })
	t.Cleanup(func() { m.run("down", m.name) })
	return c
}

// do runs commands of OpenStack's client, in one process: it takes longer to begin than for most of
// them. NAME is replaced by what begins the names of the tenant's things.
func (c *tenant) do(commands ...string) string {
	c.t.Helper()
	cmd := exec.Command("openstack")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(strings.Join(commands, "\n")+"\n", "NAME", c.prefix))
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s: %v: %s", commands, err, out)
	}
	return string(out)
}

// network makes a network with a subnet, whose gateway for those who are there may be none.
func (c *tenant) network(name, subnet, gateway string) {
	c.t.Helper()
	c.made = append([]string{"network delete NAME" + name}, c.made...)
	c.do("network create NAME"+name, "subnet create NAME"+name+" --network NAME"+name+" --subnet-range "+subnet+" --gateway "+gateway+" --no-dhcp")
}

// server makes a server with one address in a network, and options of OpenStack's client, and
// returns its ID.
func (c *tenant) server(name, network, address string, options ...string) string {
	c.t.Helper()
	c.made = append([]string{"server delete --wait NAME" + name}, c.made...)
	out := c.do("server create NAME" + name + " --image body --flavor tiny --security-group NAMErules --nic net-id=NAME" + network + ",v4-fixed-ip=" + address + " -f value -c id " + strings.Join(options, " "))
	words := strings.Fields(strings.ReplaceAll(out, "(openstack)", ""))
	if len(words) != 1 {
		c.t.Fatalf("the ID of a server: %q", out)
	}
	return words[0]
}

// in runs a shell command in a server, and says whether it has succeeded.
func (c *tenant) in(server, script string) (string, bool) {
	out, err := exec.Command("../openstack/stack", "exec", server, "sh", "-ec", script).CombinedOutput()
	return strings.TrimSpace(string(out)), err == nil
}

// boots waits for servers to have an address.
func (c *tenant) boots(servers ...string) {
	c.t.Helper()
	for _, id := range servers {
		eventually(c.t, id+" has booted", func() bool {
			_, ok := c.in(id, "ip -4 addr show dev eth0 | grep -q inet && ethtool -K eth0 tx off") // Open vSwitch in user space takes no half checksums
			return ok
		})
	}
}

// trace returns the addresses on the way from a server.
func (c *tenant) trace(server, to string) string {
	out, _ := c.in(server, "traceroute -I -n -q 1 -w 5 -m 10 "+to)
	var hops []string
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) > 1 && words[0] != "traceroute" {
			hops = append(hops, words[1])
		}
	}
	return strings.Join(hops, " ")
}

// reaches waits until a server reaches an address.
func (c *tenant) reaches(server, to string) {
	c.t.Helper()
	eventually(c.t, server+" reaches "+to, func() bool {
		_, ok := c.in(server, "ping -c 1 -W 2 "+to)
		return ok
	})
}

// figureInCloud is the network of figure 10, each of whose nets up to net7 and net9 are networks of
// a cloud. The clients are not of the lab, and r6 and r7 stand for the physical routers.
const figureInCloud = `
controller: trivet
datapath: DATAPATH
defaults:
  link: {ospf: {hello: 1s, dead: 20s}}
nodes:
  r[1-5]: {router: {ospf: area 0}}
  r[6-7]: {router: {ospf: area 0, datapath: frr}}
links:
  - r1 -- network:NAMEnet1: {from: {address: 192.168.1.1/24, ospf: {passive: true}}}
  - r1 -- network:NAMEnet2: {from: {address: 192.168.2.1/24}}
  - r2 -- network:NAMEnet2: {from: {address: 192.168.2.2/24}}
  - r1 -- network:NAMEnet3: {from: {address: 192.168.3.1/24}}
  - r3 -- network:NAMEnet3: {from: {address: 192.168.3.3/24}}
  - r2 -- network:NAMEnet4: {from: {address: 192.168.4.2/24}}
  - r4 -- network:NAMEnet4: {from: {address: 192.168.4.4/24}}
  - r3 -- network:NAMEnet5: {from: {address: 192.168.5.3/24}}
  - r5 -- network:NAMEnet5: {from: {address: 192.168.5.5/24}}
  - r5 -- network:NAMEnet6: {from: {address: 192.168.6.1/24, ospf: {passive: true}}}
  - r4 -- network:NAMEnet7: {from: {address: 192.168.7.4/24}}
  - r6 -- network:NAMEnet7: {from: {address: 192.168.7.6/24}}
  - r6 -- r7: {from: {address: 10.1.8.6/24}, to: {address: 10.1.8.7/24}}
  - r7 -- network:NAMEnet9: {from: {address: 10.1.9.1/24, ospf: {passive: true}}}
`

// TestOpenStackFigure10 proves what figures 10 to 12 and table 2 of "Routing emulation" show:
// routing nodes have ports in a tenant's networks, and its instances reach each other through them
// and through routers of another kind, by routes that both exchange by OSPF; that the tenant's
// security groups hold for its instances all the same; that a link is pulled and plugged, and
// another daemon takes over; and that nothing of the lab is left, while what is the tenant's stays.
func TestOpenStackFigure10(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newNode(t)
			m.withDaemons()
			c := newClients(t, m)
			c.made = []string{"security group delete NAMErules"}
			c.do("security group create NAMErules", "security group rule create NAMErules --protocol icmp")
			gateways := map[string]string{"1": "192.168.1.1", "6": "192.168.6.1", "9": "10.1.9.1"}
			for _, n := range strings.Fields("1 2 3 4 5 6 7 9") {
				subnet, gateway := "192.168."+n+".0/24", gateways[n]
				if n == "9" {
					subnet = "10.1.9.0/24"
				}
				if gateway == "" {
					gateway = "none"
				}
				c.network("net"+n, subnet, gateway)
			}
			vm1, vm2, vm3 := c.server("vm1", "net1", "192.168.1.3"), c.server("vm2", "net6", "192.168.6.3"), c.server("vm3", "net9", "10.1.9.3")
			c.boots(vm1, vm2, vm3)

			file := m.file("net.yaml", strings.NewReplacer("NAME", c.prefix, "DATAPATH", datapath).Replace(figureInCloud))
			contains(t, m.up(file, "--on", "cloud.yaml"), "r1: 192.168.1.1/24", "plugged into br-int of this machine")
			eventually(t, "r4 and r6 are neighbours", func() bool { return m.full()["r4 r6"] })
			c.reaches(vm1, "192.168.6.3")
			c.reaches(vm1, "10.1.9.3")
			eventually(t, "figure 11: the way from VM1 to VM2", func() bool {
				return c.trace(vm1, "192.168.6.3") == "192.168.1.1 192.168.3.3 192.168.5.5 192.168.6.3"
			})
			eventually(t, "figure 12: the way from VM1 to VM3", func() bool {
				return c.trace(vm1, "10.1.9.3") == "192.168.1.1 192.168.2.2 192.168.4.4 192.168.7.6 10.1.8.7 10.1.9.3"
			})
			contains(t, m.exec("r7", "ip route"), "192.168.6.0/24 via 10.1.8.6")
			contains(t, m.ok("routes", "r1"), "10.1.9.0/24")
			contains(t, m.ok("inspect"), "plugged")

			connects := func() bool {
				_, ok := c.in(vm1, "python3 -c 'import socket; socket.create_connection((\"192.168.6.3\", 8000), 5)'")
				return ok
			}
			if _, ok := c.in(vm2, "setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null &"); !ok {
				t.Fatal("VM2 runs no server")
			}
			eventually(t, "VM2 listens", func() bool { out, _ := c.in(vm2, "ss -ltn"); return strings.Contains(out, ":8000") })
			if connects() {
				t.Error("VM1 connects to VM2, which only lets ICMP in")
			}
			c.do("security group rule create NAMErules --protocol tcp --dst-port 8000")
			eventually(t, "VM1 connects to VM2, which lets it in now", connects)

			link := "r1-" + c.prefix + "net3"
			m.ok("link", "set", link, "down")
			eventually(t, "VM1 does not reach VM2", func() bool { _, ok := c.in(vm1, "ping -c 1 -W 1 192.168.6.3"); return !ok })
			m.ok("link", "set", link, "up")
			c.reaches(vm1, "192.168.6.3")
			m.killOwnDaemon()
			contains(t, m.ok("resume", m.name), "resumed in")
			c.reaches(vm1, "10.1.9.3")

			contains(t, m.ok("down", m.name), "13 things removed", "nothing left")
			m.noneInCloud("down")
			if left := m.sh("ovs-vsctl --bare --columns=name find Interface external_ids:trivet-lab=" + m.name); left != "" {
				t.Errorf("left in Open vSwitch: %s", left)
			}
			servers := c.do("server list -f value -c Name -c Status")
			for _, vm := range []string{"vm1", "vm2", "vm3"} {
				contains(t, servers, c.prefix+vm+" ACTIVE")
			}
		})
	}
}

// TestOpenStackPorts proves that a routing node at an instance of a lab routes for instances of the
// tenant: by a port of the lab's instance in their network, with the address that Neutron gives it
// where none is written; that what cannot be is refused before anything is made; that the lab
// changes, but for its ports; and that nothing of it is left, by whoever has the credentials.
func TestOpenStackPorts(t *testing.T) {
	t.Parallel()
	m, _ := newTenant(t)
	c := newClients(t, m)
	c.made = []string{"security group delete NAMErules"}
	c.do("security group create NAMErules", "security group rule create NAMErules --protocol icmp")
	c.network("net1", "192.168.1.0/24", "192.168.1.1")
	c.network("net2", "192.168.2.0/24", "none")
	vm := c.server("vm1", "net1", "192.168.1.3")
	c.boots(vm)
	m.file("cloud.yaml", "openstack: {cloud: tests, image: body, flavor: small, instances: 1}\n")
	const text = `
controller: trivet
nodes: {r1: router, r2: {router: {datapath: kernel}}, h1: {host: {address: 10.5.0.2/24}}}
links:
  - r1 -- network:NAMEnet1: {from: {address: ADDRESS}MTU}
  - r1 -- network:NAMEnet2
  - r2 -- network:NAMEnet2
  - h1 -- r1: {to: {address: 10.5.0.1/24}}
`
	file := func(name, address, mtu string) string {
		return m.file(name, strings.NewReplacer("NAME", c.prefix, "ADDRESS", address, "MTU", mtu).Replace(text))
	}
	good := file("good.yaml", "192.168.1.1/24", "")
	for _, bad := range []struct{ file, on, says string }{
		{good, "", "say which cloud"},
		{good, m.file("machines.yaml", "machines: [root@192.0.2.1]\n"), "names none"},
		{file("outside.yaml", "192.168.3.1/24", ""), "cloud.yaml", "it has 192.168.1.0/24"},
		{file("taken.yaml", "192.168.1.3/24", ""), "cloud.yaml", "is taken"},
		{file("large.yaml", "192.168.1.1/24", ", mtu: 9000"), "cloud.yaml", "write  mtu: 1500"},
		{m.file("none.yaml", "links: [h1 -- network:NAMEnet7]\nnodes: {h1: host}\n"), "cloud.yaml", "there is no network NAMEnet7"},
		{good, m.file("here.yaml", "openstack: {cloud: tests, instances: 0}\n"), "this machine's switch"},
	} {
		args := []string{"up", bad.file, "--name", m.name}
		if bad.on != "" {
			args = append(args, "--on", bad.on)
		}
		contains(t, m.want(1, args...).err, bad.says)
	}
	m.noneInCloud("what was refused")

	contains(t, m.up(good, "--on", "cloud.yaml"), "attached to i1", "r1: 192.168.1.1/24")
	contains(t, m.ok("inspect"), "attached", "192.168.2.")
	c.reaches(vm, "192.168.1.1")
	c.reaches(vm, "10.5.0.2")
	second := jsonOf[struct {
		Topology struct {
			Links []struct {
				Ends [2]struct{ Addresses []string }
			}
		}
	}](m, "inspect").Topology.Links[2].Ends[0].Addresses
	if len(second) != 1 || !strings.HasPrefix(second[0], "192.168.2.") {
		t.Fatalf("r2 has %s in net2", second)
	}
	c.reaches(vm, strings.TrimSuffix(second[0], "/24"))

	m.noneWrong()
	contains(t, m.want(1, "apply", "--lab", m.name, file("moved.yaml", "192.168.1.9/24", "")).err, "has the address 192.168.1.1/24, not 192.168.1.9/24")
	more := m.file("more.yaml", m.sh("cat "+good)+"\n  - h1 -- network:"+c.prefix+"net2\n")
	contains(t, m.want(1, "apply", "--lab", m.name, more).err, "ports in networks of a cloud are made when a lab comes up")
	less := m.file("less.yaml", m.sh("grep -v 'r2 -- network' "+good)+"\n")
	contains(t, m.ok("apply", "--lab", m.name, less), "- link r2-", "changes made")
	m.ok("apply", "--lab", m.name, good)
	c.reaches(vm, strings.TrimSuffix(second[0], "/24"))

	list := m.allocations()
	if len(list) != 1 || list[0].Holds["port"] != 4 {
		t.Errorf("%+v", list)
	}
	contains(t, m.ok("down", m.name), "nothing left")
	m.noneInCloud("down")
	contains(t, c.do("server list -f value -c Name -c Status"), c.prefix+"vm1 ACTIVE")
}

// TestOpenStackLinks proves that links between instances can be networks of the cloud, each with
// the ports of its two ends and no others: switches, a router and hosts of two instances reach each
// other over them; switches learn in a ring of them, and when one is pulled; they are limited, and
// measured by verify; what they cannot be is refused and changes nothing; and nothing is left.
func TestOpenStackLinks(t *testing.T) {
	t.Parallel()
	m, _ := newTenant(t)
	m.file("cloud.yaml", "openstack: {cloud: tests, image: body, flavor: small, instances: 2, links: networks}\n")
	const text = `
controller: trivet
nodes:
  s1: {switch: {on: i1}}
  s2: {switch: {on: i2}}
  s3: {switch: {on: i1}}
  r1: {router: {on: i2}}
  h1: {host: {on: i1}}
  h2: {host: {on: i2}}
  h3: {host: {on: i1}}
links:
  - h1 -- s1
  - s1 -- s2: {bandwidth: 50mbit}
  - s2 -- s3
  - s3 -- s1
  - s2 -- h2
  - s2 -- r1
  - r1 -- h3
`
	file := m.file("ring.yaml", text)
	said := m.up(file, "--on", "cloud.yaml")
	contains(t, said, "3 networks of links", "across: 3 links by networks of their own")
	if strings.Contains(said, "VXLAN") {
		t.Error(said)
	}
	contains(t, m.ok("ping", "--all"), "0 % lost")
	contains(t, m.ok("inspect"), "s1-eth2 – s2-eth1   network", "s2-eth2 – s3-eth1   network", "r1-eth1 – h3-eth0   network")
	list := m.allocations()
	if len(list) != 1 || list[0].Holds["network"] != 4 || list[0].Holds["port"] != 8 {
		t.Errorf("%+v", list)
	}
	m.holds(t, "s1-s2", "h1", "h2")
	m.noneWrong()
	m.ok("link", "set", "s1-s2", "down")
	eventually(t, "h1 reaches h2 the other way", func() bool { return m.run("exec", "h1", "--", "ping", "-c", "1", "-W", "1", "10.0.1.3").code == 0 })
	contains(t, m.ok("path", "h1", "h2"), "h1 → s1 → s3 → s2 → h2")
	m.ok("link", "set", "s1-s2", "up")
	contains(t, m.want(1, "link", "set", "s2-s3", "delay=5ms").err, "netem")
	contains(t, m.ok("ping", "--all"), "0 % lost")

	more := m.file("more.yaml", text+"  - s3 -- h2\n")
	contains(t, m.want(1, "apply", "--lab", m.name, more).err, "in a network of the link's own", "are made when a lab comes up")
	less := m.file("less.yaml", strings.Replace(text, "  - s2 -- s3\n", "", 1))
	contains(t, m.ok("apply", "--lab", m.name, less), "- link s2-s3")
	contains(t, m.ok("ping", "--all"), "0 % lost")
	contains(t, m.ok("apply", "--lab", m.name, file), "+ link s2-s3")
	m.killDaemon()
	contains(t, m.ok("resume", m.name), "resumed in")
	contains(t, m.ok("ping", "--all"), "0 % lost")

	contains(t, m.ok("down", m.name), "nothing left")
	m.noneInCloud("down")
	large := m.file("large.yaml", strings.Replace(text, "{bandwidth: 50mbit}", "{mtu: 9000}", 1))
	contains(t, m.want(1, "up", large, "--on", "cloud.yaml", "--name", m.name).err, "link s1-s2: packets in networks of this project have at most 1500 bytes, and 9000 are asked for")
	m.noneInCloud("what was refused")
}

// noneWrong proves that a lab is what its topology says, as far as can be told.
func (m *machine) noneWrong() {
	m.t.Helper()
	r := m.verified()
	for _, l := range r.Links {
		for _, way := range l.Directions {
			for _, c := range way.Checks {
				if c.Verdict == verify.Wrong {
					m.t.Errorf("%s → %s: %+v", way.From, way.To, c)
				}
			}
		}
	}
	if len(r.Addresses.Wrong) > 0 || len(r.Reach.Wrong) > 0 {
		m.t.Errorf("addresses %q, reach %q", r.Addresses.Wrong, r.Reach.Wrong)
	}
}

// killOwnDaemon kills the daemon of the machine's lab, as there may be others beside it.
func (m *machine) killOwnDaemon() {
	m.t.Helper()
	m.sh("kill -9 $(grep -lsz -e __daemon /proc/[0-9]*/cmdline | xargs grep -lszx -e " + m.name + " | cut -d/ -f3) || :") // also a child that was about to run something
	eventually(m.t, "the lab is seen to have no daemon", func() bool { return strings.Contains(m.ok("ls"), "orphaned") })
}
