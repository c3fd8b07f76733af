// Package report makes a report of a result: tables and figures with intervals, their fidelity, and
// published numbers beside them. It draws nothing: bench/report/page writes the page,
// bench/report/draw the pictures.
package report

import (
	"time"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// Report is the report of a result.
type Report struct {
	Path        string
	Name, Title string
	File, Text  string // the experiment's
	Command     []string
	Started     time.Time
	Seed        uint64
	Topology    string
	Factors     []result.Factor
	Probes      []Probe
	Runs, Done  int      // planned, and made
	LeftOut     []string // parts of the experiment not run because the machine lacks something; with the reasons
	Repetitions int      // the most of any cell
	Wanted      int      // repetitions in the experiment, if fewer were planned
	Notes       []string // on the whole result
	Quick       bool     // few levels, for a quick trial
	Samples     int
	Interrupted bool

	Tables  []Table
	Figures []Figure
	Paper   *Paper
	each    []*Comparison // of the key compare

	Places   []string      // of several results of one experiment: where they were measured
	Compared []*Comparison // the first place with each of the others

	Levels   map[environment.Level]int // samples by verdict
	Reasons  []Reason                  // given for doubtful and bad ones
	Failures []Failure
	failed   int // samples
	Warnings warned
	Unseen   []Unseen // what could not be observed
	Outliers []Outlier

	Environment environment.Record
	Resumes     []result.Resume
	Problems    []string // of the keys report and paper
}

// Probe is a probe with what it measured.
type Probe struct {
	Name, Kind string
	Metrics    []string
}

// Reason is a reason for verdicts of one level, with the text of one sample as an example.
type Reason struct {
	Level   environment.Level
	Code    string
	Text    string
	Samples int
}

// Unseen is what the machine did not report: in some samples, or (0) about its environment.
type Unseen struct {
	Text    string
	Samples int
}

// Failure is a text for which samples failed.
type Failure struct {
	Text  string
	Probe string
	Cells []string
	Runs  []int
}

// Warning is a warning of the statistics about some values.
type Warning struct {
	Code, Text string
	Where      []string
}

// Outlier is a value far from the others of its cell.
type Outlier struct {
	Where string // "throughput: hops 10, ovs"
	Run   int    // 0 where values were not one a run
	Value string // with its unit
	Far   bool
}

// Table is ready for printing. Each row has a cell per column; the first Heads cells are names of
// levels.
type Table struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Unit     string   `json:"unit"`
	Heads    int      `json:"heads"`
	Columns  []string `json:"columns"`
	Rows     []Row    `json:"rows"`
	Fidelity Fidelity `json:"-"`
	Notes    []string `json:"notes,omitempty"`
	Leads    bool     `json:"-"` // it is to stand before the figures
}

// Row is of a table. A rule is to stand before the first row of a group.
type Row struct {
	Cells []Cell `json:"cells"`
	Rule  bool   `json:"-"`
}

// Cell is text, of a number or not, with how far it can be trusted.
type Cell struct {
	Text  string            `json:"text"`
	Level environment.Level `json:"level,omitempty"` // "" of names
}

// Fidelity is the verdict on everything that a table or a figure shows.
type Fidelity struct {
	Level   environment.Level
	Samples int // that it is made of
	Suspect int // of these, that are not good
	Reasons []Reason
}

// Figure is a plot, in the units in which it is to be shown.
type Figure struct {
	ID       string     `json:"id"`
	Title    string     `json:"title"`
	Kind     string     `json:"kind"` // of definition
	X        Axis       `json:"x"`
	Y        Axis       `json:"y"`
	Legend   string     `json:"legend"` // dimensions of the series
	Series   []Series   `json:"series"`
	Events   []Event    `json:"events,omitempty"`
	Zero     bool       `json:"zero,omitempty"` // all values of ours are: a line on the axis, not nothing
	Fidelity Fidelity   `json:"-"`
	Caption  string     `json:"-"`
	Notes    []string   `json:"-"`
	Data     [][]string `json:"-"` // as a table, the first row being the heads
}

// Axis is of a figure. With Categories, places are their indices.
type Axis struct {
	Label      string   `json:"label"`
	Unit       string   `json:"unit"`
	Log        bool     `json:"log,omitempty"`
	Categories []string `json:"categories,omitempty"`
}

// Title is the label with the unit.
func (a Axis) Title() string {
	if a.Unit == "" || a.Unit == "1" {
		return a.Label
	}
	return a.Label + " [" + a.Unit + "]"
}

// Series is one of a figure: points of lines, bars and boxes, or the lines of cdf and time.
type Series struct {
	Name   string  `json:"name"`
	Paper  bool    `json:"paper,omitempty"` // published by others
	Points []Point `json:"points,omitempty"`
	Traces []Trace `json:"traces,omitempty"`
}

// Point is a group: its middle, with an interval.
type Point struct {
	X      float64           `json:"x"`
	Name   string            `json:"name"` // of the level
	Y      float64           `json:"y"`
	Low    stats.Float       `json:"low"`
	High   stats.Float       `json:"high"`
	N      int               `json:"n,omitempty"`
	Level  environment.Level `json:"level,omitempty"`
	Why    string            `json:"why,omitempty"`
	Values []float64         `json:"values,omitempty"` // each, where there are not too many
	Box    *BoxPlot          `json:"box,omitempty"`
}

// BoxPlot has quartiles, and the extreme values within 1.5 times the interquartile range (Tukey).
type BoxPlot struct {
	Low    float64   `json:"low"`
	Q1     float64   `json:"q1"`
	Median float64   `json:"median"`
	Q3     float64   `json:"q3"`
	High   float64   `json:"high"`
	Out    []float64 `json:"out,omitempty"` // some of the outliers, where there are many
}

// Trace is a line through many points.
type Trace struct {
	Run int       `json:"run,omitempty"`
	N   int       `json:"n"` // values of which it is made
	X   []float64 `json:"x"`
	Y   []float64 `json:"y"`
}

// Event is something that happened, at the median time over the runs.
type Event struct {
	At   float64 `json:"at"`
	What string  `json:"what"`
}

// ByLevel returns the levels, the best first, with their numbers of samples.
func (r *Report) ByLevel() (out []Fidelity) {
	for _, level := range []environment.Level{environment.Good, environment.Doubtful, environment.Bad} {
		if n := r.Levels[level]; n > 0 {
			out = append(out, Fidelity{Level: level, Samples: n})
		}
	}
	return out
}

// FailedSamples counts those that failed, whether their reasons are listed or not.
func (r *Report) FailedSamples() int { return r.failed }

// UnlistedFailures counts those of FailedSamples that are not in Failures, because there are too
// many different reasons.
func (r *Report) UnlistedFailures() int {
	n := r.failed
	for _, f := range r.Failures {
		n -= len(f.Runs)
	}
	return n
}
