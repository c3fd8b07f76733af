package experiment

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Plan is everything that an experiment will do, in its order.
type Plan struct {
	Experiment *Experiment   `json:"-"`
	Name       string        `json:"name"`
	Seed       uint64        `json:"seed"`
	Order      Order         `json:"order"`
	WarmUp     int           `json:"warm_up"`
	Estimate   time.Duration `json:"estimate_ns"`
	Cells      []Cell        `json:"cells"`
	Runs       []Run         `json:"runs"`

	// LeftOut is the part that this machine cannot run. It does not count in comparisons of plans,
	// so that a run that is resumed on a machine which can run it measures it.
	LeftOut []result.LeftOut `json:"left_out,omitempty"`

	// Until is set if the experiment continues until it is decided: Runs are then the maximum. It
	// does not count in comparisons of plans: a resumed run takes it from its result.
	Until *result.Until `json:"until,omitempty"`

	// Makes are the machines that are made for it, once for the whole run, or for each round of a
	// campaign. They do not count in comparisons of plans either.
	Makes []Making `json:"makes,omitempty"`
}

// Making is a list of machines to be made.
type Making struct {
	On       string   `json:"on"` // the list
	By       string   `json:"by"` // the provider
	Machines int      `json:"machines"`
	Cells    []string `json:"cells"` // that need them
}

// MakesText describes what is made, a line for each list: "makes: 2 machines by openstack
// (cloud.yaml)".
func (p *Plan) MakesText() (lines []string) {
	for _, m := range p.Makes {
		if m.Machines == 0 {
			lines = append(lines,
				fmt.Sprintf("makes: what labs have of %s (%s), which takes time besides, with each of them", m.By,
					m.On))
			continue
		}
		lines = append(lines,
			fmt.Sprintf("makes: %s by %s (%s), which takes time besides, and removes them at the end",
				words.Plural(m.Machines, "machine"), m.By, m.On))
	}
	return lines
}

// Run is one repetition of one cell.
type Run struct {
	Number     int           `json:"number"` // from 1
	Cell       int           `json:"cell"`   // index in Plan.Cells
	Block      int           `json:"block"`
	Pair       string        `json:"pair,omitempty"`
	Repetition int           `json:"repetition"`
	Round      int           `json:"round,omitempty"` // of a campaign, from 1; repetitions are numbered across rounds
	Estimate   time.Duration `json:"estimate_ns"`
}

// Plan expands the experiment: it reads no files, and does nothing else. If a problem is an error,
// the plan is nil.
func (e *Experiment) Plan() (*Plan, topology.Problems) {
	x := &expander{e: e, told: map[telling]bool{}, used: map[string]bool{}}
	combinations, err := e.combinations()
	if err != nil {
		x.problems.Add(topology.Position{File: e.File}, "", "%s", err)
		return nil, x.problems
	}
	p := &Plan{Experiment: e, Name: e.Name, Seed: e.Seed, Order: e.Order, WarmUp: e.WarmUp}
	for _, levels := range combinations {
		if p.Cells = append(p.Cells, x.cell(levels)); x.work >= maxWork {
			break // reported as a problem already
		}
	}
	if x.problems.Err() != nil {
		return nil, x.problems
	}
	x.unused()
	if repetitions := e.Repetitions * max(1, e.Times); len(p.Cells)*repetitions > maxRuns {
		x.problems.Add(topology.Position{File: e.File}, "take fewer levels or repetitions",
			"%d cells and %d repetitions are more than %d runs", len(p.Cells), repetitions, maxRuns)
		return nil, x.problems
	}
	if e.Until {
		if err := e.sequential(); err != nil {
			text, hint := topology.TextAndHint(err)
			x.problems.Add(topology.Position{File: e.File}, hint, "%s", text)
			return nil, x.problems
		}
		p.Until = untilDecided(e.Repetitions)
	}
	p.order()
	p.estimate()
	if e.Budget > 0 && p.Estimate > e.Budget {
		x.problems.Warn(topology.Position{File: e.File}, "raise the budget, take fewer repetitions, or resume it later",
			"%d runs will take about %s, but the budget is %s: not all will be run", len(p.Runs), About(p.Estimate),
			About(e.Budget))
	}
	return p, x.problems
}

// unused warns of factors that nothing refers to.
func (x *expander) unused() {
	for _, f := range x.e.Factors {
		if !x.used[f.Name] && len(f.Levels) > 1 {
			x.problems.Warn(f.value.Pos, "write ${"+f.Name+"} where it belongs",
				"%s: is used nowhere, so all its levels measure the same", f.Name)
		}
	}
}

// combinations crosses the factors, those in zip by index, and skips what is to be skipped. The
// last factor changes fastest.
func (e *Experiment) combinations() ([][]Setting, error) {
	out := [][]Setting{nil}
	done := map[string]bool{}
	for i := range e.Factors {
		if done[e.Factors[i].Name] {
			continue
		}
		group := e.together(e.Factors[i].Name)
		count := len(group[0].Levels)
		if len(out)*count > maxCells {
			return nil, fmt.Errorf("the factors make more than %d cells; take fewer levels, or zip them", maxCells)
		}
		var next [][]Setting
		for _, before := range out {
			for l := range count {
				settings := slices.Clone(before)
				for _, f := range group {
					done[f.Name] = true
					level := &f.Levels[l]
					settings = append(settings,
						Setting{Factor: f.Name, Name: level.Name, Value: level.Value, level: level})
				}
				next = append(next, settings)
			}
		}
		out = next
	}
	out = slices.DeleteFunc(out, e.skipped)
	if len(out) == 0 {
		return nil, fmt.Errorf("nothing is left to run: skip leaves out all cells")
	}
	return out, nil
}

// together returns the factors that are combined with one by index.
func (e *Experiment) together(name string) (out []*Factor) {
	for _, group := range e.Zip {
		if slices.Contains(group, name) {
			for _, other := range group {
				out = append(out, e.factor(other))
			}
			return out
		}
	}
	return []*Factor{e.factor(name)}
}

// skipped says whether all conditions of one item of skip hold.
func (e *Experiment) skipped(levels []Setting) bool {
	holds := map[int]bool{}
	for _, c := range e.skip {
		met := slices.ContainsFunc(levels, func(s Setting) bool {
			return s.Factor == c.factor.Text &&
				slices.ContainsFunc(c.levels, func(v *yamlfile.Value) bool { return v.Text == s.Name })
		})
		if before, seen := holds[c.index]; !seen {
			holds[c.index] = met
		} else {
			holds[c.index] = before && met
		}
	}
	for _, all := range holds {
		if all {
			return true
		}
	}
	return false
}

// order sorts the runs. Paired cells stay adjacent in any order but the file's.
func (p *Plan) order() {
	e := p.Experiment
	rng := rand.New(rand.NewPCG(e.Seed, 0x7472697665740000))
	groups := p.pairs()
	p.Runs = nil
	for round := range max(1, e.Times) {
		for _, run := range p.round(rng, groups, round*e.Repetitions) {
			run.Number = len(p.Runs) + 1
			if e.Times > 0 {
				run.Round = round + 1
			}
			if e.Order == Random {
				run.Block = round + 1
			}
			p.Runs = append(p.Runs, run)
		}
	}
}

// round returns the runs of all repetitions of all cells, once; before is the number of those in
// earlier rounds.
func (p *Plan) round(rng *rand.Rand, groups [][]int, before int) []Run {
	e := p.Experiment
	var runs [][]Run // each inner list stays together
	for repetition := before + 1; repetition <= before+e.Repetitions; repetition++ {
		from := len(runs)
		for _, group := range groups {
			var together []Run
			for _, cell := range group {
				together = append(together,
					Run{Cell: cell, Block: repetition, Repetition: repetition, Pair: p.pair(cell)})
			}
			if e.Order != Given {
				rng.Shuffle(len(together), func(i, j int) { together[i], together[j] = together[j], together[i] })
			}
			runs = append(runs, together)
		}
		if e.Order == Blocked {
			shuffle(rng, runs[from:])
		}
	}
	if e.Order == Random {
		shuffle(rng, runs)
	}
	return slices.Concat(runs...)
}

func shuffle[T any](rng *rand.Rand, list []T) {
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// pairs groups the cells that differ only in paired factors; without any, each cell is a group.
func (p *Plan) pairs() (groups [][]int) {
	at := map[string]int{}
	for i := range p.Cells {
		key := p.pair(i)
		if g, ok := at[key]; ok && len(p.Experiment.Paired) > 0 {
			groups[g] = append(groups[g], i)
			continue
		}
		at[key] = len(groups)
		groups = append(groups, []int{i})
	}
	return groups
}

// pair returns what paired cells have in common; "" if nothing is paired.
func (p *Plan) pair(cell int) string {
	if len(p.Experiment.Paired) == 0 {
		return ""
	}
	return cellID(slices.DeleteFunc(slices.Clone(p.Cells[cell].Levels),
		func(s Setting) bool { return slices.Contains(p.Experiment.Paired, s.Factor) }))
}

// Hash identifies plans: two that do the same in the same order on the same topologies have the
// same hash, whatever their estimates. It reads the files of topologies.
func (p *Plan) Hash() string {
	all := *p
	all.LeftOut, all.Makes, all.Until = nil, nil, nil
	b, err := json.Marshal(all)
	if err != nil {
		panic(err) // cannot fail: all of it can be encoded
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	forgetTimes(v)
	if files := p.topologies(); len(files) > 0 {
		for i := range files {
			files[i].Text = ""
		}
		v.(map[string]any)["topologies"] = files
	}
	if b, err = json.Marshal(v); err != nil {
		panic(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// forgetTimes removes estimates and timeouts from a plan.
func forgetTimes(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "estimate_ns")
		delete(v, "timeout_ns")
		for _, part := range v {
			forgetTimes(part)
		}
	case []any:
		for _, part := range v {
			forgetTimes(part)
		}
	}
}

// Describe returns the plan's description for a result's header.
func (p *Plan) Describe() result.Experiment {
	e := p.Experiment
	out := result.Experiment{Name: e.Name, Title: e.Title, File: e.File, Text: e.Text, Plan: p.Hash(),
		Runs: len(p.Runs), Repetitions: e.Repetitions * max(1, e.Times), Topologies: p.topologies(),
		Rounds: e.Times, Every: e.Every.Seconds(), Until: p.Until}
	if e.Wanted > out.Repetitions {
		out.Wanted = e.Wanted
	}
	for i := range e.Factors {
		out.Factors = append(out.Factors, result.Factor{Name: e.Factors[i].Name, Levels: e.Factors[i].names()})
	}
	return out
}

// Headline describes the plan in a line: "60 runs of 6 cells, about 14 min · seed 7 · order
// blocked, paired by datapath".
func (p *Plan) Headline() string {
	fewer := ""
	if e := p.Experiment; e.Wanted > e.Repetitions {
		fewer = fmt.Sprintf(" (%d of the file's %d repetitions)", e.Repetitions, e.Wanted)
	}
	if left := len(p.Runs) - p.toRun(); left > 0 {
		fewer += fmt.Sprintf(", %d left out", left)
	}
	most := ""
	if p.Until != nil {
		most = "at most "
	}
	s := fmt.Sprintf("%s%s of %s%s, about %s · seed %d · order %s", most, words.Plural(len(p.Runs), "run"),
		words.Plural(len(p.Cells), "cell"), fewer, About(p.Estimate), p.Seed, p.Order)
	if paired := p.Experiment.Paired; len(paired) > 0 {
		s += ", paired by " + strings.Join(paired, ", ")
	}
	if e := p.Experiment; e.Times > 0 {
		s += fmt.Sprintf(" · %s, one every %s", words.Plural(e.Times, "round"), words.Period(e.Every))
	}
	return s
}

// About formats a duration for users: 8 s, 14 min, 2 h 5 min.
func About(d time.Duration) string {
	switch minutes := int(d.Round(time.Minute).Minutes()); {
	case d < 100*time.Second:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	case minutes < 100:
		return fmt.Sprintf("%d min", minutes)
	case minutes >= 100*60:
		return fmt.Sprintf("%d d %d h", minutes/60/24, minutes/60%24)
	default:
		return fmt.Sprintf("%d h %d min", minutes/60, minutes%60)
	}
}

// WriteText lists what would run, for users. (As JSON, the plan is what json.Marshal makes of it.)
func (p *Plan) WriteText(to io.Writer) error {
	fmt.Fprintln(to, p.Headline())
	if until := p.UntilText(); until != "" {
		fmt.Fprintln(to, until)
	}
	for _, line := range p.MakesText() {
		fmt.Fprintln(to, line)
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "RUN\tREP")
	for _, s := range p.Cells[0].Levels {
		fmt.Fprint(w, "\t", strings.ToUpper(s.Factor))
	}
	fmt.Fprintln(w, "\tPROBES\tABOUT")
	for _, r := range p.Runs {
		cell := &p.Cells[r.Cell]
		fmt.Fprintf(w, "%d\t%d", r.Number, r.Repetition)
		for _, s := range cell.Levels {
			fmt.Fprint(w, "\t", s.Name)
		}
		kept := p.kept(cell)
		about := About(r.Estimate)
		if len(kept) == 0 {
			kept, about = cell.Groups, "left out"
		}
		fmt.Fprintf(w, "\t%s\t%s\n", probeNames(kept), about)
	}
	return w.Flush()
}

// probeNames lists probes, separated by a comma if they run one after the other, and by a plus if
// they run together.
func probeNames(all [][]Probe) string {
	var groups []string
	for _, group := range all {
		names := lists.Map(group, func(p Probe) string { return p.Name })
		groups = append(groups, strings.Join(names, "+"))
	}
	return strings.Join(groups, ", ")
}
