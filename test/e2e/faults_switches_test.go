package e2e

// bridgeFaults are of switches that are Linux bridges; the plain lab's ports are s1-eth1 h1,
// s1-eth2 h2, s1-eth3 r1; s2-eth1 r2, s2-eth2 h3, s2-eth3 h4.
var bridgeFaults = []fault{
	{id: "port-missing", what: "a port is not in the bridge", node: "s1", at: "s1--h2 s1", quick: true,
		plant: "ip link set s1-eth2 nomaster", undo: "ip link set s1-eth2 master s1"},
	{id: "port-elsewhere", what: "a port is in another bridge", node: "s1", at: "s1--h2 s1 s2", want: []string{"s1|h2"}, quick: true,
		plant: "ip link set s1-eth2 master s2", undo: "ip link set s1-eth2 master s1"},
	{id: "port-blocked", what: "a port is disabled as for a loop", node: "s1", at: "s1--h2 s1", quick: true,
		plant: "bridge link set dev s1-eth2 state 0", undo: "bridge link set dev s1-eth2 state 3"},
	{id: "ports-isolated", what: "two ports do not speak to each other", node: "s1", at: "s1 h1→h2", quick: true,
		plant: "bridge link set dev s1-eth1 isolated on; bridge link set dev s1-eth2 isolated on", undo: "bridge link set dev s1-eth1 isolated off; bridge link set dev s1-eth2 isolated off"},
	{id: "learning-off", what: "a bridge does not learn at a port: what is for its host goes everywhere", node: "s1", at: "s1 s1--h1 s1--h2", noted: true, quick: true,
		plant: "bridge link set dev s1-eth1 learning off; bridge fdb del $(cat /sys/class/net/s1-eth1/address) dev s1-eth1 master 2>/dev/null; bridge fdb flush dev s1 brport s1-eth1 2>/dev/null; ip link set s1-eth1 down; ip link set s1-eth1 up",
		undo:  "bridge link set dev s1-eth1 learning on"},
	{id: "fdb-wrong", what: "a static entry leads to another port", node: "", at: "s1 s1--h1", quick: true,
		plant: "MAC=$($trivet exec -n h1 -- cat /sys/class/net/h1-eth0/address); echo $MAC >$save; $trivet exec -n s1 -- bridge fdb replace $MAC dev s1-eth2 master static sticky",
		undo:  "$trivet exec -n s1 -- bridge fdb del $(cat $save) dev s1-eth2 master || true"},
	{id: "bridge-down", what: "a bridge is down", node: "s2", at: "s2", quick: true,
		plant: "ip link set s2 down", undo: "ip link set s2 up"},
	{id: "vlan-tag", what: "a port is in a VLAN of its own", node: "s1", at: "s1 s1--h2", quick: true,
		needs: "ip link add br0 type bridge; ip link set br0 type bridge vlan_filtering 1",
		plant: "ip link set s1 type bridge vlan_filtering 1; bridge vlan del dev s1-eth2 vid 1; bridge vlan add dev s1-eth2 vid 20 pvid untagged",
		undo:  "bridge vlan del dev s1-eth2 vid 20; bridge vlan add dev s1-eth2 vid 1 pvid untagged; ip link set s1 type bridge vlan_filtering 0"},
	hooked(fault{id: "mirror", what: "what comes from a host is copied to another", node: "s1", at: "s1 s1--h2 s1--h1 s1→r1", noted: true, quick: true}, "ingress", "s1-eth1", "dup to s1-eth2"),
	hooked(fault{id: "mirror-back", what: "what a host sends comes back to it", node: "s2", at: "s2 s2--h3", noted: true, quick: true}, "ingress", "s2-eth2", "dup to s2-eth2"),
	hooked(fault{id: "forwarded-wrong", what: "what is for a host goes to another port", node: "s1", at: "s1 s1--h2 s1--r1 s1→h2", quick: true}, "egress", "s1-eth2", "meta protocol ip fwd to s1-eth1"),
	{id: "bridge-filter", what: "a bridge drops one pair", node: "s1", at: "s1 h1→h2", quick: true,
		needs: "nft 'add table bridge n; add chain bridge n c { type filter hook forward priority 0; }'",
		plant: "nft 'add table bridge fault; add chain bridge fault c { type filter hook forward priority 0; }; add rule bridge fault c ip saddr 10.0.1.2 ip daddr 10.0.1.3 drop'", undo: "nft delete table bridge fault"},
	{id: "port-mtu", what: "a switch's port has a smaller MTU", node: "s1", at: "s1--h1", quick: true,
		plant: "ip link set s1-eth1 mtu 1400", undo: "ip link set s1-eth1 mtu 1500"},
	{id: "port-mtu-middle", what: "a switch's port to a router takes 600 bytes", node: "s1", at: "s1--r1", quick: true,
		plant: "ip link set s1-eth3 mtu 600", undo: "ip link set s1-eth3 mtu 1500"},
	{id: "port-moved", what: "a switch's port is in another namespace", node: "s1", at: "s1--h2 s1", quick: true,
		plant: "unshare -n sleep 600 >/dev/null 2>&1 & echo $! >$save; while ! ip link set s1-eth2 netns $(cat $save) || [ -e /sys/class/net/s1-eth2 ]; do sleep 0.01; done; nsenter -t $(cat $save) -n ip link set s1-eth2 up",
		undo:  "nsenter -t $(cat $save) -n ip link set s1-eth2 netns $$; ip link set s1-eth2 master s1 up; kill $(cat $save)"},
	{id: "loop", what: "two ports of switches are joined by a cable that is not in the file", node: "s1", at: "s1 s2", quick: true,
		plant: "ip link add x1 type veth peer name x2; ip link set x1 master s1 up; ip link set x2 master s2 up", undo: "ip link del x1"},
}

// passesBy is why nothing is found at a hook that no packet passes: nothing is lost there either.
const passesBy = "an embedded switch takes packets before this hook, and puts them behind it: nothing is lost"

// byCommand is why the lab holds nothing against it.
const byCommand = "what Trivet's own commands do is asked for"

// embeddedFaults are of embedded switches.
var embeddedFaults = []fault{
	{id: "e-flow-drop", what: "a flow entry drops what is for a host", node: "", at: "s1 s1→h2", quick: true,
		plant: "$trivet flows s1 --add 'priority=60000,ip,nw_dst=10.0.1.3,actions=drop' >$save", undo: "$trivet flows --delete $(sed 's/^added \\([0-9]*\\).*/\\1/' $save)"},
	{id: "e-flow-port", what: "a flow entry sends what is for a host to another port", node: "", at: "s2 s2--h3", quick: true,
		plant: "$trivet flows s2 --add 'priority=60000,ip,nw_dst=10.0.2.2,actions=output:3' >$save", undo: "$trivet flows --delete $(sed 's/^added \\([0-9]*\\).*/\\1/' $save)"},
	{id: "e-flow-copy", what: "a flow entry sends copies to a port", node: "", at: "s1 s1--h2 s1→r1", quick: true, cannot: byCommand,
		plant: "$trivet flows s1 --add 'priority=60000,ip,nw_src=10.0.1.2,nw_dst=10.0.2.2,actions=output:3,output:2' >$save", undo: "$trivet flows --delete $(sed 's/^added \\([0-9]*\\).*/\\1/' $save)"},
	{id: "e-miss-down", what: "the device to user space is down", node: "s1", at: "s1 s2 h1 h2 h3 h4 r1 r2", quick: true,
		plant: "ip link set trivet-miss down", undo: "ip link set trivet-miss up"},
	hooked(fault{id: "e-loss-out", what: "an embedded switch's port loses 5 % of what goes out", node: "s1", at: "s1→h1", quick: true, cannot: passesBy}, "egress", "s1-eth1", "numgen random mod 20 < 1 drop"),
	hooked(fault{id: "e-loss-in", what: "an embedded switch's port loses 5 % of what comes", node: "s1", at: "h1→s1 s1", quick: true, cannot: passesBy}, "ingress", "s1-eth1", "numgen random mod 20 < 1 drop"),
	{id: "e-mtu", what: "an embedded switch's port has a smaller MTU", node: "s1", at: "s1--h1", quick: true,
		plant: "ip link set s1-eth1 mtu 1400", undo: "ip link set s1-eth1 mtu 1500"},
	{id: "e-down", what: "an embedded switch's port is down", node: "s2", at: "s2--h4", quick: true,
		plant: "ip link set s2-eth3 down", undo: "ip link set s2-eth3 up"},
	{id: "e-limit", what: "a limit at an embedded switch's port", node: "s2", at: "s2→h3 h3",
		plant: "tc qdisc add dev s2-eth2 root tbf rate 256kbit burst 2000 limit 20000", undo: "tc qdisc del dev s2-eth2 root"},
	netem(fault{id: "e-delay", what: "5 ms at an embedded switch's port", node: "s1", at: "s1→r1", quick: true}, "s1-eth3", "netem delay 5ms"),
	netem(fault{id: "e-duplicate", what: "a tenth comes twice from an embedded switch's port", node: "s1", at: "s1→r1"}, "s1-eth3", "netem duplicate 10%"),
}

// mirror copies all that passes Open vSwitch's s1 to a port, which is made where there is none.
// That there is a mirror, or no more, is news only for packets of which Open vSwitch (3.1)
// remembers nothing: what it remembers it leaves as it is.
func mirror(f fault, port string) fault {
	const forget = "; ovs-appctl revalidator/purge"
	f.plant = "ovs-vsctl -- --id=@p get port " + port + " -- --id=@m create mirror name=m select-all=true output-port=@p -- set bridge s1 mirrors=@m" + forget
	f.undo = "ovs-vsctl clear bridge s1 mirrors" + forget
	if port == "x1" {
		f.plant = "ip link add x1 type veth peer name x2; ip link set x1 up; ip link set x2 up; ovs-vsctl add-port s1 x1; " + f.plant
		f.undo += "; ovs-vsctl del-port s1 x1; ip link del x1"
	}
	return f
}

// ovsFaults are of Open vSwitch without a controller; its ports are numbered as the file has them.
var ovsFaults = []fault{
	{id: "o-flow-drop", what: "a flow entry drops what is for a host", node: "s1", at: "s1 s1→h2", quick: true,
		plant: "ovs-ofctl -O OpenFlow13 add-flow s1 'priority=100,ip,nw_dst=10.0.1.3,actions=drop'", undo: "ovs-ofctl -O OpenFlow13 del-flows s1 ip,nw_dst=10.0.1.3"},
	{id: "o-flow-drop-pair", what: "a flow entry drops one pair", node: "s1", at: "s1 h1→h2", quick: true,
		plant: "ovs-ofctl -O OpenFlow13 add-flow s1 'priority=100,ip,nw_src=10.0.1.2,nw_dst=10.0.1.3,actions=drop'", undo: "ovs-ofctl -O OpenFlow13 del-flows s1 ip,nw_src=10.0.1.2,nw_dst=10.0.1.3"},
	{id: "o-flow-icmp", what: "a flow entry drops ICMP alone", node: "s2", at: "s2", want: []string{`h3 → .*by ICMP`, `→ h3.*by ICMP`}, quick: true,
		plant: "ovs-ofctl -O OpenFlow13 add-flow s2 'priority=100,icmp,actions=drop'", undo: "ovs-ofctl -O OpenFlow13 del-flows s2 icmp"},
	{id: "o-flows-gone", what: "a switch has no flow entries", node: "s1", at: "s1", quick: true,
		plant: "ovs-ofctl -O OpenFlow13 del-flows s1", undo: "ovs-ofctl -O OpenFlow13 add-flow s1 'priority=0,actions=NORMAL'"},
	{id: "o-flow-port", what: "a flow entry sends what is for a host to another port", node: "s2", at: "s2 s2--h3", quick: true,
		plant: "ovs-ofctl -O OpenFlow13 add-flow s2 'priority=100,ip,nw_dst=10.0.2.2,actions=output:s2-eth3'", undo: "ovs-ofctl -O OpenFlow13 del-flows s2 ip,nw_dst=10.0.2.2"},
	{id: "o-meter", what: "a meter limits a host to 1 Mbit/s", node: "s1", at: "s1 h1--s1", noted: true,
		plant: "ovs-ofctl -O OpenFlow13 add-meter s1 meter=1,kbps,band=type=drop,rate=1000; ovs-ofctl -O OpenFlow13 add-flow s1 'priority=100,in_port=s1-eth1,actions=meter:1,NORMAL'",
		undo:  "ovs-ofctl -O OpenFlow13 del-flows s1 in_port=s1-eth1; ovs-ofctl -O OpenFlow13 del-meters s1"},
	{id: "o-tag", what: "a port is in a VLAN of its own", node: "s1", at: "s1 s1--h2", quick: true,
		plant: "ovs-vsctl set port s1-eth2 tag=20", undo: "ovs-vsctl clear port s1-eth2 tag"},
	{id: "o-port-missing", what: "a port is not in the switch", node: "s2", at: "s2 s2--h4", quick: true,
		plant: "ovs-vsctl del-port s2 s2-eth3", undo: "ovs-vsctl add-port s2 s2-eth3"},
	{id: "o-port-down", what: "a port is set down by OpenFlow", node: "s2", at: "s2 s2--h4", quick: true,
		plant: "ovs-ofctl -O OpenFlow13 mod-port s2 s2-eth3 down", undo: "ovs-ofctl -O OpenFlow13 mod-port s2 s2-eth3 up"},
	mirror(fault{id: "o-mirror", what: "a mirror copies all to a host, of which nothing is taken any more", node: "s1", at: "s1 s1--h2", quick: true}, "s1-eth2"),
	mirror(fault{id: "o-mirror-tap", what: "a mirror copies all to a device that is in no link", node: "s1", at: "s1 s2", quick: true}, "x1"),
	{id: "o-frozen", what: "Open vSwitch stands still", node: "", at: "s1 s2 h1 h2 h3 h4 r1 r2", want: []string{`s[12]\b`}, quick: true,
		plant: "kill -STOP $(cat /run/trivet/$lab/ovs/ovs-vswitchd.pid)", undo: "kill -CONT $(cat /run/trivet/$lab/ovs/ovs-vswitchd.pid)"},
	hooked(fault{id: "o-loss", what: "a port of Open vSwitch loses 5 % of what goes out", node: "s1", at: "s1→h1", quick: true}, "egress", "s1-eth1", "numgen random mod 20 < 1 drop"),
	{id: "o-mtu", what: "a port of Open vSwitch has a smaller MTU", node: "s1", at: "s1--h1", quick: true,
		plant: "ip link set s1-eth1 mtu 1400", undo: "ip link set s1-eth1 mtu 1500"},
	{id: "o-down", what: "a port of Open vSwitch is down", node: "s1", at: "s1--h2", quick: true,
		plant: "ip link set s1-eth2 down", undo: "ip link set s1-eth2 up"},
}

// controlledFaults are of switches that Trivet's controller decides for.
var controlledFaults = []fault{
	{id: "c-controller-unset", what: "a switch has no controller, and drops what it does not know", node: "s1", at: "s1 h1--s1 h2--s1 r1--s1", quick: true,
		plant: "ovs-vsctl get-controller s1 >$save; ovs-vsctl get-fail-mode s1 >$save-mode; ovs-vsctl del-controller s1; ovs-vsctl set-fail-mode s1 secure; ovs-ofctl -O OpenFlow13 del-flows s1",
		undo:  "ovs-vsctl set-controller s1 $(cat $save); ovs-vsctl set-fail-mode s1 $(grep -v '^$' $save-mode || echo standalone)"},
	{id: "c-flow-drop", what: "a flow entry that the controller does not know drops what is for a host", node: "s2", at: "s2 s2→h4", quick: true,
		plant: "ovs-ofctl -O OpenFlow13 add-flow s2 'priority=60000,ip,nw_dst=10.0.2.3,actions=drop'", undo: "ovs-ofctl -O OpenFlow13 --strict del-flows s2 priority=60000,ip,nw_dst=10.0.2.3"},
	{id: "c-controller-wrong", what: "a switch's controller is at an address where there is none", node: "s2", at: "s2", quick: true,
		plant: "ovs-vsctl get-controller s2 >$save; ovs-vsctl set-controller s2 tcp:127.0.0.1:9", undo: "ovs-vsctl set-controller s2 $(cat $save)"},
}
