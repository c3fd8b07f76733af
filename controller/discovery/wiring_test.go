package discovery

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/openflow"
)

// wired is a world with two switches of three ports whose cables are known: port 2 of 1 and port 1
// of 2 are joined, others lead to hosts.
func wired(t *testing.T, laid bool, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if laid {
			w.cable(place{1, 2}, place{2, 1})
		}
		w.Expect([]uint64{1, 2, 3}, []Port{{Switch: 1, Number: 1}, {Switch: 1, Number: 3}, {Switch: 2, Number: 2}, {Switch: 2, Number: 3}}, nil,
			[]Link{{From: 1, FromPort: 2, To: 2, ToPort: 1}})
		w.connect(1, 3)
		w.connect(2, 3)
		time.Sleep(time.Millisecond)
		f(w)
		w.end()
	})
}

// Proves that what is known of the cables holds at once, before any probe has been waited for, and
// that probes confirm it; so after a port was down.
func TestExpected(t *testing.T) {
	wired(t, true, func(w *world) {
		at := map[place]Kind{{1, 1}: Edge, {1, 2}: Inner, {1, 3}: Edge, {2, 1}: Inner, {2, 2}: Edge}
		w.want("at once", 2, at)
		w.proved(2)
		w.want("proved", 2, at)
		for _, state := range []openflow.PortState{openflow.PortStateLinkDown, 0} {
			w.tell(1, &openflow.PortStatus{Reason: openflow.PortModify, Port: openflow.Port{Number: 2, State: state}})
			w.tell(1, &openflow.PortStatus{Reason: openflow.PortModify, Port: openflow.Port{Number: 1, State: state}})
			time.Sleep(time.Second)
		}
		w.proved(2)
		w.want("up again", 2, at)
	})
}

// Proves that a cable which is not where it should be is found out, and that another one is taken
// instead.
func TestExpectedWrongly(t *testing.T) {
	wired(t, false, func(w *world) {
		w.want("believed", 2, map[place]Kind{{1, 2}: Inner})
		time.Sleep(30 * time.Second)
		w.want("not believed any more", 0, map[place]Kind{{1, 2}: Edge, {2, 1}: Edge})
		w.connect(3, 1)
		w.cable(place{1, 2}, place{3, 1})
		time.Sleep(10 * time.Second)
		w.want("elsewhere", 2, map[place]Kind{{1, 2}: Inner, {3, 1}: Inner, {2, 1}: Edge})
	})
}

// Proves that of switches which are none any more nothing is remembered: neither a link between two
// that go at the same time, nor what an earlier run knew of them; and that those which are only
// away are remembered.
func TestSwitchesLeave(t *testing.T) {
	wired(t, true, func(w *world) {
		w.proved(2)
		w.disconnect(1)
		w.disconnect(2)
		w.want("both away", 2, map[place]Kind{{1, 2}: Inner, {2, 1}: Inner})
		w.Expect([]uint64{3}, nil, nil, nil)
		w.want("gone while away", 0, nil)
		w.Remember([]Link{{From: 1, FromPort: 2, To: 2, ToPort: 1}})
		w.want("of an earlier run", 0, nil)
	})
	wired(t, true, func(w *world) {
		w.proved(2)
		w.Expect([]uint64{3}, nil, nil, nil)
		w.want("gone, and not yet away", 2, nil)
		w.disconnect(1)
		w.disconnect(2)
		w.want("gone", 0, nil)
	})
}

// Proves that a link of whose probes nothing comes stays while links are taken on trust, and is
// lost afterwards.
func TestTrust(t *testing.T) {
	wired(t, true, func(w *world) {
		w.proved(2)
		w.Trust(true)
		w.cut(place{1, 2}, place{2, 1})
		time.Sleep(5 * time.Minute)
		w.want("on trust", 2, map[place]Kind{{1, 2}: Inner, {2, 1}: Inner})
		w.Trust(false)
		time.Sleep(5 * time.Minute)
		w.want("no more", 0, map[place]Kind{{1, 2}: Edge, {2, 1}: Edge})
	})
}

// Proves that a link is not lost when trust ends while it is being confirmed: probes that came to
// nobody, as long as switches were held, say nothing of it.
func TestTrustEndsInDoubt(t *testing.T) {
	for after := time.Duration(0); after < 2*round; after += 50 * time.Millisecond {
		wired(t, true, func(w *world) {
			w.proved(2)
			w.Trust(true)
			w.cut(place{1, 2}, place{2, 1})
			time.Sleep(time.Minute + after)
			w.cable(place{1, 2}, place{2, 1})
			w.Trust(false)
			for range 200 {
				time.Sleep(10 * time.Millisecond)
				w.want(fmt.Sprint("whole, trusted for ", after), 2, nil)
			}
		})
	}
}

// Proves that hosts which join their ports make no link of them, and that one of the ports is shut
// as long as they do, so that nothing goes round through them.
func TestHostsJoinPorts(t *testing.T) {
	wired(t, true, func(w *world) {
		w.cable(place{1, 3}, place{2, 3}, place{2, 2}) // more than two: a bridge, which lets only the broadcast pass
		time.Sleep(10 * time.Second)
		w.want("joined", 2, map[place]Kind{{1, 3}: Edge, {2, 2}: Open, {2, 3}: Open, {1, 1}: Edge})
		time.Sleep(5 * time.Minute)
		w.want("for long", 2, map[place]Kind{{1, 3}: Edge, {2, 2}: Open, {2, 3}: Open})
		w.cut(place{1, 3}, place{2, 3}, place{2, 2})
		time.Sleep(time.Minute)
		w.want("parted", 2, map[place]Kind{{1, 3}: Edge, {2, 2}: Edge, {2, 3}: Edge})
	})
}

// hand gives a switch a frame, as its host would.
func (w *world) hand(to place, frame []byte) { w.tell(to.dpid, packetIn(to.port, frame)) }

// Proves that probes which hosts send again make no link: not late, and not in one direction alone,
// which shuts the hosts' own ports and no other.
func TestReplay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		there, back := place{1, 3}, place{2, 3}
		probe := func(at place) []byte {
			return w.probe(at, time.Since(w.began), openflow.MAC{2}, lldpDst, etherTypeLLDP)
		}
		old := [2][]byte{probe(there), probe(back)}
		time.Sleep(probeLife + time.Second)
		w.hand(back, old[0])
		w.hand(there, old[1])
		time.Sleep(time.Second)
		w.want("late", 2, map[place]Kind{there: Edge, back: Edge})
		for range 60 {
			w.hand(back, probe(there))
			time.Sleep(time.Second)
			w.want("one way", 2, map[place]Kind{there: Open, back: Open, {1, 1}: Edge, {1, 2}: Inner})
		}
		time.Sleep(time.Minute)
		w.want("no more", 2, map[place]Kind{there: Edge, back: Edge})
		w.hand(back, probe(there)) // at once, and both ways: that is what a cable is
		w.hand(there, probe(back))
		time.Sleep(time.Second)
		w.want("both ways", 4, map[place]Kind{there: Inner, back: Inner})
	})
}
