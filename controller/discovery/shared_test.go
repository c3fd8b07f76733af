package discovery

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
