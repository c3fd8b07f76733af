// Package experiment describes measurements: one topology, factors that are varied, probes and
// repetitions, written in a small YAML file. Read and Plan turn the file into an ordered list of
// runs without doing anything; a Runner executes it through a Driver, which knows how to bring labs
// up.
package experiment

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Experiment is a file that has been read. Fields may be changed before Plan.
type Experiment struct {
	Name, Title string
	File        string // as named by the user
	Text        string // of the file

	Factors     []Factor
	Zip         [][]string // factors whose levels are combined by index
	Paired      []string   // factors whose levels are run directly one after another
	Repetitions int
	Wanted      int // repetitions in the file, if Repetitions was lowered

	// Until says that repetitions are added until all statements in the file are decided, with
	// Repetitions as the maximum; see result.Until.
	Until bool

	// Times is the number of rounds of a campaign, each of which does all of it, one period after
	// the round before; see Campaign. 0: once, without rounds.
	Times     int
	Every     time.Duration
	WarmUp    int // uncounted executions of each probe before the counted one
	Order     Order
	Seed      uint64         // for the order
	Budget    time.Duration  // maximum duration; 0: none
	Fresh     bool           // a new lab for each run, even if the next could use the same
	Shortened time.Duration  // maximum time for which probes send; 0: as in the file
	On        string         // other machines for all of Trivet's labs: see Move
	Extra     map[string]any // keys for others: report, paper, x-…

	vocabulary Vocabulary
	files      *topologyFiles
	topology   *yamlfile.Value
	lab        *yamlfile.Value
	probes     *yamlfile.Value
	schedule   *yamlfile.Value
	skip       []condition
	quick      *yamlfile.Value
	published  *yamlfile.Value
	atMost     int // the key at_most
	fixed      int // repetitions of a run without Until
	// Options that replace those of the probes with that kind or name: see Published.
	overlay map[string]*yamlfile.Value
	written map[string][]string // levels of the factors in the file, including those that quick leaves out
}

// Levels returns the levels of the factors in the file, including those that Quick leaves out.
func (e *Experiment) Levels() map[string][]string { return e.written }

// Order is the order in which the runs take place.
type Order string

// Orders. A repetition of all cells is a block, unless all runs are mixed.
const (
	Blocked Order = "blocked" // repetition after repetition, in each the cells at random; the default
	Random  Order = "random"  // all runs in random order
	Given   Order = "given"   // repetition after repetition, with the cells in the file's order
)

var orders = []string{string(Blocked), string(Random), string(Given)}

// Limits on a file.
const (
	maxFile   = 1 << 20
	maxLevels = 10_000
	maxCells  = 10_000
	maxRuns   = 100_000
	maxWork   = 5_000_000 // values substituted in all cells together
)

// ReadFile reads the file of an experiment.
func ReadFile(file string, v Vocabulary) (*Experiment, topology.Problems) {
	at := topology.Position{File: file}
	info, err := os.Stat(file)
	switch {
	case err != nil && os.IsNotExist(err):
		return nil, topology.Problems{{Pos: at, Message: "no such file"}}
	case err != nil:
		return nil, topology.Problems{{Pos: at, Message: err.Error()}}
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil,
			topology.Problems{{Pos: at,
				Message: "is not a regular file of at most 1 MiB, which is more than any experiment needs"}}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, topology.Problems{{Pos: at, Message: err.Error()}}
	}
	return Read(file, data, v)
}

// Read reads an experiment, and reports all errors except those that only the topologies show (see
// Plan.Check). If a problem is an error, the experiment is nil.
func Read(file string, data []byte, v Vocabulary) (*Experiment, topology.Problems) {
	if len(data) > maxFile {
		return nil,
			topology.Problems{{Pos: topology.Position{File: file},
				Message: "is larger than 1 MiB, which no experiment needs"}}
	}
	top, problems := yamlfile.Dialect{}.Parse(file, data)
	for i := range problems {
		problems[i].Message = strings.ReplaceAll(problems[i].Message, "a topology", "an experiment")
		problems[i].Hint = strings.NewReplacer("a topology", "an experiment", "one topology", "one experiment",
			"no topology", "no experiment").Replace(problems[i].Hint)
	}
	if top == nil || problems.Err() != nil {
		return nil, problems
	}
	r := &reader{problems: problems,
		e: &Experiment{File: file, Text: string(data), Repetitions: 1, Order: Blocked, Seed: 1, Extra: map[string]any{},
			vocabulary: v,
			files:      &topologyFiles{read: map[topologyFile]*readTopology{}}}}
	r.file(top)
	if r.problems.Err() == nil {
		_, more := r.e.Plan()
		r.problems = append(r.problems, more...)
	}
	if r.problems.Err() != nil {
		return nil, r.problems
	}
	return r.e, r.problems
}

// reader reads an experiment and collects problems.
type reader struct {
	problems topology.Problems
	e        *Experiment
}

func (r *reader) add(v *yamlfile.Value, hint, format string, args ...any) {
	r.problems.Add(v.Pos, hint, format, args...)
}

// keys returns the keys of a file, with the functions that read them.
func (r *reader) keys() map[string]func(*yamlfile.Value) {
	e := r.e
	return map[string]func(*yamlfile.Value){
		"name":         func(v *yamlfile.Value) { r.text(v, "name", &e.Name) },
		"title":        func(v *yamlfile.Value) { r.text(v, "title", &e.Title) },
		"topology":     func(v *yamlfile.Value) { e.topology = v },
		"lab":          func(v *yamlfile.Value) { e.lab = v },
		"factors":      r.factors,
		"zip":          r.zip,
		"skip":         r.skip,
		"probes":       func(v *yamlfile.Value) { e.probes = v },
		"repetitions":  func(v *yamlfile.Value) { r.whole(v, "repetitions", 1, &e.Repetitions) },
		"until":        func(v *yamlfile.Value) { r.until(v) },
		"at_most":      func(v *yamlfile.Value) { r.whole(v, "at_most", leastMost, &e.atMost) },
		"warm_up":      func(v *yamlfile.Value) { r.whole(v, "warm_up", 0, &e.WarmUp) },
		"order":        r.order,
		"paired":       func(v *yamlfile.Value) { e.Paired = r.names(v, "paired") },
		"seed":         r.seed,
		"budget":       func(v *yamlfile.Value) { r.duration(v, "budget", &e.Budget) },
		"schedule":     func(v *yamlfile.Value) { e.schedule = v },
		"fresh":        func(v *yamlfile.Value) { r.truth(v, "fresh", &e.Fresh) },
		"quick":        func(v *yamlfile.Value) { e.quick = v },
		"as_published": func(v *yamlfile.Value) { e.published = v },
		"report":       func(v *yamlfile.Value) { r.extra("report", v) },
		"paper":        func(v *yamlfile.Value) { r.extra("paper", v) },
	}
}

func (r *reader) file(top *yamlfile.Value) {
	if top.Shape != yamlfile.Mapping {
		r.add(top, "write topology: linear,2  and probes: [ping: {from: h1, to: h2}]",
			"an experiment takes keys, not %s", top)
		return
	}
	keys := r.keys()
	for _, p := range top.Pairs {
		name := p.Key.Text
		read, ok := keys[name]
		switch {
		case ok:
			read(p.Value)
		case strings.HasPrefix(name, "x-"):
			r.extra(name, p.Value)
		default:
			r.unknown(p.Key, "key of an experiment", sortedKeys(keys))
		}
	}
	if r.e.Name == "" {
		base := filepath.Base(r.e.File)
		r.e.Name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	r.e.written = map[string][]string{}
	for i := range r.e.Factors {
		r.e.written[r.e.Factors[i].Name] = r.e.Factors[i].names()
	}
	if r.e.fixed = r.e.Repetitions; r.e.Until {
		r.e.Repetitions = cmp.Or(r.e.atMost, r.e.Repetitions)
	} else if r.e.atMost > 0 {
		r.add(top.Get("at_most"), "write until: decided as well, or repetitions: instead",
			"at_most: is of an experiment that goes on until it is decided")
	}
	r.e.Wanted = r.e.Repetitions
	r.required(top)
	if r.problems.Err() == nil {
		r.readQuick()
		r.readPublished()
		r.consistent(top)
	}
}

func (r *reader) required(top *yamlfile.Value) {
	if r.e.topology == nil || r.e.topology.Shape == yamlfile.Nothing {
		r.add(top, "write topology: linear,2  or topology: campus.yaml", "topology: is missing")
	}
	if p := r.e.probes; p == nil || p.Shape != yamlfile.List || len(p.Items) == 0 {
		at := top
		if p != nil {
			at = p
		}
		r.add(at, "write probes: [ping: {from: h1, to: h2}]", "probes: is a list of at least one probe")
	}
}

// unknown reports a word that is not among those known.
func (r *reader) unknown(v *yamlfile.Value, what string, known []string) {
	r.problems.Add(v.Pos, nearest(v.Text, known), "%s: no such %s", formats.Clip(v.Text), what)
}

// nearest returns the hint for an unknown word.
func nearest(word string, known []string) string {
	hint := ""
	if len(word) > 1 { // a single character is near to any other
		hint = topology.DidYouMean(word, known)
	}
	if hint == "" && len(known) > 0 {
		hint = words.Choose(known[:min(len(known), 20)])
	}
	return hint
}

// consistent checks the names of factors in lists.
func (r *reader) consistent(top *yamlfile.Value) {
	names := lists.Map(r.e.Factors, func(f Factor) string { return f.Name })
	zipped := map[string]bool{}
	for _, group := range r.e.Zip {
		length := 0
		for _, name := range group {
			f := r.e.factor(name)
			switch {
			case f == nil:
				r.problems.Add(top.Get("zip").Pos, nearest(name, names), "zip: there is no factor %s",
					formats.Clip(name))
				continue
			case zipped[name]:
				r.add(top.Get("zip"), "name it once", "zip: %s is listed twice", name)
			case length > 0 && length != len(f.Levels):
				r.add(top.Get("zip"), "give them the same number of levels",
					"zip: %s has %d levels, but others have %d", name, len(f.Levels), length)
			}
			zipped[name], length = true, len(f.Levels)
		}
	}
	for i, name := range r.e.Paired {
		if r.e.factor(name) == nil {
			r.problems.Add(top.Get("paired").Pos, nearest(name, names), "paired: there is no factor %s",
				formats.Clip(name))
		} else if slices.Contains(r.e.Paired[:i], name) {
			r.add(top.Get("paired"), "name it once", "paired: %s is listed twice", name)
		}
	}
	for _, c := range r.e.skip {
		if f := r.e.factor(c.factor.Text); f == nil {
			r.unknown(c.factor, "factor", names)
		} else {
			for _, level := range c.levels {
				if !f.has(level.Text) {
					r.unknown(level, "level of "+f.Name, f.names())
				}
			}
		}
	}
}

func (e *Experiment) factor(name string) *Factor {
	for i := range e.Factors {
		if e.Factors[i].Name == name {
			return &e.Factors[i]
		}
	}
	return nil
}
