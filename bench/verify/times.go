package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/measure/stats"
)

// judgeDelay judges the median, and how many packets take longer, or not as long, over all streams
// and for each. Excessive delays may be excused by the machine's state.
func (v *verifier) judgeDelay(c *Check, h hop, samples []*sample) {
	all := joined(samples)
	if len(all) == 0 {
		if !v.hasDevice(h.link) {
			c.untold("the link has no device: it is one with the next, which has a delay")
			return
		}
		c.untold("no packet came through it")
		return
	}
	median := stats.Quantile(seconds(all, false), 0.5)
	c.Got = &median
	if why := v.clocksTell(h, delayMayBeOff(c.Asked)); why != "" {
		c.untold("%s", why)
		return
	}
	groups := [][]*sample{samples}
	if streams := byStream(samples); len(streams) > 1 {
		groups = append(groups, streams...)
	}
	busy := ""
	for i, g := range groups {
		took := joined(g)
		why, late := v.delayed(c.Asked, h, seconds(took, false))
		if why == "" {
			continue
		}
		of := ""
		if i > 0 {
			of = " of " + g[0].by
		}
		if late { // possibly the machine's fault
			sure := seconds(took, true)
			if again, _ := v.delayed(c.Asked, h, sure); len(sure) < fewest || again == "" {
				busy = cmp.Or(busy, fmt.Sprintf("the machine is too busy: packets%s %s", of, why))
				continue
			}
		}
		if i > 0 {
			c.By = []string{g[0].by}
		}
		c.wrong(max(0, median), "packets%s %s", of, why)
		return
	}
	switch {
	case busy != "":
		c.untold("%s", busy)
	case v.egress(h).Reorder >= 0.4:
		c.untold("too many packets overtake others to tell what the others take")
	default:
		c.set(max(0, median))
	}
}

// seconds returns how long packets took, in ascending order; sure leaves out those that the machine
// may have delayed.
func seconds(all []passing, sure bool) (out []float64) {
	for _, p := range all {
		if !sure || !p.excused {
			out = append(out, p.took)
		}
	}
	slices.Sort(out)
	return out
}

// delayMayBeOff returns the tolerance of a delay.
func delayMayBeOff(asked float64) float64 { return max(delayFloor, delayOff*asked) }

// delayed says what is wrong with the times that packets took, if anything, and whether they are
// too long.
func (v *verifier) delayed(asked float64, h hop, took []float64) (why string, late bool) {
	if len(took) == 0 {
		return "", false
	}
	e := v.egress(h)
	off := delayMayBeOff(asked)
	apart, _ := v.apart(h)
	off += apart
	slack, jitter := 0.0, time.Duration(e.Jitter).Seconds()
	onWire := func(bytes int) float64 { return 8 * float64(bytes) / float64(e.Bandwidth) }
	if e.Bandwidth > 0 && v.wires[h.link] == datapath.Line { // serialization on the wire
		slack = onWire(80)
	}
	earliest, latest := asked-off, asked+off+slack+lateOff
	if e.Bandwidth > 0 { // one or two full packets of other streams before it
		latest += 2 * onWire(v.t.Links[h.link].MTUAt(h.out)+ethernet)
	}
	if devices := v.devices(h); len(devices) > 0 { // full packets take longer, and others' may be before it
		full := v.service(h, v.t.Links[h.link].MTUAt(h.out)+ethernet)
		slack += full - v.service(h, small)
		latest += slack + float64(v.atOnce()+large)*full
	}
	if jitter > 0 { // with few packets the median varies by the spread; delays are not negative
		earliest, latest = earliest-6*jitter, latest+6*jitter
		off += 4 * jitter / math.Sqrt(float64(len(took)))
		if 3*jitter > asked {
			off += jitter
		}
	}
	median := stats.Quantile(took, 0.5)
	text := fmt.Sprintf("take %.3g ms, not %.3g ms", 1e3*max(0, median), 1e3*asked)
	if e.Reorder < 0.4 && asked > 0 && median < asked-off {
		return text, false
	}
	if median > asked+off+slack {
		return text, true
	}
	after, _ := slices.BinarySearch(took, latest)
	before, _ := slices.BinarySearch(took, earliest)
	switch n := len(took); {
	case weigh(n-after, n, 0, lateShare, v.unlikely) == wide:
		return fmt.Sprintf("are late: %d of %d take %.3g ms or longer, not %.3g ms", n-after, n, 1e3*took[after],
			1e3*asked), true
	case asked > 0 && e.Reorder == 0 && weigh(before, n, 0, lateShare, v.unlikely) == wide:
		return fmt.Sprintf("are early: %d of %d take %.3g ms or less, not %.3g ms", before, n, 1e3*took[before-1],
			1e3*asked), false
	}
	return "", false
}

// enoughDelays is the minimum number of packets for measuring a spread.
const enoughDelays = 50

func (v *verifier) judgeJitter(c *Check, all []passing) {
	took := seconds(all, false)
	if len(took) < enoughDelays {
		c.untold("too few packets to judge it (%d)", len(took))
		return
	}
	sd, off := spread(took)
	wrong := func(sd, off float64) bool { return math.Abs(sd-c.Asked) > (jitterOff+off)*c.Asked+0.0002 }
	if !wrong(sd, off) {
		c.set(sd)
		return
	}
	least := sd
	if sure := seconds(all, true); sd > c.Asked && len(sure) < enoughDelays {
		least = c.Asked
	} else if sd > c.Asked {
		least, off = spread(sure)
	}
	if !wrong(least, off) || least < c.Asked && sd > c.Asked {
		c.Got = &sd
		c.untold("the machine is too busy: the delay varies by %.3g ms", 1e3*sd)
		return
	}
	c.wrong(sd, "the delay varies by %.3g ms, not %.3g ms (standard deviation)", 1e3*sd, 1e3*c.Asked)
}

// spread returns the standard deviation of sorted times, and its relative error for so few.
func spread(took []float64) (sd, off float64) {
	most := stats.Quantile(took, 0.99) // ignores outliers of a busy machine
	kept := lists.Filter(took, func(d float64) bool { return d <= most })
	var mean, sum float64
	for _, d := range kept {
		mean += d / float64(len(kept))
	}
	for _, d := range kept {
		sum += (d - mean) * (d - mean)
	}
	return math.Sqrt(sum / float64(len(kept)-1)), 2 / math.Sqrt(float64(len(kept)))
}
