package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/topology"
)

// TestLists proves of which devices tools tell that are asked for none by its name.
func TestLists(t *testing.T) {
	for command, want := range map[string]listing{
		"tc qdisc": listsBoth, "tc -s qdisc": listsBoth, "tc -s -j q show": listsBoth, "tc qdisc show dev eth0": listsNone,
		"tc -n blue qdisc": listsNone, "tc class show": listsNone, "tc": listsNone, "tc -b file": listsNone, "tc qdisc add": listsNone,
		"ip link": listsBoth, "ip -s l": listsBoth, "ip addr show": listsBoth, "ip a": listsBoth, "ip -br link show up": listsBoth,
		"ip route": listsNone, "ip link show eth0": listsNone, "ip link add x type veth": listsNone, "ip -n blue link": listsNone, "ip": listsNone,
		"ifconfig": listsBoth, "ifconfig -a": listsBoth, "ifconfig eth0": listsNone, "ifconfig --version": listsNone,
		"bwm-ng -o csv -t 500": listsSwitches, "bwm-ng -I eth0": listsNone, "bwm-ng --help": listsNone,
		"ifstat": listsSwitches, "ifstat -b 1 2": listsSwitches, "ifstat -i eth0": listsNone,
		"brctl show": listsBoth, "brctl show br0": listsNone, "bridge link": listsBoth, "bridge fdb show dev eth0": listsNone,
		"tcpdump -n": listsNone, "ethtool": listsNone,
	} {
		words := strings.Fields(command)
		if got := lists(words[0], words[1:]); got != want {
			t.Errorf("%s: %d, want %d", command, got, want)
		}
	}
}

// TestBehind proves that the program is found that would be, were ours not there: behind the lab's
// own directory in PATH, also behind another lab's, so that no two lead to each other.
func TestBehind(t *testing.T) {
	dir := t.TempDir()
	at := func(name string, mode os.FileMode) string {
		file := filepath.Join(dir, name, "tc")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
		return filepath.Dir(file)
	}
	one, two, host, text, real := at("one", 0o755), at("two", 0o755), at("one/host", 0o755), at("text", 0o644), at("real", 0o755)
	for _, c := range []struct{ path, want string }{
		{one + ":" + text + ":" + real, real},
		{one + ":" + two + ":" + real, two},
		{two + ":" + one + ":" + real, real},
		{host + ":" + one + ":" + real, real},
		{real, real},
		{one, ""},
	} {
		t.Setenv("PATH", c.path)
		if c.want != "" {
			c.want += "/tc"
		}
		if got := behind(one, "tc"); got != c.want {
			t.Errorf("PATH=%s: %q, want %q", c.path, got, c.want)
		}
	}
}

// TestQdiscs proves that what waits at a delay line is shown in tc's words (of iproute2 6.1), as
// text and as JSON, of one device and of several, with and without numbers; that what the kernel
// gives a device by itself, and our own, is not; and that what the user has given it is.
func TestQdiscs(t *testing.T) {
	number := func(n uint64) *uint64 { return &n }
	sends := func(device string) lab.LinkDirection {
		return lab.LinkDirection{From: lab.Place{Node: "s0", Interface: device}}
	}
	slow := lab.LineQueue{Direction: sends("s0-eth2"), Hooked: true, Impairment: topology.Impairment{Bandwidth: 10_000_000, Queue: topology.Queue{Limit: 100},
		Delay: topology.Duration(10 * time.Millisecond), Jitter: topology.Duration(1500 * time.Microsecond), Loss: 0.05}}
	slow.Direction.Sent = &counters.Traffic{Packets: 40, Bytes: 60000}
	slow.Direction.Queue = &lab.Backlog{Packets: 10, Bytes: 15140, Full: number(3), Lost: number(2)}
	far := lab.LineQueue{Direction: sends("s0-eth3"), Impairment: topology.Impairment{Queue: topology.Queue{Limit: 1000}, Delay: topology.Duration(2 * time.Second)}}
	far.Direction.Sent, far.Direction.Queue = &counters.Traffic{}, &lab.Backlog{Full: number(0), Lost: number(0)}
	managed := slow
	managed.Direction, managed.Impairment.Jitter, managed.Impairment.Loss = sends("s0-eth4"), 0, 0
	managed.Direction.Sent = slow.Direction.Sent
	managed.Direction.Queue = &lab.Backlog{Packets: 10, Bytes: 15140, Full: number(1), Lost: number(0), Managed: number(4), Marked: number(7)}
	managed.Impairment.Queue, _ = topology.ParseQueue("codel,target=2ms,ecn")
	const kernels = "qdisc pfifo_fast 0: %sroot refcnt 2 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1\n Sent 1 bytes 1 pkt (dropped 0, overlimits 0 requeues 0) \n backlog 0b 0p requeues 0\n"
	const clsact = "qdisc clsact ffff: %sparent ffff:fff1 \n Sent 1 bytes 1 pkt (dropped 0, overlimits 0 requeues 0) \n backlog 0b 0p requeues 0\n"
	const users = "qdisc tbf 8001: %sroot refcnt 2 rate 1Mbit burst 32Kb lat 400ms \n Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) \n backlog 0b 0p requeues 0\n"
	at := func(text, dev string) string { return strings.ReplaceAll(text, "%s", dev) }
	for _, c := range []struct{ args, printed, want string }{
		{"-s qdisc show dev s0-eth2", at(kernels+clsact, ""), `qdisc htb 5: root refcnt 2 r2q 10 default 0x1 direct_packets_stat 0 direct_qlen 1000
 Sent 60000 bytes 40 pkt (dropped 3, overlimits 0 requeues 0) 
 backlog 15140b 10p requeues 0
qdisc netem 10: parent 5:1 limit 100 delay 10ms  1.5ms loss 5%
 Sent 60000 bytes 40 pkt (dropped 5, overlimits 0 requeues 0) 
 backlog 15140b 10p requeues 0
`},
		{"-s qdisc show dev s0-eth3", at(users+clsact, ""), "qdisc netem 10: root refcnt 2 limit 1000 delay 2s\n Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) \n backlog 0b 0p requeues 0\n" + at(users+clsact, "")},
		{"qdisc", "qdisc noqueue 0: dev lo root refcnt 2 \nqdisc pfifo_fast 0: dev s0-eth2 root refcnt 2 bands 3\nqdisc clsact ffff: dev s0-eth2 parent ffff:fff1 \n",
			"qdisc noqueue 0: dev lo root refcnt 2 \nqdisc htb 5: dev s0-eth2 root refcnt 2 r2q 10 default 0x1 direct_packets_stat 0 direct_qlen 1000\nqdisc netem 10: dev s0-eth2 parent 5:1 limit 100 delay 10ms  1.5ms loss 5%\n"},
		{"-j -s qdisc show dev s0-eth2", `[{"kind":"pfifo_fast","handle":"0:","root":true,"refcnt":2,"options":{"bands":3}},{"kind":"tbf","handle":"8001:","root":true,"options":{"rate":1}}]`,
			`[{"kind":"htb","handle":"5:","root":true,"refcnt":2,"options":{"r2q":10,"default":"0x1","direct_packets_stat":0,"direct_qlen":1000},"bytes":60000,"packets":40,"drops":3,"overlimits":0,"requeues":0,"backlog":15140,"qlen":10},` +
				`{"kind":"netem","handle":"10:","parent":"5:1","options":{"limit":100,"delay":{"delay":0.01,"jitter":0.0015,"correlation":0},"loss-random":{"loss":0.05,"correlation":0},"ecn":false,"gap":0},"bytes":60000,"packets":40,"drops":5,"overlimits":0,"requeues":0,"backlog":15140,"qlen":10},` +
				`{"kind":"tbf","handle":"8001:","root":true,"options":{"rate":1}}]` + "\n"},
		{"-s qdisc show dev s0-eth4", at(kernels, ""), `qdisc htb 5: root refcnt 2 r2q 10 default 0x1 direct_packets_stat 0 direct_qlen 1000
 Sent 60000 bytes 40 pkt (dropped 5, overlimits 0 requeues 0) 
 backlog 15140b 10p requeues 0
qdisc codel 6: parent 5:1 limit 1000p target 2ms interval 100ms ecn 
 Sent 60000 bytes 40 pkt (dropped 5, overlimits 0 requeues 0) 
 backlog 15140b 10p requeues 0
  drop_overlimit 1 ecn_mark 7
qdisc netem 10: parent 6:1 limit 100 delay 10ms
 Sent 60000 bytes 40 pkt (dropped 1, overlimits 0 requeues 0) 
 backlog 15140b 10p requeues 0
`},
		{"-j qdisc", `[{"kind":"noqueue","handle":"0:","dev":"lo","root":true}]`, `[{"kind":"noqueue","handle":"0:","dev":"lo","root":true}]` + "\n"},
	} {
		q := readQdiscs(strings.Fields(c.args))
		if q == nil {
			t.Fatalf("%s is not read", c.args)
		}
		q.queues = []lab.LineQueue{slow, far, managed}
		if q.dev != "" { // as the daemon answers
			q.queues = q.queues[map[string]int{"s0-eth2": 0, "s0-eth3": 1, "s0-eth4": 2}[q.dev]:][:1]
		}
		if got := string(q.show([]byte(c.printed))); got != c.want {
			t.Errorf("tc %s:\n%s\nwant\n%s", c.args, got, c.want)
		} else if q.json && !json.Valid([]byte(got)) {
			t.Errorf("tc %s: no JSON: %s", c.args, got)
		}
	}
	for _, args := range []string{"-s class show dev s0-eth2", "qdisc add dev s0-eth2 root", "qdisc show dev s0-eth2 ingress", "-n blue qdisc", "-b file", "", "qdisc show dev"} {
		if readQdiscs(strings.Fields(args)) != nil {
			t.Errorf("tc %s is taken for one that asks for queueing disciplines", args)
		}
	}
	for n, want := range map[uint64]string{0: "0b", 1514: "1514b", 1024: "1Kb", 15140: "15140b", 15361: "15Kb", 1 << 20: "1Mb", 1<<20 + 5000: "1053576b"} {
		if got := tcSize(n); got != want {
			t.Errorf("%d bytes are %s, want %s", n, got, want)
		}
	}
}
