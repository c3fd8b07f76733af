package discovery

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/openflow"
)

// counting is a store that counts commits of hosts.
type counting struct {
	store.Store
	commits atomic.Int64
}

func (c *counting) Commit(ctx context.Context, conditions []store.Condition, changes ...store.Change) error {
	if strings.HasPrefix(changes[0].Key, hostPrefix) {
		c.commits.Add(1)
	}
	return c.Store.Commit(ctx, conditions, changes...)
}

// A flood of invented addresses at a member becomes few commits, and all of it comes to the other
// members; the member that hears nothing of it directly has the hosts by the store.
func TestSharedFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{Store: store.NewMemory(nil, nil)}
		w := &world{App: New(), t: t, cables: map[place][]place{}, switches: map[uint64]*fake{}}
		w.Share(c)
		w.restart()
		other := New()
		other.Share(c)
		if err := other.Start(nil); err != nil {
			t.Fatal(err)
		}
		w.connect(1, 1)
		time.Sleep(5 * time.Second) // its port is an edge
		const flood = 5000
		began := time.Now()
		for i := range flood {
			frame := make([]byte, 60)
			copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 1, byte(i >> 8), byte(i), 0x08, 0x00})
			w.tell(1, packetIn(1, frame))
		}
		there := 0
		for range 60 {
			time.Sleep(time.Second)
			e, err := c.List(t.Context(), hostPrefix)
			if err != nil {
				t.Fatal(err)
			}
			if there = len(e); there == flood {
				break
			}
		}
		if there != flood {
			t.Errorf("%d of %d hosts are in the store", there, flood)
		}
		if n, most := c.commits.Load(), int64(time.Since(began)/commitTime)+1; n > most || n > flood/maxCommit+20 {
			t.Errorf("%d commits in %v", n, time.Since(began))
		}
		other.shared.mu.Lock()
		if n := len(other.shared.hosts); n != flood {
			t.Errorf("the other member knows of %d hosts", n)
		}
		other.shared.mu.Unlock()
		w.end()
		other.Stop()
		c.Close()
	})
}

// master is a member that has one of the switches.
type master uint64

func (m master) Connected(s *controller.Switch) {
	if s.DPID() == uint64(m) {
		_ = s.Become(1)
	}
}

func (master) Lost(*controller.Switch)    {}
func (master) Deposed(*controller.Switch) {}

// orphan is a world whose switch 2 no member has, and where the member that had it may have said of
// the cable between port 2 of switch 1 and port 1 of switch 2 that it is there.
func orphan(t *testing.T, said bool, f func(w *world, s *store.Memory)) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(nil, nil)
		w := &world{App: New(), t: t, cables: map[place][]place{}, switches: map[uint64]*fake{}}
		w.Share(s)
		w.restart()
		w.c.Owner = master(1)
		w.Expect([]uint64{1, 2}, nil, nil, []Link{{From: 1, FromPort: 2, To: 2, ToPort: 1}})
		if said {
			if err := s.Commit(t.Context(), nil, store.Put(pair{place{1, 2}, place{2, 1}}.key(), []byte("{}"))); err != nil {
				t.Fatal(err)
			}
		}
		w.connect(1, 3)
		w.connect(2, 3)
		time.Sleep(100 * time.Millisecond)
		f(w, s)
		w.end()
		s.Close()
	})
}

// Proves that a link that was laid is there as soon as both its ports are up, though nobody has the
// switch at one end, and goes with either port; what is taken out of the store of the link before
// does not end it.
func TestExpectedOfOrphan(t *testing.T) {
	for _, at := range []place{{1, 2}, {2, 1}} {
		orphan(t, true, func(w *world, s *store.Memory) {
			w.want("at once", 2, map[place]Kind{{1, 2}: Inner, {2, 1}: Inner})
			for _, state := range []openflow.PortState{openflow.PortStateLinkDown, 0} {
				w.tell(at.dpid, &openflow.PortStatus{Reason: openflow.PortModify, Port: openflow.Port{Number: at.port, State: state}})
				time.Sleep(time.Millisecond)
				if state != 0 {
					w.want("down", 0, nil)
				}
			}
			if err := s.Commit(t.Context(), nil, store.Delete(pair{place{1, 2}, place{2, 1}}.key())); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				time.Sleep(10 * time.Millisecond)
				w.want("up again", 2, nil)
			}
		})
	}
}

// Proves that a link which is believed by the wiring ends when neither probes nor another member
// confirm it; and stays when the store confirms its end at the other's switch, for as long as this
// member hears probes at its own.
func TestExpectedOfNobody(t *testing.T) {
	orphan(t, false, func(w *world, _ *store.Memory) {
		w.want("believed", 2, nil)
		time.Sleep(time.Minute)
		w.want("confirmed by nobody", 0, nil)
	})
	orphan(t, true, func(w *world, _ *store.Memory) {
		for range 60 {
			time.Sleep(time.Second)
			w.tell(1, packetIn(2, w.probe(place{2, 1}, w.stamp(), openflow.MAC{2}, lldpDst, etherTypeLLDP)))
			w.want("confirmed at both ends", 2, nil)
		}
	})
}

// Members take each other's probes, and none from before the last epoch, however their clocks go.
func TestEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(nil, nil)
		var apps [2]*App
		for i := range apps {
			apps[i] = New()
			apps[i].Share(s)
			if err := apps[i].Start(nil); err != nil {
				t.Fatal(err)
			}
		}
		at := place{1, 1}
		frame := apps[0].probe(at, apps[0].stamp(), openflow.MAC{2}, lldpDst, etherTypeLLDP)
		if from, ok := apps[1].read(frame); !ok || from != at {
			t.Error("a member's probe is refused")
		}
		time.Sleep(4 * epochTime)
		if _, ok := apps[1].read(frame); ok {
			t.Error("a probe of an earlier epoch is taken")
		}
		if _, ok := apps[1].read(apps[0].probe(at, apps[0].stamp(), openflow.MAC{2}, lldpDst, etherTypeLLDP)); !ok {
			t.Error("a probe of now is refused")
		}
		for _, a := range apps {
			a.Stop()
		}
		s.Close()
	})
}
