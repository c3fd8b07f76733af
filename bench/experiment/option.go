package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// Type is the type of an option's value.
type Type string

// Types of options, and how their values are written.
const (
	Text   Type = "text"
	Node   Type = "node"   // a node's name: h1
	Whole  Type = "whole"  // a number without fraction: 100
	Number Type = "number" // 0.5
	Time   Type = "time"   // 50ms
	Rate   Type = "rate"   // of bits: 100mbit
	Share  Type = "share"  // 0.1%
	Truth  Type = "truth"  // true, false
	Word   Type = "word"   // one of Option.Words
)

// Option is a setting of a probe, or of a lab.
type Option struct {
	Name, Doc string
	Type      Type
	Default   string // used where the file says nothing; "" is not set
	Required  bool
	Example   string   // value in a draft; for required options except from and to
	Words     []string // of type Word
	Least     float64  // of type Whole and Number
	Most      float64  // the same; 0: any
}

// ProbeKind is a kind of probe, with what an experiment's file and a plan have to know of it.
type ProbeKind struct {
	Name, Doc string
	Options   []Option
	Check     func(Options) error              // checks options together; may be nil
	Estimate  func(Options, Lab) time.Duration // its duration; nil: no time
	Patience  func(Options) time.Duration      // minimum timeout, whatever the estimate; may be nil

	Metrics []Metric
	Metric  func(Options) Metric // in place of Metrics, if the options determine what is measured

	OwnLab     bool // it brings up the cell's lab by itself, and needs none that is up
	Answered   bool // the node that it sends to only answers: it may be a switch, which runs no programs
	Events     bool // it measures the effect of an event: a draft has one
	Controller bool // it asks the lab's controller, so there must be one
	Looks      bool // it observes the others of its group, which begin once it is ready
}

// Metric is something that a probe measures: its unit, and the labels that distinguish several
// measurements.
type Metric struct {
	Name, Unit string
	Labels     []string
}

// Measures returns the metrics of a probe.
func (p *Probe) Measures() []Metric {
	if p.kind.Metric != nil {
		return []Metric{p.kind.Metric(p.Options)}
	}
	return p.kind.Metrics
}

// Vocabulary has the keywords of a file.
type Vocabulary struct {
	Probes []ProbeKind
	Lab    []Option                // of lab:, besides links and change
	Up     func(Lab) time.Duration // time to bring a lab up and down; nil: no time
}

// check checks options together.
func (k *ProbeKind) check(o Options) error {
	if to := o["to"]; to != "" && to == o["from"] {
		return topology.Mistaken("name two different nodes", "from and to are both %s", to)
	}
	if t := o["time"]; t != "" && o.Time("time") <= 0 {
		return topology.Mistaken("write 10s", "time: %s is too little", t)
	}
	if k.Check == nil {
		return nil
	}
	return k.Check(o)
}

// Options are the values of options, as text in the normal form of their types; options that are
// not set are missing. All have been checked, so the methods below cannot fail; for missing options
// they return zero.
type Options map[string]string

// Text returns any option as written.
func (o Options) Text(name string) string { return o[name] }

// Int returns a Whole.
func (o Options) Int(name string) int { n, _ := strconv.Atoi(o[name]); return n }

// Float returns a Number or Whole.
func (o Options) Float(name string) float64 { v, _ := strconv.ParseFloat(o[name], 64); return v }

// Time returns a Time.
func (o Options) Time(name string) time.Duration {
	d, _ := topology.ParseDuration(o[name])
	return time.Duration(d)
}

// Rate returns a Rate, in bit/s.
func (o Options) Rate(name string) topology.Rate { r, _ := topology.ParseRate(o[name]); return r }

// Share returns a Share, from 0 to 1.
func (o Options) Share(name string) float64 {
	f, _ := topology.ParseFraction(o[name])
	return float64(f)
}

// Truth returns a Truth.
func (o Options) Truth(name string) bool { return o[name] == "true" }

// parse checks a value and returns it in the normal form of its type: 1000us becomes 1ms.
func (o *Option) parse(s string) (string, error) {
	switch o.Type {
	case Whole, Number:
		return o.number(s)
	case Time:
		return form(topology.ParseDuration(s))
	case Rate:
		return form(topology.ParseRate(s))
	case Share:
		return form(topology.ParseFraction(s))
	case Truth:
		switch s {
		case "true", "yes", "on":
			return "true", nil
		case "false", "no", "off":
			return "false", nil
		}
		return "", fmt.Errorf("%q is neither true nor false", formats.Clip(s))
	case Word:
		if !slices.Contains(o.Words, s) {
			hint := cmp.Or(topology.DidYouMean(s, o.Words), words.Choose(o.Words))
			return "", topology.Mistaken(hint, "unknown value %q", formats.Clip(s))
		}
	}
	if s == "" {
		return "", topology.Mistaken("leave it out or write a value", "is empty")
	}
	return s, nil
}

func form[T fmt.Stringer](v T, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return v.String(), nil
}

func (o *Option) number(s string) (string, error) {
	v, err := strconv.ParseFloat(s, 64)
	if o.Type == Whole {
		var n int
		n, err = strconv.Atoi(s)
		v = float64(n)
	}
	switch {
	case err != nil && o.Type == Whole:
		return "", topology.Mistaken("write 1, 10, 100", "%q is not a whole number", formats.Clip(s))
	case err != nil || v != v || v > 1e15 || v < -1e15:
		return "", topology.Mistaken("write 1, 0.5, 100", "%q is not a number", formats.Clip(s))
	case v < o.Least:
		return "", topology.Mistaken(fmt.Sprintf("the minimum is %v", o.Least), "%s is too little", s)
	case o.Most > 0 && v > o.Most:
		return "", topology.Mistaken(fmt.Sprintf("the maximum is %v", o.Most), "%s is too much", s)
	}
	return strconv.FormatFloat(v, 'f', -1, 64), nil
}
