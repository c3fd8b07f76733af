package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mathext"

	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/topology"
)

// unreadable is the maximum share of packets with one inverted bit that the kernel, or a receiver,
// no longer recognizes as packets of the stream.
const unreadable = 0.15

// Verdicts on a share of packets.
const (
	fits = iota
	few  // one packet, or one in 10,000, although there should be none
	wide // too far off for chance
)

// happening is something that happens to a share of packets.
type happening struct {
	what    string                             // in words
	get     func(*sample) (count, excused int) // excused: of count, may not be the lab's fault
	excuse  string                             // reason for that
	least   float64                            // share that there should be
	most    float64
	depends bool // correlated with the previous packet, as was asked for
}

func (s *happening) sum(samples []*sample) (count, excused, of int) {
	for _, one := range samples {
		n, may := s.get(one)
		count, excused, of = count+n, excused+may, of+one.of
	}
	return count, excused, of
}

// weigh says whether a count of packets fits a share between least and most.
func weigh(count, of int, least, most, unlikely float64) int {
	switch {
	case of == 0, count > 0 && most >= 1:
		return fits
	case most == 0 && count == 0:
		return fits
	case most == 0 && (count == 1 || count <= of/10_000):
		return few
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

// judgeShare judges all streams together, and each by itself: a fault of one among many is still a
// fault.
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
		case weigh(count, of, s.least, s.most, v.unlikely) == fits:
		case weigh(count-excused, of, s.least, s.most, v.unlikely) == wide:
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
		worst := slices.MaxFunc(wrong,
			func(a, b found) int { return cmp.Compare(a.count*max(1, b.of), b.count*max(1, a.of)) })
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

// judgeReorder judges the share of packets that overtake others: those that are not delayed while
// others are under way.
func (v *verifier) judgeReorder(c *Check, e topology.Impairment, samples []*sample) {
	s := happening{what: "overtook others", get: func(s *sample) (int, int) { return s.ahead, s.excused },
		excuse: "the machine is too busy", most: aheadShare}
	if asked := float64(e.Reorder); asked > 0 {
		asked /= 1 + asked*float64(max(1, e.Gap)-1)
		near := slices.DeleteFunc(slices.Clone(samples),
			func(s *sample) bool { return time.Duration(e.Delay) < 2*s.apart })
		if len(near) == 0 {
			c.untold("no two packets were on their way at a time")
			return
		}
		under := math.Inf(1)
		for _, one := range near {
			under = min(under, float64(time.Duration(e.Delay)/one.apart))
		}
		samples = near
		s.least, s.most, s.depends = asked*(1-math.Pow(asked, under-1))*(1-float64(e.Loss)), asked+aheadShare,
			e.ReorderCorrelation > 0
	}
	v.judgeShare(c, samples, s)
}
