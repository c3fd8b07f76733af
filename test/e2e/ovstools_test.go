package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestSwitchTools proves that in an embedded switch ovs-ofctl and ovs-vsctl answer by the names of
// switches, as they do with Open vSwitch in the same lab, without an option or an address: flows
// are shown, added and deleted, and packets go by them; also for a switch that comes later, by a
// shell, and in a shell that is older than the daemon; and that what cannot be answered is an error
// that says so, and changes nothing. Open vSwitch's daemons answer ovs-appctl.
func TestSwitchTools(t *testing.T) {
	if _, err := exec.LookPath("ovs-ofctl"); err != nil {
		t.Skip("ovs-ofctl is not installed (Debian: openvswitch-switch)")
	}
	t.Parallel()
	m := newMachine(t)
	m.up("--controller", "none", "--datapath", "ovs", "linear,2")
	asked := []string{"list-br", "list-ports s1", "list-ifaces s2", "get-fail-mode s1", "port-to-br s2-eth1", "get Bridge s2 datapath_id",
		"get Interface s1-eth2 ofport", "get interface s1-eth1 name mac_in_use link_state", "-- list-br -- list-ports s2", "get-controller s1"}
	wrong := []string{"list-ports s9", "port-to-br nothing", "get Interface nothing ofport", "list-br more", "list-ports"}
	answer := func(what string) string {
		r := m.run(append([]string{"exec", "s1", "--", "ovs-vsctl"}, strings.Fields(what)...)...)
		return strings.TrimSpace(r.out+r.err) + "\nexit code " + string(rune('0'+r.code))
	}
	open := map[string]string{}
	for _, what := range append(asked, wrong...) {
		open[what] = answer(what)
	}
	flows := func() string { return m.ok("exec", "s1", "--", "ovs-ofctl", "dump-flows", "s1") }
	contains(t, m.ok("exec", "s1", "--", "ovs-appctl", "fdb/show", "s1"), "MAC")
	contains(t, m.ok("exec", "s2", "--", "ovs-appctl", "-t", "ovsdb-server", "list-commands"), "ovsdb-server/")
	m.ok("down")

	m.up("--controller", "none", "--datapath", "embedded", "linear,2")
	for what, want := range open {
		if got := answer(what); got != want {
			t.Errorf("ovs-vsctl %s answers of embedded switches\n%s\nand of Open vSwitch\n%s", what, got, want)
		}
	}
	show := m.ok("exec", "s2", "--", "ovs-vsctl", "show")
	for _, line := range []string{"(?m)^[0-9a-f]{8}-[0-9a-f-]{27}$", "(?m)^    Bridge s1$", "(?m)^        fail_mode: (secure|standalone)$", "(?m)^        Port s2-eth1$", "(?m)^            Interface s2-eth1$"} {
		if !regexp.MustCompile(line).MatchString(show) {
			t.Errorf("ovs-vsctl show has no line %s:\n%s", line, show)
		}
	}
	for _, what := range []string{"add-br s3", "set Bridge s1 fail_mode=secure", "get Bridge s1 flow_tables", "list Interface", "del-controller s1"} {
		r := m.run(append([]string{"exec", "s1", "--", "ovs-vsctl"}, strings.Fields(what)...)...)
		if r.code != 1 || !strings.Contains(r.err, "Trivet's embedded switches") {
			t.Errorf("ovs-vsctl %s: %v", what, r)
		}
	}

	m.ok("ping", "h1", "h2", "--timeout", "30s")
	m.ok("exec", "s2", "--", "ovs-ofctl", "add-flow", "s1", "priority=900,icmp,actions=drop")
	contains(t, flows(), "priority=900,icmp actions=drop")
	if r := m.run("ping", "h1", "h2"); r.code == 0 {
		t.Error("packets pass that a flow drops which ovs-ofctl has added")
	}
	contains(t, m.ok("exec", "s1", "--", "sh", "-c", "ovs-ofctl dump-flows s1 icmp; ovs-vsctl list-br"), "actions=drop", "s1\ns2\n")
	m.ok("exec", "s1", "--", "ovs-ofctl", "--strict", "del-flows", "s1", "priority=900,icmp")
	m.ok("ping", "h1", "h2", "--timeout", "30s")

	m.ok("apply", m.file("three.yaml", "controller: none\ndatapath: embedded\nnodes: {\"s[1-3]\": switch, \"h[1-3]\": host}\nlinks: [h1 -- s1, h2 -- s2, h3 -- s3, s1 -- s2, s2 -- s3]\n"))
	contains(t, m.ok("exec", "s1", "--", "ovs-ofctl", "show", "s3"), "(s3-eth1)")
	m.kill("*_[_]daemon*")
	m.ok("resume")
	m.sh("OVS_RUNDIR=/run/trivet/" + m.name + "/ovs ovs-ofctl -O OpenFlow13 show s3") // as what a dead daemon has told a shell
}

// TestFlowsDeleted proves that the controller makes its entries again when somebody else has
// deleted all of a switch's, as lab sheets have it done: in switches of either datapath that speaks
// OpenFlow, and in routing nodes.
func TestFlowsDeleted(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ovs-ofctl"); err != nil {
		t.Skip("ovs-ofctl is not installed (Debian: openvswitch-switch)")
	}
	for _, c := range []struct{ datapath, kind, node string }{{"embedded", "switch", "s2"}, {"ovs", "switch", "s2"}, {"ovs", "router", "r2"}} {
		t.Run(c.datapath+"-"+c.kind, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up("--nodes", c.kind, "--datapath", c.datapath, "linear,3")
			if c.datapath == "embedded" {
				m.ok("exec", c.node, "--", "true") // it is told, and can be asked
			}
			ofctl := "OVS_RUNDIR=/run/trivet/" + m.name + "/ovs ovs-ofctl -O OpenFlow13 "
			flows := func() int { return strings.Count(m.sh(ofctl+"dump-flows "+c.node), "cookie=") }
			before := flows()
			m.sh(ofctl + "del-flows " + c.node)
			eventually(t, "the controller has made its entries again", func() bool { return flows() >= before })
			m.pingAll(6)
		})
	}
}
