// Package result reads and writes the result file of an experiment: JSON Lines, which any language
// can read. The first line is a Header, each further line a Sample (one run of a probe) or a
// Resume. docs/results.md describes the format.
package result

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/measure/environment"
)

// Schema is the version of the format. Readers accept this version only; it is incremented when a
// field changes its meaning or is removed, not when one is added.
const Schema = 1

// Kinds of lines, in their field "record".
const (
	KindHeader   = "header"
	KindSample   = "sample"
	KindResume   = "resume"
	KindMachines = "machines"
	KindLook     = "look"
)

// Header says what was measured, where and how.
type Header struct {
	Record      string             `json:"record"` // header
	Schema      int                `json:"schema"`
	Experiment  Experiment         `json:"experiment"`
	Seed        uint64             `json:"seed"` // of the order, and of what else is random
	Command     []string           `json:"command"`
	Started     time.Time          `json:"started"`
	Environment environment.Record `json:"environment"`
	LeftOut     []LeftOut          `json:"left_out,omitempty"`
}

// LeftOut is a part of the plan that was not run, because the machine lacks something: a controller
// that is not installed, a processor. A run resumed on a machine that has it can measure it.
type LeftOut struct {
	What  string   `json:"what"`            // for people: "controller=pox", "probe ditg"
	Why   string   `json:"why"`             // "pox is not installed"
	Cells []string `json:"cells"`           // their ids
	Probe string   `json:"probe,omitempty"` // only this probe of these cells
	Hint  string   `json:"hint,omitempty"`  // what to do about it
}

// Experiment describes the experiment's file.
type Experiment struct {
	Name  string `json:"name"`
	Title string `json:"title,omitempty"`
	File  string `json:"file,omitempty"`
	Text  string `json:"text,omitempty"` // of the file
	Plan  string `json:"plan"`           // hash of all that runs: only the same plan can resume a run
	Runs  int    `json:"runs"`           // planned
	// Repetitions of each cell, and how many the file has if these are fewer: for lack of time, or
	// because the user asked for that.
	Repetitions int      `json:"repetitions,omitempty"`
	Wanted      int      `json:"repetitions_wanted,omitempty"`
	Factors     []Factor `json:"factors,omitempty"`
	Rounds      int      `json:"rounds,omitempty"` // of a campaign; 0: it is no campaign
	Every       float64  `json:"every,omitempty"`  // seconds from the beginning of a round to that of the next

	// Until is set if the experiment continues until it is decided: Runs and Repetitions are then
	// the maximum.
	Until *Until `json:"until,omitempty"`

	Topologies []TopologyFile `json:"topologies,omitempty"`
}

// Until says after how many repetitions an experiment is judged that continues until all its
// statements are decided. Frequent looks would find effects by chance; the spending function gives
// the level at which each look judges, so that each statement's error rate over all looks stays
// Level.
type Until struct {
	Rule     string  `json:"rule"`     // UntilDecided
	Looks    []int   `json:"looks"`    // numbers of repetitions; the last is the maximum
	Spending string  `json:"spending"` // OBrienFleming
	Level    float64 `json:"level"`    // 0.05
}

// Values of Until's fields.
const (
	UntilDecided  = "decided"
	OBrienFleming = "obrien-fleming" // of Lan and DeMets, 1983
)

// Look is written when an experiment that continues until it is decided was judged.
type Look struct {
	Record      string    `json:"record"` // look
	Time        time.Time `json:"time"`
	Repetitions int       `json:"repetitions"`    // of each cell, so far
	Level       float64   `json:"level"`          // at which each test was judged
	Statements  []Judged  `json:"statements"`     // all of its statements, always in the same order
	Ends        string    `json:"ends,omitempty"` // the run ended here, and why: EndsDecided, EndsMost
}

// Reasons for the end of a run.
const (
	EndsDecided = "decided" // all that can be
	EndsMost    = "most"    // repetitions
)

// Judged is a statement and the finding.
type Judged struct {
	What    string `json:"what"`
	Outcome string `json:"outcome"`
	Open    bool   `json:"open,omitempty"`               // more repetitions may decide it
	Needed  int    `json:"repetitions_needed,omitempty"` // estimated number that would, at the spread so far; 0: unknown
}

// Open counts the statements that are not decided yet.
func (l *Look) Open() int {
	return lists.Count(l.Statements, func(s Judged) bool { return s.Open })
}

// TopologyFile is the file of a topology that was used, as it was then.
type TopologyFile struct {
	File string `json:"file"` // as the experiment names it
	Topo string `json:"topo,omitempty"`
	Hash string `json:"hash"` // of the file's meaning
	Text string `json:"text,omitempty"`
}

// Factor is a factor of the experiment, with its levels in the file's order.
type Factor struct {
	Name   string   `json:"name"`
	Levels []string `json:"levels"`
}

// Resume is written when a run continues after an interruption, possibly in another environment.
type Resume struct {
	Record      string             `json:"record"` // resume
	Time        time.Time          `json:"time"`
	Command     []string           `json:"command"`
	Environment environment.Record `json:"environment"`
	LeftOut     []LeftOut          `json:"left_out,omitempty"` // from then on, in place of the header's
}

// Machines records the machines that a provider makes for a run, such as a cloud's instances. A
// line is written before they are requested, when they exist, and when they are removed, all with
// one key: so however a run ends, its result shows what may be left. It contains no secret.
type Machines struct {
	Record  string          `json:"record"` // machines
	State   string          `json:"state"`  // Asked, Made or Removed
	Time    time.Time       `json:"time"`
	On      string          `json:"on"`      // the list: a file's name without its directory
	By      string          `json:"by"`      // the provider
	Options json.RawMessage `json:"options"` // what it was asked for
	Key     string          `json:"key"`     // by which it finds what it has made

	// For machines that were made, by name: the provider's description, and their own.
	Made         map[string]map[string]string  `json:"made,omitempty"`
	Environments map[string]environment.Record `json:"environments,omitempty"`
	Missing      []string                      `json:"missing,omitempty"` // why a machine gave no description
}

// States of machines.
const (
	Asked   = "asked"
	Made    = "made"
	Removed = "removed"
)

// Sample is one probe in one cell, run once.
type Sample struct {
	Record string `json:"record"` // sample
	// Number in the plan, from 1: the order in which runs take place.
	Run     int            `json:"run"`
	Cell    string         `json:"cell"`              // id of the combination of levels
	Factors map[string]any `json:"factors,omitempty"` // levels by factor: texts, numbers, booleans
	Block   int            `json:"block"`             // samples of one block were measured close together
	// What paired cells have in common, which were measured directly one after another in each
	// repetition.
	Pair       string `json:"pair,omitempty"`
	Repetition int    `json:"repetition"`        // from 1; numbered across the rounds of a campaign
	Round      int    `json:"round,omitempty"`   // of a campaign, from 1
	WarmUp     bool   `json:"warm_up,omitempty"` // not to be counted
	Probe      string `json:"probe"`             // its name in the experiment
	Kind       string `json:"kind"`              // ping, iperf3, …

	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`

	Measurements []Measurement        `json:"measurements,omitempty"`
	Events       []Event              `json:"events,omitempty"`
	Usage        *environment.Usage   `json:"usage,omitempty"`
	Verdict      *environment.Verdict `json:"verdict,omitempty"`
	Failure      string               `json:"failure,omitempty"` // why there are no measurements, or not all
	Details      json.RawMessage      `json:"details,omitempty"` // output of the tool that may be of interest
}

// Codes of reasons that others look for.
const (
	Failed = "failed"
	Behind = "sender" // a sender did not hold its rate; bad where it sent less than nine tenths
)

// Fail marks a sample as failed. Its verdict is bad, whatever was measured before.
func (s *Sample) Fail(why string) {
	s.Failure = why
	v := s.Judged()
	s.Verdict = &v
}

// Judged returns the verdict on a sample: bad if it failed, also in files of earlier versions;
// doubtful if it has none.
func (s *Sample) Judged() environment.Verdict {
	v := environment.Verdict{Level: environment.Doubtful}
	if s.Verdict != nil {
		v = *s.Verdict
	}
	if s.Failure == "" || slices.ContainsFunc(v.Reasons, func(r environment.Reason) bool { return r.Code == Failed }) {
		return v
	}
	return environment.Worst(v, environment.Verdict{Level: environment.Bad,
		Reasons: []environment.Reason{{Level: environment.Bad, Code: Failed, Text: s.Probe + " failed: " + s.Failure}}})
}

// Measurement is values of one metric.
type Measurement struct {
	Metric string            `json:"metric"`          // "rtt", "throughput"
	Unit   string            `json:"unit"`            // "s", "bit/s", "packets", "1" for shares
	Values []float64         `json:"values"`          // raw, in the order of measuring
	At     []float64         `json:"at,omitempty"`    // seconds since the sample began, one a value
	Count  int               `json:"count,omitempty"` // of a share: how many of Of
	Of     int               `json:"of,omitempty"`
	Labels map[string]string `json:"labels,omitempty"` // what tells several of one metric apart: "from": "h1"
}

// Event is something that happened while a probe ran.
type Event struct {
	At      float64 `json:"at"` // seconds since the sample began; when it was done
	What    string  `json:"what"`
	Failure string  `json:"failure,omitempty"`
}

// Share makes a measurement of a share of a total, such as packets lost.
func Share(metric string, count, of int) Measurement {
	m := Measurement{Metric: metric, Unit: "1", Count: count, Of: of}
	if of > 0 {
		m.Values = []float64{float64(count) / float64(of)}
	}
	return m
}

// Check rejects a sample that readers could not use.
func (s *Sample) Check() error {
	for i := range s.Measurements {
		if err := s.Measurements[i].check(); err != nil {
			return fmt.Errorf("probe %s, %s: %w", s.Probe, s.Measurements[i].Metric, err)
		}
	}
	if s.Failure == "" && len(s.Measurements) == 0 {
		return fmt.Errorf("probe %s measured nothing, and does not say why", s.Probe)
	}
	return nil
}

func (m *Measurement) check() error {
	switch {
	case m.Metric == "" || m.Unit == "":
		return fmt.Errorf("a measurement has a metric and a unit (1 for shares); here are %q and %q", m.Metric, m.Unit)
	case m.At != nil && len(m.At) != len(m.Values):
		return fmt.Errorf("%d values at %d times", len(m.Values), len(m.At))
	case m.Count < 0 || m.Count > m.Of:
		return fmt.Errorf("%d of %d is not a share", m.Count, m.Of)
	}
	for _, list := range [][]float64{m.Values, m.At} {
		for i, v := range list {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("value %d is %v; leave out what was not measured, and count it", i+1, v)
			}
		}
	}
	return nil
}
