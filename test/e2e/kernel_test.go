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

// TestFullKernelQueues proves that a full kernel's own disciplines manage the queues of links that
// it shapes, below its token bucket and, with a delay, netem; that a change of their parameters,
// and of netem's options, leaves them in place; and that a ping passes each of them.
func TestFullKernelQueues(t *testing.T) {
	if os.Getenv("TRIVET_FULL_KERNEL") != "1" {
		t.Skip("this may be a kernel without these disciplines; make vm runs the test in one that has them")
	}
	m := newMachine(t)
	m.up(m.file("q.yaml", "nodes: {h1: host, h2: host}\nlinks: [h1 -- h2: {bandwidth: 10mbit, queue: fq_codel}]\n"))
	contains(t, m.ok("inspect"), "queues: the kernel manages them", "veth")
	has := func(end string, words ...string) {
		t.Helper()
		out := m.exec(end, "tc -s qdisc show dev "+end+"-eth0")
		contains(t, out, append(words, "qdisc tbf")...)
	}
	has("h1", "qdisc fq_codel", "flows 1024", "target 5ms", "ecn")
	has("h2", "qdisc fq_codel")
	m.exec("h1", "ping -c 20 -i 0.01 "+m.addressOf("h2", false))
	passed := func() string {
		out := m.exec("h1", "tc -s qdisc show dev h1-eth0")
		_, out, _ = strings.Cut(out, "qdisc fq_codel")
		_, out, _ = strings.Cut(out, "Sent ")
		return strings.Fields(out)[2]
	}
	if before := passed(); before == "0" {
		t.Error("no packet passed fq_codel")
	}
	m.ok("link", "set", "h1-h2", "queue=fq_codel,target=2ms,noecn")
	has("h1", "target 2ms")
	if passed() == "0" {
		t.Error("a change of a parameter made fq_codel anew")
	}
	for _, c := range []struct {
		set   string
		words []string
	}{
		{"queue=fq_codel,flows=8", []string{"flows 8"}},
		{"queue=codel,ecn,limit=77", []string{"qdisc codel", "limit 77p", "ecn"}},
		{"queue=pie,target=20ms", []string{"qdisc pie", "target 20ms", "alpha 2", "beta 20"}},
		{"queue=red,limit=400000,max=90000,min=30000,ecn", []string{"qdisc red", "limit 400000b", "min 30000b", "max 90000b", "ecn"}},
		{"delay=5ms", []string{"qdisc netem", "qdisc red", "delay 5ms"}},
		{"reorder=25% gap=3 duplicate=2% corrupt=1% reorder_correlation=50%", []string{"reorder 25% 50%", "gap 3", "duplicate 2%", "corrupt 1%"}},
		{"reorder=none gap=none corrupt=none queue=pie", []string{"qdisc pie", "qdisc netem", "duplicate 2%"}},
		{"delay=none duplicate=none queue=100", []string{"qdisc tbf"}},
	} {
		m.ok(append([]string{"link", "set", "h1-h2"}, strings.Fields(c.set)...)...)
		for _, end := range []string{"h1", "h2"} {
			has(end, c.words...)
		}
		m.ok("ping", "h1", "h2", "-c", "3", "--timeout", "10s")
	}
	if out := m.exec("h1", "tc qdisc show dev h1-eth0"); strings.Contains(out, "netem") || strings.Contains(out, "pie") {
		t.Errorf("left: %s", out)
	}
}
