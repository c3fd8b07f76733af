package pipeline

import (
	"bytes"
	"fmt"
	"testing"

	"trivet.dev/trivet/datapath/embedded/random"
)

// describe writes a translation so that two can be compared. The mask is left out: there may be two
// ways to see that an entry does not match, and each packet shows one.
func describe(o *Translation) string {
	s := fmt.Sprintf("slow=%q ttl=%d-%d hops=%d loops=%d\n", o.Slow, o.TTLMin, o.TTLMax, o.Hops, o.Loops)
	for _, out := range o.Outputs {
		s += fmt.Sprintf("output stage=%d port=%p queue=%d %+v", out.Stage, out.Port, out.Queue, out.Rewrite)
		if out.Port == nil {
			s += fmt.Sprintf(" message %+v", o.Messages[out.Message])
		}
		s += "\n"
	}
	return s + fmt.Sprintf("credits %v\nstages %v\n", o.Credits, o.Stages)
}

// mutate changes bits of the key that the mask leaves free, those of the TTL within the range, and
// leaves a packet that can be: a key that some frame has.
func (g gen) mutate(o *Translation, k *Key) (other Key, found bool) {
	for range 40 {
		if !ParseKey(&other, g.Frame(), g.Port()) {
			continue
		}
		// Take over what counts; the rest is from another real packet. The TTL is any of the range.
		for w := range other {
			other[w] = other[w]&^o.Mask[w] | k[w]&o.Mask[w]
		}
		other.SetTTL(o.TTLMin + uint8(g.Intn(int(o.TTLMax)-int(o.TTLMin)+1)))
		if o.Holds(k, &other) && other != *k {
			return other, true
		}
	}
	return other, false
}

// A packet that agrees with another one on the bits that its translation's mask has, and whose TTL
// is in the range, has the same translation when it is translated itself: outputs, rewrites,
// counters. And the mask is within what the switches are interested in. This is what a cache relies
// on. Random tables, groups, meters and chains of switches.
func TestMaskIsEnough(t *testing.T) {
	networks, packets := 150, 120
	if testing.Short() {
		networks = 30
	}
	var cacheable, slow, chained, several int
	for seed := range networks {
		g := newGen(t, int64(seed))
		n, list := g.network(1+g.Intn(4), 10+g.Intn(40))
		if seed%2 == 0 { // these have learned addresses
			p := NewProcessor(n)
			for range 100 {
				p.Receive(random.Pick(g.Gen, list...).Port(g.Port()), &Packet{Data: g.Frame()}, 0)
			}
		}
		var interest Mask
		for _, s := range list {
			of := s.Interest()
			interest.Union(&of)
		}
		tr := NewTranslator(n)
		var o, o2 Translation
		for range packets {
			var k Key
			p := random.Pick(g.Gen, list...).Port(g.Port())
			if !ParseKey(&k, g.Frame(), p.Number()) {
				continue
			}
			tr.Translate(&o, p, &k, 0)
			if k.TTL() < o.TTLMin || k.TTL() > o.TTLMax {
				t.Fatalf("network %d: TTL %d is not in its own range %d to %d", seed, k.TTL(), o.TTLMin, o.TTLMax)
			}
			switch {
			case o.Slow != "":
				slow++
			default:
				cacheable++
			}
			if o.Hops > 1 {
				chained++
			}
			for w := range o.Mask {
				if beyond := o.Mask[w] &^ interest[w]; beyond != 0 {
					t.Fatalf("network %d: looked at %#x of word %d, which no switch is interested in", seed, beyond, w)
				}
			}
			if len(o.Outputs) > 1 {
				several++
			}
			for range 5 {
				other, ok := g.mutate(&o, &k)
				if !ok {
					continue
				}
				want := describe(&o)
				tr.Translate(&o2, p, &other, 0)
				if got := describe(&o2); got != want {
					t.Fatalf("network %d: two packets that agree on %v have two translations:\n%x\n%s\n%x\n%s", seed, &o.Mask, k, want, other, got)
				}
			}
		}
	}
	t.Logf("%d translations can be kept, %d cannot; %d through several switches, %d with several outputs", cacheable, slow, chained, several)
	if cacheable < 50*networks || chained < 4*networks || several < 4*networks {
		t.Error("the random networks are too dull to prove anything")
	}
}

// What a Processor does with one packet at hand is what the translation says that was found by its
// key alone: the same bytes out by the same ports, the same messages, the same counters.
func TestOutcomeIsWhatHappens(t *testing.T) {
	networks := 150
	if testing.Short() {
		networks = 30
	}
	var compared int
	for seed := range networks {
		g := newGen(t, int64(seed))
		n, list := g.network(1+g.Intn(4), 10+g.Intn(40))
		tr, live, apply := NewTranslator(n), NewProcessor(n), NewProcessor(n)
		var o Translation
		for range 120 {
			var k Key
			p := random.Pick(g.Gen, list...).Port(g.Port())
			frame := g.Frame()
			before := bytes.Clone(frame)
			if !ParseKey(&k, frame, p.Number()) {
				continue
			}
			tr.Translate(&o, p, &k, 0)
			pkt := &Packet{Data: frame}
			if o.Slow != "" || o.Metered() || len(frame) > o.Largest {
				live.Receive(p, pkt, 0) // meters have a state, and it is about shorter ones; this must not fail
				continue
			}
			compared++
			want := fmt.Sprintf("%x", live.Receive(p, pkt, 0).frames()) + fmt.Sprint(live.out.Credits)
			got := fmt.Sprintf("%x", apply.Apply(&o, pkt, 0).frames()) + fmt.Sprint(o.Credits)
			if got != want {
				t.Fatalf("network %d: a packet %x\nbecomes %s\nthe translation says %s", seed, frame, want, got)
			}
			if !bytes.Equal(before, frame) {
				t.Fatalf("network %d: the packet that came in was changed", seed)
			}
		}
	}
	if compared < 50*networks {
		t.Errorf("only %d packets were compared", compared)
	}
}

// frames lists what a result holds.
func (r *Result) frames() (list []string) {
	for _, s := range r.Sent {
		list = append(list, fmt.Sprintf("%p %d %x", s.Port, s.Queue, s.Data))
	}
	for _, m := range r.PacketIns {
		list = append(list, fmt.Sprintf("%p %v %x", m.Switch, m.Message.String(), m.Message.Data))
	}
	return list
}
