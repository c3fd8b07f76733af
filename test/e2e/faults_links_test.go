package e2e

import "fmt"

// hooked is a chain of nftables at a device: what passes it is seen by nobody in the node.
func hooked(f fault, hook, device, rule string) fault {
	f.plant = "nft 'add table netdev fault; add chain netdev fault c { type filter hook " + hook + " device " + device + " priority 0; }; add rule netdev fault c " + rule + "'"
	f.undo = "nft delete table netdev fault"
	return f
}

// netem is a discipline of the kernel at a device that has none.
func netem(f fault, device, what string) fault {
	f.plant, f.undo = "tc qdisc add dev "+device+" root "+what, "tc qdisc del dev "+device+" root"
	f.needs = "tc qdisc add dev lo root " + what
	return f
}

// linkFaults are of links of the plain lab: MTU, loss, limits, delay, carrier.
var linkFaults = []fault{
	{id: "mtu-host", what: "a host's MTU is smaller", node: "h1", at: "h1--s1", quick: true,
		plant: "ip link set h1-eth0 mtu 1400", undo: "ip link set h1-eth0 mtu 1500"},
	{id: "mtu-host-little", what: "a host's MTU is a tag smaller", node: "h3", at: "h3--s2", quick: true,
		plant: "ip link set h3-eth0 mtu 1496", undo: "ip link set h3-eth0 mtu 1500"},
	{id: "mtu-router", what: "a router's MTU towards a router is smaller", node: "r1", at: "r1--r2", quick: true,
		plant: "ip link set r1-eth1 mtu 1280", undo: "ip link set r1-eth1 mtu 1500"},
	{id: "mtu-router-lan", what: "a router's MTU towards a switch is smaller", node: "r2", at: "r2--s2", quick: true,
		plant: "ip link set r2-eth1 mtu 1300", undo: "ip link set r2-eth1 mtu 1500"},
	{id: "mtu-larger", what: "a host's MTU is larger", node: "h1", at: "h1--s1", quick: true,
		plant: "ip link set h1-eth0 mtu 9000", undo: "ip link set h1-eth0 mtu 1500"},
	{id: "mtu-router-larger", what: "a router's MTU is larger", node: "r1", at: "r1--r2", quick: true,
		plant: "ip link set r1-eth1 mtu 9000", undo: "ip link set r1-eth1 mtu 1500"},
	{id: "mtu6-smaller", what: "a router's MTU of IPv6 is smaller", node: "r2", at: "r2--r1 r2", quick: true,
		plant: "echo 1280 >/proc/sys/net/ipv6/conf/r2-eth0/mtu", undo: "echo 1500 >/proc/sys/net/ipv6/conf/r2-eth0/mtu"},

	hooked(fault{id: "loss-large", what: "30 % of packets are lost between routers", node: "r1", at: "r1→r2", quick: true}, "egress", "r1-eth1", "numgen random mod 100 < 30 drop"),
	hooked(fault{id: "loss-small", what: "1 % of packets are lost between routers", node: "r1", at: "r1→r2"}, "egress", "r1-eth1", "numgen random mod 100 < 1 drop"),
	hooked(fault{id: "loss-smaller", what: "0.4 % of packets are lost on a way back", node: "r2", at: "r2→r1"}, "egress", "r2-eth0", "numgen random mod 250 < 1 drop"),
	hooked(fault{id: "loss-tiny", what: "0.01 % of packets are lost", node: "r1", at: "r1→r2", cannot: "a share that 1,000 packets do not show"}, "egress", "r1-eth1", "numgen random mod 10000 < 1 drop"),
	hooked(fault{id: "loss-at-own-egress", what: "a host loses 2 % of what it sends", node: "h2", at: "h2→s1"}, "egress", "h2-eth0", "numgen random mod 50 < 1 drop"),
	hooked(fault{id: "loss-at-receiver", what: "a host loses 2 % of what comes", node: "h4", at: "s2→h4"}, "ingress", "h4-eth0", "numgen random mod 50 < 1 drop"),
	hooked(fault{id: "loss-at-switch", what: "a switch loses 2 % at a port out", node: "s1", at: "s1→h1"}, "egress", "s1-eth1", "numgen random mod 50 < 1 drop"),
	hooked(fault{id: "loss-at-switch-in", what: "a switch loses 2 % at a port in", node: "s2", at: "h3→s2 s2 r2→s2"}, "ingress", "s2-eth2", "numgen random mod 50 < 1 drop"),
	hooked(fault{id: "loss-periodic", what: "each 100th packet is lost", node: "r1", at: "r1→r2"}, "egress", "r1-eth1", "numgen inc mod 100 == 0 drop"),
	hooked(fault{id: "loss6", what: "5 % of IPv6 are lost", node: "r1", at: "r1→r2 r1"}, "egress", "r1-eth1", "meta protocol ip6 numgen random mod 20 < 1 drop"),
	hooked(fault{id: "loss-of-large", what: "10 % of large packets are lost", node: "r2", at: "r2→r1"}, "egress", "r2-eth0", "meta length > 1400 numgen random mod 10 < 1 drop"),
	// Without an answer to ARP nothing is sent to it either, once what was known is forgotten.
	hooked(fault{id: "loss-all", what: "nothing comes from a host", node: "h3", at: "h3--s2 r2→s2"}, "egress", "h3-eth0", "drop"),
	hooked(fault{id: "loss-all-ip", what: "all but ARP is lost in one direction", node: "s1", at: "s1→h2"}, "egress", "s1-eth2", "meta protocol ip drop"),
	hooked(fault{id: "arp-lost", what: "ARP is lost in one direction", node: "s1", at: "s1→h2 h2", quick: true}, "egress", "s1-eth2", "meta protocol arp drop"),
	{id: "loss-bursty", what: "all is lost for 50 ms of each half second", node: "r1", at: "r1→r2",
		plant: "nft 'add table netdev fault; add chain netdev fault c { type filter hook egress device r1-eth1 priority 0; }'; " +
			"(while :; do nft add rule netdev fault c drop; sleep 0.05; nft flush chain netdev fault c; sleep 0.45; done) >/dev/null 2>&1 & echo $! >$save",
		undo: "kill $(cat $save); nft delete table netdev fault"},

	{id: "limit-narrow", what: "a limit of 256 kbit/s on a link without one", node: "s2", at: "s2→h3 h3",
		plant: "tc qdisc add dev s2-eth2 root tbf rate 256kbit burst 2000 limit 20000", undo: "tc qdisc del dev s2-eth2 root"},
	{id: "limit-wide", what: "a limit of 10 Mbit/s on a link without one", node: "r1", at: "r1→r2", noted: true,
		plant: "tc qdisc add dev r1-eth1 root tbf rate 10mbit burst 5000 limit 100000", undo: "tc qdisc del dev r1-eth1 root"},
	hooked(fault{id: "police", what: "a policer of 8 Mbit/s on a link without a limit", node: "r1", at: "r1→r2"}, "egress", "r1-eth1", "limit rate over 1 mbytes/second burst 10 kbytes drop"),
	hooked(fault{id: "police-packets", what: "a policer of 100 packets/s", node: "r2", at: "r2→r1 r2"}, "egress", "r2-eth0", "limit rate over 100/second drop"),

	netem(fault{id: "delay", what: "5 ms where there is no delay", node: "r1", at: "r1→r2", quick: true}, "r1-eth1", "netem delay 5ms"),
	netem(fault{id: "delay-small", what: "1 ms where there is no delay", node: "s1", at: "s1→r1"}, "s1-eth3", "netem delay 1ms"),
	netem(fault{id: "delay-at-host", what: "a host sends 3 ms late", node: "h1", at: "h1→s1", quick: true}, "h1-eth0", "netem delay 3ms"),
	netem(fault{id: "delay-half", what: "half of the packets are 5 ms late", node: "r1", at: "r1→r2"}, "r1-eth1", "netem delay 5ms reorder 50%"),
	netem(fault{id: "delay-tail", what: "a twentieth of the packets is 20 ms late", node: "r2", at: "r2→r1"}, "r2-eth0", "netem delay 20ms reorder 95%"),
	netem(fault{id: "jitter", what: "the delay varies by 3 ms", node: "r1", at: "r1→r2"}, "r1-eth1", "netem delay 3ms 3ms"),
	netem(fault{id: "netem-loss", what: "netem loses 1 %", node: "s2", at: "s2→h4"}, "s2-eth3", "netem loss 1%"),
	netem(fault{id: "netem-loss-bursty", what: "netem loses in bursts", node: "r1", at: "r1→r2"}, "r1-eth1", "netem loss gemodel 0.5% 20%"),
	netem(fault{id: "reorder", what: "packets overtake others", node: "r1", at: "r1→r2"}, "r1-eth1", "netem delay 2ms 2ms"),
	netem(fault{id: "duplicate", what: "a tenth of the packets comes twice", node: "r2", at: "r2→s2"}, "r2-eth1", "netem duplicate 10%"),
	netem(fault{id: "duplicate-few", what: "a hundredth comes twice", node: "r1", at: "r1→r2"}, "r1-eth1", "netem duplicate 1%"),
	netem(fault{id: "corrupt", what: "2 % are damaged", node: "r1", at: "r1→r2 r1 r2"}, "r1-eth1", "netem corrupt 2%"),
	netem(fault{id: "netem-rate", what: "netem limits to 5 Mbit/s", node: "r1", at: "r1→r2"}, "r1-eth1", "netem rate 5mbit"),
	netem(fault{id: "netem-slots", what: "packets go in slots of 20 ms", node: "r1", at: "r1→r2"}, "r1-eth1", "netem slot 20ms 20ms"),

	{id: "down-switch-end", what: "a link is down at the switch", node: "s1", at: "s1--h2", quick: true,
		plant: "ip link set s1-eth2 down", undo: "ip link set s1-eth2 up"},
	{id: "down-host-end", what: "a link is down at the host", node: "h4", at: "h4--s2 h4", want: []string{"h4"}, quick: true,
		plant: "ip link set h4-eth0 down", undo: "ip link set h4-eth0 up; $restore"},
	{id: "down-routers", what: "a link between routers is down", node: "r2", at: "r1--r2 r2", want: []string{"r2"}, quick: true,
		plant: "ip link set r2-eth0 down", undo: "ip link set r2-eth0 up; $restore"},
	{id: "flapping", what: "a link goes down for 100 ms each half second", node: "s2", at: "s2--h4",
		plant: "(while :; do ip link set s2-eth3 down; sleep 0.1; ip link set s2-eth3 up; sleep 0.4; done) >/dev/null 2>&1 & echo $! >$save",
		undo:  "kill $(cat $save); ip link set s2-eth3 up"},
	{id: "offloads", what: "a host does not compute checksums of what it sends", node: "h1", at: "h1--s1 h1", quick: true,
		cannot: "within a machine nobody checks what veth devices leave to hardware",
		plant:  "ethtool -K h1-eth0 tso off gso off", undo: "ethtool -K h1-eth0 tso on gso on"},
	{id: "queue-short", what: "a device's own queue is one packet long", node: "h2", at: "h2--s1 h2", quick: true,
		cannot: "a veth device has no queue of its own",
		plant:  "ip link set h2-eth0 txqueuelen 1", undo: "ip link set h2-eth0 txqueuelen 1000"},
	{id: "two-links-at-once", what: "a small MTU and a loss on another link", node: "", at: "h1--s1 r1→r2", want: []string{"h1 → s1|s1 → h1", "r1 → r2"},
		plant: "$trivet exec -n h1 -- ip link set h1-eth0 mtu 1400; $trivet exec -n r1 -- nft 'add table netdev fault; add chain netdev fault c { type filter hook egress device r1-eth1 priority 0; }; add rule netdev fault c numgen random mod 50 < 1 drop'",
		undo:  "$trivet exec -n h1 -- ip link set h1-eth0 mtu 1500; $trivet exec -n r1 -- nft delete table netdev fault"},
}

// tbf puts a bucket of tokens with a queue of so many packets at a device, as labs do.
func tbf(device, rate string, packets int) string {
	return fmt.Sprintf("tc qdisc replace dev %s root tbf rate %s burst 12500 limit %d", device, rate, packets*1514)
}

// shapedFaults are of limits, queues, delays and losses that the file asks for. The lab puts back
// what they were.
var shapedFaults = []fault{
	{id: "limit-gone", what: "a switch limits no more", node: "s1", at: "s1→h1", quick: true, plant: "tc qdisc del dev s1-eth1 root", remade: "h1-s1 bandwidth=19mbit bandwidth=20mbit"},
	{id: "limit-gone-at-sender", what: "a host limits no more", node: "h1", at: "h1→s1", quick: true, plant: "tc qdisc del dev h1-eth0 root", remade: "h1-s1 bandwidth=19mbit bandwidth=20mbit"},
	{id: "limit-gone-at-router", what: "a router limits no more", node: "r1", at: "r1→h3", quick: true, plant: "tc qdisc del dev r1-eth1 root", remade: "r1-h3 bandwidth=29mbit bandwidth=30mbit"},
	{id: "limit-half", what: "a host sends half of its rate", node: "h1", at: "h1→s1", quick: true, plant: tbf("h1-eth0", "10mbit", 60), remade: "h1-s1 bandwidth=19mbit bandwidth=20mbit"},
	{id: "limit-lower", what: "a switch sends 10 % less than its rate", node: "s1", at: "s1→h1", quick: true, plant: tbf("s1-eth1", "18mbit", 60), remade: "h1-s1 bandwidth=19mbit bandwidth=20mbit"},
	{id: "limit-higher", what: "a switch sends 10 % more than its rate", node: "s1", at: "s1→h1", quick: true, plant: tbf("s1-eth1", "22mbit", 60), remade: "h1-s1 bandwidth=19mbit bandwidth=20mbit"},
	{id: "limit-double", what: "a host sends twice its rate", node: "h3", at: "h3→r1", quick: true, plant: tbf("h3-eth0", "60mbit", 125), remade: "r1-h3 bandwidth=29mbit bandwidth=30mbit"},
	{id: "limit-lower-at-router", what: "a router sends a third less than its rate", node: "r1", at: "r1→h3", quick: true, plant: tbf("r1-eth1", "20mbit", 125), remade: "r1-h3 bandwidth=29mbit bandwidth=30mbit"},
	{id: "burst-large", what: "a limit lets half a second pass at once", node: "s1", at: "s1→h1", plant: "tc qdisc replace dev s1-eth1 root tbf rate 20mbit burst 1250000 limit 90840", remade: "h1-s1 bandwidth=19mbit bandwidth=20mbit"},
	{id: "queue-shorter", what: "a queue of 10 packets, not 60", node: "s1", at: "s1→h1", plant: tbf("s1-eth1", "20mbit", 10), remade: "h1-s1 bandwidth=19mbit bandwidth=20mbit"},
	{id: "queue-longer", what: "a queue of 300 packets, not 60", node: "s1", at: "s1→h1", plant: tbf("s1-eth1", "20mbit", 300), remade: "h1-s1 bandwidth=19mbit bandwidth=20mbit"},
	{id: "queue-shorter-at-host", what: "a host's queue of 20 packets, not 60", node: "h1", at: "h1→s1", plant: tbf("h1-eth0", "20mbit", 20), remade: "h1-s1 bandwidth=19mbit bandwidth=20mbit"},
	hooked(fault{id: "police-before-shaper", what: "a policer at half of the rate before the shaper", node: "r1", at: "r1→h3", quick: true}, "egress", "r1-eth1", "limit rate over 1875 kbytes/second burst 20 kbytes drop"),
	hooked(fault{id: "police-at-receiver", what: "a receiver takes half of the rate", node: "h3", at: "r1→h3", quick: true}, "ingress", "h3-eth0", "limit rate over 1875 kbytes/second burst 20 kbytes drop"),
	{id: "police-instead", what: "a policer at the rate instead of a shaper", node: "s1", at: "s1→h1",
		plant: "tc qdisc del dev s1-eth1 root; nft 'add table netdev fault; add chain netdev fault c { type filter hook egress device s1-eth1 priority 0; }; add rule netdev fault c limit rate over 2500 kbytes/second burst 15 kbytes drop'",
		undo:  "nft delete table netdev fault", remade: "h1-s1 bandwidth=19mbit bandwidth=20mbit"},
	{id: "narrower-behind", what: "a narrower limit on a link without one, behind a limit", node: "s1", at: "s1→r1 r1→h3 s1", noted: true, quick: true,
		plant: "tc qdisc add dev s1-eth3 root tbf rate 10mbit burst 6000 limit 100000", undo: "tc qdisc del dev s1-eth3 root"},
	hooked(fault{id: "loss-more", what: "5 % more lost than asked for", node: "h4", at: "r1→h4"}, "ingress", "h4-eth0", "numgen random mod 20 < 1 drop"),
	hooked(fault{id: "loss-more-at-sender", what: "a host loses 3 % before the line", node: "h4", at: "h4→r1"}, "egress", "h4-eth0", "numgen random mod 33 < 1 drop"),
	{id: "line-gone", what: "a link's discipline is another: no loss, half of the delay", node: "h4", at: "h4→r1", want: []string{"h4 → r1"}, quick: true,
		needs: "tc qdisc add dev lo root netem delay 5ms",
		plant: "tc qdisc replace dev h4-eth0 root netem delay 5ms", remade: "r1-h4 delay=11ms delay=10ms"},
	{id: "delay-more", what: "a delay is 15 ms, not 10", node: "h4", at: "h4→r1", quick: true,
		needs: "tc qdisc add dev lo root netem delay 5ms",
		plant: "tc qdisc replace dev h4-eth0 root netem delay 15ms loss 2% limit 10000", remade: "r1-h4 delay=11ms delay=10ms"},
	{id: "loss-none", what: "no loss where 2 % are asked for", node: "h4", at: "h4→r1",
		needs: "tc qdisc add dev lo root netem delay 5ms",
		plant: "tc qdisc replace dev h4-eth0 root netem delay 10ms limit 10000", remade: "r1-h4 delay=11ms delay=10ms"},
}
