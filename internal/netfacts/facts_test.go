package netfacts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/inside"
)

// namespace makes one with a pair of devices that are up, and runs f in it.
func namespace(t testing.TB, f func(run func(command string) error)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	ns, err := inside.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	err = inside.File(ns, func() error {
		run := func(command string) error {
			out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w %s", command, err, out)
			}
			return nil
		}
		if err := run("sysctl -w net.ipv4.ip_forward=0 && ip link add e0 type veth peer name e1 && ip link set lo up && ip link set e0 up && ip link set e1 up && ip addr add 10.0.0.1/24 dev e0 && ip route add 10.9.0.0/16 via 10.0.0.2"); err != nil {
			return err
		}
		f(run)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever somebody does to a namespace is told by the kind of fact that it is, once, and nothing
// else is; when it is undone, nothing is told.
func TestChanges(t *testing.T) {
	for _, x := range []struct {
		do, undo string
		kind     Kind
		says     string // of the change: device, name, what it is, and what it was
		needs    string // a command without which the kernel or machine lacks this
	}{
		{"ip addr add 10.7.0.1/24 dev e0", "ip addr del 10.7.0.1/24 dev e0", Address, "e0 10.7.0.1/24", ""},
		{"ip addr del 10.0.0.1/24 dev e0; ip addr add 10.0.0.1/24 dev e1", "", Address, "e0 10.0.0.1/24", ""},
		{"ip link set e0 mtu 1400", "ip link set e0 mtu 1500", MTU, "1400, was 1500", ""},
		{"ip link set e0 address 02:00:00:00:00:09", "", MAC, "02:00:00:00:00:09, was", ""},
		{"ip link add br9 type bridge", "ip link del br9", Device, "br9", ""},
		{"ip link del e0", "", Device, "e0", ""},
		{"ip route add blackhole 10.8.0.0/16", "ip route del blackhole 10.8.0.0/16", Route, "main 10.8.0.0/16 blackhole", ""},
		{"ip route replace 10.9.0.0/16 via 10.0.0.3", "ip route replace 10.9.0.0/16 via 10.0.0.2", Route, "via 10.0.0.3 dev e0, was via 10.0.0.2 dev e0", ""},
		{"ip route add default via 10.0.0.9 metric 5 table 77", "ip route flush table 77", Route, "77 0.0.0.0/0 metric 5 via 10.0.0.9 dev e0", ""},
		{"ip route add 10.3.0.0/16 nexthop via 10.0.0.3 nexthop via 10.0.0.4", "ip route del 10.3.0.0/16", Route, "via 10.0.0.3 via 10.0.0.4 dev e0 dev e0", ""},
		{"ip rule add from 10.0.0.1 to 10.5.0.0/16 lookup 77 priority 50", "ip rule del priority 50", Rule, "ipv4 50: from 10.0.0.1/32 to 10.5.0.0/16 lookup 77", ""},
		{"ip rule add to 10.5.0.0/16 prohibit priority 51", "ip rule del priority 51", Rule, "prohibit", ""},
		{"ip rule add fwmark 7/0xff ipproto tcp sport 7 dport 80 lookup 77 priority 52", "ip rule del priority 52", Rule, "fwmark 07000000 mask ff000000 ipproto 06 sport 07000700 dport 50005000 lookup 77", ""},
		{"ip rule del priority 32766", "ip rule add lookup main priority 32766", Rule, "was lookup main", ""},
		{"ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev e0", "ip neigh del 10.0.0.2 dev e0", Neighbour, "e0 10.0.0.2 02:00:00:00:00:02", ""},
		{"ip link add br9 type bridge; ip link set e1 master br9; bridge fdb add 02:00:00:00:00:02 dev e1 master static", "", FDB, "e1 02:00:00:00:00:02 static", ""},
		{"ip link add br9 type bridge; ip link set e1 master br9; bridge link set dev e1 learning off isolated on", "ip link del br9", Port, "e1 isolated 1", ""},
		{"sysctl -w net.ipv4.ip_forward=1", "sysctl -w net.ipv4.ip_forward=0", Sysctl, " ipv4.forwarding 1", ""},
		{"sysctl -w net.ipv4.conf.e0.rp_filter=1", "sysctl -w net.ipv4.conf.e0.rp_filter=0", Sysctl, "e0 ipv4.rp_filter 1", ""},
		{"sysctl -w net.ipv4.conf.e0.proxy_arp=1", "sysctl -w net.ipv4.conf.e0.proxy_arp=0", Sysctl, "e0 ipv4.proxy_arp 1", ""},
		{"sysctl -w net.ipv4.conf.e0.arp_ignore=8", "sysctl -w net.ipv4.conf.e0.arp_ignore=0", Sysctl, "e0 ipv4.arp_ignore 8", ""},
		{"sysctl -w net.ipv4.icmp_echo_ignore_all=1", "sysctl -w net.ipv4.icmp_echo_ignore_all=0", Sysctl, "ipv4.icmp_echo_ignore_all 1", ""},
		{"sysctl -w net.ipv6.conf.e0.disable_ipv6=1", "sysctl -w net.ipv6.conf.e0.disable_ipv6=0", Sysctl, "e0 ipv6.disable_ipv6 1", ""},
		{"sysctl -w net.ipv6.conf.e0.accept_ra=0", "sysctl -w net.ipv6.conf.e0.accept_ra=1", Sysctl, "e0 ipv6.accept_ra was 1", ""},
		{"tc qdisc add dev e0 root handle 8: tbf rate 1mbit burst 3000 limit 9000", "tc qdisc del dev e0 root", Qdisc, "e0 root tbf 8: rate 1000000bit", ""},
		{"tc qdisc add dev e0 root handle 1: htb && tc class add dev e0 parent 1: classid 1:10 htb rate 1mbit", "tc qdisc del dev e0 root", Class, "e0 1:10 htb", ""},
		{"tc qdisc add dev e0 root handle 8: netem delay 10ms loss 1%", "tc qdisc del dev e0 root", Qdisc, "netem 8: delay 10ms loss 1%", "tc qdisc add dev e1 root netem delay 1ms"},
		{"tc qdisc add dev e0 clsact && tc filter add dev e0 egress matchall action drop", "tc qdisc del dev e0 clsact", Filter, "egress pref 49152", "tc qdisc add dev e1 clsact && tc filter add dev e1 egress matchall action drop"},
		{"ethtool -K e0 tx off", "ethtool -K e0 tx on", Offload, "e0", "ethtool -k e0"},
		{"nft add table inet t && nft add chain inet t c '{type filter hook input priority 0; policy drop;}' && nft add rule inet t c ip saddr 10.0.0.2 counter drop",
			"nft delete table inet t", NFT, "inet t c handle", "nft list ruleset"},
		{"iptables-legacy -A INPUT -s 10.0.0.2 -j DROP", "iptables-legacy -F INPUT", Xtables, "ip filter 0 DROP", "iptables-legacy -S"},
	} {
		namespace(t, func(run func(string) error) {
			if x.needs != "" && run(x.needs) != nil {
				if os.Getenv("TRIVET_FULL_KERNEL") == "1" {
					t.Errorf("%s fails", x.needs)
				}
				return
			}
			read := func() Facts {
				f, err := Read(0, false)
				if err != nil {
					t.Fatalf("%s: %v", x.do, err)
				}
				return f
			}
			was := read()
			if all := Changes(was, read()); len(all) > 0 {
				t.Errorf("nobody has done anything: %+v", all)
			}
			if err := run(x.do); err != nil {
				t.Error(err)
				return
			}
			is := read()
			said := ""
			for _, c := range Changes(was, is) {
				if c.Kind == x.kind {
					said += fmt.Sprintf("%s %s %s\n", c.Device, c.Name, c.Said())
				}
			}
			if !strings.Contains(said, x.says) {
				t.Errorf("%s: %q does not say %q: %+v", x.do, said, x.says, Changes(was, is))
			}
			if x.undo == "" {
				return
			}
			if err := run(x.undo); err != nil {
				t.Error(err)
			}
			if all := Changes(was, read()); len(all) > 0 && x.kind != Xtables { // the tables stay
				t.Errorf("undone by %s: %+v", x.undo, all)
			}
		})
	}
}

// Facts are what they were when they have been written and read, and so is a route; what has
// become of them makes the new ones of the old; and nothing is said of what belongs to a device
// that is new, nor twice of a setting of all devices.
func TestFacts(t *testing.T) {
	was := Facts{{Device, "e0", ""}: "veth", {Sysctl, "e0", "ipv4.forwarding"}: "", {Route, Main, "10.0.0.0/8 metric 3"}: "via 10.0.0.1 dev e0"}
	is := Facts{{Device, "e0", ""}: "veth", {Device, "e1", ""}: "dummy", {MTU, "e1", ""}: "1500", {Sysctl, "", "ipv4.forwarding"}: "1", {Sysctl, "e0", "ipv4.forwarding"}: "1",
		{Address, "e1", "10.1.0.1/24"}: ""}
	var kinds []Kind
	for _, c := range Changes(was, is) {
		kinds = append(kinds, c.Kind)
	}
	if want := []Kind{Address, Device, Route, Sysctl}; !reflect.DeepEqual(kinds, want) {
		t.Errorf("%v, not %v", kinds, want)
	}
	b, err := json.Marshal(is)
	var back Facts
	if err != nil || json.Unmarshal(b, &back) != nil || !reflect.DeepEqual(is, back) {
		t.Errorf("%v became %v: %v", is, back, err)
	}
	was.Take(is.Since(was))
	if !reflect.DeepEqual(was, is) {
		t.Errorf("%v, not %v", was, is)
	}
	p := Paths(Key{Route, "77", "10.0.0.0/8 metric 3"}, "via 10.0.0.1 dev e0")
	if k, v := p[0].fact(); len(p) != 1 || k != (Key{Route, "77", "10.0.0.0/8 metric 3"}) || v != "via 10.0.0.1 dev e0" {
		t.Errorf("%+v", p)
	}
	if p := Paths(Key{Route, Main, "::/0"}, "blackhole"+twice+"dev e0"); len(p) != 2 || !p[0].Lost() || p[1].Lost() {
		t.Errorf("%+v", p)
	}
}

// The names of offloads are the kernel's, and a bit that differs is told by its name.
func TestOffloads(t *testing.T) {
	names, err := OffloadNames()
	if err != nil || len(names) < 32 || names[0] != "tx-scatter-gather" {
		t.Fatalf("%v: %v", names, err)
	}
	if s := Switched("0000000180000000", "0000000000000002", names[:1]); s != "feature 33 on, feature 63 off, tx-scatter-gather off" {
		t.Error(s)
	}
}

func BenchmarkRead(b *testing.B) {
	namespace(b, func(func(string) error) {
		for b.Loop() {
			if _, err := Read(0, false); err != nil {
				b.Fatal(err)
			}
		}
	})
}
