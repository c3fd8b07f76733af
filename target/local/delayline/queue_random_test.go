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
		wild := float64(seed % 2) // of every other one the order and content change
		impairment := func() topology.Impairment {
			var i topology.Impairment
			for _, set := range []func(){
				func() { i.Bandwidth = topology.Rate(math.Pow(10, 3+r.Float64()*7)) },
				func() { i.Delay = topology.Duration(r.Int64N(int64(50 * time.Millisecond))) },
				func() { i.Jitter = topology.Duration(r.Int64N(int64(20 * time.Millisecond))) },
				func() { i.Loss = topology.Fraction(r.Float64()) },
				func() { i.Queue.Limit = 1 + r.IntN(50) },
				func() { i.Queue = anyQueue(r, wild > 0) },
				func() { i.Reorder, i.Gap = topology.Fraction(wild*r.Float64()), r.IntN(4) },
				func() {
					i.Duplicate, i.Corrupt = topology.Fraction(wild*r.Float64()), topology.Fraction(wild*r.Float64())
				},
				func() { i.LossCorrelation, i.DelayCorrelation, i.ReorderCorrelation = 0.3, 0.9, 0.5 },
			} {
				if r.IntN(2) == 0 {
					set()
				}
			}
			return i
		}
		s := newSim(t, impairment())
		s.wild = wild > 0
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
			sum := c.Out.Packets + c.Lost.Packets + c.Overflowed.Packets + c.Dropped.Packets + c.Cleared.Packets + c.NoMemory.Packets
			bytes := c.Out.Bytes + c.Lost.Bytes + c.Overflowed.Bytes + c.Dropped.Bytes + c.Cleared.Bytes + c.NoMemory.Bytes
			if c.In.Packets != s.pushed || sum+waiting.Packets+flying.Packets != s.pushed+c.Duplicated.Packets ||
				c.In.Bytes+c.Duplicated.Bytes != bytes+waiting.Bytes+flying.Bytes {
				t.Fatalf("seed %d: %d pushed, %+v, %+v waiting, %+v flying", seed, s.pushed, c, waiting, flying)
			}
		}
		s.queue.Set(s.now, topology.Impairment{})
		s.drain()
		if s.budget.Load() != simBudget {
			t.Fatalf("seed %d: %d bytes did not come back", seed, simBudget-s.budget.Load())
		}
	}
}

// anyQueue returns a queue with some discipline; only in a wild one flows overtake each other.
func anyQueue(r *rand.Rand, wild bool) topology.Queue {
	all := []string{"codel,target=1ms,interval=5ms,limit=30", "codel,target=1ms,interval=5ms,ecn", "red,limit=30000,burst=20,probability=50%",
		"red,limit=60000,max=9000,min=3000,ecn", "pie,limit=40,target=1ms,tupdate=1ms", "pie,ecn"}
	if wild {
		all = append(all, "fq_codel,limit=20,flows=3,target=1ms,interval=5ms", "fq_codel")
	}
	q, err := topology.ParseQueue(all[r.IntN(len(all))])
	if err != nil {
		panic(err)
	}
	return q
}

// TestAllocations proves that moving frames allocates nothing once the rings have grown.
func TestAllocations(t *testing.T) {
	s := newSim(t, topology.Impairment{Bandwidth: 1e9, Delay: ms(1)})
	frame := make([]byte, full)
	move := func() {
		for range 500 {
			s.queue.Push(s.now, frame, Traffic{Packets: 1, Bytes: full})
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
