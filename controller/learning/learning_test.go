package learning_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
)

// inBubble runs a test in simulated time, and ends what runs in it.
func inBubble(t *testing.T, seed uint64, f func(n *network)) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, seed, nil)
		f(n)
		for _, s := range n.switches {
			s.disconnect()
		}
		n.c.Close()
		time.Sleep(time.Minute) // what is under way arrives
	})
}

// connectAll connects the switches one after the other, each after up to most.
func (n *network) connectAll(most time.Duration) {
	for _, s := range n.switches {
		delay := time.Duration(n.below(int(most)))
		time.AfterFunc(delay, s.connect)
	}
	time.Sleep(most)
}

// settle waits until nothing changes any more.
func (n *network) settle() {
	n.t.Helper()
	time.Sleep(2 * time.Second)
	for range 600 {
		if n.app.Settled() {
			time.Sleep(time.Second)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	n.t.Error("learning does not settle")
	n.dump()
}

// restart ends the controller and starts another, which all switches find at some time.
func (n *network) restart(remember bool) {
	n.links = n.found.Links()
	n.c.Close()
	for _, s := range n.switches {
		s.disconnect()
	}
	time.Sleep(time.Second)
	n.start()
	n.note("controller restarts, remember %v", remember)
	if remember {
		n.found.Remember(n.links)
	}
}

// count returns how many changes the switches are told meanwhile.
func (n *network) count(f func()) int {
	n.mu.Lock()
	before := n.changes
	n.mu.Unlock()
	f()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changes - before
}

// done waits until switches have done all that they were told, late as they may be.
func (n *network) done() {
	for n.count(func() { time.Sleep(time.Second) }) > 0 {
	}
}

func (n *network) wantWhole(when string) {
	n.t.Helper()
	if cut := n.cut(); cut > 0 {
		n.t.Errorf("%s: %d pairs of hosts do not reach each other", when, cut)
		n.dump()
	}
}

const networks = 30 // random ones for each test

// each runs a test in random networks of all sizes, of which discovery is told the cables of every
// third.
func each(t *testing.T, f func(n *network)) {
	for seed := range uint64(networks) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, seed, func(n *network) {
				n.random(2+n.below(6), n.below(6))
				if seed%3 == 0 {
					n.wire()
				}
				f(n)
			})
		})
	}
}

// Proves that in any network, whatever the order in which switches connect and do what they
// are told, nothing ever goes round, and that all hosts reach each other in the end.
func TestComesUp(t *testing.T) {
	each(t, func(n *network) {
		n.connectAll(3 * time.Second)
		n.settle()
		n.wantWhole("up")
		if lost := n.talk(); lost > 0 {
			n.t.Errorf("%d packets lost", lost)
		}
		time.Sleep(time.Second)
		n.wantWhole("learned")
	})
}

// Proves that a network whose cables are known forwards as soon as its switches are there: no
// silence has to show what a port leads to. What goes round is seen, as always.
func TestWiredAtOnce(t *testing.T) {
	each(t, func(n *network) {
		n.wire()
		n.slow = time.Millisecond
		n.connectAll(10 * time.Millisecond)
		time.Sleep(200 * time.Millisecond) // less than ports are open for otherwise
		n.wantWhole("at once")
		n.settle()
		n.wantWhole("later")
		for _, l := range n.found.Links() {
			if l.Remembered {
				n.t.Errorf("not seen by a probe: %+v", l)
			}
		}
	})
}

// Proves that a controller that was away comes back without a trace, with a database or
// without: however late the switches connect, all traffic flows all the time, nothing goes
// round, and no switch is told anything.
func TestControllerRestarts(t *testing.T) {
	for _, remember := range []bool{false, true} {
		t.Run(fmt.Sprint("remember=", remember), func(t *testing.T) {
			each(t, func(n *network) {
				n.connectAll(time.Second)
				n.settle()
				n.talk()
				n.done()
				n.wantUnnoticed(remember)
			})
		})
	}
}

// wantUnnoticed restarts the controller: no switch is told anything, and all traffic flows all the
// time.
func (n *network) wantUnnoticed(remember bool) {
	n.watch(true)
	changes := n.count(func() {
		n.restart(remember)
		n.connectAll(15 * time.Second)
		n.settle()
	})
	if changes != 0 {
		n.t.Errorf("%d changes were sent", changes)
		n.dump()
	}
	n.watch(false)
	if n.talk() > 0 {
		n.t.Error("packets lost")
	}
}

// loseConnections makes connections come and go, and come in the end.
func (n *network) loseConnections() {
	for range 10 {
		n.switches[n.below(len(n.switches))].toggle()
		n.pause(20 * time.Second)
	}
	for _, s := range n.switches {
		s.connect()
	}
	n.settle()
}

// Proves that the same holds for single switches whose connections come and go.
func TestConnectionsLost(t *testing.T) {
	each(t, func(n *network) {
		n.connectAll(time.Second)
		n.settle()
		time.Sleep(time.Minute) // a switch that is lost sooner may have missed a flush
		n.talk()
		n.done()
		n.watch(true)
		changes := n.count(func() {
			n.loseConnections()
		})
		if changes != 0 {
			n.t.Errorf("%d changes were sent", changes)
			n.dump()
		}
		n.watch(false)
	})
}

// Proves that in networks in which everything happens at once (links fail and come back,
// switches lose their connections, reboot, the controller restarts) nothing ever goes
// round, and that all hosts that are joined reach each other once it is quiet.
//
// Two things are not asked, for nobody could do them: a controller that knows of no links, because
// it remembers none, has only the tables of the switches that it has met. It cannot see that an
// empty switch (new, or rebooted) is beside some that it has not met, which take its ports for
// those of hosts or links and forward; nor that tables are wrong, because the controller before it
// ended between telling one end of a link and the other. So it is quiet before such a controller
// starts, and before a switch reboots or the next controller starts when not all have met it.
func TestTrouble(t *testing.T) {
	each(t, func(n *network) {
		n.connectAll(time.Second)
		for round := range 5 {
			for range 1 + n.below(5) {
				n.trouble()
				n.pause(8 * time.Second)
			}
			n.quiet()
			n.wantWhole(fmt.Sprint("round ", round))
			n.talk()
			time.Sleep(time.Second)
			n.wantWhole(fmt.Sprint("round ", round, ", learned"))
			if n.failed {
				return
			}
		}
	})
}

// quiet connects all switches, and waits until nothing changes any more.
func (n *network) quiet() {
	for _, s := range n.switches {
		s.connect()
	}
	time.Sleep(70 * time.Second) // what is held for unknown is so no more
	n.settle()
	n.learns = false
}

func (n *network) trouble() {
	s := n.switches[n.below(len(n.switches))]
	switch n.below(8) {
	case 0, 1, 2, 3:
		w := n.wires[n.below(len(n.wires))]
		n.turnWire(w)
	case 4, 5:
		s.toggle()
	case 6:
		if n.learns {
			n.quiet()
		}
		s.disconnect()
		s.net.mu.Lock()
		s.reset()
		s.net.mu.Unlock()
		s.connect()
	case 7:
		remember := n.below(2) == 0
		if n.learns || !remember {
			n.quiet()
		}
		n.restart(remember)
		n.learns = !remember
		for _, s := range n.switches {
			time.AfterFunc(time.Duration(n.below(int(10*time.Second))), s.connect)
		}
	}
}

// Proves that a switch whose neighbour, which has a link to a third, is lost as soon as it comes,
// whenever before discovery has seen what is between them, does not take the neighbour, which took
// it for hosts, for hosts.
func TestLostAtOnce(t *testing.T) {
	for after := time.Duration(0); after < time.Second; after += 20 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, 1, func(n *network) {
				old, late, third := n.addSwitch(1), n.addSwitch(2), n.addSwitch(3)
				n.cable(1, 2)
				n.cable(1, 2)
				n.cable(1, 3)
				n.addHost(1)
				n.addHost(2)
				old.connect()
				third.connect()
				time.Sleep(3 * time.Second)
				late.connect()
				time.Sleep(after)
				old.disconnect()
				time.Sleep(30 * time.Second)
				old.connect()
				n.settle()
				n.wantWhole("back")
			})
		})
	}
}

// Proves that an empty switch that no controller has met before, and which comes first to a
// controller that remembers the links of others, does not take those for hosts, which took it for
// hosts.
func TestNewBeforeOthers(t *testing.T) {
	inBubble(t, 1, func(n *network) {
		for i := range uint64(3) {
			n.addSwitch(i + 1)
			n.addHost(i + 1)
		}
		n.cable(1, 2)
		n.cable(1, 3)
		n.cable(2, 3)
		n.switches[0].connect()
		n.switches[1].connect()
		n.settle()
		n.restart(true)
		for _, i := range []int{2, 0, 1} {
			n.switches[i].connect()
			time.Sleep(5 * time.Second)
		}
		n.settle()
		n.wantWhole("up")
	})
}

// Proves that a link that fails is replaced, and that what was learned leads over the other one.
func TestLinkFails(t *testing.T) {
	inBubble(t, 1, func(n *network) {
		for i := range 4 {
			n.addSwitch(uint64(i + 1))
		}
		for i := range 4 {
			n.cable(uint64(i+1), uint64((i+1)%4+1))
			n.addHost(uint64(i + 1))
		}
		n.connectAll(time.Second)
		n.settle()
		for _, w := range n.wires {
			n.talk()
			time.Sleep(time.Second)
			n.setWire(w, false)
			n.settle()
			n.wantWhole("a link is down")
			n.setWire(w, true)
			n.settle()
			n.wantWhole("it is up again")
		}
	})
}

// Proves that ports joined by a foreign switch make no loop, are all known as links of
// each other, and that one of each switch takes part.
func TestForeignSwitch(t *testing.T) {
	inBubble(t, 1, func(n *network) {
		for i := range 4 {
			n.addSwitch(uint64(i + 1))
			n.addHost(uint64(i + 1))
		}
		n.cable(1, 2, 3, 3, 4)
		n.cable(1, 2)
		n.connectAll(time.Second)
		n.settle()
		n.wantWhole("up")
		indirect := 0
		for _, l := range n.found.Links() {
			if l.Indirect {
				indirect++
			}
		}
		if indirect != 5*4 || len(n.found.Links()) != 22 {
			n.t.Errorf("%d links, %d indirect: %v", len(n.found.Links()), indirect, n.found.Links())
		}
		changes := n.count(func() { time.Sleep(time.Minute) })
		if changes > 0 {
			n.t.Errorf("%d changes in a network that does not change", changes)
		}
	})
}

// Proves that a datapath of another app is told nothing, and that ports towards it take part.
func TestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1, func(dpid uint64) bool { return dpid != 9 })
		for _, d := range []uint64{1, 2, 9} {
			n.addSwitch(d)
		}
		n.cable(1, 2)
		n.cable(1, 9)
		n.cable(2, 9)
		n.cable(2, 9)
		n.connectAll(time.Second)
		n.settle()
		for _, at := range []end{{1, 1}, {1, 2}, {2, 1}, {2, 2}, {2, 3}} {
			if !n.app.TakesPart(at.dpid, at.port) || n.found.Kind(at.dpid, at.port) != discovery.Inner {
				t.Errorf("port %v does not take part, or is no link", at)
			}
		}
		for k, f := range n.node(9).flows {
			if f.Cookie>>32 == 0x7472_0002 {
				t.Errorf("the other datapath has %v", k)
			}
		}
		for _, s := range n.switches {
			s.disconnect()
		}
		n.c.Close()
		time.Sleep(time.Minute)
	})
}

// Proves that an address that flaps between two ports does not make the controller install
// entries without bound, is held, and can move again later.
func TestFlapping(t *testing.T) {
	inBubble(t, 1, func(n *network) {
		s := n.addSwitch(1)
		n.addHost(1)
		n.addHost(1)
		n.connectAll(time.Second)
		n.settle()
		hear := func(port uint32) {
			n.mu.Lock()
			frame := append(append([]byte{2, 0, 0, 0, 0, 9}, n.hosts[0].mac[:]...), make([]byte, 48)...)
			if f := s.enter(port, n.hosts[0].mac); len(f.Instructions) == 2 { // the source is not known there
				s.packetIn(f, port, frame)
			}
			n.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
		place := func() uint32 {
			n.mu.Lock()
			defer n.mu.Unlock()
			return s.leave(0, n.hosts[0].mac, false)[0]
		}
		changes := n.count(func() {
			for range 250 {
				hear(1)
				hear(2)
			}
			time.Sleep(time.Second)
		})
		if changes > 120 { // for 500 packets in 50 s
			n.t.Errorf("%d changes", changes)
		}
		held := place()
		hear(3 - held)
		if time.Sleep(time.Second); place() != held {
			n.t.Error("it is not held")
		}
		time.Sleep(2 * time.Minute)
		hear(3 - held)
		if time.Sleep(time.Second); place() != 3-held {
			n.t.Error("it is held for ever")
		}
		hear(held) // there and back at once: the entry of its old port must not hide it
		hear(3 - held)
		if time.Sleep(time.Second); place() != 3-held || s.enter(held, n.hosts[0].mac).Priority != 1 {
			n.t.Error("it does not come back")
		}
	})
}

// Proves that a port of hosts cannot fill the table with invented addresses, that it may have as
// many as the documents say, and that it is said, once, when it has.
func TestAddressesAreBounded(t *testing.T) {
	inBubble(t, 1, func(n *network) {
		n.slow = 0
		var log bytes.Buffer
		n.c.Close()
		n.startWith(slog.New(slog.NewTextHandler(&log, nil)))
		s := n.addSwitch(1)
		n.addHost(1)
		n.connectAll(time.Second)
		n.settle()
		for i := range 26_000 {
			n.mu.Lock()
			frame := append([]byte{2, 0, 0, 0, 0, 9, 2, 9, 0, byte(i >> 16), byte(i >> 8), byte(i)}, make([]byte, 48)...)
			s.packetIn(&openflow.FlowMod{Cookie: 0x7472_0002<<32 | 1}, 1, frame)
			n.mu.Unlock()
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		if got := len(s.leave(0, openflow.MAC{}, true)); got != 25_001 { // and the group
			n.t.Errorf("%d destinations", got)
		}
		if said := strings.Count(log.String(), "the limit on learned addresses"); said != 1 || !strings.Contains(log.String(), "port=1 addresses=25000") {
			n.t.Errorf("said %d times:\n%s", said, log.String())
		}
	})
}
