package ospf

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// Whatever comes and goes, routes are those of a graph that is built from nothing, also where a
// graph has taken over the numbers of the networks from the one before: all that are there, and
// some that are not.
func TestGraphAfterGraph(t *testing.T) {
	d := grid(t, 25)
	a, now := d.Area(Backbone), simEpoch.Add(time.Hour/2)
	rnd := rand.New(rand.NewPCG(1, 1))
	more, same := 0, 0
	for step := range 300 {
		r := d.Router(ID(1 + rnd.IntN(25)))
		i := r.interfaces[rnd.IntN(len(r.interfaces))]
		switch {
		case step%20 == 19: // a network that was never there: all are sorted anew
			i, err := r.AddInterface(InterfaceConfig{Passive: true, Address: netip.PrefixFrom(ID(90<<24+step<<8+1).Addr(), 24)})
			if err != nil {
				t.Fatal(err)
			}
			i.Up(now)
		case !i.isUp():
			i.Up(now)
		case rnd.IntN(2) == 0:
			i.Down(now)
		default:
			i.SetCost(now, 1+uint16(rnd.IntN(20)))
		}
		now = now.Add(20 * time.Second)
		d.Poll(now)
		now = now.Add(20 * time.Second)
		d.Poll(now)
		got, after := d.Router(1).Routes(), a.graph
		a.graph = emptyGraph(a)
		a.graph = buildGraph(a)
		want, anew := d.Router(1).Routes(), a.graph
		a.graph = after
		if changes := want.Diff(got); len(changes) > 0 {
			t.Fatalf("step %d: %d routes differ, the first %v", step, len(changes), changes[0])
		}
		if len(after.nets) > len(anew.nets) {
			more++
		} else {
			same++
		}
	}
	if more == 0 || same == 0 {
		t.Errorf("%d graphs had networks that were gone, %d had none: both are to be tried", more, same)
	}
}
