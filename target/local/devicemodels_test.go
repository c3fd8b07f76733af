package local_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "trivet.dev/trivet/datapath/all"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// modelled is a switch, or a router of the kernel's, between two hosts, that stands for a device
// that takes so long for each packet; "": it stands for none.
func modelled(t *testing.T, datapath topology.Datapath, perPacket string) *topology.Topology {
	t.Helper()
	top := &topology.Topology{}
	top.AddNode(topology.Host, "h1")
	top.AddNode(topology.Host, "h2")
	top.Controllers = []string{topology.ControllerNone}
	kind := topology.Switch
	if datapath == topology.Kernel {
		kind = topology.Router
	}
	dut := top.AddNode(kind, "s1")
	top.AddLink("h1", "s1")
	top.AddLink("s1", "h2")
	if dut.Datapath = datapath; perPacket != "" {
		cost, err := topology.ParseCost(perPacket)
		if err != nil {
			t.Fatal(err)
		}
		dut.Model = &topology.Model{PerPacket: cost, Queue: 10, Source: "a test"}
	}
	out, problems := topology.Resolve(top, topology.Defaults{Datapath: datapath})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestModels proves that what a node that stands for a slow device forwards comes as slowly as
// that, whether a bridge or the kernel forwards there: of a burst, as many packets as its queue
// holds and as it can serve meanwhile, each no earlier than all before it have been served,
// whichever way they go; that it counts the others as dropped; and that a change in place of what
// it takes holds from then on, in both ways of changing: other values, and a model where there was
// none, or none any more.
func TestModels(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, datapath := range []topology.Datapath{topology.Embedded, topology.Bridge, topology.Kernel} {
		t.Run(string(datapath), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "lab")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("test-models-%s-%d", datapath, os.Getpid())
			l, err := local.New(name, dir, lab.Hooks{OnFabric: func(context.Context) error { return nil },
				OnUndo: func() {},
				OnEnd:  func(string) {}, OnLoop: func(string) {}})
			if err != nil {
				t.Fatal(err)
			}
			quiet := func(string, int, int) {}
			t.Cleanup(func() {
				l.Close()
				if err := local.Remove(name, dir, quiet, func(string) {}); err != nil {
					t.Error(err)
				}
			})
			if err := l.Up(t.Context(), modelled(t, datapath, "4ms"), quiet); err != nil {
				t.Fatal(err)
			}
			burst := func(what string, perPacket time.Duration) {
				t.Helper()
				before, err := l.Models()
				if err != nil {
					t.Fatal(err)
				}
				const sent = 60
				came, took := send(t, l, "h1", "h2", sent)
				if perPacket == 0 {
					if came != sent || len(before) > 0 {
						t.Errorf("%s: %d of %d came; models %+v", what, came, sent, before)
					}
					return
				}
				after, err := l.Models()
				if err != nil || len(after) != 1 || after[0].Node != "s1" || after[0].Model.Source != "a test" {
					t.Fatalf("%s: %+v, %v", what, after, err)
				}
				a, b := before[0].Device, after[0].Device
				served, dropped := b.Served.Packets-a.Served.Packets, b.Overflowed.Packets-a.Overflowed.Packets
				if took < time.Duration(came)*perPacket || came < 10 || int(served) < came ||
					int(served+dropped) < sent || dropped == 0 {
					t.Errorf("%s: %d packets came in %v, %d were served, %d dropped", what, came, took, served, dropped)
				}
				if busy := b.Busy - a.Busy; b.Waiting.Packets == 0 &&
					(busy-time.Duration(served)*perPacket).Abs() > time.Duration(served)+1 {
					t.Errorf("%s: busy for %v with %d packets of %v", what, busy, served, perPacket)
				}
				drops, err := l.Drops(t.Context())
				found := false
				for _, d := range drops {
					found = found || d.Where == "model of s1, its queue" && d.Dropped == b.Overflowed.Packets &&
						d.Expected
				}
				if err != nil || !found {
					t.Errorf("%s: drops %+v, %v", what, drops, err)
				}
			}
			burst("from the beginning", 4*time.Millisecond)
			for _, change := range []struct {
				what, cost string
				perPacket  time.Duration
			}{{"slower", "9ms", 9 * time.Millisecond}, {"no model", "", 0}, {"a model again", "3ms",
				3 * time.Millisecond}} {
				if err := l.Apply(t.Context(), modelled(t, datapath, change.cost), quiet); err != nil {
					t.Fatal(change.what, err)
				}
				burst(change.what, change.perPacket)
			}
		})
	}
}

// send makes a node send UDP packets at once to another, and returns how many came, and when the
// last did, from when the first was sent.
func send(t *testing.T, l *local.Lab, from, to string, count int) (came int, took time.Duration) {
	t.Helper()
	var in net.PacketConn
	var out net.Conn
	address := topology.EndsOf(l.Topology())[to][0].Addresses[0].Addr().String()
	if err := l.OnNode(to, func() (err error) {
		in, err = net.ListenPacket("udp4", address+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := l.OnNode(from, func() (err error) {
		out, err = net.Dial("udp4", in.LocalAddr().String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	packet := make([]byte, 100)
	one := func(wait time.Duration) bool {
		_ = in.SetReadDeadline(time.Now().Add(wait))
		_, _, err := in.ReadFrom(packet)
		return err == nil
	}
	for tries, ok := 0, false; !ok; tries, ok = tries+1, one(time.Second) { // which resolves the addresses
		if tries == 60 {
			t.Fatalf("nothing comes from %s to %s", from, to)
		}
		if _, err := out.Write([]byte("first")); err != nil {
			t.Fatal(err)
		}
	}
	for one(200 * time.Millisecond) { // others that went before it came
	}
	began := time.Now()
	for range count {
		if _, err := out.Write([]byte("packet")); err != nil {
			t.Fatal(err)
		}
	}
	for one(500 * time.Millisecond) {
		came, took = came+1, time.Since(began)
	}
	return came, took
}
