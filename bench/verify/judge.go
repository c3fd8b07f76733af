package verify

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/mathext"

	"trivet.dev/trivet/bench/stats"
	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// How far something may be off and be right.
const (
	rateOff    = 0.05   // share of a rate
	delayOff   = 0.05   // share of a delay
	delayFloor = 0.0005 // seconds that a delay may always be off: timers and wake-ups
	jitterOff  = 0.30   // share of a jitter
	queueOff   = 0.15   // share of a queue
	lateOff    = 0.002  // seconds beyond that for a packet to be late
	lateShare  = 0.01   // share of packets that may be late, or early
	aheadShare = 0.002  // share of packets that may overtake others where none should

	// chance is how likely a lab that is as it should be is to be found wrong by the packets that
	// happened to be lost, in all of it together.
	chance = 1e-3
)

// What the kernel, or a receiver, does not take for a packet of a stream any more, of those in
// which one bit is changed: at most such a share.
const unreadable = 0.15

// Verdicts on a share of packets.
const (
	fits = iota
	few  // one packet of which there should be none
	wide // too far off to be chance
)

func (c *Check) set(got float64) {
	c.Got, c.Verdict, c.Why = &got, OK, ""
}

func (c *Check) wrong(got float64, format string, args ...any) {
	c.Got, c.Verdict, c.Why = &got, Wrong, fmt.Sprintf(format, args...)
}

func (c *Check) untold(format string, args ...any) {
	c.Verdict, c.Why = Untold, fmt.Sprintf(format, args...)
}

// judge says of each direction what all streams over it showed, at all looks.
func (v *verifier) judge() {
	for h, samples := range v.seen {
		d := &v.result.Links[h.link].Directions[h.out]
		for i := range d.Checks {
			if c := &d.Checks[i]; c.What != Rate && c.What != Queue {
				v.judgeCheck(c, h, samples)
			}
		}
	}
}

// judgeCheck judges what all looks saw together, and says how many of them alone would have been
// wrong: what was wrong at one of several is not made right by the others, unless chance may be why.
func (v *verifier) judgeCheck(c *Check, h hop, samples []*sample) {
	before := *c
	blank := func() Check {
		if c.What == Up && before.Verdict == Wrong {
			return before // a carrier is missing, as long as nothing comes
		}
		return Check{What: before.What, Asked: before.Asked, Verdict: Untold}
	}
	looks, failed := 0, 0
	var bad Check
	for look := range v.looks {
		alone := slices.DeleteFunc(slices.Clone(samples), func(s *sample) bool { return s.look != look })
		if len(alone) == 0 {
			continue
		}
		looks++
		one := blank()
		if v.judgeOne(&one, h, alone); one.Verdict == Wrong {
			failed++
			bad = one
		}
	}
	*c = blank()
	v.judgeOne(c, h, samples)
	c.Looks, c.Failed = looks, failed
	switch {
	case failed == 0 || failed == looks:
	case c.Verdict == OK && c.What != Delay && c.What != Jitter && c.What != Reorder: // chance, or it could not have come so far
	case c.Verdict == Wrong:
		c.Why = fmt.Sprintf("in %d of %d looks: %s", failed, looks, bad.Why)
	default:
		c.By = bad.By
		c.untold("in %d of %d looks: %s", failed, looks, bad.Why)
	}
}

func (v *verifier) judgeOne(c *Check, h hop, samples []*sample) {
	e := v.egress(h)
	living := slices.DeleteFunc(slices.Clone(samples), func(s *sample) bool { return s.dead() && v.mayRefuse(h, s) != "" })
	came := 0
	for _, s := range samples {
		came += s.of - s.lost
	}
	if c.By = namesOf(samples); came == 0 {
		v.judgeNone(c, h, samples)
		return
	}
	loss, corrupt, duplicate := float64(e.Loss), float64(e.Corrupt), float64(e.Duplicate)
	switch c.What {
	case Up:
		c.set(1)
	case Delay:
		v.judgeDelay(c, h, samples)
	case Jitter:
		if e.Reorder > 0 {
			c.untold("packets that overtake others take no time at all")
			break
		}
		v.judgeJitter(c, joined(samples))
	case Loss: // of packets that come twice one may be lost, and of what is damaged not all is read
		v.judgeShare(c, living, happening{what: "were lost", get: func(s *sample) (int, int) { return s.lost, s.missed }, excuse: "taps missed some",
			least: loss * (1 - duplicate), most: 1 - (1-loss)*(1-unreadable*corrupt), depends: e.LossCorrelation > 0})
	case Corrupt:
		v.judgeShare(c, living, happening{what: "were damaged", get: func(s *sample) (int, int) { return s.damaged, 0 },
			least: corrupt * (1 - loss) * (1 - unreadable), most: corrupt, depends: e.CorruptCorrelation > 0})
	case Duplicate:
		v.judgeShare(c, living, happening{what: "came more than once", get: func(s *sample) (int, int) { return s.again, 0 },
			least: duplicate * (1 - loss) * (1 - loss) * (1 - corrupt) * (1 - corrupt), most: duplicate, depends: e.DuplicateCorrelation > 0})
	case Reorder:
		v.judgeReorder(c, e, living)
	case MTU:
		one := &sample{}
		for _, s := range samples {
			one.largest, one.full = max(one.largest, s.largest), max(one.full, s.full)
		}
		judgeMTU(c, one, came)
	}
}

// judgeNone judges a direction that nothing came through.
func (v *verifier) judgeNone(c *Check, h hop, samples []*sample) {
	of, may, why := 0, "", ""
	var should []*sample
	for _, s := range samples {
		of += s.of
		if refused := v.mayRefuse(h, s); refused != "" {
			may = refused
			continue
		}
		should = append(should, s)
		if s.why != "" && strings.HasPrefix(s.by, v.near(h)+" → ") {
			why = ": " + s.why
		}
	}
	switch dead := slices.ContainsFunc(should, (*sample).dead); {
	case c.What == Up && dead:
		c.wrong(0, "none of %d packets came through it%s", of, why)
	case c.What == Up && c.Verdict == Wrong:
	case c.What == Up && of == 0:
		c.untold("%s put no packet into it: is a route missing there?", v.near(h))
	case c.What == Up:
		c.untold("none of %d packets came through it, %s", of, may)
	case c.What == Loss && dead:
		c.wrong(1, "%d of %d packets were lost, which is not %.4g %%%s", of, of, 100*c.Asked, why)
	case c.What == Delay && !v.hasDevice(h.link):
		c.untold("the link has no device: it is one with the next, which has a delay")
	default:
		c.untold("no packet came through it")
	}
}

// mayRefuse is why nothing of a stream may rightly come through a direction, or empty.
func (v *verifier) mayRefuse(h hop, s *sample) string {
	if why := v.mayStop(h); why != "" {
		return why
	}
	from, to, _ := strings.Cut(s.by, " → ")
	if v.near(h) == from && !v.routed(v.nodes[from], v.address[to]) {
		return "as " + from + " is given no route to " + to
	}
	return ""
}

// routed says whether a node has a route to an address by what the topology gives it.
func (v *verifier) routed(n *topology.Node, to netip.Addr) bool {
	for _, l := range v.t.Links {
		for _, e := range l.Ends {
			if n != nil && e.Node == n.Name && slices.ContainsFunc(e.Addresses, func(a netip.Prefix) bool { return a.Masked().Contains(to) }) {
				return true
			}
		}
	}
	return n != nil && (n.Kind == topology.Router || slices.ContainsFunc(v.routesOf(n), func(r topology.Route) bool { return r.To.Contains(to) }))
}

// mayStop is why a direction may rightly get no packets, or empty: where a controller of the
// user's own decides what goes there, it may be a firewall, and of routes that are as written the
// one over it may not be.
func (v *verifier) mayStop(h hop) string {
	n := v.nodes[v.near(h)]
	switch {
	case n.IsDatapath() && slices.ContainsFunc(n.Controllers, func(c string) bool {
		return c != topology.ControllerNone && !v.t.IsBuiltin(c)
	}):
		return "which the controller of " + n.Name + " may intend"
	case n.Kind == topology.Router && v.t.Routes == topology.RoutesAsWritten:
		return "as there may be no route over it at " + n.Name + ", whose routes are as written"
	}
	return ""
}

// joined is how long the packets of all samples took.
func joined(samples []*sample) (out []passing) {
	for _, s := range samples {
		out = append(out, s.took...)
	}
	return out
}

// byStream are the samples of each stream by itself.
func byStream(samples []*sample) (out [][]*sample) {
	at := map[string]int{}
	for _, s := range samples {
		i, known := at[s.by]
		if !known {
			i = len(out)
			at[s.by], out = i, append(out, nil)
		}
		out[i] = append(out[i], s)
	}
	return out
}

// namesOf the streams of samples, each once.
func namesOf(samples []*sample) (out []string) {
	for _, s := range byStream(samples) {
		out = append(out, s[0].by)
	}
	return out
}

// unlikely is how unlikely something must be to be no chance: in all of the lab together there is
// but a small one for anything of the kind.
func (v *verifier) unlikely() float64 {
	n := 0
	for _, samples := range v.seen {
		n += 1 + len(samples)
	}
	return chance / float64(max(1, n))
}

// happening is a share of packets to which something happened.
type happening struct {
	what    string                             // happened to them
	get     func(*sample) (count, excused int) // excused of them may not be the lab's doing
	excuse  string                             // then
	least   float64                            // that is to be
	most    float64
	depends bool // it depends on what happened to the packet before, as was asked for
}

func (s *happening) sum(samples []*sample) (count, excused, of int) {
	for _, one := range samples {
		n, may := s.get(one)
		count, excused, of = count+n, excused+may, of+one.of
	}
	return count, excused, of
}

// weigh says whether so many of packets fit a share between two others.
func weigh(count, of int, least, most, unlikely float64) int {
	switch {
	case of == 0, count > 0 && most >= 1:
		return fits
	case most == 0 && count <= 1:
		return count // fits, few
	case most == 0:
		return wide
	}
	k, n := float64(count), float64(of)
	tooMany := count > 0 && mathext.RegIncBeta(k, n-k+1, most) < unlikely // P(X ≥ k)
	tooFew := count < of && least > 0 && mathext.RegIncBeta(n-k, k+1, 1-least) < unlikely
	if tooMany || tooFew {
		return wide
	}
	return fits
}

// judgeShare judges all streams together, and each by itself: what happens to one of many is no
// less wrong.
func (v *verifier) judgeShare(c *Check, samples []*sample, s happening) {
	count, excused, of := s.sum(samples)
	if of == 0 {
		c.untold("no packet came this far")
		return
	}
	if shown, err := stats.Wilson(count, of, 0.95); err == nil {
		low, high := float64(shown.Low), float64(shown.High)
		c.Low, c.High = &low, &high
	}
	got := float64(count) / float64(of)
	type found struct {
		count, of int
		by        string
	}
	var wrong, doubtful []found
	look := func(samples []*sample, by string) {
		count, excused, of := s.sum(samples)
		switch {
		case weigh(count, of, s.least, s.most, v.unlikely()) == fits:
		case weigh(count-excused, of, s.least, s.most, v.unlikely()) == wide:
			wrong = append(wrong, found{count, of, by})
		default:
			doubtful = append(doubtful, found{count, of, by})
		}
	}
	streams := byStream(samples)
	if len(streams) > 1 {
		for _, one := range streams {
			look(one, one[0].by)
		}
	}
	all := len(wrong) == len(streams) || len(wrong) == 0
	look(samples, "")
	asked := fmt.Sprintf("%.4g %%", 100*c.Asked)
	switch {
	case len(wrong) > 0 && s.depends:
		c.Got = &got
		c.untold("what depends on the packet before does not happen to the share that was asked for, as with netem")
	case len(wrong) > 0 && all:
		c.wrong(got, "%d of %d packets %s, which is not %s", count, of, s.what, asked)
	case len(wrong) > 0:
		worst := slices.MaxFunc(wrong, func(a, b found) int { return cmp.Compare(a.count*max(1, b.of), b.count*max(1, a.of)) })
		if worst.by == "" {
			c.wrong(got, "%d of %d packets %s, which is not %s", count, of, s.what, asked)
			break
		}
		c.wrong(got, "%d of %d packets of %s %s, which is not %s", worst.count, worst.of, worst.by, s.what, asked)
		c.By = nil
		for _, w := range wrong {
			if w.by != "" {
				c.By = append(c.By, w.by)
			}
		}
	case len(doubtful) > 0 && excused > 0:
		c.Got = &got
		c.untold("%s: %d of %d packets %s", s.excuse, count, of, s.what)
	case len(doubtful) > 0:
		c.Got = &got
		c.untold("%d of %d packets %s: too few to tell why", count, of, s.what)
	default:
		c.set(got)
	}
}

// judgeReorder takes the share of packets that overtake others: those that are not delayed, where
// others are under way.
func (v *verifier) judgeReorder(c *Check, e topology.Impairment, samples []*sample) {
	s := happening{what: "overtook others", get: func(s *sample) (int, int) { return s.ahead, s.excused }, excuse: "the machine is too busy", most: aheadShare}
	if asked := float64(e.Reorder); asked > 0 {
		asked /= 1 + asked*float64(max(1, e.Gap)-1)
		near := slices.DeleteFunc(slices.Clone(samples), func(s *sample) bool { return time.Duration(e.Delay) < 2*s.apart })
		if len(near) == 0 {
			c.untold("no two packets were on their way at a time")
			return
		}
		under := math.Inf(1)
		for _, one := range near {
			under = min(under, float64(time.Duration(e.Delay)/one.apart))
		}
		samples = near
		s.least, s.most, s.depends = asked*(1-math.Pow(asked, under-1))*(1-float64(e.Loss)), asked+aheadShare, e.ReorderCorrelation > 0
	}
	v.judgeShare(c, samples, s)
}

// judgeDelay takes the median, and how many packets take longer, or not as long, of all streams and
// of each. What is too long may be the machine's, where that says so.
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
		if late { // it may be the machine
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

// seconds are how long packets took, in order; sure: without those that the machine may have held
// up.
func seconds(all []passing, sure bool) (out []float64) {
	for _, p := range all {
		if !sure || !p.excused {
			out = append(out, p.took)
		}
	}
	slices.Sort(out)
	return out
}

// delayed says what is wrong with how long packets took, if anything, and whether that is too long.
func (v *verifier) delayed(asked float64, h hop, took []float64) (why string, late bool) {
	if len(took) == 0 {
		return "", false
	}
	e := v.egress(h)
	off := max(delayFloor, delayOff*asked)
	slack, jitter := 0.0, time.Duration(e.Jitter).Seconds()
	onWire := func(bytes int) float64 { return 8 * float64(bytes) / float64(e.Bandwidth) }
	if e.Bandwidth > 0 && v.wires[h.link] == datapath.Line { // a packet takes its time on the wire
		slack = onWire(80)
	}
	earliest, latest := asked-off, asked+off+slack+lateOff
	if e.Bandwidth > 0 { // a full packet of another stream before it, or two
		latest += 2 * onWire(v.t.Links[h.link].MTUAt(h.out)+ethernet)
	}
	if jitter > 0 { // of few packets the median is off by its own spread; and none comes before it was sent
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
	case weigh(n-after, n, 0, lateShare, v.unlikely()) == wide:
		return fmt.Sprintf("are late: %d of %d take %.3g ms or longer, not %.3g ms", n-after, n, 1e3*took[after], 1e3*asked), true
	case asked > 0 && e.Reorder == 0 && weigh(before, n, 0, lateShare, v.unlikely()) == wide:
		return fmt.Sprintf("are early: %d of %d take %.3g ms or less, not %.3g ms", before, n, 1e3*took[before-1], 1e3*asked), false
	}
	return "", false
}

// enoughDelays is how many say something of their spread.
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
	sure := seconds(all, true)
	if len(sure) > enoughDelays {
		if again, off := spread(sure); wrong(again, off) && (again > c.Asked) == (sd > c.Asked) || sd < c.Asked {
			c.wrong(sd, "the delay varies by %.3g ms, not %.3g ms (standard deviation)", 1e3*sd, 1e3*c.Asked)
			return
		}
	}
	c.Got = &sd
	c.untold("the machine is too busy: the delay varies by %.3g ms", 1e3*sd)
}

// spread is the standard deviation of times in order, and the share by which that of so few may be
// off.
func spread(took []float64) (sd, off float64) {
	most := stats.Quantile(took, 0.99) // beyond it a busy machine is at work
	var kept []float64
	for _, d := range took {
		if d <= most {
			kept = append(kept, d)
		}
	}
	var mean, sum float64
	for _, d := range kept {
		mean += d / float64(len(kept))
	}
	for _, d := range kept {
		sum += (d - mean) * (d - mean)
	}
	return math.Sqrt(sum / float64(len(kept)-1)), 2 / math.Sqrt(float64(len(kept)))
}

// worse keeps, of several outcomes of a check, the one that says most against it.
func worse(a, b Check) Check {
	rank := map[Verdict]int{OK: 0, Untold: 1, Wrong: 2}
	if cmp.Compare(rank[b.Verdict], rank[a.Verdict]) > 0 {
		return b
	}
	return a
}
