package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

var errDone = errors.New("enough")

// Proves that a reader of events is told of a new host with its name, of a cut link (both
// directions), that routers have been given other ways, of a switch that disconnects, and, on
// request, of samples.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "ring,4", topology.Router, "")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		links, seen := 0, map[string]bool{}
		err := b.Events(ctx, EventQuery{Samples: true}, func(name string, data []byte) error {
			switch name {
			case "ready":
				go func() {
					b.hello("h2")
					r1 := b.agents["r1"].Switch()
					r1.SetPortState(2, openflow.PortStateLinkDown)
				}()
			case "host":
				var e HostEvent
				b.must(json.Unmarshal(data, &e))
				seen["host"] = seen["host"] || e.Host == "h2" && e.At.Interface == "r2-eth0" && len(e.Addresses) == 1
			case "link":
				var e LinkEvent
				b.must(json.Unmarshal(data, &e))
				if names := e.From.Node + e.To.Node; !e.Up && (names == "r1r2" || names == "r2r1") {
					links++
				}
			case "rerouted":
				var e RerouteEvent
				b.must(json.Unmarshal(data, &e))
				if e.Changed > 0 && links > 0 && !seen["rerouted"] {
					seen["rerouted"] = true
					b.agents["r3"].Close()
				}
			case "switch":
				var e SwitchEvent
				b.must(json.Unmarshal(data, &e))
				seen["switch"] = seen["switch"] || e.Switch == "r3" && !e.Up
			case "sample":
				var e SampleEvent
				b.must(json.Unmarshal(data, &e))
				seen["sample"] = seen["sample"] || len(e.Ports) == 3 && strings.HasPrefix(e.Switch, "r")
			}
			if links == 2 && seen["host"] && seen["rerouted"] && seen["switch"] && seen["sample"] {
				return errDone
			}
			return nil
		})
		if !errors.Is(err, errDone) {
			t.Fatalf("%v; links %d, seen %v", err, links, seen)
		}
	})
}

// Proves that events never wait for a reader: one that does not read is told that some were lost.
func TestSlowReader(t *testing.T) {
	q := newQueue()
	for range streamQueue {
		q.put(builtin.Event{})
	}
	select {
	case <-q.full:
		t.Fatal("told too early")
	default:
	}
	q.put(builtin.Event{})
	q.put(builtin.Event{})
	select {
	case <-q.full:
	default:
		t.Fatal("not told")
	}
}

// Proves that the number of streams is limited, and that they end with a reason when the controller
// does.
func TestStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "linear,2", "", "")
		opened, ended := make(chan bool, maxStreams+1), make(chan string, maxStreams+1)
		for range maxStreams + 1 {
			go func() {
				reason := "cut"
				_ = b.Events(context.Background(), EventQuery{}, func(name string, data []byte) error {
					switch name {
					case "ready":
						opened <- true
					case "end":
						var e EndEvent
						_ = json.Unmarshal(data, &e)
						reason = e.Reason
					}
					return nil
				})
				ended <- reason
			}()
		}
		for range maxStreams {
			<-opened
		}
		if r := <-ended; !strings.Contains(r, "too many") {
			t.Errorf("the last stream ends with: %s", r)
		}
		b.c.Close()
		for range maxStreams {
			if r := <-ended; r != "the controller is stopping" {
				t.Fatalf("a stream ends with: %s", r)
			}
		}
	})
}

// Proves that statistics, topology and metrics show the traffic that was sent, by name.
func TestStatistics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "linear,3", "", "")
		b.hello("h1")
		b.hello("h3")
		var s Statistics
		b.wait("the counters are read", func() bool { // while there is a load, as rates are of the last moments
			b.send("h1", echoRequest(b.host("h1").MAC, b.host("h3").MAC, b.host("h1").Addresses[0].Addr(), b.host("h3").Addresses[0].Addr()))
			for len(b.arrived) > 0 {
				<-b.arrived
			}
			var err error
			s, err = b.Statistics(ctx)
			b.must(err)
			for _, p := range s.Ports {
				if p.Name == "s1-eth1" && p.RxPackets != nil && *p.RxPackets >= 20 && p.RxRate != nil && *p.RxRate > 0 {
					return len(s.Links) == 5
				}
			}
			return false
		})
		if l := s.Links[0]; l.Busier() == 0 || l.Utilisation != nil || l.Capacity[0] != 0 { // a link without a bandwidth has no capacity
			t.Errorf("the busiest link: %+v", l)
		}
		arp := false
		for _, p := range s.PacketsIn {
			arp = arp || p.Protocol == "arp" && p.Packets >= 2
		}
		if !arp || s.Load.MemoryBytes == 0 || s.Load.CPUSeconds == 0 {
			t.Errorf("packets in %+v, load %+v", s.PacketsIn, s.Load)
		}
		top, err := b.Topology(ctx)
		b.must(err)
		if len(top.Switches) != 3 || len(top.Hosts) != 3 || top.Hosts[0].Name != "h1" || top.Hosts[0].Seen == nil || top.Hosts[1].Seen != nil {
			t.Errorf("hosts %+v", top.Hosts)
		}
		if p := top.Switches[1].Ports[1]; p.Kind != "inner" || p.Peer == "" || !p.Up {
			t.Errorf("port %+v", p)
		}
		resp, err := b.do(ctx, "GET", "/metrics", nil)
		b.must(err)
		text, err := io.ReadAll(resp.Body)
		b.must(err)
		for _, want := range []string{"trivet_switches 3", `trivet_packet_in_total{protocol="arp"}`, "process_cpu_seconds_total", "go_goroutines"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
		o, err := b.Overview(ctx)
		b.must(err)
		if o.Switches != 3 || o.Links != 2 || o.Hosts != 2 {
			t.Errorf("overview %+v", o)
		}
	})
}

// Proves that a reader is told all routes that a router uses, then what becomes of them: a static
// route that is added and taken back, each once, and the shortest paths that take another way when
// a link is cut; and nothing of other routers. One that is no router ends the stream with the
// reason.
func TestRouteEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, "ring,4", topology.Router, "")
		b.wait("the routers have routes", func() bool { return len(b.c.Switches()) == 4 && len(b.c.Routing.Missing()) == 0 })
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var changes sync.WaitGroup // which are answered when routers have followed, after the reader has been told
		defer changes.Wait()
		all, err := b.Routes(ctx, "r1", "")
		b.must(err)
		static := netip.MustParsePrefix("10.99.0.0/16")
		used, told := map[netip.Prefix]Route{}, map[bool]int{}
		err = b.Events(ctx, EventQuery{Routes: []string{"r1"}}, func(name string, data []byte) error {
			if name != "route" {
				return nil
			}
			var e RouteEvent
			b.must(json.Unmarshal(data, &e))
			if e.Router != "r1" {
				t.Errorf("told of %s", e.Router)
			}
			if used[e.Prefix] = e.Route; e.Gone {
				delete(used, e.Prefix)
			}
			switch {
			case e.Prefix == static:
				if told[e.Gone]++; e.Gone {
					b.agents["r1"].Switch().SetPortState(2, openflow.PortStateLinkDown)
				} else {
					changes.Go(func() { b.must(b.DeleteRoute(ctx, "r1", static.String())) })
				}
			case len(used) == len(all.Routes) && len(told) == 0:
				changes.Go(func() { b.must(b.AddRoute(ctx, RouteRequest{Router: "r1", Prefix: static})) })
			}
			ways := map[string]bool{}
			for _, r := range used {
				for _, h := range r.Hops {
					ways[h.Interface] = true
				}
			}
			if told[true] == 1 && len(ways) == 2 { // its host's port, and one of two
				return errDone
			}
			return nil
		})
		if !errors.Is(err, errDone) || told[false] != 1 || used[static].Used {
			t.Errorf("%v; told of the static route %v, used %v", err, told, used)
		}
		reason := ""
		err = b.Events(ctx, EventQuery{Routes: []string{"r9"}}, func(name string, data []byte) error {
			if name == "end" {
				reason = string(data)
			}
			return nil
		})
		if err != nil || !strings.Contains(reason, "r9 is no routing node") {
			t.Errorf("of no router: %v, %s", err, reason)
		}
	})
}
