package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// TestOwnFRR proves that routers run FRR as their owner has configured it: the example's have
// routes to each other by BGP, as each router's file says; that their interfaces have the addresses
// of those files alone, so that OSPF speaks once on each cable; that verify agrees; and nothing is
// left of the daemons.
func TestOwnFRR(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	before := m.snapshot()
	m.up(example("own-frr/own-frr.yaml"))
	m.reaches("h1", "h2")
	contains(t, m.exec("r1", "ip route show proto bgp; vtysh -c 'show ip ospf neighbor'"), "10.1.2.0/24", "192.0.2.2")
	contains(t, m.ok("path", "h1", "h2"),
		"h1 → r1 → r2 → h2   2 hops", "10.1.2.0/24 via 10.0.0.2 dev r1-eth1 proto bgp")
	const own = "lo 127.0.0.1/8\nlo 192.0.2.1/32\nr1-eth0 10.1.1.1/24\nr1-eth1 10.0.0.1/30"
	if got := m.exec("r1", "ip -4 -o address show | awk '{print $2, $4}'"); got != own {
		t.Errorf("r1 has addresses that its configuration does not give:\n%s", got)
	}
	if got := m.exec("r1", "vtysh -c 'show ip ospf neighbor'"); strings.Count(got, "r1-eth1:") != 1 {
		t.Errorf("OSPF does not speak once on the cable:\n%s", got)
	}
	if r := m.verified(); !r.Holds() {
		t.Error(r.Says(verify.Wrong))
	}
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}

// reaches waits until a node reaches another.
func (m *machine) reaches(from, to string) {
	m.t.Helper()
	eventually(m.t, from+" reaches "+to, func() bool {
		return m.run("exec", from, "--", "ping", "-c", "1", "-W", "1", to).code == 0
	})
}

// ownLab is the example's lab in a directory where it can be changed.
func (m *machine) ownLab() (lab string, change func(name, old, new string)) {
	m.t.Helper()
	m.withDaemons()
	for _, name := range []string{"r1.conf", "r2.conf"} {
		text, err := os.ReadFile(example("own-frr/frr/" + name))
		if err != nil {
			m.t.Fatal(err)
		}
		m.file("frr/"+name, string(text))
	}
	text, err := os.ReadFile(example("own-frr/own-frr.yaml"))
	if err != nil {
		m.t.Fatal(err)
	}
	lab = m.file("own.yaml", string(text))
	return lab, func(name, old, new string) {
		m.t.Helper()
		file := filepath.Join(filepath.Dir(lab), name)
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), old) {
			m.t.Fatalf("%s has no %q: %v\n%s", name, old, err, text)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), old, new, 1)), 0o644); err != nil {
			m.t.Fatal(err)
		}
	}
}

// TestOwnFRRChanges proves that apply changes a router's own configuration as it runs: neighbours
// keep their sessions, addresses come and go in the lab and in FRR; that a line that FRR's grammar
// or a daemon refuses is told with its place in the file and changes nothing; that daemons that
// were killed are started with it again; and that the router takes Trivet's configuration, and its
// owner's again.
func TestOwnFRRChanges(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	lab, change := m.ownLab()
	m.up(lab)
	m.reaches("h1", "h2")
	session := func() string {
		return m.exec("r1", "cat /etc/frr/run/bgpd.pid; vtysh -c 'show bgp neighbors' | grep -c 'Connections established 1;'")
	}
	before := session()
	change("frr/r1.conf", "  network 10.1.1.0/24", "  network 10.1.1.0/24\n  network 192.0.2.1/32")
	change("frr/r1.conf", "interface lo\n", "interface lo\n ip address 192.0.2.11/32\n")
	contains(t, m.ok("apply", lab), "router r1   config frr", "1 change made")
	contains(t, m.exec("r1", "ip address show lo; vtysh -c 'show interface lo'"), "inet 192.0.2.11/32", "inet 192.0.2.11/32")
	contains(t, m.ok("inspect"), "10.1.1.1/24")
	stays := func() {
		t.Helper()
		_, err := os.Stat("/usr/lib/frr/frr-reload.py")
		if after := session(); err == nil && after != before {
			t.Errorf("bgpd's process and its sessions were %q, and are %q", before, after)
		}
	}
	stays()
	eventually(t, "r2 hears of it", func() bool { return strings.Contains(m.exec("r2", "ip route show proto bgp"), "192.0.2.1 ") })
	change("frr/r1.conf", " ip address 192.0.2.11/32\n", "")
	m.ok("apply", lab)
	if has := m.exec("r1", "ip address show lo; vtysh -c 'show running-config'"); strings.Contains(has, "192.0.2.11") {
		t.Errorf("an address that was taken away is there:\n%s", has)
	}
	stays()

	as := m.exec("r1", "vtysh -c 'show running-config'")
	for line, says := range map[string]string{
		" frobnicate":                        "frr/r1.conf:21  frr of r1: Unknown command",
		" neighbor 10.0.0.2 peer-group none": `frr/r1.conf:21  frr of r1: "neighbor 10.0.0.2 peer-group none": bgpd refuses it: Configure the peer-group first`,
		"do start-shell":                     "frr/r1.conf:21  frr of r1: do: commands are not part",
	} {
		change("frr/r1.conf", "router bgp 65001\n", "router bgp 65001\n"+line+"\n")
		if r := m.run("apply", lab); r.code == 0 || !strings.Contains(r.err, says) {
			t.Errorf("%s: apply says %v", line, r)
		}
		change("frr/r1.conf", line+"\n", "")
	}
	if now := m.exec("r1", "vtysh -c 'show running-config'"); now != as {
		t.Errorf("after changes that were refused it has\n%s, not\n%s", now, as)
	}
	m.reaches("h1", "h2")

	m.exec("r1", "kill -9 $(cat /etc/frr/run/bgpd.pid)")
	eventually(t, "bgpd is missed", func() bool { return strings.Contains(m.ok("ls"), "bgpd of router r1") })
	contains(t, m.ok("apply", lab), "bgpd of router r1 has ended: started again")
	m.exec("r1", "ip route flush proto bgp")
	m.reaches("h1", "h2")

	change("own.yaml", "r[1-2]: {router: {config: {frr: frr/*.conf}}}", "r[1-2]: {router: {datapath: frr, ospf: area 0}}")
	m.ok("apply", lab)
	m.reaches("h1", "h2")
	if has := m.exec("r1", "ls /etc/frr; vtysh -c 'show running-config'"); strings.Contains(has, "router bgp") || strings.Contains(has, " ip address ") || strings.Contains(has, "frr.conf") {
		t.Errorf("with Trivet's configuration r1 has\n%s", has)
	}
	change("own.yaml", "{datapath: frr, ospf: area 0}", "{config: {frr: frr/*.conf}}")
	m.ok("apply", lab)
	m.reaches("h1", "h2")
	if now := m.exec("r1", "vtysh -c 'show running-config'"); now != as {
		t.Errorf("with its own configuration again it has\n%s, not\n%s", now, as)
	}
	m.ok("down")
}

// TestOwnFRRSaved proves that save writes what somebody has configured by vtysh into the router's
// file, whether that was there or its text is in the topology's; that a second save writes nothing,
// also after the lab was resumed; and that the lab that the files give is the one that was saved.
func TestOwnFRRSaved(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	lab, change := m.ownLab()
	change("own.yaml", "r[1-2]: {router: {config: {frr: frr/*.conf}}}", `r1: {router: {config: {frr: frr/r1.conf, daemons: frr/daemons}}}
  r2:
    router:
      config:
        frr: |
          hostname r2
          interface r2-eth1
           ip ospf area 0
          router ospf
           ospf router-id 192.0.2.2
           redistribute connected
  #`)
	m.file("frr/daemons", "bgpd=yes\nospfd=yes\nfrr_profile=datacenter\n")
	m.up(lab)
	m.reaches("r1", "r2")
	contains(t, m.ok("save"), "nothing to save")
	contains(t, m.exec("r1", "vtysh -c 'show running-config'"), "frr defaults datacenter")
	m.exec("r1", "vtysh -c 'configure' -c 'router bgp 65001' -c 'neighbor 10.0.0.9 remote-as 65009' -c 'neighbor 10.0.0.9 description by hand'")
	m.exec("r1", "vtysh -c 'configure' -c 'interface lo' -c 'ip address 192.0.2.77/32'")
	m.exec("r2", "vtysh -c 'configure' -c 'router ospf' -c 'redistribute static metric 77'")
	contains(t, m.ok("save", "--dry-run"), "+ neighbor 10.0.0.9 description by hand", "+ redistribute static metric 77")
	m.killDaemon()
	m.ok("resume")
	m.ok("save")
	contains(t, m.ok("save"), "nothing to save")
	text, err := os.ReadFile(filepath.Join(filepath.Dir(lab), "own.d", "r2.frr"))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(text), "redistribute static metric 77", "redistribute connected", "frr version")
	if strings.Contains(string(text), "nexthop kernel") {
		t.Errorf("what Trivet has added is saved:\n%s", text)
	}
	shown := func() string {
		return m.exec("r1", "vtysh -c 'show running-config'") + m.exec("r2", "vtysh -c 'show running-config'")
	}
	as := shown()
	m.ok("down")
	m.up(lab)
	if now := shown(); now != as {
		t.Errorf("the lab that was saved comes up with\n%s, not\n%s", now, as)
	}
	contains(t, m.exec("r1", "ip address show lo"), "192.0.2.77/32")
	contains(t, m.ok("save"), "nothing to save")

	change("frr/daemons", "datacenter", "traditional") // which starts all daemons anew
	change("frr/r1.conf", " ip address 192.0.2.77/32\n", "")
	m.ok("apply", lab)
	if has := m.exec("r1", "ip address show lo"); strings.Contains(has, "192.0.2.77") {
		t.Errorf("an address that was taken away is there:\n%s", has)
	}
	change("frr/r1.conf", "router bgp 65001\n", "router bgp 65001\n neighbor 10.0.0.2 peer-group none\n")
	change("frr/r1.conf", "interface lo\n", "interface lo\n ip address 192.0.2.88/32\n")
	contains(t, m.run("apply", lab).err, "Configure the peer-group first", "the lab is as it was")
	if has := m.exec("r1", "ip address show lo; ls /etc/frr; vtysh -c 'show running-config'"); strings.Contains(has, "192.0.2.88") {
		t.Errorf("what was undone is there:\n%s", has)
	}
	m.ok("down")
}

// TestOwnBIRD proves the same of BIRD: a router runs its owner's file, as BIRD's user and not as
// root; apply has it read what has changed; an error is told at its line; what somebody has edited
// in the node is saved.
func TestOwnBIRD(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	conf := func(prefix string) string {
		return m.file("bird.conf", "log stderr all;\nrouter id 10.0.0.1;\nprotocol device {}\nprotocol kernel { ipv4 { export all; }; }\n"+
			"protocol static {\n\tipv4;\n\troute "+prefix+" blackhole;\n}\n")
	}
	conf("10.6.0.0/16")
	lab := m.file("lab.yaml", "nodes:\n  r1: {router: {config: {bird: bird.conf}}}\n  h1: host\nlinks: [h1 -- r1]\n")
	m.up(lab)
	has := func(prefix string) {
		t.Helper()
		eventually(t, "r1 has "+prefix, func() bool { return strings.Contains(m.exec("r1", "ip route show proto bird"), prefix) })
	}
	has("blackhole 10.6.0.0/16")
	m.reaches("h1", "r1")
	if user := m.exec("r1", "stat -c %U /proc/$(cat /etc/bird/run/bird.pid)"); user != "bird" {
		t.Errorf("BIRD runs as %s", user)
	}
	process := m.exec("r1", "cat /etc/bird/run/bird.pid")
	conf("10.7.0.0/16")
	contains(t, m.ok("apply", lab), "1 change made")
	has("10.7.0.0/16")
	for text, says := range map[string]string{
		"include \"/etc/passwd\";\n":       "bird.conf:1  bird of r1: include: no other file is read",
		"router id 10.0.0.1;\nnonsense;\n": "bird.conf:2  bird of r1: syntax error",
	} {
		m.file("bird.conf", text)
		if r := m.run("apply", lab); r.code != 1 || !strings.Contains(r.err, says) {
			t.Errorf("%q: apply says %v", text, r)
		}
	}
	conf("10.7.0.0/16")
	contains(t, m.ok("save"), "nothing to save")
	m.exec("r1", "sed -i s/10.7.0.0/10.8.0.0/ /etc/bird/bird.conf && birdc configure")
	has("10.8.0.0/16")
	contains(t, m.ok("save"), "r1  bird: bird.conf")
	contains(t, m.ok("apply", lab), "1 change made")
	contains(t, m.ok("save"), "nothing to save")
	has("10.8.0.0/16")
	if now := m.exec("r1", "cat /etc/bird/run/bird.pid"); now != process {
		t.Error("BIRD was started anew")
	}
	m.file("lab.yaml", "nodes:\n  r[1-2]: {router: {config: {bird: bird.conf}}}\n  h1: host\nlinks: [h1 -- r1, r1 -- r2]\n")
	m.ok("apply", lab)
	m.exec("r1", "sed -i s/10.8.0.0/10.9.0.0/ /etc/bird/bird.conf && birdc configure")
	contains(t, m.ok("save"), "r1  bird: lab.d/r1.bird") // r2's file stays r2's
	contains(t, m.ok("save"), "nothing to save")
	contains(t, m.exec("r2", "cat /etc/bird/bird.conf"), "10.8.0.0")
	m.ok("down")
}

// TestEVPN proves that hosts at different leaves of the example's fabric are in one network, by
// EVPN that the routers' own configurations speak over links without addresses: the leaves know
// each other's hosts by BGP and not by flooding, one of two spines is enough, verify finds nothing
// wrong, and nothing is left.
func TestEVPN(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	before := m.snapshot()
	m.up(example("evpn/evpn.yaml"))
	m.reaches("h1", "h3")
	eventually(t, "leaf1 knows the hosts of the others", func() bool {
		fdb := m.exec("leaf1", "bridge fdb show dev vx100")
		return strings.Contains(fdb, "dst 10.255.1.2 self extern_learn") && strings.Contains(fdb, "dst 10.255.1.3 self extern_learn")
	})
	m.ok("link", "set", "spine1-leaf1", "down")
	m.ok("link", "set", "spine1-leaf3", "down")
	m.reaches("h1", "h3")
	m.ok("link", "set", "spine1-leaf1", "up")
	m.ok("link", "set", "spine1-leaf3", "up")
	// BGP tells of a way before the kernel at the spine has it, so packets may be lost meanwhile.
	eventually(t, "all reach each other by both spines", func() bool {
		for _, leaf := range []string{"leaf1", "leaf2"} {
			if strings.Count(m.exec(leaf, "ip route show 10.255.1.3"), "nexthop") != 2 {
				return false
			}
		}
		return m.run("ping", "--all").code == 0
	})
	if r := m.verified(); len(r.Says(verify.Wrong)) > 0 {
		t.Error(r.Says(verify.Wrong))
	}
	contains(t, m.ok("down"), "nothing left")
	m.unchanged(before)
}

// TestUnaddressed proves, on routers of each kind and in both families, that an interface whose
// addresses are none gets none, in a lab that comes up, is resumed and changes; that what somebody
// gives it stays while other links change; and that apply takes and gives the lab's addresses.
func TestUnaddressed(t *testing.T) {
	for _, datapath := range []string{"kernel", "frr", "bird", "embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if datapath == "frr" || datapath == "bird" {
				m.withDaemons()
			}
			lab := func(ends, delay string) string {
				return m.file("lab.yaml", "name: none\nipv6: assigned\ndefaults: {router: {datapath: "+datapath+"}}\n"+
					"nodes: {\"h[1-2]\": host, \"r[1-2]\": router}\nlinks:\n"+
					"  - h1 -- r1: {delay: "+delay+"}\n  - h2 -- r1\n  - r1 -- r2"+ends+"\n")
			}
			linux := datapath != "embedded" && datapath != "ovs"
			none := ": {from: {address: none}, to: {address: none}}"
			has := func(what string, want ...string) {
				t.Helper()
				m.pingAll(2)
				contains(t, m.exec("h1", "ping -6 -c 1 -w 30 h2"), "1 received")
				if !linux {
					return
				}
				if got := m.exec("r1", "ip -o address show dev r1-eth2 scope global | awk '{print $4}'"); got != strings.Join(want, "\n") {
					t.Errorf("%s: r1-eth2 has %q, not %q", what, got, want)
				}
			}
			warned := m.up(lab(none, "none"))
			has("up")
			if !linux {
				contains(t, warned, "nothing can give r1-eth2 an address")
			}
			contains(t, m.ok("inspect"), "none")
			if linux {
				m.exec("r1", "ip address add 10.9.0.1/30 dev r1-eth2; ip address add fd09::1/64 dev r1-eth2")
			}
			m.ok("apply", lab(none, "1ms"))
			has("another link changed", "10.9.0.1/30", "fd09::1/64")
			if linux {
				m.exec("r1", "ip route add 10.10.0.0/16 via 10.9.0.2; ip -6 route add fd10::/64 via fd09::2; "+
					"ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev r1-eth2")
			}
			m.ok("link", "set", "r1-r2", "delay=1ms")
			has("the link is delayed", "10.9.0.1/30", "fd09::1/64")
			if linux {
				contains(t, m.exec("r1", "ip route; ip -6 route; ip neigh show nud permanent"),
					"10.10.0.0/16 via 10.9.0.2", "fd10::/64 via fd09::2", "02:00:00:00:00:09")
			}
			m.ok("link", "set", "r1-r2", "delay=none")
			m.killDaemon()
			m.ok("resume")
			has("resumed", "10.9.0.1/30", "fd09::1/64")
			contains(t, m.ok("apply", "--dry-run", lab("", "1ms")), "ends.0.addresses none → 172.16.0.1/30, fd00:ffff::1/64")
			m.ok("apply", lab("", "1ms"))
			has("assigned", "172.16.0.1/30", "fd00:ffff::1/64")
			m.ok("apply", lab(none, "1ms"))
			has("taken away")
			if r := m.verified(); !r.Holds() {
				t.Error(r.Says(verify.Wrong))
			}
			m.ok("down")
		})
	}
}
