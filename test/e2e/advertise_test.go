package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRouterAdvertisements proves that hosts behind routers of the kernel and routing nodes, with
// embedded switches, Open vSwitch and bridges between, make their addresses of router
// advertisements before up, apply, link set and resume end: all pings are answered; that their
// default routes are those which the kernel learns, with lifetime, preference and domains as the
// file has them, and go when a router stops; that apply moves hosts to another prefix and back,
// takes advertisements away, and turns hosts to given addresses; that verify and save find nothing;
// and that down leaves nothing.
func TestRouterAdvertisements(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	text, err := os.ReadFile(example("router-advertisements.yaml"))
	must(t, err)
	first := strings.NewReplacer("name: router-advertisements\n", "name: "+m.name+"\ndatapath: embedded\n",
		"  s[1-2]: switch\n", "  s1: {switch: {datapath: bridge}}\n  s2: {switch: {datapath: ovs}}\n  r3: {router: {datapath: ovs, ra: true}}\n  s3: switch\n  h[5-6]: {host: {accept_ra: true}}\n",
		"links:\n", "links:\n  - r2 -- r3\n  - r3 -- s3\n  - s3 -- h5\n  - r3 -- h6: {delay: 1ms}\n").Replace(string(text))
	file := m.file("first.yaml", first)
	m.up(file)
	all := func(when string) {
		t.Helper()
		eventually(t, when+": all have addresses", func() bool {
			return !slices.ContainsFunc([]string{"h1", "h2", "h3", "h4", "h5", "h6"}, func(host string) bool {
				return !strings.Contains(m.exec(host, "ip -6 -o addr show dev "+host+"-eth0 scope global; ip -6 route show default"), "proto ra")
			})
		})
		for _, host := range []string{"h1", "h2", "h3", "h4", "h5", "h6"} {
			addresses := m.exec(host, "ip -6 -o addr show dev "+host+"-eth0 scope global")
			if strings.Count(addresses, "inet6") != 1 || !strings.Contains(addresses, "dynamic") {
				t.Errorf("%s: %s has %s", when, host, addresses)
			}
			contains(t, m.exec(host, "ip -6 route show default"), "via fe80::", "proto ra")
		}
		if r := m.run("exec", "h1", "--", "ping", "-6", "-c", "2", "-W", "5", "-i", "0.2", "h6"); r.code != 0 {
			t.Errorf("%s: h1 does not reach h6: %s", when, r)
		}
		if r := m.run("exec", "server", "--", "ping", "-6", "-c", "2", "-W", "5", "-i", "0.2", "h5"); r.code != 0 {
			t.Errorf("%s: the server does not reach h5: %s", when, r)
		}
	}
	contains(t, m.exec("h1", "ip -6 -o addr show dev h1-eth0 scope global"), "fd00:1::")
	contains(t, m.exec("h5", "ip -6 -o addr show dev h5-eth0 scope global"), "dynamic")
	all("up")
	m.quiet("up")
	contains(t, m.exec("h3", "ip -6 route show default"), "pref high")
	contains(t, m.exec("h3", "ip -6 -o addr show dev h3-eth0"), "fd00:2::")
	contains(t, m.ok("save", "--dry-run"), "nothing to save")
	seen := m.file("seen", "")
	sees := func() string {
		b, err := os.ReadFile(seen)
		must(t, err)
		return string(b)
	}
	m.exec("h3", "timeout 60 tcpdump -l -n -v -c 1 -i h3-eth0 'icmp6 and ip6[40] == 134' >"+seen+" 2>&1 &")
	eventually(t, "tcpdump listens", func() bool { return strings.Contains(sees(), "listening") })
	m.ok("link", "set", "s2-h3", "down")
	m.ok("link", "set", "s2-h3", "up")
	eventually(t, "an advertisement comes", func() bool { return strings.Contains(sees(), "1 packet captured") })
	contains(t, sees(), "router lifetime 90s", "pref high", "fd00::53", "example.org", "prefix info option (3), length 32 (4): fd00:2::/64, Flags [onlink, auto]")
	looks := m.looked()
	if wrong := append(looks.Addresses.Wrong, looks.Routes.Wrong...); len(wrong) > 0 {
		t.Errorf("verify says %v", wrong)
	}

	second := strings.NewReplacer("fd00:1::1/64", "fd00:9::1/64", "h[5-6]: {host: {accept_ra: true}}", "h[5-6]: host").Replace(first)
	said := m.ok("apply", m.file("second.yaml", second))
	contains(t, said, "fd00:9::")
	contains(t, m.exec("h1", "ip -6 -o addr show dev h1-eth0 scope global"), "fd00:9::", "dynamic")
	if is := m.exec("h5", "ip -6 -o addr show dev h5-eth0 scope global"); strings.Contains(is, "dynamic") || !strings.Contains(is, "inet6") {
		t.Errorf("h5, whose address is assigned, has %s", is)
	}
	if r := m.run("exec", "h1", "--", "ping", "-6", "-c", "2", "-W", "5", "-i", "0.2", "h6"); r.code != 0 {
		t.Errorf("another prefix: h1 does not reach h6: %s", r)
	}
	m.ok("apply", file)
	all("apply and back")
	m.quiet("apply and back")

	m.ok("link", "set", "s1-h1", "delay=1ms") // another kind of device, where the kernel has no netem
	m.ok("link", "set", "r1-s1", "delay=1ms")
	all("a delay")
	m.ok("link", "set", "s1-h1", "delay=none")
	m.ok("link", "set", "r1-s1", "delay=none")
	m.ok("link", "set", "r1-s1", "down")
	m.ok("link", "set", "s1-h1", "down")
	m.ok("link", "set", "r1-s1", "up")
	m.ok("link", "set", "s1-h1", "up")
	all("links that were down")
	m.killDaemon()
	m.ok("resume")
	m.ok("link", "set", "s2-h3", "down")
	m.ok("link", "set", "s2-h3", "up")
	m.ok("link", "set", "s1-h1", "down")
	m.ok("link", "set", "s1-h1", "up")
	all("resume")
	m.quiet("resume")

	m.ok("apply", m.file("none.yaml", strings.Replace(first, "datapath: kernel, ra: true", "datapath: kernel", 1)))
	eventually(t, "r1 is no default router any more", func() bool { return m.exec("h1", "ip -6 route show default") == "" })
	m.ok("link", "set", "s1-h2", "down")
	m.ok("link", "set", "s1-h2", "up")
	if is := m.exec("h2", "ip -6 -o addr show dev h2-eth0 scope global"); is != "" {
		t.Errorf("nobody advertises itself, and h2 has %s", is)
	}
	m.ok("down")
	m.unchanged(before)
}

// TestSitesAdvertise proves that hosts at other machines make their addresses of what a router here
// advertises, and hosts here of what one there does, before up and apply end.
func TestSitesAdvertise(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 1)
	h := s.head
	text := `ipv6: assigned
nodes:
  r1: {router: {on: head, datapath: kernel, ra: true}}
  r2: {router: {on: m1, datapath: kernel, ra: true}}
  s1: {switch: {on: m1}}
  s2: {switch: {on: head}}
  h1: {host: {on: m1, accept_ra: true}}
  h2: {host: {on: head, accept_ra: true}}
links: [{r1 -- s1: {from: {address: fd00:1::1/64}}}, s1 -- h1, {r2 -- s2: {from: {address: fd00:2::1/64}}}, s2 -- h2, r1 -- r2]
`
	h.up(h.file("lab.yaml", text), "--on", "machines.yaml", "--name", h.name)
	all := func(when, prefix string) {
		t.Helper()
		contains(t, h.exec("h1", "ip -6 -o addr show dev h1-eth0 scope global; ip -6 route"), prefix, "dynamic", "proto ra")
		contains(t, h.exec("h2", "ip -6 -o addr show dev h2-eth0 scope global; ip -6 route"), "fd00:2::", "dynamic", "proto ra")
		if r := h.run("exec", "h2", "--", "ping", "-6", "-c", "2", "-W", "5", "-i", "0.2", "h1"); r.code != 0 {
			t.Errorf("%s: h2 does not reach h1: %s", when, r)
		}
	}
	all("up", "fd00:1::")
	h.ok("apply", h.file("lab.yaml", strings.Replace(text, "fd00:1::1", "fd00:9::1", 1)))
	all("another prefix", "fd00:9::")
	h.ok("apply", h.file("lab.yaml", strings.Replace(text, "fd00:2::1", "fd00:8::1", 1)))
	contains(t, h.exec("h2", "ip -6 -o addr show dev h2-eth0 scope global"), "fd00:8::", "dynamic")
	h.ok("apply", h.file("lab.yaml", text))
	all("and back", "fd00:1::")
	h.ok("down", h.name)
	s.unchanged(t)
}
