package delayline

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

// TestAnything proves, over random impairments, changes and traffic, that every packet is accounted
// for, that order and content are preserved (pop checks them), and that all memory is returned.
func TestAnything(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		impairment := func() topology.Impairment {
			var i topology.Impairment
			for _, set := range []func(){
				func() { i.Bandwidth = topology.Rate(math.Pow(10, 3+r.Float64()*7)) },
				func() { i.Delay = topology.Duration(r.Int64N(int64(50 * time.Millisecond))) },
				func() { i.Jitter = topology.Duration(r.Int64N(int64(20 * time.Millisecond))) },
				func() { i.Loss = topology.Fraction(r.Float64()) },
				func() { i.Queue = 1 + r.IntN(50) },
			} {
				if r.IntN(2) == 0 {
					set()
				}
			}
			return i
		}
		s := newSim(t, impairment())
		for range 500 {
			s.now += time.Duration(r.Int64N(int64(time.Millisecond)))
			switch r.IntN(20) {
			case 0:
				s.queue.Set(s.now, impairment())
			case 1:
				s.queue.Up(s.now, r.IntN(4) > 0)
			case 2, 3, 4:
				if next, ok := s.queue.Next(); ok && next <= s.now {
					s.pop()
				}
			default:
				s.push(10 + r.IntN(9000))
			}
			c := s.queue.Counters(s.now)
			waiting, flying := s.queue.Len(s.now)
			sum := c.Out.Packets + c.Lost.Packets + c.Overflowed.Packets + c.Cleared.Packets + c.NoMemory.Packets
			if c.In.Packets != s.pushed || sum+uint64(waiting+flying) != s.pushed {
				t.Fatalf("seed %d: %d pushed, %+v, %d waiting, %d flying", seed, s.pushed, c, waiting, flying)
			}
			kept, way := s.queue.Bytes(s.now)
			if c.In.Bytes != c.Out.Bytes+c.Lost.Bytes+c.Overflowed.Bytes+c.Cleared.Bytes+c.NoMemory.Bytes+kept+way {
				t.Fatalf("seed %d: %+v, %d bytes waiting, %d flying", seed, c, kept, way)
			}
		}
		s.queue.Set(s.now, topology.Impairment{})
		s.drain()
		if s.budget.Load() != simBudget {
			t.Fatalf("seed %d: %d bytes did not come back", seed, simBudget-s.budget.Load())
		}
	}
}

// TestAllocations proves that moving frames allocates nothing once the rings have grown.
func TestAllocations(t *testing.T) {
	s := newSim(t, topology.Impairment{Bandwidth: 1e9, Delay: ms(1)})
	frame := make([]byte, full)
	move := func() {
		for range 500 {
			s.queue.Push(s.now, frame, Traffic{1, full})
		}
		s.now += time.Second
		for {
			if _, _, _, ok := s.queue.Pop(s.now); !ok {
				return
			}
		}
	}
	if got := testing.AllocsPerRun(100, move); got > 0 {
		t.Errorf("%v allocations for 500 frames", got)
	}
}
