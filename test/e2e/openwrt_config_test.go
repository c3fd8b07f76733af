package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestOpenWrtConfig proves that a switch that is an OpenWrt device has the flow entries and the
// settings of Open vSwitch that its file gives it, by the topology's names of its ports; that what
// somebody changes there by hand is saved, and is there again after down and up, and what is edited
// after apply, also after the daemon has died; that what cannot be loaded changes nothing; and that
// the user-space agent is refused a configuration.
func TestOpenWrtConfig(t *testing.T) {
	t.Parallel()
	h := newMachine(t)
	h.env = []string{"HOME=" + h.dir}
	h.sh("ip link add hub type bridge && ip addr add 10.5.0.1/24 dev hub && ip link set hub up && mkdir -p .ssh && ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519")
	w := newWrt(t, h, "10.5.0.2", "dsa")
	w.joins("lan1", h, "eth1")
	w.joins("lan2", h, "eth2")
	w.power()
	h.file(".ssh/known_hosts", "10.5.0.2 "+strings.TrimSpace(w.sh("dropbearkey -y -f "+w.root+"/etc/dropbear/key | grep ^ssh"))+"\n")
	list := `gateway: {ssh: local, inner: hub}
devices:
  wrt-1: {ssh: root@10.5.0.2, kind: openwrt, ports: [lan1, lan2, lan3]}
wires:
  - wrt-1/lan1 -- gateway/eth1
  - wrt-1/lan2 -- gateway/eth2
`
	h.file("rack.yaml", list)
	const lab = `nodes:
  s1: {switch: {on: wrt-1, datapath: ovs, config: {ovs: s1.ovs, flows: s1.flows}}}  # by hand
  h[1-2]: host
links: [s1 -- h1, s1 -- h2]
`
	file := h.file("lab.yaml", lab)
	h.file("s1.ovs", "# of hosts\nset port s1-eth1 other_config:priority-tags=true\n")
	h.file("s1.flows", "priority=900,ip,nw_dst=10.66.0.1,actions=drop\n")
	eventually(t, "dropbear answers", func() bool { return w.at(h, "10.5.0.2", "true").code == 0 })
	was := w.state()
	up := []string{"up", "lab.yaml", "--on", "rack.yaml", "--name", h.name, "--wait", "3m"}
	flows := func() string {
		t.Helper()
		return h.exec("s1", "cd /var/run/trivet && ovs-ofctl -O OpenFlow13 dump-flows unix:$PWD/s1.mgmt")
	}
	vsctl := func(words string) string {
		t.Helper()
		return h.exec("s1", "ovs-vsctl --db=unix:/var/run/trivet/db.sock "+words)
	}

	h.ok(up...)
	contains(t, flows(), "nw_dst=10.66.0.1")
	contains(t, vsctl("get port lan1 other_config"), "priority-tags")
	contains(t, h.ok("ping", "--all"), "2 sent, 2 received")
	contains(t, h.ok("save", "--dry-run"), "nothing to save")

	h.exec("s1", "cd /var/run/trivet && ovs-ofctl -O OpenFlow13 add-flow unix:$PWD/s1.mgmt priority=901,ip,nw_dst=10.66.0.2,actions=drop")
	vsctl("set port lan2 tag=10 -- set interface lan1 ingress_policing_rate=5000")
	contains(t, h.ok("save", "--dry-run"), "+priority=901,ip,nw_dst=10.66.0.2 actions=drop", "+set port s1-eth2 tag=10", "+set interface s1-eth1 ingress_policing_rate=5000")
	h.ok("save")
	contains(t, h.ok("save"), "nothing to save")
	if text, _ := os.ReadFile(file); string(text) != lab {
		t.Errorf("the topology's file is\n%s", text)
	}
	h.ok("down", h.name)
	if now := w.state(); now != was {
		t.Errorf("the device is not what it was:\n%s", differing(was, now))
	}

	h.ok(up...)
	contains(t, flows(), "nw_dst=10.66.0.1", "nw_dst=10.66.0.2")
	contains(t, vsctl("get port lan2 tag -- get interface lan1 ingress_policing_rate"), "10\n5000")
	contains(t, h.ok("save", "--dry-run"), "nothing to save")
	h.killDaemon()
	h.ok("resume", h.name)
	eventually(t, "the device is asked again", func() bool { return strings.Contains(h.run("save", "--dry-run").String(), "nothing to save") })

	h.file("s1.flows", "priority=900,ip,nw_dst=10.66.0.9,actions=drop\n")
	h.file("s1.ovs", "set port s1-eth1 other_config:priority-tags=true\n")
	contains(t, h.ok("apply", "lab.yaml", "--lab", h.name), "1 change made")
	if has := flows(); !strings.Contains(has, "nw_dst=10.66.0.9 ") || strings.Contains(has, "nw_dst=10.66.0.1 ") || strings.Contains(has, "nw_dst=10.66.0.2 ") {
		t.Errorf("after an edit of its file the switch has\n%s", has)
	}
	if tag := vsctl("get port lan2 tag"); tag != "[]" {
		t.Errorf("after an edit of its file the port has the VLAN %s", tag)
	}

	// An action that this Open vSwitch refuses, though it can be read; then one that cannot.
	h.file("s1.flows", "priority=902,ip,nw_dst=10.66.0.5,actions=goto_table:0\n")
	h.want(1, "apply", "lab.yaml", "--lab", h.name)
	contains(t, flows(), "nw_dst=10.66.0.9")
	h.file("s1.flows", "priority=902,actions=nonsense\n")
	contains(t, h.want(1, "apply", "lab.yaml", "--lab", h.name).String(), "s1.flows:1")
	h.file("s1.flows", "priority=900,ip,nw_dst=10.66.0.9,actions=drop\n")

	h.file("lab.yaml", strings.Replace(lab, "datapath: ovs, ", "datapath: ovs, fail_mode: standalone, ", 1))
	h.ok("apply", "lab.yaml", "--lab", h.name)
	contains(t, flows(), "nw_dst=10.66.0.9")

	h.file("lab.yaml", strings.Replace(lab, ", datapath: ovs, config: {ovs: s1.ovs, flows: s1.flows}", "", 1))
	h.ok("apply", "lab.yaml", "--lab", h.name)
	if has, tag := flows(), vsctl("get port lan1 other_config"); strings.Contains(has, "10.66.0.9") || tag != "{}" {
		t.Errorf("without a configuration the switch has %s and\n%s", tag, has)
	}
	vsctl("set port lan2 tag=10")
	h.ok("save")
	if text, _ := os.ReadFile(file); !strings.Contains(string(text), "datapath: ovs") {
		t.Errorf("what was saved is not what the file can say without it:\n%s", text)
	}
	h.ok("validate", "lab.yaml")
	h.ok("down", h.name)

	h.file("rack.yaml", strings.Replace(list, "kind: openwrt", "kind: openwrt, agent: ofswitch", 1))
	h.file("lab.yaml", strings.Replace(lab, "ovs: s1.ovs, ", "", 1))
	contains(t, h.want(1, up...).String(), "the agent ofswitch takes no config")
}
