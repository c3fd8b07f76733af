package verify

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/netfacts"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

const judged = `nodes: {h1: host, h2: host, h3: {host: {mac: "02:00:00:00:00:33"}}, s1: switch, r1: {router: {datapath: kernel}}}
links: [h1 -- s1, h2 -- s1, s1 -- r1, r1 -- h3]
`

// What contradicts the topology is wrong, what somebody may want is noted, and what is said
// otherwise, or contradicts nothing, is neither: for each kind of fact.
func TestJudge(t *testing.T) {
	v := verifierOf(t, judged)
	at := func(node string) (device string, address netip.Prefix, mac string) {
		for _, l := range v.t.Links {
			for _, e := range l.Ends {
				if e.Node == node {
					return e.Interface, e.Addresses[0], e.MAC.String()
				}
			}
		}
		t.Fatal(node)
		return
	}
	d1, _, _ := at("h1")
	_, a2, m2 := at("h2")
	_, a3, _ := at("h3")
	gateway := v.nodes["h1"].Gateways[0].String()
	key := func(kind netfacts.Kind, device, name string) netfacts.Key {
		return netfacts.Key{Kind: kind, Device: device, Name: name}
	}
	is := func(k netfacts.Key, value string) netfacts.Change {
		return netfacts.Change{Key: k, Is: value, New: true}
	}
	gone := func(k netfacts.Key, value string) netfacts.Change {
		return netfacts.Change{Key: k, Was: value, Gone: true}
	}
	other := func(k netfacts.Key, was, now string) netfacts.Change {
		return netfacts.Change{Key: k, Was: was, Is: now}
	}
	all := netfacts.Key{Kind: netfacts.Rule, Name: "ipv4 50: from all to all"}
	for _, x := range []struct {
		what, node string
		change     netfacts.Change
		verdict    string // ✗, ! or "": nothing is said
		says       string
	}{
		{"an address of another's", "h1", is(key(netfacts.Address, "lo", a2.String()), ""), "✗", "of h2"},
		{"a further address", "h1", is(key(netfacts.Address, d1, "10.99.0.1/24"), ""), "!", "10.99.0.1/24"},
		{"a way round the gateway", "h1", is(key(netfacts.Route, "main", a3.Addr().String()+"/32"), "via "+a2.Addr().String()+" dev "+d1), "✗", "h3"},
		{"nothing to a subnet", "h1", is(key(netfacts.Route, "main", a3.Masked().String()), "blackhole"), "✗", "nothing reaches"},
		{"the same way once more", "h1", is(key(netfacts.Route, "main", a3.Masked().String()), "via "+gateway+" dev "+d1), "!", "nobody asked for"},
		{"a default that does not count", "h1", is(key(netfacts.Route, "main", "0.0.0.0/0 metric 9"), "via "+a2.Addr().String()+" dev "+d1), "!", "metric 9"},
		{"a route to elsewhere", "h1", is(key(netfacts.Route, "main", "192.0.2.0/24"), "blackhole"), "!", "192.0.2.0/24"},
		{"half of all addresses", "h1", is(key(netfacts.Route, "main", "0.0.0.0/1"), "via "+a2.Addr().String()+" dev "+d1), "✗", "0.0.0.0/1"},
		{"a gateway that is said otherwise", "h1", other(key(netfacts.Route, "main", "0.0.0.0/0"), "via "+gateway+" dev "+d1, "via "+a2.Addr().String()+" dev "+d1), "", ""},
		{"a rule that loses all", "h1", is(all, "blackhole"), "✗", "nothing reaches"},
		{"a rule that loses nothing of the lab", "h1", is(key(netfacts.Rule, "", "ipv4 50: from all to 192.0.2.0/24"), "prohibit"), "!", "192.0.2.0/24"},
		{"a rule for what somebody else sends", "h1", is(key(netfacts.Rule, "", "ipv4 50: from 192.0.2.1/32 to all"), "prohibit"), "!", "192.0.2.1"},
		{"a rule to an empty table", "h1", is(all, "lookup 77"), "!", "lookup 77"},
		{"the main table is not asked", "h1", gone(key(netfacts.Rule, "", "ipv4 32766: from all to all"), "lookup main"), "✗", "no longer"},
		{"a neighbour's wrong MAC", "h1", is(key(netfacts.Neighbour, d1, a2.Addr().String()), "02:00:00:00:00:01"), "✗", m2},
		{"a neighbour's MAC", "h1", is(key(netfacts.Neighbour, d1, a2.Addr().String()), m2), "!", "permanent"},
		{"a host forwards", "h1", is(key(netfacts.Sysctl, "", "ipv4.forwarding"), "1"), "✗", "is a host and forwards"},
		{"a router does not, which is looked at", "r1", gone(key(netfacts.Sysctl, "", "ipv4.forwarding"), "1"), "", ""},
		{"a router does not at a device", "r1", gone(key(netfacts.Sysctl, "r1-eth0", "ipv4.forwarding"), "1"), "✗", "of r1-eth0"},
		{"IPv6 that there is none of", "h1", is(key(netfacts.Sysctl, "", "ipv6.forwarding"), "1"), "!", "ipv6.forwarding"},
		{"a filter of paths", "r1", is(key(netfacts.Sysctl, "", "ipv4.rp_filter"), "1"), "!", "rp_filter is 1, was 0"},
		{"the file's MAC", "h3", other(key(netfacts.MAC, "h3-eth0", ""), "02:00:00:00:00:33", "02:00:00:00:00:44"), "✗", "02:00:00:00:00:44, was"},
		{"another MAC", "h1", other(key(netfacts.MAC, d1, ""), "02:00:00:00:00:11", "02:00:00:00:00:44"), "!", "02:00:00:00:00:44, was"},
		{"an MTU", "h1", other(key(netfacts.MTU, d1, ""), "1500", "1400"), "!", "1400, was 1500"},
		{"what Trivet made to shape is gone", "h1", gone(key(netfacts.Qdisc, d1, "root"), "tbf 7472: rate 10bit"), "✗", "no longer"},
		{"it is another", "h1", other(key(netfacts.Qdisc, d1, "root"), "netem 7473: #1", "netem 7473: #2"), "✗", "#2, was"},
		{"something below it", "h1", is(key(netfacts.Qdisc, d1, "parent 7472:1"), "netem 8001: #2"), "✗", "parent 7472:1"},
		{"where there was none", "h1", is(key(netfacts.Qdisc, d1, "root"), "fq_codel 8001: #1"), "!", "fq_codel"},
		{"a filter that drops", "h1", is(key(netfacts.Filter, d1, "egress pref 1 0x1"), "matchall drop"), "✗", "drop"},
		{"a filter that does not", "h1", is(key(netfacts.Filter, d1, "egress pref 1 0x1"), "u32 mirred"), "!", "u32"},
		{"what embedded switches forward by", "", gone(key(netfacts.Qdisc, "s1-eth1", "ingress"), "clsact ffff:"), "✗", "the switches' namespace"},
		{"a port of another bridge", "", other(key(netfacts.Device, "s1-eth1", ""), "veth of s1", "veth of br0"), "✗", "br0"},
		{"a device", "h1", is(key(netfacts.Device, "dummy0", ""), "dummy"), "!", "dummy0"},
		{"a device of a link", "h1", gone(key(netfacts.Device, d1, ""), "veth"), "✗", d1},
		{"offloads", "h1", other(key(netfacts.Offload, d1, ""), "00", "tx off"), "!", "tx off"},
		{"a flow entry", "", is(key(netfacts.Flow, "s1", "x"), "priority=9,actions=drop"), "!", "s1 has a flow entry"},
		{"a rule of a firewall that drops", "h1", is(key(netfacts.NFT, "", "inet t c handle 3"), "drop #1"), "✗", "drop"},
		{"one that does not", "h1", is(key(netfacts.NFT, "", "inet t c handle 3"), "masquerade"), "!", "masquerade"},
		{"an empty table", "h1", is(key(netfacts.NFT, "", "inet t"), "table"), "!", "inet t"},
		{"what an older firewall begins with", "h1", is(key(netfacts.Xtables, "", "ip filter 0"), "ACCEPT #1"), "", ""},
		{"a rule of it that drops", "h1", is(key(netfacts.Xtables, "", "ip filter 0"), "DROP #1"), "✗", "DROP"},
	} {
		there := map[string]*seen{}
		for _, n := range v.t.Nodes {
			there[n.Name] = &seen{Forwards4: "1", Forwards6: "1"}
		}
		if x.change.Kind == netfacts.Address { // is seen as well
			there[x.node].Devices = []device{{Name: x.change.Device, Carries: true, Addresses: []netip.Prefix{netip.MustParsePrefix(x.change.Name)}}}
		}
		j := newJudge(v.network, there, []lab.Changed{{Node: x.node, Changes: []netfacts.Change{x.change}}})
		j.all()
		verdict := strings.Repeat("✗", len(j.wrong)) + strings.Repeat("!", len(j.notes))
		if text := strings.Join(slices.Concat(j.wrong, j.notes), "\n"); verdict != x.verdict || !strings.Contains(text, x.says) {
			t.Errorf("%s: %q %q, not %q with %q", x.what, verdict, text, x.verdict, x.says)
		}
	}
}

// A rule that leads to a table is judged by what has come into the table, and a table of a firewall
// by its rules, together: one line each.
func TestJudgeTogether(t *testing.T) {
	v := verifierOf(t, judged)
	rule := netfacts.Change{Key: netfacts.Key{Kind: netfacts.Rule, Name: "ipv4 50: from all to all"}, Is: "lookup 77", New: true}
	route := netfacts.Change{Key: netfacts.Key{Kind: netfacts.Route, Device: "77", Name: "0.0.0.0/0"}, Is: "unreachable", New: true}
	table := netfacts.Change{Key: netfacts.Key{Kind: netfacts.NFT, Name: "inet t"}, Is: "table", New: true}
	drop := netfacts.Change{Key: netfacts.Key{Kind: netfacts.NFT, Name: "inet t c handle 2"}, Is: "drop #7", New: true}
	j := newJudge(v.network, nil, []lab.Changed{{Node: "h1", Changes: []netfacts.Change{table, drop, route, rule}}})
	j.all()
	if len(j.wrong) != 2 || !strings.Contains(j.wrong[0], "inet t: drop") || !strings.Contains(j.wrong[1], "lookup 77; nothing reaches") || len(j.notes) != 1 {
		t.Errorf("%q %q", j.wrong, j.notes)
	}
}

// What a node is to have is looked at whoever changed it: a subnet without a route, a router that
// does not forward, unless its start command has said so.
func TestPromised(t *testing.T) {
	v := verifierOf(t, judged)
	e := v.t.Links[0].Ends[0]
	there := map[string]*seen{"r1": {Forwards4: "0", Forwards6: "0"},
		"h1": {Devices: []device{{Name: e.Interface, Carries: true, Addresses: e.Addresses}}}}
	j := newJudge(v.network, there, nil)
	j.all()
	if len(j.wrong) != 2 || !strings.Contains(j.wrong[0], "no route to "+e.Addresses[0].Masked().String()) || !strings.Contains(j.wrong[1], "r1 is a router and does not forward: ipv4") {
		t.Errorf("%q", j.wrong)
	}
	v.nodes["r1"].Start = "sysctl -w net.ipv4.ip_forward=0"
	there["h1"].Routes = []routeThere{{To: e.Addresses[0].Masked()}}
	if j = newJudge(v.network, there, nil); true {
		if j.all(); len(j.wrong) > 0 {
			t.Errorf("%q", j.wrong)
		}
	}
}

// In what a lab differs from its file is said by what differs: of a link that its schedule changes,
// nothing; of nodes, without all, only whether they are there. What is measured is what the file
// says.
func TestDifferences(t *testing.T) {
	file := verifierOf(t, "nodes: {h1: host, h2: host, h3: host, s1: switch}\nlinks: [h1 -- s1: {delay: 10ms}, h2 -- s1: {bandwidth: 10mbit}, h3 -- s1]\nschedule: [\"at 5s: h2 -- s1 down\"]\n").t
	lab := verifierOf(t, "nodes: {h1: {host: {gateway: 10.0.0.9}}, h2: host, s1: switch}\nlinks: [h1 -- s1: {delay: 20ms}, h2 -- s1: {bandwidth: 5mbit, down: true}]\n").t
	plain := strings.Join(Differences(lab, file, "f.yaml", false), "\n")
	for _, want := range []string{"h1-s1: delay 10ms in f.yaml, 20ms in the lab", "h3: in f.yaml, not in the lab", "h3-s1: in f.yaml, not in the lab"} {
		if !strings.Contains(plain, want) {
			t.Errorf("%q is not said in:\n%s", want, plain)
		}
	}
	if strings.Contains(plain, "h2") || strings.Contains(plain, "gateway") {
		t.Errorf("too much is said:\n%s", plain)
	}
	if all := strings.Join(Differences(lab, file, "f.yaml", true), "\n"); !strings.Contains(all, "gateways none in f.yaml, 10.0.0.9 in the lab") {
		t.Errorf("the gateway is not said:\n%s", all)
	}
	as := AsInFile(lab, file)
	if l := as.Links[0]; l.Egress(0).Delay != topology.Duration(10e6) || as.Links[1].Egress(0).Bandwidth != 5e6 || !as.Links[1].Down || len(as.Nodes[0].Gateways) > 0 {
		t.Errorf("%+v %+v", as.Links[0], as.Links[1])
	}
}
