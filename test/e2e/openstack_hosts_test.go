package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestOpenStackHosts proves that hosts can be instances themselves: one that is made for the lab,
// with user data of its owner's, and a server that is there. Their programs use the lab's network
// and no other, by interfaces of networks that are the links; they reach a namespace at an instance
// that takes any node, over a switch and a router there; a bandwidth holds both ways, a link is
// pulled, left out and taken back, another daemon takes over, and verify finds nothing wrong. What
// cannot be is refused before anything is made. When the lab is down the server has its own network
// as before, and nothing of the lab is left.
func TestOpenStackHosts(t *testing.T) {
	t.Parallel()
	m, _ := newTenant(t)
	c := newClients(t, m)
	c.made = []string{"security group delete NAMErules", "keypair delete NAMEkey"}
	m.sh("mkdir -p .ssh && ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519")
	c.do("security group create NAMErules", "security group rule create NAMErules --protocol icmp",
		"security group rule create NAMErules --protocol tcp --dst-port 22", "keypair create --public-key "+m.dir+"/.ssh/id_ed25519.pub NAMEkey")
	c.network("own", "192.168.1.0/24", "192.168.1.1")
	c.made = append([]string{"router remove subnet NAMErouter NAMEown", "router delete NAMErouter"}, c.made...)
	c.do("router create NAMErouter --external-gateway provider", "router add subnet NAMErouter NAMEown")
	server := c.server("mine", "own", "192.168.1.3", "--key-name NAMEkey")
	c.boots(server)
	floating := lastWord(c.do("floating ip create provider -f value -c floating_ip_address"))
	c.made = append([]string{"floating ip delete " + floating}, c.made...)
	c.do("server add floating ip NAMEmine " + floating)
	eventually(t, "SSH answers at the server", func() bool {
		return m.sh("ssh-keyscan -t ed25519 "+floating+" 2>/dev/null > .ssh/known_hosts || :; wc -l < .ssh/known_hosts") == "1"
	})
	own := func() string {
		out, _ := c.in(server, "ip -br -4 address; ip route; ip rule; cat /etc/hosts")
		return out
	}
	before := own()

	m.file("web.yaml", "#cloud-config\nwrite_files: [{path: /etc/motd, content: web of the lab}]\n")
	cloud := strings.NewReplacer("NAME", c.prefix, "FLOATING", floating).Replace(`openstack:
  cloud: tests
  image: body
  flavor: small
  instances:
    i1: {}
    web: {hosts: 1, user_data: web.yaml, key_pair: NAMEkey}
    vm2: {server: NAMEmine, ssh: root@FLOATING, hosts: 1}
`)
	m.file("cloud.yaml", cloud)
	const text = `
controller: trivet
nodes: {"s[1-2]": switch, r1: router, "h[1-2]": host, web: host}
links:
  - web -- s1: {bandwidth: 20mbit}
  - s1 -- h1
  - s1 -- r1
  - r1 -- s2
  - s2 -- h2
`
	h2 := strings.Replace(text, "h[1-2]\": host", "h[1-2]\": host, vm2: host", 1) + "  - s2 -- vm2\n"
	file := m.file("lab.yaml", h2)
	for _, bad := range []struct{ cloud, file, says string }{
		{cloud + "    x: {server: no-such, ssh: root@192.0.2.1}\n", file, "there is no server no-such"},
		{strings.Replace(cloud, c.prefix+"key", "no-such", 1), file, "there is no key pair no-such"},
		{strings.Replace(cloud, "web.yaml", "none.yaml", 1), file, "none.yaml: no such file"},
		{cloud, m.file("private.yaml", strings.Replace(h2, "web: host", "web: {host: {dirs: [/data]}}", 1)), "dirs: is not for a host that is a machine itself"},
	} {
		m.file("bad.yaml", bad.cloud)
		contains(t, m.want(1, "up", bad.file, "--on", "bad.yaml", "--name", m.name).err, bad.says)
	}
	m.noneInCloud("what was refused")

	contains(t, m.up(file, "--on", "cloud.yaml"), "2 networks of links", "web: 1 node", "vm2: 1 node")
	contains(t, m.ok("ping", "--all"), "0 % lost")
	if name := m.exec("web", "hostname; cat /etc/motd"); name != "web\nweb of the lab" {
		t.Errorf("web is %q", name)
	}
	contains(t, m.exec("web", "ip -br address; cat /etc/hosts"), "eth0", "10.254.", "web-eth0", "10.0.", "vm2")
	contains(t, m.ok("inspect"), "network", "web-eth0")
	if m.run("exec", "web", "--", "ping", "-c", "1", "-W", "1", "10.99.0.1").code == 0 {
		t.Error("a program of the instance reaches the world past the lab")
	}
	if _, ok := c.in(server, "ping -c 1 -W 1 192.168.1.1"); ok {
		t.Error("a program of the server reaches its own network past the lab")
	}
	contains(t, m.ok("path", "web", "h1"), "web → s1 → h1")
	m.holds(t, "web-s1", "h1", "web")
	m.noneWrong()
	m.ok("link", "set", "web-s1", "down")
	contains(t, m.run("ping", "web", "h1", "-c", "1").String(), "0 received")
	m.ok("link", "set", "web-s1", "up")
	eventually(t, "packets cross again", func() bool { return strings.Contains(m.run("ping", "web", "h1", "-c", "1").String(), "1 received") })

	less := m.file("less.yaml", strings.Replace(h2, "  - s2 -- vm2\n", "", 1))
	contains(t, m.ok("apply", "--lab", m.name, less), "- link s2-vm2")
	if _, ok := c.in(server, "ping -c 1 -W 1 192.168.1.1"); ok {
		t.Error("without its link, the server reaches its own network past the lab")
	}
	contains(t, m.ok("apply", "--lab", m.name, file), "+ link s2-vm2")
	m.killDaemon()
	contains(t, m.ok("resume", m.name), "resumed in")
	contains(t, m.ok("ping", "--all"), "0 % lost")

	contains(t, m.ok("down", m.name), "nothing left")
	m.noneInCloud("down")
	if after := own(); after != before {
		t.Errorf("the server had\n%s\nand has\n%s", before, after)
	}
	contains(t, c.do("server list -f value -c Name -c Status"), c.prefix+"mine ACTIVE")
}

// lastWord returns the last word of what OpenStack's client has printed, without its prompts.
func lastWord(out string) string {
	words := strings.Fields(strings.ReplaceAll(out, "(openstack)", ""))
	if len(words) == 0 {
		return fmt.Sprintf("%q", out)
	}
	return words[len(words)-1]
}
