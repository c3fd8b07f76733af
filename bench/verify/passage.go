package verify

import (
	"math"
	"slices"

	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/measure/stats"
)

// seenWay is the observed path of a stream, and what was observed on it.
type seenWay struct {
	points []seenPoint     // from the sender to the receiver
	forks  map[string]bool // nodes that forwarded it over several links
}

// seenPoint is an observation after some links.
type seenPoint struct {
	hops  []hop // since the previous point
	slots []packets.Slot
	rate  float64 // at the first point, which has no slots: the rate sent, in bit/s
	delay int64   // ns from the sender to here, by the links' delays
}

// fewSent is a share of a stream that is ignored: flooded copies, or the packets before a flow was
// moved.
const fewSent = 0.02

// wayOf puts the observations of a share's stream in order.
func (v *verifier) wayOf(r *reading, share int, sights []sighting) (w seenWay) {
	flow, out := r.shares[share].flow, r.outs[share]
	came := arrived(out.got.Record, r.frame)
	w.points = []seenPoint{{rate: float64(out.sent.Sent-out.sent.Refused) / max(1e-9,
		out.sent.Seconds) * 8 * float64(r.frame)}}
	seen, from := map[hop][]packets.Slot{}, map[string]int{}
	w.forks = map[string]bool{}
	for _, s := range sights {
		h, ok := v.cameBy(s)
		n := 0
		for _, slot := range s.Slots {
			n += slot.Packets
		}
		if !ok || float64(n) < fewSent*float64(out.sent.Sent) {
			continue
		}
		if seen[h] = s.Slots; v.far(h) != flow.from {
			from[v.near(h)]++
		}
	}
	for node, n := range from {
		w.forks[node] = n > 1
	}
	way := v.back(v.tree(flow.from, func(h hop) bool {
		return seen[h] != nil || !v.hasDevice(h.link) || v.far(h) == flow.to && len(came) > 0
	}), flow.to)
	if len(way) == 0 { // nothing was seen: assume the earlier path
		way = flow.way
	} else if !slices.Equal(way, flow.way) {
		flow.way = way
	}
	var hops []hop
	delay := int64(0)
	for i, h := range way {
		hops = append(hops, h)
		delay += int64(v.egress(h).Delay)
		slots, ok := seen[h]
		if i == len(way)-1 {
			slots, ok = came, true // the receiver knows exactly
		}
		if !ok && v.hasDevice(h.link) && slices.Contains(v.tapped, v.placeOf(v.far(h))) {
			ok = true // nothing arrived
		}
		if ok {
			w.points = append(w.points, seenPoint{hops: hops, slots: slots, delay: delay})
			hops = nil
		}
	}
	return w
}

// arrived counts what a receiver got.
func arrived(r *packets.Record, frame int) (slots []packets.Slot) {
	var at []int64
	for n, sent := range r.Sent {
		if sent != 0 {
			at = append(at, sent+r.Delay[n])
		}
	}
	slices.Sort(at)
	for _, t := range at {
		slots = packets.AddTo(slots, t, 1, frame)
	}
	return slots
}

// passage is the rate that came to a direction of a link, and out of it, in bit/s of layer 2.
type passage struct {
	hop
	in     float64 // NaN: unknown
	out    float64
	middle float64 // the median of out over parts of the time
	missed int     // packets that taps lost: in or out may be higher
	drops  bool    // less came out than went in, beyond the link's loss
}

// passages returns what crossed each direction with a bandwidth on the paths of a task, in their
// order, once the target's token bucket was empty and its queue full.
func (v *verifier) passages(r *reading) (out []*passage) {
	from, until := int64(0), int64(math.MaxInt64)
	for _, o := range r.outs {
		from = max(from, o.sent.Began+int64(r.settle*1e9))
		until = min(until, o.sent.Began+int64(o.sent.Seconds*1e9))
	}
	if from >= until {
		return nil
	}
	of := map[hop]*passage{}
	for _, w := range r.ways {
		for i := 1; i < len(w.points); i++ {
			before, here := w.points[i-1], w.points[i]
			h, ok := v.narrowest(here.hops)
			if !ok {
				continue
			}
			p := of[h]
			if p == nil {
				p = &passage{hop: h}
				of[h], out = p, append(out, p)
			}
			in := before.rate
			if i > 1 {
				in, _ = rateIn(before.slots, from+before.delay, until+before.delay)
			}
			if slices.ContainsFunc(here.hops, func(h hop) bool { return w.forks[v.near(h)] }) {
				in = math.NaN()
			}
			got, middle := rateIn(here.slots, from+here.delay, until+here.delay)
			for _, s := range slices.Concat(before.slots, here.slots) {
				p.missed += s.Missed
			}
			p.in, p.out, p.middle = p.in+in, p.out+got, p.middle+middle
		}
	}
	for _, p := range out {
		p.drops = max(p.out, p.middle) < p.in*(1-rateOff)*comes(v.egress(p.hop))
	}
	return out
}

// narrowest returns the direction with the lowest bandwidth; false if none has one.
func (v *verifier) narrowest(hops []hop) (least hop, ok bool) {
	for _, h := range hops {
		if r := v.rate(h); r > 0 && (!ok || r < v.rate(least)) {
			least, ok = h, true
		}
	}
	return least, ok
}

// parts is the number of parts of a window for the median rate.
const parts = 9

// rateIn returns the rate of packets within a time, in bit/s, and the median over its parts.
func rateIn(slots []packets.Slot, from, until int64) (rate, middle float64) {
	inside := lists.Filter(slots, func(s packets.Slot) bool { return s.First >= from && s.Last <= until })
	rate = rateOf(inside)
	// Packets that came for only a part of the time are related to the whole time.
	if n := len(inside); n == 0 || inside[n-1].Last-inside[0].First < (until-from)*3/4 {
		sum := 0
		for _, s := range inside {
			sum += s.Bytes
		}
		rate = 8 * float64(sum) / (float64(until-from) / 1e9)
		return rate, rate
	}
	var rates []float64
	for i := range parts {
		if part := inside[i*len(inside)/parts : (i+1)*len(inside)/parts]; len(part) > 1 {
			rates = append(rates, rateOf(part))
		}
	}
	if len(rates) == 0 {
		return rate, rate
	}
	slices.Sort(rates)
	return rate, stats.Quantile(rates, 0.5)
}

// rateOf returns the rate of the packets after the first one.
func rateOf(slots []packets.Slot) float64 {
	if len(slots) == 0 {
		return 0
	}
	sum := -float64(slots[0].Bytes) / float64(slots[0].Packets)
	for _, s := range slots {
		sum += float64(s.Bytes)
	}
	return 8 * sum / (float64(max(1, slots[len(slots)-1].Last-slots[0].First)) / 1e9)
}
