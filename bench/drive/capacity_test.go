package drive

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/measure/environment"
)

// carrying is a network that carries so many packets/s, and counts how often it was tried.
type carrying struct {
	most    float64
	beyond  outcome
	stalls  map[int]bool // tries at which the machine stalls
	tries   int
	highest float64 // that was tried
}

func (c *carrying) try(rate float64) (outcome, error) {
	c.tries++
	c.highest = max(c.highest, rate)
	if rate > c.most || c.stalls[c.tries] {
		return c.beyond, nil
	}
	return isCarried, nil
}

// TestSearch proves, on networks of which the answer is known, that a search finds the highest rate
// that is carried, never more and no less than it was to; that it says what became of the next one
// tried; that it ends, at both ends as well; and never tries a rate out of its bounds.
func TestSearch(t *testing.T) {
	const least, most, within = 1000, 1e6, 0.05
	for carries := 400.0; carries < 2e6; carries *= 1.07 {
		for _, beyond := range []outcome{isLost, isUntried} {
			c := &carrying{most: carries, beyond: beyond}
			rate, above, err := rateSearch{least, most, within, c.try}.run()
			switch {
			case err != nil:
				t.Fatal(err)
			case carries < least:
				if rate != 0 || above != beyond {
					t.Errorf("of %.0f: %v, above it %s", carries, rate, above)
				}
			case carries >= most:
				if rate != most || above != isCarried {
					t.Errorf("of %.0f: %v, above it %s", carries, rate, above)
				}
			case rate > carries || rate < carries/(1+within)*(1-1e-9) || above != beyond:
				t.Errorf("of %.0f: %v, above it %s", carries, rate, above)
			}
			if c.highest > most || c.tries > 2*(8+2) { // log2(ln(1000)/ln(1.05)) is 7.1
				t.Errorf("of %.0f: %d tries, the highest of %.0f", carries, c.tries, c.highest)
			}
		}
	}
	for _, c := range []struct{ carries, least, most, want float64 }{{150, 100, 104, 104}, {102, 100, 104, 100}, {50, 100, 104, 0}} {
		network := &carrying{most: c.carries, beyond: isLost}
		if rate, _, err := (rateSearch{c.least, c.most, within, network.try}).run(); rate != c.want || err != nil {
			t.Errorf("between ends that are close, of %v: %v, %v", c.carries, rate, err)
		}
	}
}

// TestSearchStalls proves that a machine which stalls once at any try changes nothing of what is
// found, and that a search which cannot go on says so.
func TestSearchStalls(t *testing.T) {
	whole := &carrying{most: 54_321, beyond: isLost}
	want, _, err := rateSearch{1000, 1e6, 0.05, whole.try}.run()
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= whole.tries; n++ {
		c := &carrying{most: 54_321, beyond: isLost, stalls: map[int]bool{n: true}}
		if got, above, err := (rateSearch{1000, 1e6, 0.05, c.try}).run(); got != want || above != isLost || err != nil {
			t.Errorf("where try %d stalls it finds %v, not %v: %s, %v", n, got, want, above, err)
		}
	}
	broken := errors.New("broken")
	if _, _, err := (rateSearch{1000, 1e6, 0.05, func(float64) (outcome, error) { return isLost, broken }}).run(); !errors.Is(err, broken) {
		t.Errorf("of a network that breaks: %v", err)
	}
}

// TestTrial proves what a trial says of its rate: that it is carried while no more than the share
// is lost, that what senders did not send or receivers not take in is not the network's loss, and
// that what the network lost counts whatever senders did.
func TestTrial(t *testing.T) {
	for _, c := range []struct {
		trial
		want outcome
	}{
		{trial{Sent: 1000, Lost: 1, Held: 1}, isCarried},
		{trial{Sent: 1000, Lost: 2, Held: 1}, isLost},
		{trial{Sent: 1000, Held: 0.91}, isCarried},
		{trial{Sent: 1000, Held: 0.89}, isUntried},
		{trial{Sent: 1000, Dropped: 2, Held: 1}, isUntried},
		{trial{Sent: 1000, Lost: 2, Held: 0.5}, isLost},
	} {
		if got := c.outcome(0.001); got != c.want {
			t.Errorf("%+v: %s, not %s", c.trial, got, c.want)
		}
	}
	if got := (trial{Sent: 10, Lost: 1, Held: 1}).outcome(0); got != isLost {
		t.Errorf("where nothing may be lost one of ten is %s", got)
	}
	for _, c := range []struct {
		above outcome
		held  float64
		alone bool
		level environment.Level
		text  string
	}{
		{isLost, 1, true, environment.Good, ""},
		{isUntried, 1, true, environment.Doubtful, "senders and receivers were the limit"},
		{isCarried, 1, true, environment.Doubtful, "higher most"},
		{isLost, 0.8, true, environment.Doubtful, "only 80 %"},
		{isLost, 1, false, environment.Bad, "at the same time"},
	} {
		got := sure(c.above, trial{Held: 1, SentRate: 1000}, trial{Held: c.held}, c.alone)
		if c.text == "" && len(got) == 0 {
			continue
		}
		if len(got) != 1 || got[0].Level != c.level || got[0].Code != "capacity" || !strings.Contains(got[0].Text, c.text) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestFound proves that a rate is the network's capacity only where the network refused the one
// above: where senders were the limit, or nothing above was tried, no metric says that it is more
// than a lower bound.
func TestFound(t *testing.T) {
	for above, want := range map[outcome]string{
		isLost: "capacity", isUntried: "capacity_at_least", isCarried: "capacity_at_least",
	} {
		m := found(above, trial{SentRate: 1000})
		if m.Metric != want || m.Unit != "packets/s" || len(m.Values) != 1 || m.Values[0] != 1000 {
			t.Errorf("%s above: %+v", above, m)
		}
	}
}

// TestBest proves that of the trials that were carried that one counts which really sent most, not
// the one that was asked for most.
func TestBest(t *testing.T) {
	all := trials{done: []trial{{Rate: 10, SentRate: 10, Sent: 10, Held: 1}, {Rate: 12, SentRate: 9.5, Sent: 10, Held: 0.95},
		{Rate: 14, SentRate: 14, Sent: 10, Lost: 5, Held: 1}, {Rate: 16, SentRate: 11, Sent: 10, Held: 0.7}}}
	if got := all.best(0.001); got.Rate != 10 {
		t.Errorf("%+v", got)
	}
}

// TestCapacity proves on a lab whose answer is known, links of 8 Mbit/s with short queues, that the
// rate that is found is what the link carries, of two senders over one link together as of one
// alone; that less is lost below it than above; and that the link's drops are told, and expected.
func TestCapacity(t *testing.T) {
	i, probes := bring(t, `
topology:
  nodes: {s1: switch, s2: switch, 'h[1-4]': host}
  links: [s1 -- s2: {bandwidth: 8mbit, queue: 5}, h1 -- s1, h2 -- s2, h3 -- s1, h4 -- s2]
lab: {datapath: bridge, controller: none}
probes:
  - capacity: {from: h1, to: h2, size: 958, loss: 1%, least: 300, most: 3000, within: 3%}
  - capacity: {name: two, from: h1, to: h2, with: h3 to h4, size: 958, loss: 1%, least: 150, most: 1500, within: 3%}
`)
	const carries = 1000.0 // frames of 14 + 20 + 8 + 958 bytes
	for _, name := range []string{"capacity", "two"} {
		o, err := i.Run(t.Context(), probes[name], time.Now(), func() {})
		if err != nil && strings.Contains(err.Error(), "the machine is too busy") {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		declared(t, probes[name], o)
		v := valuesOf(o)
		t.Logf("%s: %v %s %s", name, v, reasonsOf(o.Reasons), o.Details)
		carried := append(v["capacity"], v["capacity_at_least"]...)
		if len(carried) != 1 || carried[0] > 1.1*carries {
			t.Errorf("%s: a link that carries %v packets/s is said to carry %v", name, carries, carried)
		}
		if len(o.Reasons) > 0 || v["capacity"] == nil {
			t.Logf("%s: the machine could not send as much", name)
			continue
		}
		if v["capacity"][0] < 0.9*carries || v["loss_below"][0] > 0.01 || v["loss_above"][0] <= 0.01 || v["loss_above"][0] > 0.2 {
			t.Errorf("%s: %v", name, v)
		}
		at := false
		for _, m := range o.Measurements {
			at = at || m.Metric == "dropped_at" && strings.Contains(m.Labels["at"], "s1-eth") && m.Values[0] > 0
		}
		if !at {
			t.Errorf("%s: it is not said where packets were dropped: %+v", name, o.Measurements)
		}
	}
	for _, d := range dropsOf(t, i) {
		if !d.Expected {
			t.Errorf("%s: drops are not expected where more is sent than a network carries", d.Where)
		}
	}
}

// TestCapacityOptions proves what is refused before anything runs, with what to do, and that a
// search takes about as long as is said.
func TestCapacityOptions(t *testing.T) {
	for options, want := range map[string]string{
		"with: c2 d2":               "c2 to d2, c3 to d3",
		"with: h1 to h1":            "who sends to whom",
		"with: 'h3 to h2,'":         "who sends to whom",
		"least: 1000, most: 1000":   "higher most",
		"within: 0%":                "from 0.1 % to 100 %",
		"loss: 60%":                 "more than half",
		"time: 1h, most: 9000000":   "thousand million",
		"most: 10000000":            "too much",
		"with: h3 to h9":            "there is no node h9",
		"with: h3 to s1":            "s1 cannot run programs",
		"with: h3 to h2, ipv6: yes": "ipv6",
	} {
		text := "topology: {nodes: {s1: switch, 'h[1-3]': host}, links: ['s1 -- h[1-3]']}\nlab: {controller: none, datapath: bridge}\n" +
			"probes: [capacity: {from: h1, to: h2, " + options + "}]\n"
		e, problems := experiment.Read("x.yaml", []byte(text), Vocabulary())
		err := problems.Err()
		if err == nil {
			var p *experiment.Plan
			if p, problems = e.Plan(); problems.Err() == nil {
				problems = nil
				err = Check(p)
			} else {
				err = problems.Err()
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", options, err)
		}
	}
	o := experiment.Options{"least": "1000", "most": "1000000", "within": "5%", "time": "1s"}
	if got := searching(o, experiment.Lab{}); math.Abs(got.Seconds()-15*2.2) > 0.01 {
		t.Errorf("8 halvings, of which 4 twice, an end, and two trials more take %s", got.Round(time.Millisecond))
	}
}
