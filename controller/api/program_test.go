package api

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/topology"
)

// Proves that a program's routes are a source of their own, with its distance: they are used in
// place of shortest paths and behind static ones, replaced as a whole, taken back as a whole; one
// whose next hop nothing leads to waits until something does; and that a request with one that is
// no route, or is there twice, changes nothing.
func TestProgramRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "ring,3", topology.Router, "")
		b.wait("the routers have routes", func() bool { return len(b.c.Switches()) == 3 && len(b.c.Routing.Missing()) == 0 })
		h1, h2 := b.host("h1").Addresses[0], b.host("h2").Addresses[0]
		to := netip.MustParsePrefix
		route := func(prefix string, via ...netip.Addr) ProgramRoute {
			return ProgramRoute{Router: "r1", Prefix: to(prefix), Via: via, Tag: 7}
		}
		used := func(prefix string) string {
			routes, err := b.Routes(ctx, "r1", prefix)
			b.must(err)
			for _, r := range routes.Routes {
				if r.Used {
					return r.Source
				}
			}
			return ""
		}
		is := func(prefix, source string) {
			t.Helper()
			b.wait(prefix+" is used from "+source, func() bool { return used(prefix) == source })
		}
		b.must(b.SetProgram(ctx, "sdwan", ProgramRequest{Routes: []ProgramRoute{route("10.99.0.0/16", h1.Addr()), route(h2.Masked().String(), h1.Addr()),
			route("10.98.0.0/16", netip.MustParseAddr("10.97.0.1"))}}))
		is("10.99.0.0/16", "program sdwan")
		is(h2.Masked().String(), "program sdwan")
		is("10.98.0.0/16", "")
		b.must(b.AddRoute(ctx, RouteRequest{Router: "r1", Prefix: to("10.99.0.0/16"), Via: []netip.Addr{h1.Addr()}}))
		is("10.99.0.0/16", "static")
		b.must(b.SetProgram(ctx, "other", ProgramRequest{Distance: 10, Routes: []ProgramRoute{route("10.97.0.0/16", h1.Addr()), route("10.99.0.0/16")}}))
		is("10.98.0.0/16", "program sdwan") // behind what the other program has given
		b.must(b.DeleteRoute(ctx, "r1", "10.99.0.0/16"))
		is("10.99.0.0/16", "program other")

		refused(t, b.SetProgram(ctx, "sdwan", ProgramRequest{Routes: []ProgramRoute{route("10.96.0.0/16"), route("10.95.0.0/16", netip.MustParseAddr("fd00::1"))}}),
			"route 2, r1 10.95.0.0/16", "different IP versions")
		refused(t, b.SetProgram(ctx, "sdwan", ProgramRequest{Routes: []ProgramRoute{route("10.96.0.0/16", h1.Addr()), route("10.95.0.0/16"), route("10.96.0.0/16", h1.Addr())}}),
			"route 3, r1 10.96.0.0/16", "route 1 is the same")
		for _, via := range []string{"fe80::1%eth0", "ff02::1", "::"} {
			refused(t, b.SetProgram(ctx, "sdwan", ProgramRequest{Routes: []ProgramRoute{route("fd96::/64", netip.MustParseAddr(via))}}), "route 1", "cannot be a next hop")
		}
		refused(t, b.SetProgram(ctx, "sdwan", ProgramRequest{Routes: []ProgramRoute{route("10.96.0.0/16", h1.Addr(), h1.Addr())}}), "is there twice")
		bad := route("10.96.0.0/16")
		bad.Router = "r9"
		refused(t, b.SetProgram(ctx, "sdwan", ProgramRequest{Routes: []ProgramRoute{bad}}), "there is no router \"r9\"")
		refused(t, b.SetProgram(ctx, "No", ProgramRequest{Routes: []ProgramRoute{}}), "validation")
		is("10.96.0.0/16", "")
		is("10.98.0.0/16", "program sdwan")

		b.must(b.DropProgram(ctx, "other"))
		is("10.99.0.0/16", "program sdwan")
		is("10.98.0.0/16", "")
		b.must(b.SetProgram(ctx, "sdwan", ProgramRequest{Routes: []ProgramRoute{route("10.94.0.0/16")}}))
		is("10.94.0.0/16", "program sdwan")
		is("10.99.0.0/16", "")
		is(h2.Masked().String(), "shortest path")
		b.must(b.DropProgram(ctx, "sdwan"))
		is("10.94.0.0/16", "")
		refused(t, b.DropProgram(ctx, "sdwan"), "no such route")
	})
}

// slow is a protocol without routes, which says so when nobody has put something into it.
type slow chan bool

func (s slow) Routes(uint64) []routing.Learned {
	s <- true
	<-s
	return nil
}
func (slow) RouteTo(uint64, netip.Prefix) (l routing.Learned, is bool) { return l, false }
func (slow) Networks() []netip.Prefix                                  { return nil }
func (slow) Settled() bool                                             { return true }
func (slow) Receive(uint64, uint32, []byte)                            {}

// Proves that who adds routes, or takes them back, is answered when the router's entries are what
// was asked for, however long that takes; and that who waits for its turn meanwhile may give up.
func TestAnsweredWhenInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "ring,3", topology.Router, "")
		s := make(slow, 1)
		b.must(b.c.Routing.Speak(routing.Protocol{Name: "slow", Distance: 120, Speaker: s}))
		b.c.Routing.SetSpeakers("slow", []uint64{uint64(b.topology.Node("r1").DPID)})
		b.wait("r1 speaks the protocol", b.c.Routing.Quiet)
		prefix := netip.MustParsePrefix("10.99.0.0/16")
		for i, change := range []func() error{
			func() error { return b.AddRoute(ctx, RouteRequest{Router: "r1", Prefix: prefix}) },
			func() error { return b.DeleteRoute(ctx, "r1", prefix.String()) },
			func() error {
				return b.SetProgram(ctx, "sdwan", ProgramRequest{Routes: []ProgramRoute{{Router: "r1", Prefix: prefix}}})
			},
			func() error { return b.DropProgram(ctx, "sdwan") },
		} {
			s <- true
			answer := make(chan error, 1)
			go func() { answer <- change() }()
			select {
			case err := <-answer:
				t.Errorf("change %d is answered while routes are computed: %v", i, err)
				answer <- err
			case <-time.After(time.Second):
			}
			impatient, cancel := context.WithTimeout(ctx, time.Second)
			if err := b.c.AddRoute(impatient, builtin.UserRoute{Router: "r2", Prefix: prefix}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who gives up during change %d: %v", i, err)
			}
			cancel()
			<-s
			b.must(<-answer)
			flows, err := b.Flows(ctx, "r1")
			b.must(err)
			if has := slices.ContainsFunc(flows.Flows, func(f Flow) bool { return strings.Contains(f.Match, prefix.String()) }); has != (i%2 == 0) {
				t.Errorf("after change %d the router has an entry: %v", i, has)
			}
		}
	})
}
