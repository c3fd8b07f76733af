package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// managed has a host behind each of a switch and a router, and a host with processes of its own.
const managed = `management: true
nodes:
  h[1-2]: host
  h3: {host: {isolate: pid}}
  s1: switch
  r1: {router: {datapath: %s}}
links: [h1 -- s1, h3 -- s1, s1 -- r1, h2 -- r1]
`

// reaches says whether a ping from somewhere is answered: it is asked again, as a first one may be
// lost while neighbours find each other.
const reaches = "ping -c 1 -W 3 %[1]s >/dev/null || ping -c 3 -W 3 %[1]s >/dev/null"

// pinged says which addresses a node (or, empty, the machine) reaches.
func (m *machine) pinged(lab, node string, addresses ...string) (out string) {
	for _, a := range addresses {
		script := fmt.Sprintf("if "+reaches+"; then echo yes; else echo no; fi", a)
		if node == "" {
			out += m.sh(script) + " "
		} else {
			out += m.ok("--lab", lab, "exec", node, "--", "sh", "-c", script)
		}
	}
	return strings.Join(strings.Fields(out), " ")
}

// left is what of management networks the machine has.
func (m *machine) left() string {
	return m.sh("ip -o link | grep -o 'tv-[0-9a-f]*' || true; nft list tables | grep management || true")
}

// The machine reaches each node by its management address and is reached for a ping, but not a
// service; nodes do not reach each other, neither over the network nor through a router; what a lab
// knows of itself does not have it; down leaves nothing.
func TestManagement(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "kernel", "frr", "bird"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up(m.file("lab.yaml", fmt.Sprintf(managed, datapath)))
			nodes := []string{"172.30.0.2", "172.30.0.3", "172.30.0.4"}
			if datapath != "embedded" { // a routing node has no namespaces
				nodes = append(nodes, "172.30.0.5")
			}
			if got := m.pinged("", "", nodes...); strings.Contains(got, "no") {
				t.Errorf("the machine reaches %v: %s", nodes, got)
			}
			if got := m.pinged(m.name, "h1", "172.30.0.1", "172.30.0.3", "172.30.0.4"); got != "yes no no" {
				t.Error("h1 reaches the machine, h2 and h3:", got)
			}
			// Over the lab's links: as if h1 had no device in that network, and the router were to
			// forward.
			m.exec("h1", "ip rule del pref 100")
			if got := m.pinged(m.name, "h1", append(nodes[1:], "172.30.0.1", "10.0.2.2")...); strings.Trim(got, "no ") != "yes" {
				t.Error("through the router h1 reaches other nodes, the machine, and h2 by its own address:", got)
			}
			if got := m.exec("h1", "ip route"); strings.Contains(got, "172.30") || strings.Count(got, "default") != 1 {
				t.Error("the routes of h1:", got)
			}
			contains(t, m.ok("ping", "--all"), "6 sent, 6 received")
			if r := m.verified(); !r.Holds() {
				t.Error(r.Says(verify.Wrong))
			}
			if names := m.exec("h1", "cat /etc/hosts"); strings.Contains(names, "172.30") {
				t.Error("names:", names)
			}
			m.ok("down")
			if left := m.left(); left != "" {
				t.Error("left:", left)
			}
		})
	}
}

// A node cannot use what listens on the machine, which can use what listens in the node.
func TestManagementServices(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("lab.yaml", fmt.Sprintf(managed, "embedded")))
	serve := m.file("serve.py", "import socket; s = socket.create_server(('0.0.0.0', 7000))\nwhile True: s.accept()[0].sendall(b'here')")
	must(t, m.start(m.command("/usr/bin/python3", serve)))
	asks := func(address string) string {
		return "timeout 3 /usr/bin/python3 -c \"import socket; print(socket.create_connection(('" + address + "', 7000), 2).recv(9).decode())\" 2>&1 || true"
	}
	eventually(t, "the machine's service answers", func() bool { return strings.Contains(m.sh(asks("172.30.0.1")), "here") })
	if got := m.exec("h1", asks("172.30.0.1")); strings.Contains(got, "here") {
		t.Error("h1 uses what listens on the machine:", got)
	}
	m.exec("h1", "/usr/bin/python3 "+serve+" >/dev/null 2>&1 &")
	eventually(t, "the service of h1 answers", func() bool { return strings.Contains(m.sh(asks("172.30.0.2")), "here") })
}

// apply gives a lab that is up a management network, another, and takes it away; a failed one
// leaves it; and it stays through the death of the lab's daemon.
func TestManagementChanges(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	with := fmt.Sprintf(managed, "kernel")
	without := strings.TrimPrefix(with, "management: true\n")
	all := []string{"2", "3", "4", "5"}
	reached := func(subnet string) string {
		var addresses []string
		for _, n := range all {
			addresses = append(addresses, subnet+n)
		}
		return m.pinged("", "", addresses...)
	}
	const each = "yes yes yes yes"
	m.up(m.file("lab.yaml", without))
	m.ok("apply", m.file("lab.yaml", with))
	if got := reached("172.30.0."); got != each {
		t.Error("after it was added:", got)
	}
	m.ok("apply", m.file("lab.yaml", "management: 192.0.2.0/28\n"+without))
	if got := reached("192.0.2."); got != each {
		t.Error("after it was moved:", got)
	}
	m.want(1, "apply", m.file("lab.yaml", "management: 10.0.1.0/24\n"+without))

	m.killDaemon()
	m.ok("resume", m.name)
	m.ok("apply", m.file("lab.yaml", "management: 192.0.2.0/28\n"+without+"schedule: []\n"))
	if got := reached("192.0.2."); got != each {
		t.Error("after the daemon was resumed:", got)
	}
	m.ok("apply", m.file("lab.yaml", without))
	if left := m.left() + m.exec("r1", "ip -o link show mgmt0 2>/dev/null; ip rule | grep 192 || true; nft list tables"); left != "" {
		t.Error("after it was taken away:", left)
	}
	m.ok("apply", m.file("lab.yaml", with))
	m.killDaemon()
	m.ok("down")
	if left := m.left(); left != "" {
		t.Error("left by a lab whose daemon was killed:", left)
	}
}

// Two labs whose files say only true have networks of their own; one that names a subnet which the
// machine uses is not made, and nothing is left of it.
func TestManagementOfTwoLabs(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := m.file("lab.yaml", fmt.Sprintf(managed, "kernel"))
	one, two := m.name+"-1", m.name+"-2"
	m.ok("up", file, "--name", one)
	m.ok("up", file, "--name", two)
	if got := m.pinged("", "", "172.30.0.2", "172.30.1.2"); got != "yes yes" {
		t.Error("the machine reaches h1 of both:", got)
	}
	if got := m.pinged(one, "h1", "172.30.1.1", "172.30.1.2"); got != "no no" {
		t.Error("h1 of one reaches the machine at, and h1 of, the other:", got)
	}
	taken := m.file("taken.yaml", strings.Replace(fmt.Sprintf(managed, "kernel"), "true", "172.30.1.0/25", 1))
	contains(t, m.want(1, "up", taken, "--name", m.name+"-3").String(), "management 172.30.1.0/25", "172.30.1.0/24", "tv-")
	m.ok("down", one)
	if got := m.pinged("", "", "172.30.1.2"); got != "yes" {
		t.Error("the machine reaches h1 of the other once one is down:", got)
	}
	m.ok("down", two)
	if left := m.left(); left != "" {
		t.Error("left:", left)
	}
}

// The example of docs/lab.md: SSH servers in nodes, ssh with the configuration that inspect prints,
// and Ansible with its inventory.
func TestManagementBySSH(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	page, err := os.ReadFile("../../docs/lab.md")
	must(t, err)
	_, text, _ := strings.Cut(string(page), "```yaml                       # managed.yaml\n")
	text, _, _ = strings.Cut(text, "```")
	m.sh("mkdir -m 700 /run/keys; ssh-keygen -q -t ed25519 -N '' -f /run/keys/key")
	m.up(m.file("managed.yaml", strings.ReplaceAll(text, "/root/.ssh/id_ed25519.pub", "/run/keys/key.pub")))
	m.sh(trivet + " inspect --ssh > nodes.conf; " + trivet + " inspect --ansible > nodes.yaml")
	for _, node := range []string{"h1", "r1"} {
		contains(t, m.sh("ssh -F nodes.conf -i /run/keys/key "+node+" hostname"), node)
	}
	ansible := "ANSIBLE_NOCOLOR=1 ansible -i nodes.yaml --private-key /run/keys/key "
	contains(t, m.sh(ansible+"all -m ping 2>&1"), "h1 | SUCCESS", "h2 | SUCCESS", "r1 | SUCCESS")
	contains(t, m.sh(ansible+"routers -m command -a hostname 2>&1"), "r1 | CHANGED")
}
