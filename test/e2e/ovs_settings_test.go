package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// TestOVSSettings proves that what a user has set at switches and ports of Open vSwitch stays when
// links change, by link set, apply and resume, whether a device is made anew for that or a patch
// goes and comes back: VLANs, a bond, mirrors, queues, whatever else is in the database. Loops
// between ports without such settings stay cut.
func TestOVSSettings(t *testing.T) {
	if _, err := exec.LookPath("ovs-vsctl"); err != nil {
		t.Skip("ovs-vsctl is not installed (Debian: openvswitch-switch)")
	}
	t.Parallel()
	m := newMachine(t)
	const head = "controller: none\ndatapath: ovs\nnodes: {\"s[1-4]\": switch, \"h[1-4]\": host}\n"
	const links = "links: [h1 -- s1, h2 -- s1, s1 -- s2, {s1 -- s2: {bandwidth: 1gbit}}, {s3 -- s4: {bandwidth: 1gbit}}, {s3 -- s4: {bandwidth: 1gbit}}, s2 -- s3, h3 -- s3"
	m.up(m.file("lab.yaml", head+links+"]\n"))
	vsctl := func(what string) string { return m.exec("s1", "ovs-vsctl "+what) }
	vsctl("set port s1-eth1 tag=10 external_ids:mine=1 -- set port s1-eth2 tag=10 -- set interface s1-eth1 external_ids:mine=2")
	vsctl("set port s1-eth1 qos=@q -- --id=@q create qos type=linux-htb other-config:max-rate=1000000000")
	vsctl("set port s1-eth3 trunks=[10,20] -- set port s1-eth4 trunks=[30] -- set bridge s1 other_config:mine=3")
	vsctl("-- --id=@p get port s1-eth1 -- --id=@o get port s1-eth2 -- --id=@m create mirror name=m select_all=false select_src_port=@p output_port=@o -- set bridge s1 mirrors=@m")
	for _, s := range []string{"s3", "s4"} {
		ports := s + "-eth1 " + s + "-eth2"
		vsctl("del-port " + s + "-eth1 -- del-port " + s + "-eth2 -- add-bond " + s + " bond-" + s + " " + ports + " lacp=active bond_mode=balance-slb" +
			" -- set interface " + s + "-eth1 ofport_request=1 -- set interface " + s + "-eth2 ofport_request=2") // else they may get the next ones
	}
	vsctl("clear bridge s1 mirrors") // its output port takes no part in anything else
	vsctl("-- --id=@p get port s1-eth1 -- --id=@o get port s1-eth3 -- --id=@m create mirror name=m select_src_port=@p output_port=@o -- set bridge s1 mirrors=@m")
	m.ok("ping", "h1", "h2", "--timeout", "30s")
	look := func() string {
		return vsctl("-f table -- --columns=name,tag,trunks,vlan_mode,qos,external_ids,interfaces,lacp,bond_mode list port " +
			"s1-eth1 s1-eth2 s1-eth3 bond-s3 bond-s4 -- --columns=external_ids list interface s1-eth1 " +
			"-- --columns=select_src_port,output_port list mirror -- list-ports s1 -- list-ports s3 -- get bridge s1 other_config:mine")
	}
	want := look()
	for _, change := range []string{"link set s1-h1 delay=1ms", "link set s1-h1 delay=none loss=1%", "link set s1-h1 loss=none bandwidth=10mbit",
		"link set s1-h1 down", "link set s1-h1 up", "link set --number 1 s1-s2 down", "link set --number 1 s1-s2 delay=1ms", "link set --number 1 s1-s2 up",
		"link set --number 1 s1-s2 delay=none", "link set --number 2 s1-s2 down", "link set --number 1 s3-s4 down", "link set --number 1 s3-s4 delay=1ms", "link set --number 1 s3-s4 up", "link set s2-s3 down",
		"apply " + m.file("more.yaml", head+strings.Replace(links, "h1 -- s1", "{h1 -- s1: {delay: 2ms}}", 1)+", h4 -- s4]\n")} {
		m.ok(strings.Fields(change)...)
		if got := look(); got != want {
			t.Fatalf("after %s the database has\n%s\nbefore\n%s", change, got, want)
		}
	}
	m.killDaemon()
	m.ok("resume")
	m.ok("link", "set", "s1-h2", "delay=1ms")
	if got := look(); got != want {
		t.Errorf("after a resume the database has\n%s\nbefore\n%s", got, want)
	}
	m.ok("ping", "h1", "h2", "--timeout", "30s")
	eventually(t, "the bond works: h3 reaches h4 over it", func() bool { return m.run("ping", "h3", "h4", "-c", "1", "--timeout", "2s").code == 0 })
}
