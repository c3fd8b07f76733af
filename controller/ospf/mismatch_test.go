package ospf

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/controller/discovery"
	engine "trivet.dev/trivet/routing/ospf"
)

// Proves that a router that is refused is listed with the reason and the cure, which the log has
// once, however long the router goes on; that the cure, when it is done, makes it Full; and that
// nothing is listed then.
func TestMismatchIsShown(t *testing.T) {
	s := newSim(t, 1)
	var log bytes.Buffer
	s.network.log = slog.New(slog.NewTextHandler(&log, nil))
	n := s.port(1, engine.InterfaceConfig{Type: engine.Broadcast, Cost: 1, HelloInterval: 10 * time.Second, DeadInterval: 40 * time.Second}, "10.8.0.1/24")
	s.known(1, n, discovery.Edge)
	s.start()
	s.outsider(1, n, engine.InterfaceConfig{Type: engine.Broadcast, HelloInterval: 5 * time.Second, DeadInterval: 20 * time.Second}, "10.8.0.2/24")
	s.run(time.Minute)
	a := &App{net: s.network}
	list := a.Neighbors("")
	if len(list) != 1 || list[0].State != "Down" || list[0].RouterID != 0x02020202 || len(list[0].Mismatches) != 2 {
		t.Fatalf("%+v", list)
	}
	hello, dead := list[0].Mismatches[0], list[0].Mismatches[1]
	if want := "r1-eth1 hears 10.8.0.2 with hello 5 s, here 10 s: set `ospf: {hello: 5s}` on this link, or 10 s there"; hello.Text != want {
		t.Errorf("it says %q, not %q", hello.Text, want)
	}
	if dead.What != "dead" || dead.Theirs != "20 s" || dead.Ours != "40 s" {
		t.Errorf("%+v", dead)
	}
	for _, x := range []Mismatch{hello, dead} {
		if c := strings.Count(log.String(), x.Text); c != 1 {
			t.Errorf("the log has %q %d times: %s", x.Text, c, log.String())
		}
	}
	c := s.config
	last := &c.Routers[0].Interfaces[n-1].Settings
	last.HelloInterval, last.DeadInterval = 5*time.Second, 20*time.Second
	s.must(s.configure(s.now, c))
	s.rejoin()
	s.run(time.Minute)
	if list := a.Neighbors(""); len(list) != 1 || list[0].State != "Full" || len(list[0].Mismatches) != 0 {
		t.Errorf("%+v", list)
	}
}

// Proves that forged packets, each of them different, do not fill the log.
func TestMismatchesInTheLog(t *testing.T) {
	s := newSim(t, 1)
	var log bytes.Buffer
	s.network.log = slog.New(slog.NewTextHandler(&log, nil))
	o := outsideOf(s)
	before := strings.Count(log.String(), "\n")
	for round := range 20 {
		for i := range 100 {
			p := engine.Packet{RouterID: engine.ID(9), AreaID: engine.ID(1 + round*100 + i), Body: &engine.Hello{}}
			for _, b := range wrap(o.itf.Address().Addr(), engine.AllSPFRouters, 1, 1, p.Encode(), 1500) {
				s.receive(s.now, place{1, 2}, b)
			}
		}
		s.run(time.Second)
	}
	if lines := strings.Count(log.String(), "\n") - before; lines > maxLogged+5 {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
}
