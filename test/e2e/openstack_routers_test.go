package e2e

import (
	"strings"
	"testing"
)

// TestOpenStackRouters proves that routers of a topology can be Neutron's own, at a machine with
// its agent and between instances: each link of theirs is a network, packets take the way of the
// file through them and through routers and switches of the lab, and bandwidths of the lab's ends
// hold; that what they cannot be is refused and changes nothing; that the lab changes otherwise, is
// verified and resumed; and that nothing of it is left.
func TestOpenStackRouters(t *testing.T) {
	t.Parallel()
	const text = `
controller: trivet
nodes:
  h1: {host: {on: A}}
  h2: {host: {on: B}}
  h3: {host: {on: B}}
  h4: {host: {on: A}}
  s1: {switch: {on: A}}
  q[1-2]: {router: {datapath: neutron}}
  k1: {router: {datapath: kernel, on: B}}
links:
  - h1 -- s1
  - s1 -- q1
  - q1 -- q2: LINK
  - q2 -- k1: {to: {bandwidth: 20mbit}}
  - k1 -- h2
  - h3 -- q1
  - s1 -- h4
MORE`
	for name, c := range map[string]struct{ a, b, cloud string }{
		"here":      {"head", "head", ""},
		"instances": {"i1", "i2", "openstack: {cloud: tests, image: body, flavor: small, instances: 2}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m *machine
			if name == "here" {
				m = newNode(t)
			} else {
				m, _ = newTenant(t)
				m.file("cloud.yaml", c.cloud)
			}
			m.withDaemons()
			file := func(name, link, more string) string {
				return m.file(name, strings.NewReplacer("on: A", "on: "+c.a, "on: B", "on: "+c.b, "LINK", link, "MORE", more).Replace(text))
			}
			good := file("good.yaml", "{}", "")
			for _, bad := range []struct{ file, on, says string }{
				{good, "", "router q1: a router of Neutron is a cloud's, and the lab is of this machine alone"},
				{good, m.file("machines.yaml", "machines: [root@192.0.2.1]\n"), "the list of machines names none"},
				{file("slow.yaml", "{delay: 5ms}", ""), "cloud.yaml", "link q1-q2: q1 cannot limit, delay or lose what it sends"},
				{m.file("ospf.yaml", "links: [q1 -- q2]\nnodes: {\"q[1-2]\": {router: {datapath: neutron, ospf: area 0}}}\n"), "cloud.yaml", "router q1: a router of Neutron has no OSPF"},
			} {
				args := []string{"up", bad.file, "--name", m.name}
				if bad.on != "" {
					args = append(args, "--on", bad.on)
				}
				contains(t, m.want(1, args...).err, bad.says)
			}
			m.noneInCloud("what was refused")

			m.up(good, "--on", "cloud.yaml")
			eventually(t, "Neutron's agent has set the routes", func() bool { return m.run("ping", "h1", "h2", "-c", "1").code == 0 })
			m.pingAll(12)
			contains(t, m.ok("inspect"), "of the provider's", "network")
			// The addresses of q1, q2 and k1 that face h1.
			way := func() (hops []string) {
				for line := range strings.Lines(m.exec("h1", "traceroute -n -q 1 -w 5 -m 6 h2")) {
					if words := strings.Fields(line); len(words) > 1 && words[0] != "traceroute" {
						hops = append(hops, words[1])
					}
				}
				return hops
			}
			facing := map[string]string{}
			for _, l := range jsonOf[struct {
				Topology struct {
					Links []struct {
						Ends [2]struct {
							Node      string
							Addresses []string
						}
					}
				}
			}](m, "inspect").Topology.Links {
				for i, e := range l.Ends {
					if len(e.Addresses) > 0 {
						facing[e.Node+" "+l.Ends[1-i].Node] = strings.Split(e.Addresses[0], "/")[0]
					}
				}
			}
			want := strings.Join([]string{facing["q1 s1"], facing["q2 q1"], facing["k1 q2"], facing["h2 k1"]}, " ")
			if got := strings.Join(way(), " "); got != want {
				t.Errorf("packets go by %s, not %s", got, want)
			}
			if name == "here" { // an instance has this kernel, which has no netem
				m.noneWrong()
			}

			contains(t, m.want(1, "exec", "q1", "--", "true").err, "q1 is a router of Neutron, which the provider runs")
			contains(t, m.want(1, "link", "set", "q1-q2", "down").err, "neither q1 nor q2 can be made to set it down")
			contains(t, m.want(1, "link", "set", "h3-q1", "bandwidth=5mbit").err, "q1 cannot limit")
			m.ok("link", "set", "h3-q1", "down")
			if m.run("ping", "h3", "h1", "-c", "1").code == 0 {
				t.Error("h3 reaches h1 over a link that is down")
			}
			m.ok("link", "set", "h3-q1", "up")
			m.killOwnDaemon()
			contains(t, m.ok("resume", m.name), "resumed in")
			m.pingAll(12)
			contains(t, m.want(1, "apply", "--lab", m.name, file("routes.yaml", "{}", "  - k1 -- h4\n")).err, "or is to have other routes")
			contains(t, m.want(1, "apply", "--lab", m.name, file("port.yaml", "{}", "  - q2 -- s1\n")).err, "are made when a lab comes up")
			contains(t, m.ok("apply", "--lab", m.name, file("host.yaml", "{}", "  - k1 -- h2: {from: {address: none}, to: {address: none}}\n")), "1 change made")
			m.pingAll(12)
			contains(t, m.ok("down", m.name), "nothing left")
			m.noneInCloud("down")
		})
	}
}
