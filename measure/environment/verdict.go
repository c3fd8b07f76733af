package environment

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/stats"
)

// Level is how far a figure can be trusted.
type Level string

// Levels.
const (
	Good     Level = "good"     // nothing speaks against the figure
	Doubtful Level = "doubtful" // it may be that of the machine: the reasons say why
	Bad      Level = "bad"      // it is not what was to be measured
)

// Verdict is a level with what led to it. A good one has no reasons.
type Verdict struct {
	Level   Level    `json:"level"`
	Reasons []Reason `json:"reasons,omitempty"`
}

// Reason is one thing that speaks against a figure.
type Reason struct {
	Level Level  `json:"level"`
	Code  string `json:"code"` // stable, for programs: "cpu", "link-delay"
	Text  string `json:"text"`
}

// LinkCheck is what one direction of a link was asked to do, and what it was seen to
// do. What was not asked for or not looked at is zero, and not judged.
type LinkCheck struct {
	Link       string        `json:"link"`
	AskedDelay time.Duration `json:"asked_delay_ns,omitempty"`
	GivenDelay time.Duration `json:"given_delay_ns,omitempty"` // without what the path costs otherwise
	AskedRate  float64       `json:"asked_rate,omitempty"`     // bit/s
	GivenRate  float64       `json:"given_rate,omitempty"`     // the most it was seen to carry while it was full
	AskedLoss  float64       `json:"asked_loss,omitempty"`     // share of packets
	// With those that are damaged, of which a receiver drops most; 0: AskedLoss.
	MostLoss float64 `json:"most_loss,omitempty"`
	Lost     int     `json:"lost,omitempty"` // packets, of Sent
	Sent     int     `json:"sent,omitempty"`

	AskedTwice float64 `json:"asked_twice,omitempty"` // share of packets
	Twice      int     `json:"twice,omitempty"`       // packets that came more than once, of Came
	Overtaken  int     `json:"overtaken,omitempty"`   // packets that came after a later one where none should, of Came
	Came       int     `json:"came,omitempty"`

	// Of packets that should all take the same time.
	Late   int           `json:"late,omitempty"` // took longer than the fastest, here and there, of Timed
	Timed  int           `json:"timed,omitempty"`
	Spread time.Duration `json:"spread_ns,omitempty"` // how much longer they took on average
}

// Evidence is what a verdict is on.
type Evidence struct {
	Usage *Usage      `json:"usage,omitempty"` // nil: nobody watched
	Links []LinkCheck `json:"links,omitempty"`
	Drops []Drops     `json:"drops,omitempty"`
	Other []Reason    `json:"other,omitempty"` // what a probe itself has against its figures
}

// Limits are the thresholds: beyond the first a figure is doubtful, beyond the second bad.
type Limits struct {
	// Share of all processors' time, on average: the figure may be the processors', not the
	// network's.
	Busy        [2]float64
	SoftIRQCore [2]float64 // share of one processor's time: packets wait for that processor
	Pressure    [2]float64 // share of the time in which some task waited for a processor
	RunQueue    [2]float64 // tasks per processor, on average
	Steal       [2]float64 // share: the machine's host was doing something else
	Gap         [2]float64 // the longest gap between looks, in intervals: the watch itself had to wait
	Backlog     [2]float64 // share of packets that the kernel's backlog dropped
	Squeezed    [2]float64 // times a second that reception ran out of its budget; the second is infinite: never bad
	Clock       [2]float64 // seconds that the wall clock jumped
	Delay       [2]float64 // share of the asked delay that the given one is off
	DelayFloor  float64    // seconds that a delay may always be off: timers and wake-ups
	RateBelow   [2]float64 // share of the asked rate that is missing
	RateAbove   [2]float64 // share that is too much
	Loss        [2]float64 // confidence of Wilson's interval of the loss, outside of which the asked loss lies
	// Share of packets dropped, or that came twice, where none should be; also any at all is
	// doubtful.
	Drops     [2]float64
	Overtaken [2]float64 // share of packets that came after a later one
	Late      float64    // share of packets that took longer than others on a machine that had time: doubtful
	Spread    float64    // seconds that they took longer on average: doubtful
	Idle      [2]float64 // share of pressure, and of all processors' time, up to which a machine had time
}

// DefaultLimits say what is usual. A probe of the greatest throughput keeps a small machine busy
// and will be doubtful: its figure is that of the processors as well as of the network.
var DefaultLimits = Limits{
	Busy:        [2]float64{0.90, 0.99},
	SoftIRQCore: [2]float64{0.60, 0.95},
	Pressure:    [2]float64{0.30, 0.80},
	RunQueue:    [2]float64{2, 6},
	Steal:       [2]float64{0.02, 0.10},
	Gap:         [2]float64{3, 15},
	Backlog:     [2]float64{0, 0.001},
	Squeezed:    [2]float64{20, math.Inf(1)},
	Clock:       [2]float64{0.001, 0.1},
	Delay:       [2]float64{0.05, 0.25},
	DelayFloor:  0.0002,
	RateBelow:   [2]float64{0.05, 0.20},
	RateAbove:   [2]float64{0.02, 0.10},
	Loss:        [2]float64{0.999, 0.999999999},
	Drops:       [2]float64{0, 0.001},
	Overtaken:   [2]float64{0.001, 0.01},
	Late:        0.05,
	Spread:      0.001,
	Idle:        [2]float64{0.10, 0.50},
}

// Judge gives the verdict on what was measured, by its evidence alone.
func Judge(e Evidence, l Limits) Verdict {
	j := judge{limits: l, Verdict: Verdict{Level: Good}}
	if e.Usage == nil {
		j.add(Doubtful, "unwatched", "the machine was not watched during it")
	} else {
		j.machine(*e.Usage)
		if nodes := e.Usage.Emulated(); len(nodes) > 0 {
			j.add(Doubtful, "emulated", "QEMU emulated the %s of %s: what goes through them is as slow as that",
				words.Plural(len(nodes), "processor"), words.Some(nodes))
		}
		for _, name := range slices.Sorted(maps.Keys(e.Usage.Sites)) {
			j.where = name + ": "
			j.machine(e.Usage.Sites[name].Usage)
		}
		j.where = ""
	}
	idle := e.Usage != nil && l.idle(*e.Usage)
	for _, link := range e.Links {
		j.link(link)
		if idle {
			j.late(link)
		}
	}
	for _, d := range e.Drops {
		j.drops(d)
	}
	for _, r := range e.Other {
		j.add(r.Level, r.Code, "%s", r.Text)
	}
	return j.Verdict
}

// Worst is the verdict on what is no better than its worst part, such as the probes of one run: the
// worst level, with all reasons once.
func Worst(verdicts ...Verdict) Verdict {
	j := judge{Verdict: Verdict{Level: Good}}
	seen := map[Reason]bool{}
	for _, v := range verdicts {
		j.Level = worse(j.Level, v.Level)
		for _, r := range v.Reasons {
			if !seen[r] {
				seen[r] = true
				j.add(r.Level, r.Code, "%s", r.Text)
			}
		}
	}
	return j.Verdict
}

// Together is the verdict on a figure that several samples make: doubtful where any of them is not
// good, bad where at least half are, with all reasons once. It is the one rule of the terminal, of
// reports and of comparisons.
func Together(samples ...Verdict) Verdict {
	out := Worst(samples...)
	bad := lists.Count(samples, func(v Verdict) bool { return v.Level == Bad })
	if out.Level == Bad && 2*bad < len(samples) {
		out.Level = Doubtful
	}
	return out
}

type judge struct {
	Verdict
	limits Limits
	where  string // what the texts of reasons begin with: "m1: "
}

func worse(a, b Level) Level {
	rank := map[Level]int{Good: 0, Doubtful: 1, Bad: 2}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

func (j *judge) add(level Level, code, format string, args ...any) {
	j.Level = worse(j.Level, level)
	j.Reasons = append(j.Reasons, Reason{level, code, j.where + fmt.Sprintf(format, args...)})
}

// beyond adds a reason where a value is beyond its limits; a value that there is not is beyond
// none.
func (j *judge) beyond(value float64, limits [2]float64, code, format string, args ...any) {
	switch {
	case value > limits[1]:
		j.add(Bad, code, format, args...)
	case value > limits[0]:
		j.add(Doubtful, code, format, args...)
	}
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

func (j *judge) machine(u Usage) {
	l := j.limits
	if u.Looks == 0 {
		j.add(Doubtful, "unwatched", "the watch took no sample of the machine during it")
		return
	}
	share := func(value stats.Float, limits [2]float64, code, format string) {
		j.beyond(float64(value), limits, code, format, percent(float64(value)))
	}
	besides := strings.ReplaceAll(u.besides(), "%", "%%") // in formats
	share(u.Busy, l.Busy, "cpu", "CPU %s: the figure may be the processors', not the network's"+besides)
	share(u.SoftIRQCore, l.SoftIRQCore, "softirq", "one processor spent %s of its time on receiving packets")
	share(u.Pressure, l.Pressure, "pressure", "tasks waited for a processor %s of the time"+besides)
	share(u.Steal, l.Steal, "steal", "the host of this virtual machine took %s of the processors' time")
	if u.Processors > 0 {
		each := u.RunQueue / float64(u.Processors)
		j.beyond(each, l.RunQueue, "run-queue", "%.1f tasks competed for each processor on average"+besides, each)
	}
	if u.Interval > 0 {
		j.beyond(u.LongestGap/u.Interval, l.Gap, "gap",
			"the watch, which samples every %.3g s, once had to wait %.3g s", u.Interval, u.LongestGap)
	}
	j.beyond(u.Clock.Largest, l.Clock, "clock", "the wall clock jumped by %.3g s", u.Clock.Largest)
	for _, d := range u.Drops {
		if !d.Expected {
			j.drops(d)
		}
	}
	if s := u.Softnet; s != nil {
		if s.Dropped > 0 {
			j.beyond(float64(s.Dropped)/float64(max(s.Dropped, s.Processed)), l.Backlog, "backlog",
				"the kernel dropped %d packets on reception (its backlog was full)", s.Dropped)
		}
		if u.Seconds > 0 {
			each := float64(s.Squeezed) / u.Seconds
			j.beyond(each, l.Squeezed, "squeezed", "packet reception ran out of its budget %.3g times a second", each)
		}
	}
}

func (j *judge) link(c LinkCheck) {
	l := j.limits
	if c.GivenDelay != 0 {
		off := (c.GivenDelay - c.AskedDelay).Seconds()
		share := math.Inf(1) // a delay where none was asked for
		if c.AskedDelay > 0 {
			share = math.Abs(off) / c.AskedDelay.Seconds()
		}
		if math.Abs(off) > l.DelayFloor {
			j.beyond(share, l.Delay, "link-delay", "%s gave a delay of %v, not %v", c.Link, c.GivenDelay, c.AskedDelay)
		}
	}
	if c.AskedRate > 0 && c.GivenRate > 0 {
		text := fmt.Sprintf("%s gave %.4g Mbit/s, not %.4g", c.Link, c.GivenRate/1e6, c.AskedRate/1e6)
		share := c.GivenRate/c.AskedRate - 1
		j.beyond(-share, l.RateBelow, "link-rate", "%s", text)
		j.beyond(share, l.RateAbove, "link-rate", "%s", text)
	}
	if c.Sent > 0 {
		if most := max(c.AskedLoss, c.MostLoss); most > 0 {
			j.share("link-loss", c.Link+" lost", c.Lost, c.Sent, c.AskedLoss, most)
		} else {
			j.drops(Drops{Where: c.Link, Packets: uint64(c.Lost), Of: uint64(c.Sent)})
		}
	}
	if c.Came > 0 {
		j.came(c)
	}
}

// came judges packets that came twice, or after later ones.
func (j *judge) came(c LinkCheck) {
	if c.AskedTwice > 0 {
		j.share("link-duplicates", c.Link+" duplicated", c.Twice, c.Came, c.AskedTwice, c.AskedTwice)
	} else {
		j.beyond(float64(c.Twice)/float64(c.Came), j.limits.Drops, "link-duplicates",
			"%s delivered %d of %d packets twice, where none should come twice", c.Link, c.Twice, c.Came)
	}
	j.beyond(float64(c.Overtaken)/float64(c.Came), j.limits.Overtaken, "link-order",
		"%s delivered %d of %d packets after later ones, where none should be overtaken", c.Link, c.Overtaken, c.Came)
}

// late judges delays that are not alike although they should be, and the machine had time.
func (j *judge) late(c LinkCheck) {
	if c.Timed > 0 {
		if sure, err := stats.Wilson(c.Late, c.Timed, j.limits.Loss[0]); err == nil &&
			float64(sure.Low) > j.limits.Late {
			j.add(Doubtful, "link-late", "%s delivered %d of %d packets later than the fastest, although the machine had time: the delay is not the one that was asked for", c.Link, c.Late, c.Timed)
		}
	}
	if c.Spread.Seconds() > j.limits.Spread {
		j.add(Doubtful, "link-late",
			"%s took %v longer on average than for the fastest packets, although the machine had time", c.Link,
			c.Spread.Round(time.Microsecond))
	}
}

// idle says whether a machine, and those of other sites, had time for all that wanted to run.
func (l Limits) idle(u Usage) bool {
	for _, s := range u.Sites {
		if !l.idle(s.Usage) {
			return false
		}
	}
	// What there is not, as no kernel told it, speaks against nothing.
	return u.Looks > 0 && !(float64(u.Pressure) > l.Idle[0]) && !(float64(u.Busy) > l.Idle[1])
}

// share judges how many of how many something happened to, by how unlikely that is where the share
// that was asked for lies between two.
func (j *judge) share(code, what string, count, of int, least, most float64) {
	level := Good
	for i, as := range []Level{Doubtful, Bad} {
		interval, err := stats.Wilson(min(count, of), of, j.limits.Loss[i])
		if err != nil {
			j.add(Doubtful, code, "%s: %s", what, err)
			return
		}
		if most < float64(interval.Low) || least > float64(interval.High) {
			level = as
		}
	}
	if level != Good {
		asked := percent(least)
		if most > least {
			asked += " to " + percent(most)
		}
		j.add(level, code, "%s %s of %d packets, not %s", what, percent(float64(count)/float64(of)), of, asked)
	}
}

func (j *judge) drops(d Drops) {
	if d.Packets == 0 {
		return
	}
	text := fmt.Sprintf("%s dropped %d packets where none should be dropped", d.Where, d.Packets)
	if d.Of == 0 {
		j.add(Doubtful, "drops", "%s", text)
		return
	}
	j.beyond(float64(d.Packets)/float64(max(d.Packets, d.Of)), j.limits.Drops, "drops", "%s (%s)", text,
		percent(float64(d.Packets)/float64(d.Of)))
}
