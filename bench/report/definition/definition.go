// Package definition reads the keys report: and paper: of an experiment file, see
// docs/experiments.md. It does not depend on results.
package definition

import (
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/topology/formats"
)

// Definition is what a report shows, and the numbers published by others. Empty: defaults.
type Definition struct {
	Figures  []Figure
	Tables   []Table
	Compares []Compare
	Paper    *Paper

	// Levels of factors whose labs are Mininet's, by factor: those that runs at other machines
	// (--on) leave out.
	Mininet map[string][]string
}

// Condition is a level, or several of which one must hold, for each dimension that it names.
type Condition []Level

// Level is of a dimension: a factor, a label of the measurements, or probe.
type Level struct {
	Dimension string   `json:"dimension"`
	Any       []string `json:"any"`
}

// Get returns the levels that a dimension may have; nil: any.
func (c Condition) Get(dimension string) []string {
	for _, l := range c {
		if l.Dimension == dimension {
			return l.Any
		}
	}
	return nil
}

// Source selects values.
type Source struct {
	Title  string
	Metric string // "rtt", "usage.busy"
	Probe  string // where several give the metric; "" is all
	Each   string // what stands for a repetition of several values: one of eaches
	Of     string // Repetitions or Values; "" is what the kind of figure has
	Unit   string // to show; "" is what suits
	Note   string // what to know about it: factors of a paper that are not varied here
	Where  Condition
}

// LogAxes says which axes a scale makes logarithmic.
func LogAxes(scale string) (x, y bool) {
	return scale == LogX || scale == LogLog, scale == Log || scale == LogLog
}

// Values of Source.Of.
const (
	Repetitions = "repetitions" // one value each
	Values      = "values"      // all of them
	Slope       = "slope"       // of a trend: by how much a repetition's values rise for each unit of its factor
	Curvature   = "curvature"   // of a trend that is linear: how far a repetition's values bend
)

// Figure is a plot.
type Figure struct {
	Source
	Kind   string // one of the constants below; "" is Line or Bar, as x is
	X      string // dimension; "" is by default
	Series []string
	Y      string // Mean or Median
	Scale  string // "", Log, LogX, LogLog
}

// Kinds of figures.
const (
	Line = "line"
	Bar  = "bar"
	Box  = "box"
	CDF  = "cdf"
	Time = "time"
)

// What stands for several values.
const (
	Mean   = "mean"
	Median = "median"
)

// Scales; the other is linear.
const (
	Log    = "log" // of y
	LogX   = "log-x"
	LogLog = "log-log"
)

// Table is numbers in rows and columns.
type Table struct {
	Source
	Rows, Columns []string // dimensions, crossed
	Values        []string // of columnValues
	Gap           []string // two levels of the only dimension of rows, or nothing
	Below         []string // of belows: what of each column stands below it
}

// Compare is each two levels of a factor beside each other, metric by metric: the metrics of the
// figures and tables.
type Compare struct {
	Title, Note string
	Factor      string
	Margins     map[string]Margin // up to which differences do not matter, by metric; "" is for all others
}

// Paper is what others have published.
type Paper struct {
	Source, Note string
	Numbers      []Number
	Spreads      []Spread
	Trends       []Trend
}

// Spread is a published deviation or variance: of how far the means of a factor's levels, or a
// label's, lie apart.
type Spread struct {
	Number        // its unit is that of the deviation
	Of     string // Deviation or Variance, both of samples: their squares are divided by n-1
	Over   string // dimension, of which each level counts once, by the mean of its repetitions
}

// What a Spread is.
const (
	Deviation = "deviation"
	Variance  = "variance"
)

// Number is a published one.
type Number struct {
	Source
	Y      string // Mean or Median
	Value  float64
	Within float64 // share by which ours may be off; 0: not judged
}

// Trend is a published statement. Source.Where is whom it is about.
type Trend struct {
	Source
	Text   string
	Is     string
	Along  string
	Than   Condition
	Limit  *float64 // instead of Than; in Unit
	Factor float64  // of Times: by what the other is to be multiplied
	Within float64  // share that does not matter
	Needs  Need     // without which it is neither shown nor refuted
	// What the paper says elsewhere against it, in words: the text of another statement, or a
	// quotation; "": nothing.
	Contradicts string
}

// Need is what of the place of a measurement a Trend is about; What is "" where any will do.
type Need struct {
	What       string // one of the constants below
	Processors int    // of Processors: at least so many
}

// What a Trend may need.
const (
	KVM        = "kvm"        // virtual machines whose processors are not emulated
	SMT        = "smt"        // processors of which a core has several threads
	Device     = "device"     // a device of its own for what stands for it here
	Load       = "load"       // senders that send what they are asked to
	Processors = "processors" // so many
)

// What a Trend says.
const (
	Falls = "falls"
	Rises = "rises"
	Flat  = "flat"
	Above = "above"
	Below = "below"

	Times  = "times"  // Factor times the other one
	Linear = "linear" // rises or falls along a factor, by a line

	Steeper = "steeper" // its logarithm rises more along a factor than the other one's
)

var (
	kinds        = []string{Line, Bar, Box, CDF, Time}
	eaches       = []string{Mean, Median, "min", "max", "p5", "p95", "p99", "sum", "first", "last", "count"}
	columnValues = []string{Mean, Median, "deviation", "variance", "interval", "min", "max", "p5", "p95", "p99", "n"}
	scales       = []string{"linear", Log, LogX, LogLog}
	belows       = []string{Mean, Median, "min", "max"}
	statements   = []string{Falls, Rises, Flat, Linear, Above, Below, Times, Steeper}
	middles      = []string{Mean, Median}
	spreads      = []string{Deviation, Variance}
	ofs          = []string{Repetitions, Values}
	trendOfs     = []string{Repetitions, Values, Slope, Curvature} // of which Values has an error of its own
	needWords    = []string{KVM, SMT, Device, Load}
)

// CheckEach refuses what cannot stand for several values.
func CheckEach(each string) error {
	if each == "" || slices.Contains(eaches, each) {
		return nil
	}
	return fmt.Errorf("%q cannot stand for several values; choose one of %s", formats.Clip(each),
		strings.Join(eaches, ", "))
}

// Bounds on what a file may ask for: it may be anybody's.
const (
	maxFigures  = 100
	maxCompares = 5
	maxNumbers  = 2000
	maxTrends   = 300
	maxLevels   = 1000 // of a condition
	maxNeeded   = 4096 // processors
)
