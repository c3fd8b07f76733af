package e2e

// ospfd tells FRR's daemon of OSPF in r1 something, as its operator would.
func ospfd(lines ...string) string {
	command := "vtysh -c 'configure terminal'"
	for _, l := range lines {
		command += " -c '" + l + "'"
	}
	return command + " >/dev/null"
}

// frrFaults are of the ring with FRR. What is told to a daemon takes effect after a while: OSPF's
// dead interval is 4 s.
var frrFaults = []fault{
	{id: "f-ospfd-frozen", what: "a daemon of OSPF stands still", node: "r1", at: "r1", quick: true, looks: 6,
		plant: "kill -STOP $(cat /etc/frr/run/ospfd.pid)", undo: "kill -CONT $(cat /etc/frr/run/ospfd.pid)"},
	{id: "f-cost", what: "a cost sends packets another way", node: "r1", at: "r1 r2", want: []string{`\br1\b|\br2\b`}, quick: true, looks: 6,
		plant: ospfd("interface r1-eth0", "ip ospf cost 100"), undo: ospfd("interface r1-eth0", "ip ospf cost 1")},
	{id: "f-passive", what: "an interface is passive", node: "r1", at: "r1 r2", quick: true, looks: 6,
		plant: ospfd("interface r1-eth0", "ip ospf passive"), undo: ospfd("interface r1-eth0", "no ip ospf passive")},
	{id: "f-area", what: "an interface is in another area", node: "r1", at: "r1 r2", quick: true, looks: 6,
		plant: ospfd("interface r1-eth0", "no ip ospf area 0.0.0.0", "ip ospf area 0.0.0.5"), undo: ospfd("interface r1-eth0", "no ip ospf area 0.0.0.5", "ip ospf area 0.0.0.0")},
	{id: "f-not-announced", what: "a router does not announce its host's subnet", node: "r1", at: "r1 r2 r3 h1 h1--r1", want: []string{`\bh1\b|10\.0\.1\.`}, quick: true, looks: 6,
		plant: ospfd("interface r1-eth2", "no ip ospf area 0.0.0.0"), undo: ospfd("interface r1-eth2", "ip ospf area 0.0.0.0")},
	{id: "f-password", what: "neighbours have different passwords", node: "r1", at: "r1 r2", quick: true, looks: 6,
		plant: ospfd("interface r1-eth0", "ip ospf authentication message-digest", "ip ospf message-digest-key 1 md5 other"),
		undo:  ospfd("interface r1-eth0", "no ip ospf authentication", "no ip ospf message-digest-key 1")},
	{id: "f-hello", what: "neighbours have different hello intervals", node: "r1", at: "r1 r2", quick: true, looks: 6,
		plant: ospfd("interface r1-eth0", "ip ospf hello-interval 3"), undo: ospfd("interface r1-eth0", "ip ospf hello-interval 1")},
	{id: "f-filtered", what: "a router does not take a route that it is told", node: "r1", at: "r1", quick: true, looks: 6,
		plant: ospfd("ip prefix-list no-h3 deny 10.0.3.0/24", "ip prefix-list no-h3 permit any", "route-map no-h3 permit 10", "match ip address prefix-list no-h3", "exit", "ip protocol ospf route-map no-h3"),
		undo:  ospfd("no ip protocol ospf route-map no-h3", "no route-map no-h3", "no ip prefix-list no-h3")},
	{id: "f-static", what: "a static route is preferred to what OSPF has found", node: "r2", at: "r2 r3", want: []string{`\br2\b`}, quick: true,
		plant: "ip route add 10.0.3.0/25 via 172.16.0.1", undo: "ip route del 10.0.3.0/25"},
	{id: "f-ospf-dropped", what: "a firewall drops OSPF", node: "r3", at: "r3", quick: true, looks: 6,
		plant: "nft 'add table inet fault; add chain inet fault c { type filter hook input priority 0; }; add rule inet fault c meta l4proto ospf drop'", undo: "nft delete table inet fault"},
}

// birdFaults are of the ring with BIRD.
var birdFaults = []fault{
	{id: "b-frozen", what: "a routing daemon stands still", node: "r1", at: "r1", quick: true, looks: 6,
		plant: "kill -STOP $(cat /etc/bird/run/bird.pid)", undo: "kill -CONT $(cat /etc/bird/run/bird.pid)"},
	{id: "b-disabled", what: "a router's OSPF is disabled", node: "r2", at: "r2", quick: true, looks: 6,
		plant: "birdc disable ospf1", undo: "birdc enable ospf1"},
	{id: "b-kernel-disabled", what: "a daemon's routes do not come to the kernel", node: "r3", at: "r3", quick: true, looks: 6,
		plant: "birdc disable kernel1", undo: "birdc enable kernel1"},
	{id: "b-forwarding-off", what: "a router does not forward", node: "r2", at: "r2", quick: true,
		plant: "echo 0 >/proc/sys/net/ipv4/ip_forward", undo: "echo 1 >/proc/sys/net/ipv4/ip_forward"},
}

// routingFaults are of routing nodes, of which only the lab's own commands know.
var routingFaults = []fault{
	{id: "n-route-discard", what: "a static route drops what is for a subnet", at: "r1", quick: true,
		plant: "$trivet routes r1 --add '10.0.2.0/24 discard' >/dev/null", undo: "$trivet routes r1 --delete 10.0.2.0/24 >/dev/null"},
	{id: "n-route-detour", what: "a static route leads another way", at: "r1", quick: true, cannot: byCommand,
		plant: "$trivet routes r1 --add '10.0.2.0/24 via 172.16.0.10' >/dev/null", undo: "$trivet routes r1 --delete 10.0.2.0/24 >/dev/null"},
	{id: "n-port-down", what: "a routing node's port is down", node: "r1", at: "r1--h1", quick: true,
		plant: "ip link set r1-eth2 down", undo: "ip link set r1-eth2 up"},
	hooked(fault{id: "n-loss", what: "a device between routing nodes loses 5 %", node: "r1", at: "r1→r2", quick: true,
		cannot: "no packet crosses it: a link between routing nodes that nothing impairs has no device that packets pass"}, "egress", "r1-eth0", "numgen random mod 20 < 1 drop"),
	{id: "n-mtu", what: "a routing node's port has a smaller MTU", node: "r2", at: "r2--h2", quick: true,
		plant: "ip link set r2-eth2 mtu 1400", undo: "ip link set r2-eth2 mtu 1500"},
}
