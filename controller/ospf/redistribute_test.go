package ospf

import (
	"net/netip"
	"testing"
	"time"

	"trivet.dev/trivet/controller/routing"
	engine "trivet.dev/trivet/routing/ospf"
	"trivet.dev/trivet/topology"
)

// rules reads rules of redistribution, with what they leave open as topology.OSPFOf sets it.
func rules(t *testing.T, texts ...string) (out []topology.OSPFRedistribute) {
	for _, text := range texts {
		r, err := topology.ParseOSPFRedistribute(text)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Deny && r.Metric == 0 {
			r.Metric = 20
		}
		if !r.Deny && r.Type == 0 {
			r.Type = 2
		}
		out = append(out, r)
	}
	return out
}

// uses says which route a router uses for a prefix from now on; nil: none.
func (s *sim) uses(router uint64, prefix string, r *routing.Route) {
	u := routing.Update{Key: routing.Place{Router: router, Prefix: netip.MustParsePrefix(prefix)}, Value: r, Gone: r == nil}
	s.used.take([]routing.Update{u})
}

// external is what is announced of a network, by whom: metric and type, tag, forwarding address.
func (s *sim) external(prefix string) (out map[engine.ID]engine.ExternalLSA) {
	out = map[engine.ID]engine.ExternalLSA{}
	for _, l := range s.domain.Externals() {
		if l.Prefix() == netip.MustParsePrefix(prefix) && l.Age < engine.MaxAge {
			out[l.AdvRouter], _ = engine.DecodeExternal(l.Body)
		}
	}
	return out
}

// Proves that what a router uses from elsewhere is announced by the first rule that matches, with
// its metric, type, tag and forwarding address, as long as it is used; and that a route of OSPF's
// own is not.
func TestRedistribute(t *testing.T) {
	s := newSim(t, 2)
	s.link(1, 2)
	r := &s.config.Routers[0]
	r.Off = []Network{{7, netip.MustParsePrefix("192.0.2.1/24")}}
	r.Redistribute = rules(t, "deny static 10.20.3.0/24", "static 10.20.0.0/16 le 24 tag 7 metric 5 type 1", "static 10.20.0.0/16 le 32 set metric 6 tag 9",
		"connected", "default metric 1", "static 0.0.0.0/0 metric 3")
	s.start()
	via := func(a string) []routing.Hop { return []routing.Hop{{Port: 7, Via: netip.MustParseAddr(a)}} }
	static := func(tag uint32, hops []routing.Hop) *routing.Route {
		return &routing.Route{Source: routing.Static, Tag: tag, Hops: hops, Drop: hops == nil}
	}
	step := func() {
		s.redistribute(s.now)
		s.run(5 * time.Second)
	}
	s.uses(1, "10.20.1.0/24", static(7, via("192.0.2.9")))
	s.uses(1, "10.20.2.0/24", static(8, via("10.100.1.9"))) // on a network that OSPF has
	s.uses(1, "10.20.3.0/24", static(7, via("192.0.2.9")))
	s.uses(1, "10.20.4.0/24", static(0, nil)) // discards
	s.uses(1, "10.30.0.0/16", static(7, via("192.0.2.9")))
	s.uses(1, "192.0.2.0/24", &routing.Route{Source: routing.Connected})
	s.uses(1, "10.100.1.0/24", &routing.Route{Source: routing.Connected})
	s.uses(1, "10.20.5.0/24", &routing.Route{Source: routing.Spoken, Name: "ospf", Hops: via("192.0.2.9")})
	s.uses(1, "10.20.6.0/24", &routing.Route{Source: routing.Fallback, Hops: via("192.0.2.9")})
	s.uses(1, "0.0.0.0/0", static(0, via("192.0.2.9")))
	step()
	for prefix, want := range map[string]engine.ExternalLSA{
		"10.20.1.0/24":  {Metric: 5, Tag: 7},
		"10.20.2.0/24":  {Metric: 6, Type2: true, Tag: 9, Forward: engine.IDOf(netip.MustParseAddr("10.100.1.9"))},
		"10.20.4.0/24":  {Metric: 6, Type2: true, Tag: 9},
		"192.0.2.0/24":  {Metric: 20, Type2: true},
		"0.0.0.0/0":     {Metric: 1, Type2: true},
		"10.20.3.0/24":  {},
		"10.20.5.0/24":  {},
		"10.20.6.0/24":  {},
		"10.30.0.0/16":  {},
		"10.100.1.0/24": {},
	} {
		got, ok := s.external(prefix)[1]
		if want.Metric > 0 {
			want.Mask = got.Mask
		}
		if ok != (want.Metric > 0) || got != want {
			t.Errorf("%s is announced as %+v (%v), want %+v", prefix, got, ok, want)
		}
	}
	s.wantRoute(2, "10.20.1.0/24", "6 172.16.0.1@2")
	s.wantRoute(2, "10.20.2.0/24", "6 172.16.0.1@2")
	if l, _ := s.routeTo(2, netip.MustParsePrefix("10.20.2.0/24")); l.Tag != 9 {
		t.Errorf("r2 has it with tag %d", l.Tag)
	}
	s.uses(1, "10.20.1.0/24", nil)
	s.uses(1, "192.0.2.0/24", nil)
	step()
	s.wantRoute(2, "10.20.1.0/24", "")
	s.wantRoute(2, "192.0.2.0/24", "")
	s.wantRoute(2, "0.0.0.0/0", "1 172.16.0.1@2")
	s.config.Routers[0].Redistribute = rules(t, "static 0.0.0.0/0 metric 3")
	if err := s.configure(s.now, s.config); err != nil {
		t.Fatal(err)
	}
	step()
	s.wantRoute(2, "10.20.2.0/24", "")
	s.wantRoute(2, "0.0.0.0/0", "3 172.16.0.1@2")
	s.uses(1, "0.0.0.0/0", nil)
	step()
	s.wantRoute(2, "0.0.0.0/0", "")
}

// Proves that routers of which each trusts OSPF more than its own route to a network agree on one
// that announces it, instead of all going by each other's announcements, which then end, and
// beginning anew; and that another takes its place when its route is gone.
func TestGiveWay(t *testing.T) {
	const routers, network = 4, "10.20.0.0/16"
	s := newSim(t, routers)
	for i := range routers {
		s.link(i+1, (i+1)%routers+1)
		s.config.Routers[i].Redistribute = rules(t, "static")
	}
	s.start()
	static := &routing.Route{Source: routing.Static, Distance: 200, Drop: true}
	have := map[uint64]bool{1: true, 2: true, 3: true, 4: true}
	changes := 0
	for step := range 15000 { // of 10 ms
		if step == 10000 {
			for id := range s.external(network) {
				have[uint64(id)] = false
			}
		}
		for dpid := range uint64(routers) {
			if step%10 > 0 {
				break // what routing tells is older than what OSPF knows
			}
			switch l, ok := s.routeTo(dpid+1, netip.MustParsePrefix(network)); {
			case ok:
				s.uses(dpid+1, network, &routing.Route{Source: routing.Spoken, Name: "ospf", Metric: l.Metric})
			case have[dpid+1]:
				s.uses(dpid+1, network, static)
			default:
				s.uses(dpid+1, network, nil)
			}
		}
		before := len(s.external(network))
		s.redistribute(s.now)
		s.run(10 * time.Millisecond)
		if n := len(s.external(network)); n != before {
			changes++
		} else if (step > 3000 && step < 10000 || step > 13000) && n != 1 {
			t.Fatalf("after %d steps %d routers announce the network", step, n)
		}
	}
	if changes == 0 || changes > 12 {
		t.Errorf("%d times others announced it", changes)
	}
}
