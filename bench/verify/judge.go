package verify

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// Tolerances: how far a value may be off and count as right.
const (
	rateOff    = 0.05   // share of a rate
	delayOff   = 0.05   // share of a delay
	delayFloor = 0.0005 // seconds of any delay's tolerance: timers and wake-ups
	jitterOff  = 0.30   // share of a jitter
	queueOff   = 0.15   // share of a queue
	lateOff    = 0.002  // seconds beyond that after which a packet is late
	lateShare  = 0.01   // share of packets that may be late, or early
	aheadShare = 0.002  // share of packets that may overtake others although none should

)

// chance is the probability that a correct lab is found wrong because of random losses, over all
// its checks together.
const chance = 1e-3

// judge judges each direction by all streams over it, at all looks.
func (v *verifier) judge() {
	tests := 0
	for _, samples := range v.seen {
		tests += 1 + len(samples)
	}
	v.unlikely = chance / float64(max(1, tests))
	for h, samples := range v.seen {
		d := &v.result.Links[h.link].Directions[h.out]
		for i := range d.Checks {
			if c := &d.Checks[i]; c.What != Rate && c.What != Queue && c.What != MTU {
				v.judgeCheck(c, h, samples)
			}
		}
	}
}

// judgeCheck judges a check by all looks together, and counts the looks that would have been wrong
// alone: a wrong look is not outweighed by others, unless it may be due to chance.
func (v *verifier) judgeCheck(c *Check, h hop, samples []*sample) {
	before := *c
	blank := func() Check {
		if c.What == Up && before.Verdict == Wrong {
			return before // while nothing comes, the missing carrier is the reason
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
	case c.Verdict == OK && c.What != Delay && c.What != Jitter && c.What != Reorder:
		// Chance, or otherwise nothing could have come this far.
	case c.Verdict == Wrong:
		c.Why = fmt.Sprintf("in %d of %d looks: %s", failed, looks, bad.Why)
	default:
		c.By = bad.By
		c.untold("in %d of %d looks: %s", failed, looks, bad.Why)
	}
}

// judgeNone judges a direction through which nothing came.
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

// mayRefuse says why it may be right that nothing of a stream comes through a direction; "" if it
// is not.
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

// routed says whether the topology gives a node a route to an address.
func (v *verifier) routed(n *topology.Node, to netip.Addr) bool {
	for _, l := range v.t.Links {
		for _, e := range l.Ends {
			if n != nil && e.Node == n.Name &&
				slices.ContainsFunc(e.Addresses, func(a netip.Prefix) bool { return a.Masked().Contains(to) }) {
				return true
			}
		}
	}
	return n != nil && (n.Kind == topology.Router || slices.ContainsFunc(v.routesOf(n), func(r topology.Route) bool {
		return r.To.Contains(to)
	}))
}

// mayStop says why it may be right that a direction gets no packets; "" if it is not. A user's own
// controller may be a firewall, and routes that are as written, or a router's own configuration,
// may not use it.
func (v *verifier) mayStop(h hop) string {
	n := v.nodes[v.near(h)]
	switch {
	case n.IsDatapath() && slices.ContainsFunc(n.Controllers, func(c string) bool {
		return c != topology.ControllerNone && !v.t.IsBuiltin(c)
	}):
		return "which the controller of " + n.Name + " may intend"
	case n.Kind == topology.Router && v.t.Routes == topology.RoutesAsWritten:
		return "as there may be no route over it at " + n.Name + ", whose routes are as written"
	case n.OwnRouting() != "":
		return "as there may be no route over it at " + n.Name + ", whose routes are those of its own configuration"
	}
	return ""
}

// joined returns how long the packets of all samples took.
func joined(samples []*sample) (out []passing) {
	for _, s := range samples {
		out = append(out, s.took...)
	}
	return out
}

// byStream groups samples by stream.
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

// namesOf returns the names of the streams of samples, each once.
func namesOf(samples []*sample) []string {
	return lists.Map(byStream(samples), func(s []*sample) string { return s[0].by })
}

// worse returns the more serious of two results of a check.
func worse(a, b Check) Check {
	rank := map[Verdict]int{OK: 0, Untold: 1, Wrong: 2}
	if cmp.Compare(rank[b.Verdict], rank[a.Verdict]) > 0 {
		return b
	}
	return a
}
