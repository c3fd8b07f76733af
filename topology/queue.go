package topology

import (
	"math"
	"time"
)

const (
	fullPacket      = 1514      // bytes of layer 2 in a full packet at an MTU of 1500
	unlimitedRate   = 10e9      // bit/s: what a link without a bandwidth should be able to hold
	minimalQueue    = 100       // packets
	maximalQueue    = 1_000_000 // packets: 1.5 GB if all are full
	minimalQueueing = 50e-3     // seconds
)

// QueueLimit returns the queue of one direction of a link, in packets: that of Queue or, if it
// says none, the maximum of
//
//   - 2 × bandwidth × (delay + 2 × jitter), the data that TCP keeps on its way over a path whose
//     round trip is twice the delay: with less a single TCP connection cannot fill the link
//     after it lost a packet, and a queueing discipline that counts delayed packets as
//     queued would drop where a wire does not;
//   - 50 ms at the bandwidth, so that bursts fit where there is no delay;
//   - 100 packets, so that a handful of connections fit where the link is slow.
//
// A packet counts as 1514 bytes. A link without a bandwidth is treated as 10 Gbit/s. The upper
// limit is 1,000,000 packets, to bound memory. A discipline's own limit is not meant here: it is of
// those that wait, and this also of those on their way.
func (i Impairment) QueueLimit() int {
	if i.Queue.Limit > 0 && !i.Queue.Managed() {
		return i.Queue.Limit
	}
	rate := float64(i.Bandwidth)
	if rate == 0 {
		rate = unlimitedRate
	}
	onTheWay := 2 * (time.Duration(i.Delay) + 2*time.Duration(i.Jitter)).Seconds()
	packets := math.Ceil(rate * max(onTheWay, minimalQueueing) / (8 * fullPacket))
	return int(min(max(packets, minimalQueue), maximalQueue))
}
