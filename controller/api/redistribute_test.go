package api

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller/ospf"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/routing/rib"
	"trivet.dev/trivet/topology"
)

// rip is a protocol of its own beside OSPF, as an app may speak it: routers announce to their
// neighbours what the feed says that they redistribute into it, in the packets of RIP version 2
// (RFC 2453, section 4), and use what they hear.
type rip struct {
	app  *routing.App
	feed *routing.Feed

	mu    sync.Mutex
	tells map[uint64]map[netip.Prefix]*routing.Route
	heard map[uint64][]routing.Learned
}

func speakRIP(b *fixture, routers ...uint64) *rip {
	r := &rip{app: b.c.Routing, tells: map[uint64]map[netip.Prefix]*routing.Route{}, heard: map[uint64][]routing.Learned{}}
	b.must(r.app.Speak(routing.Protocol{Name: "rip", Distance: 120, Speaker: r,
		Wants: []routing.Wanted{{Protocol: 17, Groups: []netip.Prefix{netip.MustParsePrefix("224.0.0.9/32")}, Port: 520}}}))
	r.app.SetSpeakers("rip", routers)
	r.feed = r.app.Redistributed("rip", func() {})
	return r
}

// tell announces what a router redistributes, out of a port.
func (r *rip) tell(dpid uint64, port uint32, from netip.Addr) {
	r.mu.Lock()
	for _, u := range r.feed.Take() {
		of := r.tells[u.Key.Router]
		if of == nil {
			of = map[netip.Prefix]*routing.Route{}
			r.tells[u.Key.Router] = of
		}
		if of[u.Key.Prefix] = u.Value; u.Gone {
			delete(of, u.Key.Prefix)
		}
	}
	message := []byte{2, 2, 0, 0}
	for p := range r.tells[dpid] {
		e := make([]byte, 20)
		e[1] = 2
		copy(e[4:], p.Addr().AsSlice())
		binary.BigEndian.PutUint32(e[8:], ^uint32(0)<<(32-p.Bits()))
		e[19] = 1
		message = append(message, e...)
	}
	r.mu.Unlock()
	udp := append([]byte{2, 8, 2, 8, 0, byte(8 + len(message)), 0, 0}, message...)
	ip := append([]byte{0x45, 0, 0, byte(20 + len(udp)), 0, 0, 0, 0, 1, 17, 0, 0}, append(from.AsSlice(), 224, 0, 0, 9)...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	r.app.SendIP(dpid, port, append(ip, udp...))
}

func (r *rip) Receive(dpid uint64, port uint32, packet []byte) {
	from, _ := netip.AddrFromSlice(packet[12:16])
	var list []routing.Learned
	for e := packet[32:]; len(e) >= 20; e = e[20:] {
		a, _ := netip.AddrFromSlice(e[4:8])
		bits := 0
		for mask := binary.BigEndian.Uint32(e[8:]); mask != 0; mask <<= 1 {
			bits++
		}
		list = append(list, routing.Learned{Prefix: netip.PrefixFrom(a, bits), Metric: uint32(e[19]) + 1, Hops: []routing.LearnedHop{{Port: port, Via: from}}})
	}
	slices.SortFunc(list, func(a, b routing.Learned) int { return a.Prefix.Compare(b.Prefix) })
	r.mu.Lock()
	r.heard[dpid] = list
	r.mu.Unlock()
	go r.app.Refresh("a message of RIP")
}

func (r *rip) Routes(dpid uint64) []routing.Learned {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard[dpid]
}

func (r *rip) RouteTo(dpid uint64, p netip.Prefix) (routing.Learned, bool) {
	return routing.Find(r.Routes(dpid), p)
}

func (r *rip) Networks() (out []netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range r.heard {
		for _, l := range list {
			out = append(out, l.Prefix)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

func (*rip) Settled() bool { return true }

// ospfRing is a ring of three routers that speak OSPF, with rules of redistribution.
func ospfRing(t *testing.T, rules map[string][]string) *fixture {
	t.Helper()
	top, err := topology.Generate("ring,3", topology.GenerateOptions{Nodes: topology.Router})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range top.Nodes {
		if n.Kind != topology.Router {
			continue
		}
		n.Protocols.Set(&topology.OSPF{})
		for _, text := range rules[n.Name] {
			if strings.Contains(text, "into") {
				r, err := topology.ParseRedistribute(text)
				if err != nil {
					t.Fatal(err)
				}
				n.Redistribute = append(n.Redistribute, r)
				continue
			}
			r, err := topology.ParseOSPFRedistribute(text)
			if err != nil {
				t.Fatal(err)
			}
			n.OSPF().Redistribute = append(n.OSPF().Redistribute, r)
		}
	}
	return newFixtureOf(t, top, "")
}

// has waits until a router uses a route of a source with a tag; "" is none.
func (b *fixture) has(router, prefix, source string, tag uint32) {
	b.t.Helper()
	b.wait(fmt.Sprintf("%s has %s by %q with tag %d", router, prefix, source, tag), func() bool {
		list, err := b.Routes(ctx, router, prefix)
		b.must(err)
		used := slices.IndexFunc(list.Routes, func(r Route) bool { return r.Used })
		return used < 0 && source == "" || used >= 0 && list.Routes[used].Source == source && list.Routes[used].Tag == tag
	})
}

// told waits until what routers redistribute into a target is this, by "ROUTER PREFIX METRIC TAG".
func (b *fixture) told(into string, want func(string) bool, what string) {
	b.t.Helper()
	b.wait(what, func() bool { return slices.ContainsFunc(b.toldNow(into), want) })
}

func (b *fixture) toldNow(into string) (out []string) {
	b.t.Helper()
	list, err := b.Redistributed(ctx, into)
	b.must(err)
	for _, r := range list.Routes {
		out = append(out, fmt.Sprint(r.Router, " ", r.Prefix, " ", r.Metric, " ", r.Tag))
	}
	return out
}

// Proves that routers speak two protocols at once, each by packets of its own, with candidates of
// both for one prefix of which the less distance counts; that what one has found is redistributed
// into the other, with a tag that keeps it from going back; and that a router which does not speak
// one any more has no routes of it.
func TestTwoProtocols(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := ospfRing(t, map[string][]string{"r1": {"static into rip"}, "r2": {"protocol rip"}, "r3": {"ospf into rip", "static 10.61.0.0/16"}})
		dpid := func(name string) uint64 { return uint64(b.topology.Node(name).DPID) }
		r := speakRIP(b, dpid("r1"), dpid("r2"), dpid("r3"))
		for _, prefix := range []string{"10.60.0.0/16", "10.61.0.0/16"} {
			b.must(b.AddRoute(ctx, RouteRequest{Router: "r1", Prefix: netip.MustParsePrefix(prefix)}))
		}
		b.must(b.AddRoute(ctx, RouteRequest{Router: "r3", Prefix: netip.MustParsePrefix("10.61.0.0/16")}))
		b.told("rip", func(s string) bool { return s == "r1 10.60.0.0/16 1 0" }, "r1 tells RIP of its static route")
		var port uint32
		var from netip.Addr
		for _, l := range b.topology.Links {
			for i, e := range l.Ends {
				if e.Node == "r1" && l.Ends[1-i].Node == "r2" {
					port, from = b.topology.Node("r1").OpenFlowPort(e), e.Addresses[0].Addr()
				}
			}
		}
		tell := func() { r.tell(dpid("r1"), port, from) }
		b.wait("r2 has heard", func() bool { tell(); return len(r.Routes(dpid("r2"))) == 2 })
		b.has("r2", "10.60.0.0/16", "rip", 0)
		b.has("r2", "10.61.0.0/16", "ospf", 0) // 110, of r3
		list, err := b.Routes(ctx, "r2", "10.61.0.0/16")
		b.must(err)
		if i := slices.IndexFunc(list.Routes, func(r Route) bool { return r.Source == "rip" }); i < 0 || list.Routes[i].Why != "distance 120, not 110" || list.Routes[i].Metric != 2 {
			t.Errorf("beside OSPF's: %+v", list.Routes)
		}

		b.has("r3", "10.60.0.0/16", "ospf", rib.TagOf("rip"))
		h1 := b.host("h1").Addresses[0].Masked()
		b.told("rip", func(s string) bool {
			return strings.HasPrefix(s, "r3 "+h1.String()) && strings.HasSuffix(s, fmt.Sprint(rib.TagOf("ospf")))
		}, "r3 tells RIP of what OSPF has found")
		if all := b.toldNow("rip"); slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, "r3 10.60.") }) {
			t.Errorf("what has come from RIP goes back: %v", all)
		}

		b.c.Routing.SetSpeakers("rip", []uint64{dpid("r1")})
		b.has("r2", "10.60.0.0/16", "", 0)
		b.has("r3", "10.60.0.0/16", "", 0)
		b.wait("OSPF is Full", func() bool {
			n, err := b.OSPFNeighbors(ctx, "r2")
			b.must(err)
			return len(n) == 2
		})
	})
}

// Proves that a program is told what routers redistribute into it, by the first rule that matches,
// with the metric and tag that it sets; of changes as well, also of rules; that what the program
// has given is not told to it, nor announced by OSPF if it has come from there, as the tag says
// which the program hands on: without the tag it is.
func TestRedistributeIntoPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := ospfRing(t, map[string][]string{
			"r1": {"deny static tag 7 into bgp", "static 10.0.0.0/8 le 24 set metric 9 tag 5 into bgp", "static 0.0.0.0/0 into other", "program into bgp"},
			"r3": {"ospf into bgp", "program bgp"}})
		add := func(prefix string, tag uint32) {
			b.must(b.AddRoute(ctx, RouteRequest{Router: "r1", Prefix: netip.MustParsePrefix(prefix), Tag: tag}))
		}
		add("10.60.0.0/16", 0)
		add("10.61.0.0/16", 7)
		add("10.62.0.0/25", 0)
		add("172.30.0.0/16", 0)
		add("0.0.0.0/0", 0)
		h2 := b.host("h2").Addresses[0].Masked()
		give := func(name string, routes ...ProgramRoute) {
			b.must(b.SetProgram(ctx, name, ProgramRequest{Routes: routes}))
		}
		via := b.host("h3").Addresses[0].Addr()
		give("bgp", ProgramRoute{Router: "r1", Prefix: netip.MustParsePrefix("10.63.0.0/16")})
		give("sdwan", ProgramRoute{Router: "r1", Prefix: netip.MustParsePrefix("10.64.0.0/16")})
		ofR1 := func() (out []string) {
			for _, s := range b.toldNow("bgp") {
				if strings.HasPrefix(s, "r1 ") {
					out = append(out, s)
				}
			}
			return out
		}
		want := []string{"r1 10.60.0.0/16 9 5", fmt.Sprintf("r1 10.64.0.0/16 1 %d", rib.TagOf("sdwan"))}
		b.wait("r1 tells bgp", func() bool { return slices.Equal(ofR1(), want) })
		if other := b.toldNow("other"); !slices.Equal(other, []string{"r1 0.0.0.0/0 1 0"}) {
			t.Errorf("another is told %v", other)
		}
		b.told("bgp", func(s string) bool { return s == fmt.Sprintf("r3 %v 2 %d", h2, rib.TagOf("ospf")) }, "r3 tells bgp of OSPF's routes")

		mark := ProgramRoute{Router: "r3", Prefix: netip.MustParsePrefix("10.65.0.0/16")} // comes when all of the request has
		give("bgp", ProgramRoute{Router: "r3", Prefix: h2, Via: []netip.Addr{via}, Tag: rib.TagOf("ospf")}, mark)
		b.has("r3", h2.String(), "program bgp", rib.TagOf("ospf"))
		b.has("r2", mark.Prefix.String(), "ospf", rib.TagOf("bgp"))
		if externalOf(b, h2) {
			t.Error("OSPF announces what a program has from OSPF")
		}
		mark.Prefix = netip.MustParsePrefix("10.66.0.0/16")
		give("bgp", ProgramRoute{Router: "r3", Prefix: h2, Via: []netip.Addr{via}}, mark)
		b.wait("OSPF announces what has no tag", func() bool { return externalOf(b, h2) })

		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		told, step := map[string]string{}, 0
		err := b.Events(ctx, EventQuery{Into: "bgp"}, func(name string, data []byte) error {
			if name != "route" {
				return nil
			}
			var e RouteEvent
			b.must(json.Unmarshal(data, &e))
			if e.Router != "r1" {
				return nil
			}
			if e.Into != "bgp" {
				t.Errorf("told of %+v", e)
			}
			if told[e.Prefix.String()] = fmt.Sprint(e.Metric, " ", e.Tag); e.Gone {
				delete(told, e.Prefix.String())
			}
			switch {
			case step == 0 && len(told) == 2:
				step = 1
				go add("10.67.0.0/16", 0)
			case step == 1 && told["10.67.0.0/16"] == "9 5":
				step = 2
				go add("10.67.0.0/16", 7) // which is denied
			case step == 2 && told["10.67.0.0/16"] == "":
				step = 3
				next := b.topology.Clone()
				next.Node("r1").Redistribute = next.Node("r1").Redistribute[1:2]
				go func() { b.must(b.c.Configure(next)) }()
			case step == 3 && len(told) == 3 && told["10.61.0.0/16"] == "9 5" && told["10.67.0.0/16"] == "9 5":
				return errDone
			}
			return nil
		})
		if !errors.Is(err, errDone) {
			t.Errorf("%v; step %d, told %v", err, step, told)
		}
	})
}

// externalOf says whether r2 has heard of an external route to a network.
func externalOf(b *fixture, p netip.Prefix) bool {
	b.t.Helper()
	lsas, err := b.OSPFDatabase(ctx, "r2")
	b.must(err)
	return slices.ContainsFunc(lsas, func(l ospf.LSA) bool { return l.Type == "external" && l.ID.String() == p.Addr().String() })
}
