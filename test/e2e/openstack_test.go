package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"trivet.dev/trivet/site"
)

// tenants counts machines that have reached the OpenStack of the tests. TRIVET_OPENSTACK is the
// first of their addresses' last octets, so that several runs of tests may share one.
var tenants atomic.Int64

// newTenant starts a machine from which an OpenStack is reached, that of test/openstack, as an
// ordinary member of a project, by credentials with a secret that nothing else is called by. Its
// cloud.yaml asks for two instances.
func newTenant(t *testing.T) (m *machine, secret string) {
	t.Helper()
	needCloud(t)
	m = newMachine(t)
	return m, m.joinCloud(t)
}

// needCloud skips a test where there is no OpenStack, and returns the first of the last octets that
// its machines have there.
func needCloud(t *testing.T) int {
	t.Helper()
	first, err := strconv.Atoi(os.Getenv("TRIVET_OPENSTACK"))
	if err != nil {
		t.Skip("needs an OpenStack: make test-openstack")
	}
	return first
}

// joinCloud makes a machine one that newTenant describes.
func (m *machine) joinCloud(t *testing.T) (secret string) {
	t.Helper()
	first := needCloud(t)
	join := exec.Command("../openstack/stack", "join", strconv.Itoa(m.init.Process.Pid), fmt.Sprintf("10.99.0.%d", int64(first)+tenants.Add(1)))
	if out, err := join.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.patient, m.env = cloudTime, []string{"HOME=" + m.dir}
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "OS_") {
			m.env = append(m.env, v)
		}
	}
	said := strings.Fields(m.sh("openstack application credential create -f value -c id -c secret " + m.name))
	if len(said) != 2 {
		t.Fatalf("an application credential: %q", said)
	}
	url := os.Getenv("OS_AUTH_URL")
	m.env = []string{"HOME=" + m.dir}
	for _, v := range os.Environ() { // what the environment has is not what is used
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OS_") {
			m.env = append(m.env, name+"=")
		}
	}
	m.file("clouds.yaml", fmt.Sprintf("clouds:\n  tests:\n    auth_type: v3applicationcredential\n    auth: {auth_url: %q, application_credential_id: %q}\n", url, said[0]))
	m.file("secure.yaml", fmt.Sprintf("clouds:\n  tests:\n    auth: {application_credential_secret: %q}\n", said[1]))
	m.file("cloud.yaml", "openstack: {cloud: tests, flavor: small, instances: 2}\n")
	return said[1]
}

// TestOpenStack proves that a lab comes up on instances that are made for it, and is one like any
// other there: hosts reach each other within and across instances, programs run, a bandwidth holds
// both ways, changes and another daemon are followed; that what it takes of the cloud is listed,
// also for another machine of the project; and that nothing of it is left when it is down, neither
// there nor here, and the secret of the credentials never was anywhere.
func TestOpenStack(t *testing.T) {
	m, secret := newTenant(t)
	before := m.snapshot()
	contains(t, m.ok("doctor", "--on", "cloud.yaml"), "2 machines", "can be made")
	out := m.up("tree,2,2", "--on", "cloud.yaml")
	contains(t, out, "openstack: 2 machines in", "i1: 4 nodes", "i2: 3 nodes", "across: 1 link by VXLAN")
	contains(t, m.ok("ping", "--all"), "12 sent, 12 received")
	contains(t, m.exec("h4", "ip -br address; cat /etc/hosts"), "10.0.0.4/8", "10.0.0.1 h1")
	if a, b := m.exec("h1", "cat /etc/hostname"), m.exec("h4", "cat /etc/hostname"); a != "i1" || b != "i2" {
		t.Errorf("h1 is at %s and h4 at %s", a, b)
	}
	contains(t, m.ok("path", "h1", "h4"), "h1 → s2 → s1 → s3 → h4")
	m.holds(t, "s1-s3", "h1", "h4")
	m.ok("link", "set", "s1-s3", "down")
	contains(t, m.run("ping", "h1", "h4", "-c", "1").String(), "0 received")
	m.ok("link", "set", "s1-s3", "up")
	eventually(t, "packets cross again", func() bool { return strings.Contains(m.run("ping", "h1", "h4", "-c", "1").String(), "1 received") })

	m.killDaemon()
	contains(t, m.ok("resume"), "resumed in")
	m.pingAll(12)
	list := m.allocations()
	if len(list) != 1 || list[0].Lab != m.name || list[0].Holds["instance"] != 2 {
		t.Errorf("%+v", list)
	}
	contains(t, m.want(1, "down", m.name, "--on", "cloud.yaml").err, "the lab is up here")
	if found := m.sh("grep -rlF -e " + secret + " /run/trivet " + m.dir + " | grep -v secure.yaml || :"); found != "" || strings.Contains(out, secret) {
		t.Errorf("the secret is in %s, or was printed", found)
	}
	contains(t, m.ok("down", m.name), "openstack: 9 things removed", "nothing left")
	m.noneInCloud("down")
	if left, _ := filepath.Glob(filepath.Join(m.dir, ".cache/trivet/openstack/*")); len(left) > 0 {
		t.Errorf("left: %s", left)
	}
	m.unchanged(before)
}

// allocations is what the machine's labs have in the cloud.
func (m *machine) allocations() []site.Allocation {
	m.t.Helper()
	return slices.DeleteFunc(jsonOf[[]site.Allocation](m, "ls", "--on", "cloud.yaml"), func(a site.Allocation) bool { return a.Lab != m.name })
}

// noneInCloud proves that the machine's lab has nothing in the cloud.
func (m *machine) noneInCloud(after string) {
	m.t.Helper()
	if list := m.allocations(); len(list) > 0 {
		m.t.Errorf("in the cloud after %s: %+v", after, list)
	}
}

// holds proves that a bandwidth set on a link holds both ways between two hosts.
func (m *machine) holds(t *testing.T, link, a, b string) {
	t.Helper()
	(&several{head: m}).holds(t, link, a, b)
}

// TestOpenStackRouting proves that routing nodes at several instances, which the controller at the
// head runs, and Linux routers route between hosts there.
func TestOpenStackRouting(t *testing.T) {
	m, _ := newTenant(t)
	for _, datapath := range []string{"embedded", "kernel"} {
		if datapath == "kernel" {
			m.ok("down", m.name)
		}
		m.up("ring,4", "--nodes", "router", "--datapath", datapath, "--on", "cloud.yaml")
		m.pingAll(12)
	}
	m.ok("down", m.name)
}

// TestOpenStackKilled proves that wherever `trivet up` is killed, whoever has the project's
// credentials sees what it has made, and removes all of it.
func TestOpenStackKilled(t *testing.T) {
	m, _ := newTenant(t)
	for _, at := range []string{"openstack: 2 ports", "openstack: 2 floating IPs", "openstack: waiting for SSH"} {
		cmd := m.command(trivet, "up", "linear,2", "--on", "cloud.yaml", "--name", m.name)
		said := m.startOutput(cmd)
		said.waitFor(t, at)
		must(t, cmd.Process.Signal(syscall.SIGKILL))
		_ = cmd.Wait()
		var list []site.Allocation
		eventually(t, "what it has made is listed", func() bool { list = m.allocations(); return len(list) > 0 })
		if len(list) != 1 || list[0].Lab != m.name {
			t.Fatalf("%s: %+v", at, list)
		}
		eventually(t, "nothing is left, of what was under way either", func() bool {
			m.run("down", m.name, "--on", "cloud.yaml")
			return len(m.allocations()) == 0
		})
	}
}
