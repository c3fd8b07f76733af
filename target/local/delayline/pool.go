package delayline

import "sync/atomic"

const (
	chunkSize  = 256 << 10 // bytes
	keptChunks = 32        // free chunks a pool keeps: 8 MiB
)

// chunk holds frames one after another. As frames leave a queue in the order in which they arrived,
// chunks empty as a whole, so frames of any size are packed tightly.
type chunk struct {
	bytes  []byte
	used   int // bytes
	frames int // still to be delivered
}

// Pool gives queues memory for frames, up to a budget that several pools may share. Its queues must
// be used by one goroutine at a time.
type Pool struct {
	budget *atomic.Int64 // bytes left
	free   []*chunk
}

// NewPool returns a pool that takes its memory from budget, in bytes.
func NewPool(budget *atomic.Int64) *Pool { return &Pool{budget: budget} }

// get returns an empty chunk, or nil when the budget is spent.
func (p *Pool) get() *chunk {
	if p.budget.Add(-chunkSize) < 0 {
		p.budget.Add(chunkSize)
		return nil
	}
	if n := len(p.free); n > 0 {
		c := p.free[n-1]
		p.free = p.free[:n-1]
		return c
	}
	return &chunk{bytes: make([]byte, chunkSize)}
}

func (p *Pool) put(c *chunk) {
	p.budget.Add(chunkSize)
	if c.used = 0; len(p.free) < keptChunks {
		p.free = append(p.free, c)
	}
}

// store is one queue's memory: the chunk being filled.
type store struct {
	pool *Pool
	tail *chunk
}

// keep copies a frame (of at most chunkSize bytes) to memory where it stays until it is released;
// ok is false if there is no memory left.
func (s *store) keep(frame []byte) (kept []byte, in *chunk, ok bool) {
	if s.tail == nil || len(s.tail.bytes)-s.tail.used < len(frame) {
		c := s.pool.get()
		if c == nil {
			return nil, nil, false
		}
		s.tail = c // the previous chunk is put back when its last frame leaves
	}
	c := s.tail
	kept = c.bytes[c.used : c.used+len(frame) : c.used+len(frame)]
	copy(kept, frame)
	c.used += len(frame)
	c.frames++
	return kept, c, true
}

// undo releases the frame that was kept last, and its room.
func (s *store) undo(kept []byte, in *chunk) {
	in.used -= len(kept)
	s.release(in)
}

// release releases a frame of the chunk. Its bytes stay valid until the next keep.
func (s *store) release(c *chunk) {
	if c.frames--; c.frames > 0 {
		return
	}
	if c == s.tail {
		s.tail = nil
	}
	s.pool.put(c)
}
