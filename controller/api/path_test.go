package api

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"trivet.dev/trivet/topology"
)

// names are the switches on the path.
func (w Way) names() string {
	var out []string
	for _, h := range w.Hops {
		out = append(out, h.Switch)
	}
	return strings.Join(out, " ")
}

// Proves that path predicts what the switches do: before anything is learned, every node that a
// flooded packet reaches, then the path to one node only; and that a dropping entry is named.
func TestPathOfLearning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "linear,4", "", "")
		p, err := b.Path(ctx, PathQuery{From: "h1", To: "h3"})
		b.must(err)
		flooded := map[string]bool{}
		for _, w := range p.Ways {
			flooded[w.End] = true
		}
		if got := b.ping("h1", "h3"); fmt.Sprint(got) != fmt.Sprint(flooded) || len(got) != 3 {
			t.Errorf("flooded to %v, path says %v", got, flooded)
		}
		if p.Arrives != "yes" || !p.Ways[0].Arrives || p.Ways[0].names() != "s1 s2 s3" || !strings.Contains(strings.Join(p.Why, ";"), "flooded along the spanning tree") {
			t.Errorf("path %+v", p)
		}
		for _, h := range []string{"h1", "h3"} {
			b.hello(h)
		}
		p, err = b.Path(ctx, PathQuery{From: "h1", To: "h3"})
		b.must(err)
		if got := b.ping("h1", "h3"); len(got) != 1 || !got["h3"] {
			t.Errorf("the packet has come to %v", got)
		}
		if len(p.Ways) != 1 || p.Ways[0].names() != "s1 s2 s3" || p.Ways[0].Hops[1].Entries[1].App != "learning" || p.Ways[0].Hops[1].Out != "s2-eth3" {
			t.Errorf("path %+v", p)
		}
		f, err := b.AddFlow(ctx, FlowRequest{Switch: "s2", Flow: "priority=100,tcp,tp_dst=80,actions=drop"})
		b.must(err)
		for tcp, arrives := range map[uint16]string{80: "no", 81: "yes"} {
			p, err = b.Path(ctx, PathQuery{From: "h1", To: b.host("h3").Addresses[0].Addr().String(), TCP: tcp})
			b.must(err)
			if p.Arrives != arrives {
				t.Errorf("TCP port %d: %+v", tcp, p)
			}
			if w := p.Ways[0]; arrives == "no" && (w.End != "s2" || w.Reason != fmt.Sprintf("dropped by the user's entry %d: tcp,tp_dst=80 actions=drop", f.ID)) {
				t.Errorf("where and why it ends: %s, %s", w.End, w.Reason)
			}
		}
	})
}

// Proves that across routers every equal-cost path is shown, that what the controller does for a
// neighbour whose MAC is not known yet is followed, and that the reason names cost and
// alternatives; and that the packet takes one of these paths.
func TestPathOfRouting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "ring,4", topology.Router, "")
		p, err := b.Path(ctx, PathQuery{From: "h1", To: "h3"})
		b.must(err)
		if p.Arrives != "yes" || len(p.Ways) != 2 || p.Ways[0].names() != "r1 r2 r3" || p.Ways[1].names() != "r1 r4 r3" {
			t.Fatalf("path %+v", p)
		}
		last := p.Ways[0].Hops[2]
		if !strings.Contains(last.Controller, "routing asks on r3-eth0 who has") || p.Ways[0].Hops[0].Choice != "1 of 2 by hash" {
			t.Errorf("last hop %+v, first choice %q", last, p.Ways[0].Hops[0].Choice)
		}
		if why := p.Why[0]; !strings.Contains(why, "by shortest path, cost 3, via r2 or r4 (2 of equal cost)") {
			t.Errorf("why: %s", why)
		}
		if got := b.ping("h1", "h3"); len(got) != 1 || !got["h3"] {
			t.Errorf("the packet has come to %v", got)
		}
		b.wait("the neighbour's entry is there", func() bool {
			p, err = b.Path(ctx, PathQuery{From: "h1", To: "h3"})
			b.must(err)
			return p.Ways[0].Hops[2].Controller == "" && p.Arrives == "yes"
		})
		p, err = b.Path(ctx, PathQuery{From: "h1", To: "h2"})
		b.must(err)
		if len(p.Ways) != 1 || len(p.Why) != 2 || !strings.HasSuffix(p.Why[1], "r1: via r4 it would cost 4") {
			t.Errorf("to a neighbour: why %q", p.Why)
		}
		p, err = b.Path(ctx, PathQuery{From: "h1", To: "r3"})
		b.must(err)
		if p.Arrives != "yes" || p.Ways[0].End != "r3" {
			t.Errorf("to a router: %+v", p)
		}
		p, err = b.Path(ctx, PathQuery{From: "r2", To: "h4"})
		b.must(err)
		if p.Arrives != "yes" || len(p.Ways) != 2 || p.Ways[0].Hops[0].In != "" {
			t.Errorf("from a router: %+v", p)
		}
		// A user's entry blocks one of two paths: some packets still arrive.
		_, err = b.AddFlow(ctx, FlowRequest{Switch: "r4", Flow: "priority=200,ip,nw_dst=" + b.host("h3").Addresses[0].Addr().String() + ",actions=drop"})
		b.must(err)
		p, err = b.Path(ctx, PathQuery{From: "h1", To: "h3"})
		b.must(err)
		if p.Arrives != "partly" || !p.Ways[0].Arrives || p.Ways[1].Arrives {
			t.Errorf("with one way cut: %+v", p)
		}
	})
}

// Proves that two routes that point at each other are reported as a loop.
func TestPathInACircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "linear,2", "", "")
		to := b.host("h2")
		for _, s := range []string{"s1", "s2"} {
			for _, port := range []int{1, 2} {
				_, err := b.AddFlow(ctx, FlowRequest{Switch: s, Flow: fmt.Sprintf("priority=200,in_port=%d,ip,nw_dst=%v,actions=set_field:%v->eth_src,output:%d",
					port, to.Addresses[0].Addr(), to.MAC, inner(b, s))})
				b.must(err)
			}
			_, err := b.AddFlow(ctx, FlowRequest{Switch: s, Flow: fmt.Sprintf("priority=201,in_port=%d,ip,nw_dst=%v,actions=set_field:%v->eth_src,in_port",
				inner(b, s), to.Addresses[0].Addr(), to.MAC)})
			b.must(err)
		}
		p, err := b.Path(ctx, PathQuery{From: "h1", To: "h2"})
		b.must(err)
		if p.Arrives != "no" || p.Ways[0].Reason != "it goes round in a loop" {
			t.Errorf("path %+v", p)
		}
	})
}

// inner is the port of a switch of linear,2 that leads to the other.
func inner(b *fixture, name string) uint32 {
	for n, p := range b.c.Map().Switch(b.agents[name].Switch().DatapathID()).Ports {
		if p.PeerNumber != 0 {
			return n
		}
	}
	b.t.Fatal("no inner port")
	return 0
}

// Proves that an unknown name is reported, with the names that exist.
func TestPathToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "linear,2", "", "")
		for to, reason := range map[string]string{"h9": `there is no host or router "h9"; did you mean h1?`, "s2": "a switch has no address of its own",
			"h1": "h1 is both source and destination", "02:00:00:00:00:77": "nobody has the MAC"} {
			_, err := b.Path(ctx, PathQuery{From: "h1", To: to})
			refused(t, err, reason)
		}
		p, err := b.Path(ctx, PathQuery{From: "h1", To: "10.0.0.77"})
		b.must(err)
		if p.Arrives != "no" || !strings.Contains(p.Ways[0].Reason, "h1 asks who has 10.0.0.77") {
			t.Errorf("path %+v", p)
		}
	})
}
