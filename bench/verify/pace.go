package verify

import (
	"time"

	"trivet.dev/trivet/topology"
)

// pace is how a survey's stream is sent.
type pace struct {
	rate  float64 // packets/s
	count int
}

func (p pace) apart() time.Duration { return inTime(1 / p.rate) }

// fewest is how many packets determine a path.
const fewest = 20

// large is how many full packets end a stream, to measure the MTU.
const large = 4

// sparing is the maximum share of a link's rate for a survey's streams.
const sparing = 0.15

// Durations of streams: the first look is long enough to see intermittent faults. Later ones are to
// find out whether the machine was the cause.
const (
	firstLook = 16 * time.Second
	laterLook = 6 * time.Second
	quickLook = time.Second
)

// narrow is the rate in bit/s below which only one stream at a time crosses a link: full packets of
// another would delay it.
const narrow = 2e6

// paceOf chooses the rate and number of packets for a path that shares its links, and devices, with
// so many streams: slow enough that no packet waits for another.
func (v *verifier) paceOf(way []hop, sharing map[hop]int, crossing map[*topology.Node]int, thorough bool) pace {
	most, longest := 1000, laterLook
	if v.looks == 0 {
		longest = firstLook
	}
	if v.Quick {
		most, longest = 200, quickLook
	}
	if !thorough {
		most, longest = fewest, quickLook
	}
	for _, h := range way {
		if r := v.rate(h); r > 0 && r < narrow { // one after the other
			longest = min(longest, max(4*time.Second, firstLook/time.Duration(max(1, sharing[h]))))
		}
	}
	rate := float64(most) / longest.Seconds()
	if v.Quick {
		rate = 500
	}
	var jitter, few, reorder float64
	for _, h := range way {
		e := v.egress(h)
		jitter = max(jitter, time.Duration(e.Jitter).Seconds())
		if e.Loss > 0 { // to a half width of half the loss, by all streams over it together
			few = max(few, 16/float64(e.Loss)/float64(max(1, sharing[h])))
		}
		if e.Reorder > 0 && e.Delay > 0 && thorough { // so that several are under way at once
			reorder = max(reorder, together/time.Duration(e.Delay).Seconds())
		}
	}
	if thorough && !v.Quick {
		most = min(mostPackets, max(most, int(few)))
		rate = max(rate, float64(most)/longest.Seconds())
	}
	if reorder > rate {
		rate = min(reorder, mostRate)
		most = max(most, min(mostPackets, int(rate*longest.Seconds())))
	}
	for _, h := range way {
		if r := v.rate(h); r > 0 {
			n := 1
			if r >= narrow {
				n = max(1, min(sharing[h], v.atOnce()))
			}
			rate = min(rate, sparing*r/8/80/float64(n))
		}
	}
	for _, h := range way {
		for _, d := range v.devices(h) {
			n := max(1, min(crossing[d], v.atOnce()))
			rate = min(rate, sparing*1e9/d.Model.Service(small)/float64(n))
		}
	}
	if jitter > 0 { // packets stay in order: waiting for an earlier one is no jitter of the link
		rate = min(rate, 1/(4*jitter))
	}
	return pace{rate, max(fewest, min(most, int(rate*longest.Seconds())))}
}

// together is how many packets should be under way on a link that lets some overtake others, and
// mostRate the maximum rate for that in packets per second.
const (
	together = 5
	mostRate = 5000

	mostPackets = 20_000 // of a stream
)

// quiet returns the time without packets from a path after which none is under way any more.
func (v *verifier) quiet(way []hop) time.Duration {
	sum := 150 * time.Millisecond
	for _, h := range way {
		e := v.egress(h)
		sum += time.Duration(e.Delay + 4*e.Jitter)
		sum += inTime(float64(large*max(1, v.atOnce())) * v.service(h, v.frame(way)))
		if e.Bandwidth > 0 {
			sum += inTime(large * 8 * float64(v.frame(way)) / float64(e.Bandwidth))
		}
	}
	return min(sum, 20*time.Second)
}

// frame returns the largest frame that passes a path, in bytes of layer 2.
func (n *network) frame(way []hop) int {
	mtu := topology.MaxMTU
	for _, h := range way {
		mtu = min(mtu, n.t.Links[h.link].MTUAt(h.out), n.t.Links[h.link].MTUAt(1-h.out))
	}
	return mtu + ethernet
}

const ethernet = 14 // bytes of a header
