//go:build linux

package cache

import (
	"sync"
	"time"

	"trivet.dev/trivet/datapath/embedded/bpf"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/internal/monotonic"
)

// counts adds what the program has counted to the pipeline's counters. It may be called within a
// change of the network, and does not call the network.
type counts struct {
	mu       sync.Mutex
	counters []bpf.ForwardCounter
	cpus     int
	size     int // entries
	offset   time.Duration
	now      func() time.Duration // the network's clock
	list     []*entry             // by id, up to the highest id so far
	begun    time.Duration        // start of the last fold of all
	folded   time.Time            // end of it
	took     time.Duration
	open     []bool
}

// tally is the part of an entry's counters that has been credited; they are never reset.
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

// sum returns the program's counts for an id, and the time of the last packet.
func (c *counts) sum(id uint32) (packets, bytes uint64, last time.Duration) {
	for cpu := range c.cpus {
		s := &c.counters[cpu*c.size+int(id)]
		packets += load64(&s.Packets)
		bytes += load64(&s.Bytes)
		last = max(last, time.Duration(load64(&s.Last)))
	}
	return packets, bytes, last + c.offset
}

// add starts counting for an entry.
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

// fold credits the counts since the last call. It is called with mu held.
func (c *counts) fold(x *entry) {
	packets, bytes, last := c.sum(x.id)
	if packets == x.packets && bytes == x.bytes {
		return
	}
	c.open = x.translation.Credit(c.open, packets-x.packets, bytes-x.bytes, last)
	x.packets, x.bytes, x.usedAt = packets, bytes, last
}

// last folds a removed entry.
func (c *counts) last(x *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int(x.id) < len(c.list) && c.list[x.id] == x {
		c.fold(x)
		c.list[x.id] = nil
	}
}

// replace credits the counts so far to the old translation, and later ones to another.
func (c *counts) replace(x *entry, o *pipeline.Translation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fold(x)
	x.translation = o
}

// used returns the time of the entry's last packet.
func (c *counts) used(x *entry) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fold(x)
	return x.usedAt
}

// foldNow folds all entries. If that takes long and was done a moment ago it is not repeated,
// unless counts up to a time have yet to be credited. The duration is measured by the wall clock,
// which includes time without the processor; this must not keep counters old.
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

// idle folds all entries and returns those without a packet since a time.
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
