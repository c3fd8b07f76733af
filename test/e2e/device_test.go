package e2e

import (
	"strings"
	"testing"
)

// TestDevicesSetDown proves that a lab follows what its user does to devices: a switch's packets go
// nowhere when a host has set its device down, routers whose neighbour is gone take the other way
// at once, without waiting for a timeout of OSPF (hours here), and the way back when the device is
// up; inspect says what is. What was set down stays down when other links change.
func TestDevicesSetDown(t *testing.T) {
	t.Parallel()
	for name, router := range map[string]string{"topology": "router", "ospf": "{router: {ospf: area 0}}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setDown(t, router)
		})
	}
}

func setDown(t *testing.T, router string) {
	m := newMachine(t)
	m.up(m.file("devices.yaml", `
defaults: {link: {ospf: {hello: 1s, dead: 10000s}}}
nodes: {s1: switch, "r[1-3]": `+router+`, h1: host, h2: host, h3: host}
links: [h1 -- r1, r1 -- s1, s1 -- h3, h2 -- r2, {r1 -- r2: {bandwidth: 1gbit}}, r1 -- r3, r2 -- r3]
`))
	m.pingAll(6)
	ports := strings.Fields(strings.ReplaceAll(lineWith(m.ok("inspect"), "r1-r2 "), "–", ""))[1:3]
	const straight, round = "r1 → r2", "r1 → r3 → r2"
	way := func(through string) {
		t.Helper()
		eventually(t, "h1 reaches h2 through "+through, func() bool {
			return strings.Contains(m.run("path", "h1", "h2").out, "h1 → "+through+" → h2 ") && m.run("ping", "h1", "h2", "-c", "1", "--timeout", "300ms").code == 0
		})
	}
	way(straight)
	for _, device := range ports { // the devices of all switches and routing nodes are in one place
		m.exec("s1", "ip link set "+device+" down")
		way(round)
		contains(t, lineWith(m.ok("inspect"), "r1-r2 "), device+" is down")
		m.ok("link", "set", "r1-r3", "bandwidth=1gbit") // which makes that link anew
		m.ok("link", "set", "r1-r3", "bandwidth=none")
		m.ok("link", "set", "r1-r2", "bandwidth=500mbit")
		contains(t, lineWith(m.ok("inspect"), "r1-r2 "), device+" is down")
		way(round)
		m.exec("s1", "ip link set "+device+" up")
		way(straight)
	}
	gateway := m.exec("h3", "ip route | sed -n 's/^default/default/p'") // goes with the device
	m.exec("h3", "ip link set h3-eth0 down")
	contains(t, lineWith(m.ok("inspect"), "s1-h3 "), "h3-eth0 is down")
	m.want(3, "ping", "h1", "h3", "-c", "1", "--timeout", "300ms")
	eventually(t, "no packet leaves s1 towards h3, whose device is down", func() bool {
		return !strings.Contains(m.run("path", "h1", "h3").out, "s1-eth2")
	})
	m.exec("h3", "ip link set h3-eth0 up; ip route replace "+gateway)
	eventually(t, "h3 answers again", func() bool { return m.run("ping", "h1", "h3", "-c", "1", "--timeout", "300ms").code == 0 })
}

// TestDelayedLinkSetDown proves that a link with a delay goes down with either of its devices, and
// up again, as if a cable joined them, whatever it is made of: the device at the other end has no
// carrier meanwhile.
func TestDelayedLinkSetDown(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("delayed.yaml", "nodes: {s1: switch, h1: host, h2: host}\nlinks: [s1 -- h1: {delay: 2ms}, s1 -- h2]\n"))
	m.pingAll(2)
	carrier := func(node, device string) bool {
		return strings.Contains(m.exec(node, "ip link show "+device), "LOWER_UP")
	}
	answers := func() bool { return m.run("ping", "h2", "h1", "-c", "1", "--timeout", "300ms").code == 0 }
	for _, c := range []struct{ node, device, far, farDevice string }{{"h1", "h1-eth0", "s1", "s1-eth1"}, {"s1", "s1-eth1", "h1", "h1-eth0"}} {
		m.exec(c.node, "ip link set "+c.device+" down")
		eventually(t, c.farDevice+" has no carrier", func() bool { return !carrier(c.far, c.farDevice) })
		contains(t, lineWith(m.ok("inspect"), "s1-h1 "), c.device+" is down")
		if answers() {
			t.Error("h1 answers over a link whose device is down")
		}
		m.exec(c.node, "ip link set "+c.device+" up")
		eventually(t, c.farDevice+" has a carrier", func() bool { return carrier(c.far, c.farDevice) })
		eventually(t, "h1 answers", answers)
	}
	m.ok("link", "set", "s1-h1", "down")
	m.ok("link", "set", "s1-h1", "up")
	m.pingAll(2)
}

// TestJumboFrames proves that large packets pass once the devices of their way take them, through
// switches, routing nodes and links of any bandwidth, and that inspect shows the MTU.
func TestJumboFrames(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("jumbo.yaml", `
nodes: {s1: switch, s2: switch, h1: host, h2: host}
links: [h1 -- s1, s1 -- s2, {s2 -- h2: {bandwidth: 5mbit}}]
`))
	m.pingAll(2)
	for _, e := range []string{"h1 h1-eth0", "s1 s1-eth1", "s2 s2-eth2", "h2 h2-eth0"} {
		node, device, _ := strings.Cut(e, " ")
		m.exec(node, "ip link set "+device+" mtu 9000")
	}
	contains(t, lineWith(m.ok("inspect"), "s2-h2"), "MTU of s2-eth2 9000, h2-eth0 9000")
	m.ok("link", "set", "s2-h2", "bandwidth=6mbit") // whose bucket must hold such a packet
	eventually(t, "a packet of 8000 bytes comes back", func() bool {
		return m.run("exec", "h1", "--", "ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", "8000", "10.0.0.2").code == 0
	})
}

// TestPortStatus proves that a link between two switches of Open vSwitch which goes down and up is
// a change of its ports' state for a controller of others, as it is of any switch: no port is taken
// away and added again.
func TestPortStatus(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.want(4, "up", "--name", m.name, "linear,2", "--datapath", "ovs", "--controller", "tcp:127.0.0.1:6699", "--wait", "1s")
	monitor := m.startOutput(m.command("ovs-ofctl", "-O", "OpenFlow13", "--unixctl=none", "monitor",
		"unix:/run/trivet/"+m.name+"/ovs/s1.mgmt", "64"))
	said := func() string { return monitor.String() }
	eventually(t, "the link is told to be down, and up again", func() bool { // once the monitor listens
		m.ok("link", "set", "s1-s2", "down")
		m.ok("link", "set", "s1-s2", "up")
		_, after, down := strings.Cut(said(), "LINK_DOWN")
		return down && strings.Contains(after, "LIVE")
	})
	if text := said(); strings.Contains(text, ": DEL: ") || strings.Contains(text, ": ADD: ") || !strings.Contains(text, ": MOD: ") {
		t.Error("what a controller is told:\n", text)
	}
}
