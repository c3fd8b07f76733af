package topology

import (
	"slices"
	"strings"
	"testing"
)

const ownFRR = `frr version 8.4
hostname r1
!
interface r1-eth0
 ip address 10.1.1.1/24
 ip address 10.1.2.1/24
 ip address 10.1.1.1/24
!
int lo
 ip addr 127.0.0.1/8
 ip address 192.0.2.1/32
!
router bgp 65001
 address-family ipv4 unicast
  network 10.1.1.0/24
 exit-address-family
exit
`

// ownRouter is two hosts at two routers, of which the first has a configuration of its own.
func ownRouter(t *testing.T, kind, text string) *Topology {
	top := build(t, "h:h1 h:h2 r:r1 r:r2 h1-r1 h2-r2 r1-r2")
	top.Node("r1").Config = []ConfigFile{{Kind: kind, TextFile: TextFile{File: "r1.conf", Text: text}}}
	top.Node("r2").Datapath = Kernel
	return top
}

// TestOwnRouting proves that a router with a configuration of FRR or BIRD has the datapath that
// runs it, whatever is asked of all routers; that its interfaces have the addresses that FRR's
// gives them, others none, and hosts are in these subnets; that nothing is routed for it; and that
// what a topology assigns is as ever where the configuration gives no addresses.
func TestOwnRouting(t *testing.T) {
	top := ownRouter(t, ConfigFRR, ownFRR)
	d := plain
	d.OverrideDatapath = Kernel
	r, problems := Resolve(top, d)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	const want = "h1 10.1.1.2/24, r1 10.1.1.1/24, r1 10.1.2.1/24, h2 10.0.1.2/24, r2 10.0.1.1/24, r2 172.16.0.2/30"
	if got := addressesOf(r); got != want {
		t.Errorf("addresses\n%s, not\n%s", got, want)
	}
	n := r.Node("r1")
	if n.Datapath != FRR || !slices.Equal(n.Loopback, prefixes("192.0.2.1/32")) {
		t.Errorf("r1 has %s, loopback %v", n.Datapath, n.Loopback)
	}
	if !r.Links[2].Ends[0].Unaddressed || len(n.Routes)+len(r.Node("r2").Routes) > 0 {
		t.Errorf("r1-eth1 is %+v; routes %v, %v", r.Links[2].Ends[0], n.Routes, r.Node("r2").Routes)
	}
	if gw := r.Node("h1").Gateways; len(gw) != 1 || gw[0].String() != "10.1.1.1" {
		t.Errorf("h1 has the gateway %v", gw)
	}
	again := resolved(t, r)
	if got := addressesOf(again); got != want {
		t.Errorf("resolved again:\n%s", got)
	}
	for kind, datapath := range map[string]Datapath{ConfigFRR: FRR, ConfigBIRD: BIRD} {
		r := resolved(t, ownRouter(t, kind, "router id 10.0.0.1;\n"))
		if got := addressesOf(r); r.Node("r1").Datapath != datapath || !strings.Contains(got, "r1 172.16.0.1/30") {
			t.Errorf("without addresses of its own, r1 has %s and %s", r.Node("r1").Datapath, got)
		}
		if own, other := r.Node("r1").Routes, r.Node("r2").Routes; len(own)+len(other) > 0 {
			t.Errorf("routes are computed: %v, %v", own, other)
		}
	}
}

// TestOwnRoutingInMachine proves that a router with a configuration of FRR runs it in a virtual
// machine where the router, the topology or an override says so, with the addresses that it gives;
// and that one of BIRD, which is not there, is refused.
func TestOwnRoutingInMachine(t *testing.T) {
	for what, c := range map[string]struct {
		kind   string
		change func(*Topology, *Defaults)
		want   Datapath
	}{
		"router":           {ConfigFRR, func(top *Topology, _ *Defaults) { top.Node("r1").Datapath = VM }, VM},
		"topology":         {ConfigFRR, func(top *Topology, _ *Defaults) { top.Datapath = VM }, VM},
		"override":         {ConfigFRR, func(_ *Topology, d *Defaults) { d.OverrideDatapath = VM }, VM},
		"other override":   {ConfigFRR, func(_ *Topology, d *Defaults) { d.OverrideDatapath = BIRD }, FRR},
		"BIRD of topology": {ConfigBIRD, func(top *Topology, _ *Defaults) { top.Datapath = VM }, BIRD},
		"BIRD of override": {ConfigBIRD, func(_ *Topology, d *Defaults) { d.OverrideDatapath = VM }, BIRD},
	} {
		top, d := ownRouter(t, c.kind, ownFRR), plain
		c.change(top, &d)
		r, problems := Resolve(top, d)
		if err := problems.Err(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := r.Node("r1"); n.Datapath != c.want || c.kind == ConfigFRR && !strings.HasPrefix(addressesOf(r), "h1 10.1.1.2/24, r1 10.1.1.1/24") {
			t.Errorf("%s: r1 has %s and %s", what, n.Datapath, addressesOf(r))
		}
	}
	top := ownRouter(t, ConfigBIRD, "router id 10.0.0.1;\n")
	top.Node("r1").Datapath = VM
	if _, problems := Resolve(top, plain); problems.Err() == nil || !strings.Contains(problems.Err().Error(), "config: bird is for routers with datapath bird") {
		t.Errorf("BIRD in a virtual machine: %v", problems)
	}
}

// TestOwnRoutingInterfaces proves that an interface beside those of links takes the addresses of
// the router's own configuration, too, and its network is known: a host there has it as gateway.
func TestOwnRoutingInterfaces(t *testing.T) {
	top := ownRouter(t, ConfigFRR, strings.Replace(ownFRR, "interface r1-eth0", "interface br0", 1))
	top.Node("r1").Interfaces = []Interface{{Name: "br0", Bridge: []string{"r1-eth0"}, Addresses: prefixes("10.1.1.1/24")}}
	r := resolved(t, top)
	if got := r.Node("r1").Interfaces[0].Addresses; !slices.Equal(got, prefixes("10.1.1.1/24", "10.1.2.1/24")) {
		t.Errorf("br0 has %v", got)
	}
	if gw := r.Node("h1").Gateways; len(gw) != 1 || gw[0].String() != "10.1.1.1" {
		t.Errorf("h1 has the gateway %v", gw)
	}
	if got := addressesOf(r); got != "h1 10.1.1.2/24, h2 10.0.1.2/24, r2 10.0.1.1/24, r2 172.16.0.2/30" {
		t.Errorf("addresses of links: %s", got)
	}
	top.Node("r1").Config[0].Text = ownFRR // which has the addresses at the bridge's port
	if _, problems := Resolve(top, plain); !slices.ContainsFunc(problems, func(p Problem) bool {
		return strings.Contains(p.String(), "r1.conf:5  warning: router r1: r1-eth0 is a member of br0")
	}) {
		t.Errorf("an address at a port: %v", problems)
	}
	if got := top.Node("r1").Interfaces[0].Addresses; len(got) != 1 {
		t.Errorf("what was read has %v", got)
	}
}

// TestOwnRoutingInherited proves that a router takes the addresses of its configuration in place of
// those that the running lab has assigned, and so does the segment; and that it gets assigned ones
// again with a configuration without any.
func TestOwnRoutingInherited(t *testing.T) {
	before := resolved(t, ownRouter(t, ConfigFRR, "hostname r1\n"))
	top := ownRouter(t, ConfigFRR, ownFRR)
	Inherit(top, before)
	after := resolved(t, top)
	const want = "h1 10.1.1.2/24, r1 10.1.1.1/24, r1 10.1.2.1/24, h2 10.0.2.2/24, r2 10.0.2.1/24, r2 172.16.0.2/30"
	if got := addressesOf(after); got != want {
		t.Errorf("addresses\n%s, not\n%s", got, want)
	}
	top = ownRouter(t, ConfigFRR, "hostname r1\n")
	Inherit(top, after)
	if got := addressesOf(resolved(t, top)); !strings.Contains(got, "r1 172.16.0.1/30") {
		t.Errorf("then it has %s", got)
	}
}

// TestOwnRoutingRefused proves what is said of configurations that a router cannot have, at the
// line of the file that says it.
func TestOwnRoutingRefused(t *testing.T) {
	for says, change := range map[string]func(*Topology){
		"keep one of them":                       func(top *Topology) { top.Node("r1").Protocols.Set(&OSPF{}) },
		"leave it out":                           func(top *Topology) { top.Node("r1").Datapath = BIRD },
		"add frr: FILE":                          func(top *Topology) { top.Node("r1").Config[0].Kind = ConfigDaemons },
		"is for routers with datapath frr or vm": func(top *Topology) { top.Node("h1").Config = top.Node("r1").Config },
		"r1.conf:5  warning: router r1: 224.0.0.1/24 cannot be the address": func(top *Topology) {
			top.Node("r1").Config[0].Text = strings.Replace(ownFRR, "10.1.1.1", "224.0.0.1", 1)
		},
		"r1.conf:5  warning: router r1: there is no interface eth7; there are r1-eth0, r1-eth1": func(top *Topology) {
			top.Node("r1").Config[0].Text = strings.Replace(ownFRR, "r1-eth0", "eth7", 1)
		},
		"warning: router r1: address fd00::1/64 is left out": func(top *Topology) {
			top.Node("r1").Config[0].Text = ownFRR + "interface r1-eth1\n ipv6 address fd00::1/64\n"
		},
	} {
		top := ownRouter(t, ConfigFRR, ownFRR)
		change(top)
		_, problems := Resolve(top, plain)
		var all []string
		for _, p := range problems {
			all = append(all, p.String())
		}
		if text := strings.Join(all, "\n"); !strings.Contains(text, says) {
			t.Errorf("%s: it says\n%s", says, text)
		}
	}
}
