//go:build linux

package cache

import (
	"testing"
	"time"
)

// Who begins and ends to look at a virtual link, or at the device of a host's link, again and
// again, sees packets there, and of a numbered stream that goes over both none is lost, doubled or
// overtaken.
func TestOrderLooks(t *testing.T) {
	b := newFixture(t, 2, Options{Queue: 12_000})
	s1, s2 := b.add(1, 2), b.add(2, 2)
	b.plug(s1, 1, 1, Auto)
	b.plug(s2, 1, 2, Auto)
	if err := b.Network().Join(s1, 2, s2, 2); err != nil {
		t.Fatal(err)
	}
	b.flow(s1, "priority=1,in_port=1,actions=output:2")
	b.flow(s1, "priority=1,in_port=2,actions=output:1")
	b.flow(s2, "priority=1,in_port=1,actions=output:2")
	b.flow(s2, "priority=1,in_port=2,actions=dec_ttl,output:1")
	rounds := 0
	wrong := b.stream(5_000, time.Second, func(i int) {
		time.Sleep(10 * time.Millisecond)
		rounds++
		s1.Port(2).SetMirror(i%2 == 0)
		b.engine.Barrier(s1)
		if err := b.engine.Look(s2.Port(1), i%4 < 2); err != nil {
			t.Error(err)
		}
	})
	if wrong != "" {
		t.Error(wrong)
	}
	if seen := b.mirrored.Load(); rounds < 10 || seen == 0 {
		t.Errorf("in %d rounds %d packets were seen", rounds, seen)
	}
}
