package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestFullKernel proves that what a full kernel has is used: netem impairs links, Open vSwitch
// forwards in the kernel, cgroups of version 2 limit processors; and that frames with the
// hosts' own VLAN tags pass both kinds of switches. It runs where a full kernel is promised
// (TRIVET_FULL_KERNEL=1), and fails there for anything that is missing.
func TestFullKernel(t *testing.T) {
	if os.Getenv("TRIVET_FULL_KERNEL") != "1" {
		t.Skip("this may be a kernel without netem, 802.1Q and the module openvswitch; make vm runs the test in one that has them")
	}
	for _, datapath := range []string{"bridge", "ovs", "embedded"} {
		t.Run(datapath, func(t *testing.T) {
			m := newMachine(t)
			before := m.snapshot()
			m.up(m.file("full.yaml", "name: full\ndatapath: "+datapath+`
nodes: {s1: switch, s2: switch, h1: {host: {cpu: 0.5}}, h2: host}
links: [s1 -- h1, s2 -- h2, s1 -- s2]
`))
			info := jsonOf[struct {
				Devices map[string]string `json:"devices"`
			}](m, "inspect")
			if info.Devices["impairment"] != "netem" {
				t.Error("links are impaired by ", info.Devices["impairment"])
			}
			if datapath == "ovs" && info.Devices["ovs"] != "system" {
				t.Error("Open vSwitch forwards as ", info.Devices["ovs"])
			}
			m.pingAll(2)
			for host, address := range map[string]string{"h1": "10.9.0.1/24", "h2": "10.9.0.2/24"} {
				m.exec(host, "ip link add link "+host+"-eth0 name tagged type vlan id 10 && ip addr add "+address+" dev tagged && ip link set tagged up")
			}
			m.twice("h1", "10.9.0.2")
			contains(t, m.exec("h1", "cat /proc/self/cgroup"), "0::/trivet/"+m.name+"/h1")
			if limit := m.exec("h1", "cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/cpu.max"); strings.TrimSpace(limit) != "50000 100000" {
				t.Error("half a processor became ", limit)
			}
			m.ok("link", "set", "s1-s2", "delay=20ms")
			if p := jsonOf[pings](m, "ping", "h1", "h2", "-c", "10", "-i", "50ms", "--timeout", "30s"); p.RTT == nil || p.RTT.Min < 39 || p.RTT.Min > 75 { // 80 if it were given twice; the processor is emulated
				t.Errorf("20 ms each way: %+v", p.RTT)
			}
			m.ok("down")
			m.unchanged(before)
		})
	}
}
