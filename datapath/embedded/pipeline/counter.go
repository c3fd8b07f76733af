package pipeline

import (
	"sync/atomic"
	"time"
)

// A Counter counts packets and bytes, and records the time of the last packet. It may be used
// concurrently.
type Counter struct {
	packets atomic.Uint64
	bytes   atomic.Uint64
	used    atomic.Int64
}

// Add counts packets, the last of which arrived at that time.
func (c *Counter) Add(packets, bytes uint64, now time.Duration) {
	c.packets.Add(packets)
	c.bytes.Add(bytes)
	if last := c.used.Load(); int64(now) > last {
		c.used.CompareAndSwap(last, int64(now)) // a concurrent update is as good
	}
}

// Packets returns how many packets were counted.
func (c *Counter) Packets() uint64 { return c.packets.Load() }

// Bytes returns how many bytes they had.
func (c *Counter) Bytes() uint64 { return c.bytes.Load() }

// Used returns when the last one arrived.
func (c *Counter) Used() time.Duration { return time.Duration(c.used.Load()) }

func (c *Counter) reset() {
	c.packets.Store(0)
	c.bytes.Store(0)
}

func (c *Counter) copyFrom(other *Counter) {
	c.packets.Store(other.packets.Load())
	c.bytes.Store(other.bytes.Load())
}
