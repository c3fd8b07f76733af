//go:build linux

package cache

import (
	"sync"
	"time"

	"trivet.dev/trivet/datapath/embedded/bpf"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/internal/monotonic"
)

// counts credits what the program has counted to the counters of the pipeline. It may be called
// within a change of the network, and asks nothing of it.
type counts struct {
	mu       sync.Mutex
	counters []bpf.ForwardCounter
	cpus     int
	size     int // entries
	offset   time.Duration
	now      func() time.Duration // of the network
	list     []*entry             // by id, the last one being that of the highest id so far
	begun    time.Duration        // the last time that all were folded
	folded   time.Time            // when that had been done
	took     time.Duration
	open     []bool
}

// tally is what has been credited of an entry's counters, which are never reset.
type tally struct {
	packets, bytes uint64
	usedAt         time.Duration
}

func (c *counts) start(e *Engine) {
	c.counters, c.cpus, c.size, c.offset, c.now = e.counters, e.cpus, e.opt.Entries, e.offset, e.dp.Now
}

func (c *counts) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = nil
}

// sum returns what the program has counted for an id, and when last.
func (c *counts) sum(id uint32) (packets, bytes uint64, last time.Duration) {
	for cpu := range c.cpus {
		s := &c.counters[cpu*c.size+int(id)]
		packets += load64(&s.Packets)
		bytes += load64(&s.Bytes)
		last = max(last, time.Duration(load64(&s.Last)))
	}
	return packets, bytes, last + c.offset
}

// add begins to count for an entry.
func (c *counts) add(x *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.list) <= int(x.id) {
		c.list = append(c.list, nil)
	}
	c.list[x.id] = x
	x.packets, x.bytes, _ = c.sum(x.id)
	x.usedAt = monotonic.Now() + c.offset
}

// fold credits what has been counted since the last time. It is called with mu held.
func (c *counts) fold(x *entry) {
	packets, bytes, last := c.sum(x.id)
	if packets == x.packets && bytes == x.bytes {
		return
	}
	c.open = x.translation.Credit(c.open, packets-x.packets, bytes-x.bytes, last)
	x.packets, x.bytes, x.usedAt = packets, bytes, last
}

// last folds an entry that is gone.
func (c *counts) last(x *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int(x.id) < len(c.list) && c.list[x.id] == x {
		c.fold(x)
		c.list[x.id] = nil
	}
}

// replace credits what has been counted so far, and from now on to another translation.
func (c *counts) replace(x *entry, o *pipeline.Translation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fold(x)
	x.translation = o
}

// used returns when a packet met the entry last.
func (c *counts) used(x *entry) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fold(x)
	return x.usedAt
}

// foldNow folds all entries; where that takes long and has just been done, it is not done again at
// once, unless not all is credited that was counted until a time. How long it took is known by the
// clock, which goes on while others have the processor: that must not keep counters old.
func (c *counts) foldNow(until time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	start, begun := time.Now(), c.now()
	if c.begun >= until && start.Sub(c.folded) < min(10*c.took, oldAtMost) {
		return
	}
	for _, x := range c.list {
		if x != nil {
			c.fold(x)
		}
	}
	c.begun, c.folded = begun, time.Now()
	c.took = c.folded.Sub(start)
}

// idle folds all entries and returns those that no packet has met since.
func (c *counts) idle(since time.Duration) (list []*entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.list {
		if x == nil {
			continue
		}
		if c.fold(x); x.usedAt < since {
			list = append(list, x)
		}
	}
	return list
}
