package discovery

import (
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

func newApp(t *testing.T) *App {
	t.Helper()
	a := New()
	if err := a.Start(nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	return a
}

// Proves that a probe says where it comes from, and that neither a changed one nor one of
// another run passes for it: a host cannot make a link.
func TestProbesAreSigned(t *testing.T) {
	a, other := newApp(t), newApp(t)
	at := place{dpid: 0xabc, port: 77}
	frame := a.probe(at, openflow.MAC{2}, lldpDst, etherTypeLLDP)
	if got, ok := a.read(frame); !ok || got != at {
		t.Fatalf("read %v, %v", got, ok)
	}
	if _, ok := other.read(frame); ok {
		t.Error("a probe of another run is taken")
	}
	for i := 14; i < len(frame)-2; i++ {
		forged := append([]byte(nil), frame...)
		forged[i] ^= 1
		if got, ok := a.read(forged); ok && got != at {
			t.Errorf("byte %d changed makes it a probe from %v", i, got)
		}
	}
	for n := 14; n < len(frame)-2; n++ {
		if _, ok := a.read(frame[:n]); ok && n < len(frame)-2 {
			t.Errorf("%d of %d bytes are taken for a probe", n, len(frame))
		}
	}
}

// world is an app with two switches that nobody is connected to: what it would send is not looked at.
func world(t *testing.T) (*App, *[]Change) {
	a := newApp(t)
	changes := new([]Change)
	a.Watch(func(c Change) { *changes = append(*changes, c) })
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range []place{{1, 1}, {1, 2}, {2, 1}, {2, 2}} {
		a.ports[at] = &port{sw: &controller.Switch{}, first: time.Now(), last: time.Now()}
		a.open = append(a.open, at)
	}
	return a, changes
}

// arrive is what PacketIn does with a probe that is genuine.
func arrive(a *App, from, to place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tell(a.join(from, to))
}

// Proves that a probe makes both ports ends of a link, that ports without one become
// edges in time, and that the loss of a few probes does not lose a link, but of more does.
func TestLinks(t *testing.T) {
	a, _ := world(t)
	x, y := place{1, 2}, place{2, 1}
	arrive(a, x, y)
	arrive(a, y, x)
	if len(a.Links()) != 2 || a.Kind(1, 2) != Inner || a.Kind(2, 1) != Inner || a.Kind(1, 1) != Open {
		t.Fatalf("links %v, kinds %v %v", a.Links(), a.Ports(1), a.Ports(2))
	}
	a.mu.Lock()
	a.tell(a.closeOpen(time.Now().Add(2 * openTime)))
	a.mu.Unlock()
	if a.Kind(1, 1) != Edge || a.Kind(2, 2) != Edge || a.Kind(1, 2) != Inner {
		t.Fatalf("kinds %v %v", a.Ports(1), a.Ports(2))
	}
	a.mu.Lock()
	a.ports[x].missed = lost - 1
	a.mu.Unlock()
	arrive(a, x, y)
	if a.mu.Lock(); a.ports[x].missed != 0 {
		t.Error("a probe that arrives does not count")
	}
	a.tell(a.lose(x, a.ports[x]))
	a.mu.Unlock()
	if len(a.Links()) != 1 || a.Kind(1, 2) != Inner {
		t.Errorf("one direction lost: links %v, kind %v", a.Links(), a.Kind(1, 2))
	}
	a.mu.Lock()
	a.tell(a.lose(y, a.ports[y]))
	a.mu.Unlock()
	if len(a.Links()) != 0 || a.Kind(1, 2) != Edge || a.Kind(2, 1) != Edge {
		t.Errorf("both lost: links %v, kinds %v %v", a.Links(), a.Kind(1, 2), a.Kind(2, 1))
	}
}

// Proves that a port that goes down takes its link with it at once, and that the far end is open again.
func TestPortDown(t *testing.T) {
	a, changes := world(t)
	x, y := place{1, 2}, place{2, 1}
	arrive(a, x, y)
	arrive(a, y, x)
	a.mu.Lock()
	a.tell(a.forget(x))
	a.mu.Unlock()
	if len(a.Links()) != 0 || a.Kind(2, 1) != Open {
		t.Errorf("links %v, far end %v", a.Links(), a.Kind(2, 1))
	}
	if last := (*changes)[len(*changes)-1]; !last.Gone || last.Switch != 1 || last.Port != 2 {
		t.Errorf("told %v", *changes)
	}
}
