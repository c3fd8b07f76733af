package topology

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

// speaks makes routers speak OSPF with FRR.
func speaks(top *Topology, edit map[string]OSPF, names ...string) {
	for _, name := range names {
		o := edit[name]
		n := top.Node(name)
		n.Protocols, n.Datapath = Protocols{SourceOSPF: &o}, FRR
	}
}

func ospfLink(top *Topology, a, b string) *OSPFLink {
	l := top.FindLink(a, b)
	if l.OSPF() == nil {
		l.Protocols.Set(&OSPFLink{})
	}
	return l.OSPF()
}

// interfaces writes each interface as OSPFOf gives it: "r1-eth0 area 0 broadcast cost 1 passive".
func interfaces(r OSPFRouter) (out []string) {
	for _, i := range r.Interfaces {
		s := fmt.Sprintf("%s area %s %s cost %d", i.Name, i.Area, i.Network, i.Cost)
		if i.Passive {
			s += " passive"
		}
		out = append(out, s)
	}
	return out
}

// TestOSPFInterfaces proves the defaults: interfaces to hosts are passive, links between routers
// point-to-point, segments with switches broadcast; costs come from the reference bandwidth;
// settings of an end override those of its link, and these override the router's.
func TestOSPFInterfaces(t *testing.T) {
	top := build(t, "h:h1 s:s1 s:s2 r:r1 r:r2 r:r3 h1-s1 s1-r1 r1-r2 r1-s2 s2-r2 s2-r3 r2-r3")
	speaks(top, map[string]OSPF{"r1": {Area: 1, ReferenceBandwidth: 1e9, Auth: &OSPFAuth{Type: AuthMD5, Key: "walnut"}}, "r3": {Passive: []string{"s2"}}}, "r1", "r2", "r3")
	top.Node("r1").Loopback = prefixes("192.0.2.1/32")
	top.FindLink("r1", "r2").Bandwidth = 1e8
	link := ospfLink(top, "r1", "r2")
	zero, area, no := 0, AreaID(2), false
	link.Cost, link.Hello, link.Area, link.Priority = 7, Duration(2*time.Second), &area, &zero
	top.FindLink("r1", "r2").Ends[1].Protocols.Set(&OSPFLink{Cost: 9, Network: Broadcast, Auth: &OSPFAuth{Type: AuthNone}})
	top.FindLink("s2", "r2").Ends[1].Protocols.Set(&OSPFLink{Passive: &no})
	top.FindLink("r1", "s2").Bandwidth = 3e8
	routers := OSPFOf(resolved(t, top))
	for i, want := range []string{
		"r1-eth0 area 1 broadcast cost 1 passive, r1-eth1 area 2 point-to-point cost 7, r1-eth2 area 1 broadcast cost 3, lo area 1 loopback cost 1 passive",
		"r2-eth0 area 2 broadcast cost 9, r2-eth1 area 0 broadcast cost 1, r2-eth2 area 0 point-to-point cost 1",
		"r3-eth0 area 0 broadcast cost 1 passive, r3-eth1 area 0 point-to-point cost 1",
	} {
		if got := strings.Join(interfaces(routers[i]), ", "); got != want {
			t.Errorf("%s: got\n  %s\nwant\n  %s", routers[i].Node.Name, got, want)
		}
	}
	f, g := routers[0].Interfaces[1], routers[1].Interfaces[0]
	if f.Hello != 2*time.Second || f.Dead != 8*time.Second || f.Priority != 0 || f.Auth != (OSPFAuth{AuthMD5, "walnut", 1}) || f.Link.Ends[f.End].Node != "r1" || f.Port != 1 {
		t.Errorf("%+v", f)
	}
	if g.Hello != 2*time.Second || g.Priority != 0 || g.Auth != (OSPFAuth{Type: AuthNone}) || !reflect.DeepEqual(g.Addresses, prefixes("172.16.0.2/30")) {
		t.Errorf("%+v", g)
	}
	if k := routers[2].Interfaces[1]; k.Hello != 10*time.Second || k.Dead != 40*time.Second || k.Retransmit != 5*time.Second || k.Delay != time.Second || k.Priority != 1 {
		t.Errorf("%+v", k)
	}
}

// TestRouterIDs proves that a router's id is its highest loopback address, else comes from its
// name, else is the lowest free one; that no two are the same; and that an edited file keeps the
// ids it had.
func TestRouterIDs(t *testing.T) {
	top := build(t, "r:r1 r:x r:r7 r:b1 r:r9 r:r5 r1-x x-r7 r7-b1 b1-r9 r9-r5")
	speaks(top, map[string]OSPF{"r9": {RouterID: netip.MustParseAddr("0.0.0.7")}}, "r1", "x", "r7", "b1", "r9", "r5")
	top.Node("r5").Loopback = prefixes("192.0.2.9/32", "198.51.100.1/32", "fd00::1/128")
	r := resolved(t, top)
	var got []string
	for _, o := range OSPFOf(r) {
		got = append(got, o.Node.Name+" "+o.RouterID.String())
	}
	want := "r1 0.0.0.1, x 0.0.0.2, r7 0.0.0.3, b1 0.0.0.4, r9 0.0.0.7, r5 198.51.100.1"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
	edited := top.Clone()
	edited.Nodes = append([]*Node{{Name: "a", Kind: Router, Datapath: FRR, Protocols: Protocols{SourceOSPF: &OSPF{}}}}, edited.Nodes...)
	edited.AddLink("a", "x")
	Inherit(edited, r)
	if again := resolved(t, edited); again.Node("x").OSPF().RouterID != r.Node("x").OSPF().RouterID {
		t.Error("x has another id in the edited file")
	}
}

// TestOSPFRoutes proves that routers that speak OSPF get no static IPv4 routes, that others and
// NATs do, and that IPv6 is still routed.
func TestOSPFRoutes(t *testing.T) {
	top := build(t, "h:h1 r:r1 r:r2 r:r3 h:h2 h1-r1 r1-r2 r2-r3 r3-h2")
	speaks(top, nil, "r1", "r2")
	top.Node("r1").Routes = []Route{{To: netip.MustParsePrefix("203.0.113.0/24"), Via: netip.MustParseAddr("10.0.1.2")}}
	r := resolved(t, top)
	if a, b, c := r.Node("r1").Routes, r.Node("r2").Routes, r.Node("r3").Routes; len(a) != 1 || len(b) != 0 || len(c) == 0 {
		t.Errorf("r1 %v, r2 %v, r3 %v", a, b, c)
	}
	top.IPv6 = IPv6Assigned
	r = resolved(t, top)
	if b := r.Node("r2").Routes; len(b) == 0 || b[0].To.Addr().Is4() {
		t.Errorf("r2 has %v", b)
	}
}

// TestOSPFSettings proves what is announced as external, with metric and type; that stub areas
// apply to all routers in them; and that a virtual link's end may be a name.
func TestOSPFSettings(t *testing.T) {
	top := build(t, "r:r1 r:r2 r:r3 h:h1 r1-r2 r2-r3 r1-h1")
	speaks(top, map[string]OSPF{
		"r1": {Areas: []OSPFArea{{ID: 1, Stub: true}, {ID: 5, Ranges: []OSPFRange{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}}}},
			Redistribute: []OSPFRedistribute{{RedistributeRule: RedistributeRule{Source: SourceConnected}}, {RedistributeRule: RedistributeRule{Source: SourceStatic, Prefix: netip.MustParsePrefix("203.0.113.0/24"), Tag: 9, Deny: true}},
				{RedistributeRule: RedistributeRule{Source: SourceStatic, Metric: 30, Type: 1}}, {RedistributeRule: RedistributeRule{Source: SourceDefault}}}},
		"r2": {VirtualLinks: []OSPFVirtualLink{{Area: 2, Router: "r3", Hello: Duration(time.Second)}}},
		"r3": {Area: 2, VirtualLinks: []OSPFVirtualLink{{Area: 2, Router: "0.0.0.2"}}}}, "r1", "r2", "r3")
	one, two := AreaID(1), AreaID(2)
	ospfLink(top, "r1", "r2").Area = &one
	ospfLink(top, "r2", "r3").Area = &two
	ospfLink(top, "r1", "h1").Off = true
	top.Node("r1").Routes = []Route{{To: netip.MustParsePrefix("203.0.113.0/24"), Via: netip.MustParseAddr("10.0.1.2"), Tag: 7}}
	r := OSPFOf(resolved(t, top))
	if got, want := fmt.Sprint(r[0].Externals), "[{10.0.1.0/24 20 true 0} {203.0.113.0/24 30 false 7} {0.0.0.0/0 20 true 0}]"; got != want {
		t.Errorf("externals are %s", got)
	}
	if len(r[0].Interfaces) != 1 || len(r[0].Areas) != 1 {
		t.Errorf("r1 has %v in %v", interfaces(r[0]), r[0].Areas)
	}
	if got, want := fmt.Sprint(r[1].Areas), "[{1 true 1 false [] 0} {2 false 0 false [] 0}]"; got != want {
		t.Errorf("r2 has the areas %s", got)
	}
	if v, w := r[1].VirtualLinks[0], r[2].VirtualLinks[0]; v.Peer != r[2].RouterID || w.Peer != r[1].RouterID || v.Hello != time.Second || v.Dead != 4*time.Second || w.Dead != 40*time.Second {
		t.Errorf("%+v and %+v", v, w)
	}
	if OSPFOf(resolved(t, build(t, "r:r1 r:r2 r1-r2"))) != nil {
		t.Error("routers without ospf speak it")
	}
}

// TestOSPFProblems proves that every wrong setting is reported, with what to write instead.
func TestOSPFProblems(t *testing.T) {
	for want, edit := range map[string]func(r1, r2 *OSPF, l *Link){
		"router r2: the router_id 1.1.1.1 is already that of r1; router ids must be unique": func(r1, r2 *OSPF, l *Link) {
			r1.RouterID, r2.RouterID = netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("1.1.1.1")
		},
		"fd00::1 is not a router id":                    func(r1, r2 *OSPF, l *Link) { r1.RouterID = netip.MustParseAddr("fd00::1") },
		"area 0 is the backbone, which cannot be a stu": func(r1, r2 *OSPF, l *Link) { r1.Areas = []OSPFArea{{Stub: true}} },
		"area 3: only a stub area has no_summary":       func(r1, r2 *OSPF, l *Link) { r1.Areas = []OSPFArea{{ID: 3, NoSummary: true}} },
		"area 3 is defined twice":                       func(r1, r2 *OSPF, l *Link) { r1.Areas = []OSPFArea{{ID: 3}, {ID: 3}} },
		"10.0.0.1/8 is not an IPv4 network": func(r1, r2 *OSPF, l *Link) {
			r1.Areas = []OSPFArea{{ID: 3, Ranges: []OSPFRange{{Prefix: netip.MustParsePrefix("10.0.0.1/8")}}}}
		},
		"passive: r1-eth9 is neither an interface of it nor a neighbouring node; did you mean r1-eth0?": func(r1, r2 *OSPF, l *Link) { r1.Passive = []string{"r1-eth9"} },
		"cannot redistribute \"rip\"": func(r1, r2 *OSPF, l *Link) {
			r1.Redistribute = []OSPFRedistribute{{RedistributeRule: RedistributeRule{Source: "rip"}}}
		},
		"through an area that is not":           func(r1, r2 *OSPF, l *Link) { r1.VirtualLinks = []OSPFVirtualLink{{Router: "r2"}} },
		"there is no such node; did you mean r": func(r1, r2 *OSPF, l *Link) { r1.VirtualLinks = []OSPFVirtualLink{{Area: 1, Router: "r22"}} },
		"in which it has no interface":          func(r1, r2 *OSPF, l *Link) { r1.VirtualLinks = []OSPFVirtualLink{{Area: 1, Router: "r2"}} },
		"through area 1, which is a stub": func(r1, r2 *OSPF, l *Link) {
			r1.Area, r2.Area, r2.Areas = 1, 1, []OSPFArea{{ID: 1, Stub: true}}
			r1.VirtualLinks = []OSPFVirtualLink{{Area: 1, Router: "r2"}}
		},
		"70000 is not a cost":                  func(r1, r2 *OSPF, l *Link) { l.Protocols.Set(&OSPFLink{Cost: 70000}) },
		"there is no network \"nbma\"":         func(r1, r2 *OSPF, l *Link) { l.Protocols.Set(&OSPFLink{Network: "nbma"}) },
		"hello 1.5s is out of range":           func(r1, r2 *OSPF, l *Link) { l.Protocols.Set(&OSPFLink{Hello: Duration(1500 * time.Millisecond)}) },
		"dead 5s is not longer than hello 10s": func(r1, r2 *OSPF, l *Link) { l.Protocols.Set(&OSPFLink{Dead: Duration(5 * time.Second)}) },
		"256 is not a priority":                func(r1, r2 *OSPF, l *Link) { p := 256; l.Protocols.Set(&OSPFLink{Priority: &p}) },
		"the key is too long for simple":       func(r1, r2 *OSPF, l *Link) { r1.Auth = &OSPFAuth{Type: AuthSimple, Key: "123456789"} },
		"md5 needs a key":                      func(r1, r2 *OSPF, l *Link) { r1.Auth = &OSPFAuth{Type: AuthMD5} },
		"a key has no spaces":                  func(r1, r2 *OSPF, l *Link) { r1.Auth = &OSPFAuth{Type: AuthMD5, Key: "a b"} },
		"there is no type \"rot13\"":           func(r1, r2 *OSPF, l *Link) { r1.Auth = &OSPFAuth{Type: "rot13", Key: "a"} },
		"link r1 -- h1: ospf: h1 does not speak": func(r1, r2 *OSPF, l *Link) {
			l.Ends = [2]Endpoint{{Node: "r1"}, {Node: "h1", Protocols: LinkProtocols{SourceOSPF: &OSPFLink{}}}}
		},
	} {
		top := build(t, "h:h1 r:r1 r:r2 h1-r1 r1-r2")
		speaks(top, nil, "r1", "r2")
		edit(top.Node("r1").OSPF(), top.Node("r2").OSPF(), top.Links[1])
		_, problems := Resolve(top, plain)
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestOSPFDisagree proves that a router that cannot speak OSPF as it is configured is reported, and
// that neighbours that disagree are a warning.
func TestOSPFDisagree(t *testing.T) {
	for datapath, want := range map[Datapath]string{Kernel: "use datapath frr or bird", Embedded: "needs a controller that routes", BIRD: ""} {
		top := build(t, "r:r1 r:r2 r1-r2")
		speaks(top, nil, "r1", "r2")
		top.Nodes[0].Datapath = datapath
		_, problems := Resolve(top, plain)
		if err := problems.Err(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", datapath, err)
		}
	}
	top := build(t, "r:r1 r:r2 s:s1 r1-s1 s1-r2")
	speaks(top, nil, "r1", "r2")
	ospfLink(top, "r1", "s1").Hello = Duration(time.Second)
	_, problems := Resolve(top, plain)
	if w := problems.Warnings(); len(w) != 1 || !strings.Contains(w[0].String(), "r1 and r2 will not become OSPF neighbours: hello 1s and 10s") {
		t.Errorf("warnings: %v", w)
	}
}

// TestOSPFJSON proves that the model survives JSON, in which labs keep it, and that copies share
// nothing.
func TestOSPFJSON(t *testing.T) {
	top := build(t, "r:r1 r:r2 r1-r2")
	p, yes, area := 0, true, AreaID(1<<31)
	speaks(top, map[string]OSPF{"r1": {Area: 7, Areas: []OSPFArea{{ID: 1 << 30, Stub: true, DefaultCost: 3}}, Passive: []string{"r2"}, ReferenceBandwidth: 1e9,
		Redistribute: []OSPFRedistribute{{RedistributeRule: RedistributeRule{Source: SourceStatic}}, {RedistributeRule: RedistributeRule{Deny: true, Source: SourceConnected, Prefix: netip.MustParsePrefix("10.0.0.0/8"), GE: 9, LE: 24}}}, VirtualLinks: []OSPFVirtualLink{{Area: 7, Router: "r2", Auth: &OSPFAuth{Type: AuthMD5, Key: "k", ID: 2}}}}}, "r1", "r2")
	top.Links[0].Protocols.Set(&OSPFLink{Area: &area, Priority: &p, Passive: &yes, Hello: Duration(time.Second), Network: Broadcast})
	text, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	var back Topology
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(top, &back) {
		t.Errorf("%v: %s", err, text)
	}
	c := top.Clone()
	c.Nodes[0].OSPF().Areas[0].DefaultCost, *c.Links[0].OSPF().Priority, c.Nodes[0].OSPF().VirtualLinks[0].Auth.ID = 9, 9, 9
	if !reflect.DeepEqual(top, &back) {
		t.Error("a copy shares settings")
	}
}

// TestOSPFOfParts proves that routers at different sites take a link between them for the same as
// routers at one do, whatever is at its other end: what they say of it makes routes, or none; and
// that nothing is said of OSPF to a node that does not speak it.
func TestOSPFOfParts(t *testing.T) {
	top := build(t, "h:h1 s:s1 r:r1 r:r2 r:r3 r:r4 h1-r1 r1-r2 r2-s1 s1-r3 r3-r4 r1-r4")
	speaks(top, nil, "r1", "r2", "r3", "r4")
	cost, yes := 7, true
	top.FindLink("r1", "r2").Protocols.Set(&OSPFLink{Cost: cost, Network: Broadcast})
	top.FindLink("r3", "r4").Protocols.Set(&OSPFLink{Off: true})
	top.FindLink("r1", "r4").Ends[0].Protocols.Set(&OSPFLink{Passive: &yes})
	whole := resolved(t, top)
	want := map[string][]string{}
	for _, r := range OSPFOf(whole) {
		want[r.Node.Name] = interfaces(r)
	}
	for _, wire := range []bool{false, true} {
		for split := range 1 << len(whole.Nodes) {
			for i, n := range whole.Nodes {
				n.On = []string{"a", "b"}[split>>i&1]
			}
			for _, site := range []string{"a", "b"} {
				part := Part(whole, site, func(_ string, l *Link, i int) *Carrier {
					return &Carrier{Node: l.Ends[1-i].Node, NIC: l.Ends[i].Interface, Wire: wire}
				})
				for _, l := range part.Links {
					for _, e := range l.Ends {
						if n := part.Node(e.Node); n != nil && n.OSPF() == nil && e.OSPF() != nil {
							t.Fatalf("%b, wire %v: %s at %s has OSPF at %s", split, wire, n.Name, site, e.Interface)
						}
					}
				}
				for _, r := range OSPFOf(part) {
					if got := interfaces(r); fmt.Sprint(got) != fmt.Sprint(want[r.Node.Name]) {
						t.Fatalf("%b, wire %v: %s at %s has\n%q, of the whole\n%q", split, wire, r.Node.Name, site, got, want[r.Node.Name])
					}
				}
			}
		}
	}
}
