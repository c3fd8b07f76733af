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

// Level is how far a result can be trusted.
type Level string

// Levels.
const (
	Good     Level = "good"     // nothing speaks against the result
	Doubtful Level = "doubtful" // the machine may have influenced it, for the reasons given
	Bad      Level = "bad"      // it is not what was to be measured
)

// Verdict is a level and the reasons for it. A good one has none.
type Verdict struct {
	Level   Level    `json:"level"`
	Reasons []Reason `json:"reasons,omitempty"`
}

// Reason is something that speaks against a result.
type Reason struct {
	Level Level  `json:"level"`
	Code  string `json:"code"` // stable, for programs: "cpu", "link-delay"
	Text  string `json:"text"`
}

// LinkCheck is what one direction of a link was configured to do, and what was observed. What was
// not configured or not observed is zero, and is not judged.
type LinkCheck struct {
	Link       string        `json:"link"`
	AskedDelay time.Duration `json:"asked_delay_ns,omitempty"`
	GivenDelay time.Duration `json:"given_delay_ns,omitempty"` // without the path's own delay
	AskedRate  float64       `json:"asked_rate,omitempty"`     // bit/s
	GivenRate  float64       `json:"given_rate,omitempty"`     // maximum throughput observed while the link was full
	AskedLoss  float64       `json:"asked_loss,omitempty"`     // share of packets
	// Including damaged packets, most of which receivers drop; 0: AskedLoss.
	MostLoss float64 `json:"most_loss,omitempty"`
	Lost     int     `json:"lost,omitempty"` // packets, of Sent
	Sent     int     `json:"sent,omitempty"`

	AskedTwice float64 `json:"asked_twice,omitempty"` // share of packets
	Twice      int     `json:"twice,omitempty"`       // packets that arrived more than once, of Came
	Overtaken  int     `json:"overtaken,omitempty"`   // packets that arrived after a later one although none should, of Came
	Came       int     `json:"came,omitempty"`

	// Of packets whose delay should be constant.
	Late   int           `json:"late,omitempty"` // noticeably slower than the fastest, of Timed
	Timed  int           `json:"timed,omitempty"`
	Spread time.Duration `json:"spread_ns,omitempty"` // mean delay beyond the fastest
}

// Evidence is what a verdict is based on.
type Evidence struct {
	Usage *Usage      `json:"usage,omitempty"` // nil: there was no watch
	Links []LinkCheck `json:"links,omitempty"`
	Drops []Drops     `json:"drops,omitempty"`
	Other []Reason    `json:"other,omitempty"` // a probe's own objections to its results
}

// Limits are thresholds: a result beyond the first is doubtful, beyond the second bad.
type Limits struct {
	// Share of all processors' time, on average: the result may be that of the processors, not of
	// the network.
	Busy        [2]float64
	SoftIRQCore [2]float64 // share of one processor's time: packets wait for that processor
	Pressure    [2]float64 // share of the time in which some task waited for a processor
	RunQueue    [2]float64 // tasks per processor, on average
	Steal       [2]float64 // share of time taken by the hypervisor
	Gap         [2]float64 // longest time between samples, in intervals: the watch itself had to wait
	Backlog     [2]float64 // share of packets that the kernel's backlog dropped
	Squeezed    [2]float64 // times per second that reception exhausted its budget; the second is infinite: never bad
	Clock       [2]float64 // jump of the wall clock, in seconds
	Delay       [2]float64 // deviation from the configured delay, as a share of it
	DelayFloor  float64    // deviation that is always allowed, in seconds: timers and wake-ups
	RateBelow   [2]float64 // share of the configured rate that is missing
	RateAbove   [2]float64 // share by which the rate is exceeded
	Loss        [2]float64 // confidence of Wilson's interval of the loss that excludes the configured loss
	// Share of packets dropped or duplicated where none should be; even a single one is doubtful.
	Drops     [2]float64
	Overtaken [2]float64 // share of packets that came after a later one
	Late      float64    // share of packets slower than others although the machine had time: doubtful
	Spread    float64    // their mean extra delay, in seconds: doubtful
	Idle      [2]float64 // pressure, and share of all processors' time, up to which a machine had time
}

// DefaultLimits are the usual limits. A probe of maximum throughput saturates a small machine and
// is doubtful: its result depends on the processors as well as on the network.
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

// Judge returns the verdict on a measurement, which depends on the evidence only.
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

// Worst combines the verdicts on parts of a whole, such as the probes of a run: the worst level,
// with all reasons once.
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

// Together returns the verdict on a value made of several samples: bad if at least half are bad,
// otherwise doubtful if any is not good; with all reasons once. The terminal, reports and
// comparisons all use this rule.
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
	where  string // prefix of the reasons' texts: "m1: "
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

// beyond adds a reason if a value exceeds its limits; an absent value exceeds none.
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
	besides := strings.ReplaceAll(u.besides(), "%", "%%") // escaped for formats
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
		share := math.Inf(1) // a delay where none was configured
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

// came judges duplicated and reordered packets.
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

// late judges delays that differ although they should not, and although the machine had time.
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

// idle reports whether a machine, and those of other sites, had time for all tasks.
func (l Limits) idle(u Usage) bool {
	for _, s := range u.Sites {
		if !l.idle(s.Usage) {
			return false
		}
	}
	// Written so that values that the kernel does not provide (NaN) count as idle.
	return u.Looks > 0 && !(float64(u.Pressure) > l.Idle[0]) && !(float64(u.Busy) > l.Idle[1])
}

// share judges how many of a number of packets were affected, by how unlikely that is if the
// configured share is between least and most.
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
