package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// Draft describes an experiment whose file is to be written.
type Draft struct {
	File        string   // to be written
	Topology    string   // a generator or a file, as an experiment names it
	Vary        []string // NAME=LEVEL,LEVEL,…
	Probes      []string // KIND [OPTION=VALUE …]
	Repetitions int
}

// draft is a file being written.
type draft struct {
	Draft
	vocabulary Vocabulary
	factors    []varied
	probes     []drafted
	lab, links []string // options, as YAML
	from, to   string
	fails      string // the link that does while probes run; "": none
}

type varied struct {
	name   string
	levels []string
}

func (f varied) template() string { return "${" + f.name + "}" }

// drafted is a probe with the options to write.
type drafted struct {
	kind    *ProbeKind
	name    string
	options [][2]string
}

func (p *drafted) has(option string) bool {
	return slices.ContainsFunc(p.options, func(o [2]string) bool { return o[0] == option })
}

// Write returns the file's text: a correct experiment, with comments. Each factor goes where its
// name belongs: into the topology, the lab, its links, or the probes.
func (d Draft) Write(v Vocabulary, def topology.Defaults) (string, error) {
	x := &draft{Draft: d, vocabulary: v}
	for _, step := range []func() error{x.readProbes, x.readFactors, func() error { return x.hosts(def) }, x.required} {
		if err := step(); err != nil {
			return "", err
		}
	}
	text := x.text()
	e, problems := Read(d.File, []byte(text), v)
	if err := problems.Err(); err != nil {
		return "", err
	}
	p, problems := e.Plan()
	if err := problems.Err(); err != nil {
		return "", err
	}
	return text, p.Check(def).Err()
}

func (x *draft) readProbes() error {
	if len(x.Draft.Probes) == 0 {
		return topology.Mistaken("--probe ping", "there is no probe")
	}
	names := map[string]int{}
	for _, text := range x.Draft.Probes {
		fields := strings.Fields(text)
		kinds := lists.Map(x.vocabulary.Probes, func(k ProbeKind) string { return k.Name })
		if len(fields) == 0 || !slices.Contains(kinds, fields[0]) {
			return unknownWord("probe", cmp.Or(append(fields, "")...), kinds)
		}
		p := drafted{kind: &x.vocabulary.Probes[slices.Index(kinds, fields[0])], name: fields[0]}
		if names[p.name]++; names[fields[0]] > 1 {
			p.name += strconv.Itoa(names[fields[0]])
		}
		for _, word := range fields[1:] {
			option, value, ok := strings.Cut(word, "=")
			if !ok || p.option(option) == nil {
				return unknownWord("option of "+p.kind.Name, option, optionNames(p.kind.Options))
			}
			p.options = append(p.options, [2]string{option, value})
		}
		x.probes = append(x.probes, p)
	}
	return nil
}

func (p *drafted) option(name string) *Option {
	for i := range p.kind.Options {
		if p.kind.Options[i].Name == name {
			return &p.kind.Options[i]
		}
	}
	return nil
}

func optionNames(list []Option) []string {
	return lists.Map(list, func(o Option) string { return o.Name })
}

func unknownWord(what, word string, known []string) error {
	hint := cmp.Or(topology.DidYouMean(word, known), words.Choose(known))
	return topology.Mistaken(hint, "there is no %s %q", what, formats.Clip(word))
}

// readFactors finds the places of the factors.
func (x *draft) readFactors() error {
	for _, text := range x.Vary {
		name, list, ok := strings.Cut(text, "=")
		f := varied{name: strings.TrimSpace(name)}
		for _, level := range strings.Split(list, ",") {
			if level = strings.TrimSpace(level); level != "" {
				f.levels = append(f.levels, level)
			}
		}
		switch {
		case !ok || len(f.levels) == 0:
			return topology.Mistaken("--vary switches=1,2,4", "%q names no levels", formats.Clip(text))
		case !factorName.MatchString(f.name) || slices.Contains(reserved, f.name) && !x.probed(f):
			return fmt.Errorf("%q cannot be the name of what is varied", formats.Clip(f.name))
		case slices.ContainsFunc(x.factors, func(o varied) bool { return o.name == f.name }):
			return fmt.Errorf("%s is varied twice", f.name)
		}
		if err := x.place(&f); err != nil {
			return err
		}
		x.factors = append(x.factors, f)
	}
	for _, g := range topology.Generators() { // without arguments, although it needs some
		if _, err := topology.Generate(g.Name, topology.GenerateOptions{}); g.Name == x.Topology && err != nil {
			x.Topology = g.Example
		}
	}
	return nil
}

// probed says whether a probe has an option of the factor's name.
func (x *draft) probed(f varied) bool {
	return slices.ContainsFunc(x.probes, func(p drafted) bool { return p.option(f.name) != nil })
}

func (x *draft) place(f *varied) error {
	generator, args := x.generator()
	_, linkErr := topology.ParseLinkChange([]string{f.name + "=" + f.levels[0]})
	switch {
	case strings.Contains(x.Topology, f.template()) || strings.Contains(x.Topology, "${"+f.name+"."):
	case slices.Contains(optionNames(x.vocabulary.Lab), f.name):
		x.lab = append(x.lab, fmt.Sprintf("%s: %q", f.name, f.template()))
	case slices.Contains(args, f.name):
		x.argument(slices.Index(args, f.name), f.name, f.template())
	case f.name == "switches" && generator == x.Topology && x.countsSwitches(generator, f.levels):
		x.argument(0, "", f.template())
	case x.probed(*f):
		option := f.name
		if slices.Contains(reserved, f.name) { // as a factor, it would hide a key of quick
			f.name = "for_" + f.name
		}
		for i := range x.probes {
			if p := &x.probes[i]; p.option(option) != nil && !p.has(option) {
				p.options = append(p.options, [2]string{option, f.template()})
			}
		}
	case linkErr == nil:
		x.links = append(x.links, fmt.Sprintf("%s: %q", f.name, f.template()))
	case f.name == "switches" && generator != "" && x.countsSwitches(generator, f.levels):
		x.argument(0, "", f.template())
	default:
		known := slices.Concat(args, optionNames(x.vocabulary.Lab),
			[]string{"bandwidth", "delay", "jitter", "loss", "queue", "mtu"})
		for _, p := range x.probes {
			known = append(known, optionNames(p.kind.Options)...)
		}
		hint := topology.DidYouMean(f.name, known)
		if hint == "" {
			hint = fmt.Sprintf("write ${%s} where it belongs in --topology, or vary an argument of the generator (%s), an option of the lab (datapath, controller, …), of all links (delay, bandwidth, loss, …), or of a probe",
				f.name, cmp.Or(strings.Join(args, ", "), "none here"))
		}
		return topology.Mistaken(hint, "it is not clear what %s is", f.name)
	}
	return nil
}

// generator returns the topology's generator, with its arguments; "" if it is none.
func (x *draft) generator() (name string, args []string) {
	name, _, _ = strings.Cut(x.Topology, ",")
	for _, g := range topology.Generators() {
		if g.Name != name {
			continue
		}
		for _, a := range strings.FieldsFunc(g.Arguments, func(r rune) bool { return strings.ContainsRune(",[]", r) }) {
			a, _, _ = strings.Cut(a, "=")
			args = append(args, a)
		}
		return name, args
	}
	return "", nil
}

// argument replaces an argument of the generator by a template.
func (x *draft) argument(at int, name, template string) {
	parts := strings.Split(x.Topology, ",")
	named := slices.IndexFunc(parts, func(p string) bool { return name != "" && strings.HasPrefix(p, name+"=") })
	switch {
	case named > 0:
		parts[named] = name + "=" + template
	case at+1 < len(parts):
		parts[at+1] = template
	case at+1 == len(parts):
		parts = append(parts, template)
	default:
		parts = append(parts, name+"="+template)
	}
	x.Topology = strings.Join(parts, ",")
}

// countsSwitches says whether the first argument of a generator is the number of switches.
func (x *draft) countsSwitches(generator string, levels []string) bool {
	for _, level := range levels {
		t, err := topology.Generate(generator+","+level, topology.GenerateOptions{})
		if err != nil || strconv.Itoa(len(t.NodesOf(topology.Switch))) != level {
			return false
		}
	}
	return true
}

// hosts chooses the two hosts to measure between: the first, and the last in the list that every
// cell has.
func (x *draft) hosts(def topology.Defaults) error {
	plain := *x
	plain.probes = []drafted{{kind: &ProbeKind{Name: "probe"}, name: "probe"}}
	e, problems := Read(x.File, []byte(plain.text()),
		Vocabulary{Probes: []ProbeKind{{Name: "probe"}}, Lab: x.vocabulary.Lab})
	if err := problems.Err(); err != nil {
		return err
	}
	p, problems := e.Plan()
	if err := problems.Err(); err != nil {
		return err
	}
	var in, cables [][]string // hosts of each cell, and links between others
	for i := range p.Cells {
		t, problems := p.Cells[i].Lab.Resolve(e.Dir(), def)
		if err := problems.Err(); err != nil {
			return fmt.Errorf("%s: %w", p.Cells[i].ID, err)
		}
		names := lists.Map(t.NodesOf(topology.Host), func(n *topology.Node) string { return n.Name })
		if len(names) < 2 {
			return topology.Mistaken("choose others", "%s: the topology %s has %s, and a probe needs two",
				p.Cells[i].ID, x.Topology, words.Plural(len(names), "host"))
		}
		in = append(in, names)
		var between []string
		for _, l := range t.Links {
			if a, b := l.Ends[0].Node, l.Ends[1].Node; a != "" && b != "" && !slices.Contains(names, a) &&
				!slices.Contains(names, b) {
				between = append(between, a+" -- "+b)
			}
		}
		cables = append(cables, between)
	}
	if err := x.failing(common(cables)); err != nil {
		return err
	}
	everywhere := common(in)
	if len(everywhere) == 0 {
		return errors.New("no host is in all of the topologies: write the experiment by hand (docs/experiments.md)")
	}
	x.from, x.to = everywhere[0], everywhere[len(everywhere)-1]
	for _, f := range x.factors { // h${switches}, if the number of hosts is the same
		always := true
		for i, c := range p.Cells {
			last := in[i][len(in[i])-1]
			always = always &&
				slices.ContainsFunc(c.Levels, func(s Setting) bool { return s.Factor == f.name && last == "h"+s.Name })
		}
		if always {
			x.to = "h" + f.template()
		}
	}
	if x.to == x.from {
		return fmt.Errorf("only %s is in all of the topologies: write the experiment by hand (docs/experiments.md)",
			x.from)
	}
	return nil
}

// common returns the elements that are in all lists.
func common(lists [][]string) []string {
	return slices.DeleteFunc(slices.Clone(lists[0]), func(name string) bool {
		return slices.ContainsFunc(lists, func(l []string) bool { return !slices.Contains(l, name) })
	})
}

// failing chooses the link that fails, if a probe measures the effect.
func (x *draft) failing(cables []string) error {
	i := slices.IndexFunc(x.probes, func(p drafted) bool { return p.kind.Events })
	if i < 0 {
		return nil
	}
	if len(cables) == 0 {
		return topology.Mistaken("--topology ring,4",
			"%s measures how a link fails, and there is none between switches or routers in all of the topologies",
			x.probes[i].name)
	}
	x.fails = cables[0]
	return nil
}

// required adds the options that a probe requires, and the two hosts.
func (x *draft) required() error {
	for i := range x.probes {
		p := &x.probes[i]
		for _, o := range p.kind.Options {
			value := o.Example
			switch o.Name {
			case "from":
				value = x.from
			case "to":
				value = x.to
			}
			if (o.Required || value != "") && !p.has(o.Name) {
				p.options = append(p.options, [2]string{o.Name, value})
			}
		}
		if p.kind.Controller && !slices.Contains(x.lab, "controller: trivet") &&
			!slices.ContainsFunc(x.factors, func(f varied) bool { return f.name == "controller" }) {
			x.lab = append(x.lab, "controller: trivet")
		}
		slices.SortStableFunc(p.options, func(a, b [2]string) int { // in the order of the list of options
			return slices.Index(optionNames(p.kind.Options), a[0]) - slices.Index(optionNames(p.kind.Options), b[0])
		})
	}
	return nil
}

// text writes the file.
func (x *draft) text() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	noted := func(line, note string) { say("%-58s # %s", line, note) }
	base := filepath.Base(x.File)
	say("# An experiment (docs/experiments.md explains every key; trivet bench list has the probes).")
	say("#")
	say("#   trivet bench run %s --dry-run          what would run, and how long it takes", base)
	say("#   sudo trivet bench run %s", base)
	say("#   trivet bench report %s.jsonl", strings.TrimSuffix(base, filepath.Ext(base)))
	say("title: %s", x.title())
	noted("topology: "+quoted(x.Topology), "a generator (trivet up --help lists them) or a file, relative to this one")
	lab := slices.Clone(x.lab)
	if len(x.links) > 0 {
		lab = append(lab, "links: {"+strings.Join(x.links, ", ")+"}")
	}
	if len(lab) > 0 {
		noted("lab: {"+strings.Join(lab, ", ")+"}", "how it is brought up; links: what all links have")
	}
	if len(x.factors) > 0 {
		noted("factors:", "each combination of their levels is measured; ${NAME} stands for the level")
	}
	for _, f := range x.factors {
		levels := lists.Map(f.levels, quoted)
		say("  %s: [%s]", f.name, strings.Join(levels, ", "))
	}
	noted("probes:", "one after the other; those in a nested list at the same time")
	for _, p := range x.probes {
		var options []string
		if p.name != p.kind.Name {
			options = append(options, "name: "+p.name)
		}
		for _, o := range p.options {
			options = append(options, o[0]+": "+quoted(o[1]))
		}
		line := "  - " + p.kind.Name
		if len(options) > 0 {
			line += ": {" + strings.Join(options, ", ") + "}"
		}
		noted(line, p.kind.Doc)
	}
	noted(fmt.Sprintf("repetitions: %d", max(x.Repetitions, 1)), "of each combination, in random order")
	if x.fails == "" {
		noted("quick: {repetitions: 1, time: 1s}", "what --quick does: once, and sending for 1 s")
	} else {
		noted("quick: {repetitions: 1}", "what --quick does: once")
		noted("schedule:", "what happens while probes run")
		say("  - \"at 3s: %s down\"\n  - \"at 6s: %[1]s up\"", x.fails)
	}
	x.report(say)
	return b.String()
}

func (x *draft) title() string {
	var kinds, names []string
	for _, p := range x.probes {
		kinds = append(kinds, p.name)
	}
	for _, f := range x.factors {
		names = append(names, f.name)
	}
	if len(names) == 0 {
		return quoted(strings.Join(kinds, ", "))
	}
	return quoted(strings.Join(kinds, ", ") + " by " + strings.Join(names, ", "))
}

// report adds a table of each probe's first metric, and a figure if there are factors.
func (x *draft) report(say func(string, ...any)) {
	names := lists.Map(x.factors, func(f varied) string { return f.name })
	var tables, figures []string
	for _, p := range x.probes {
		metrics := p.kind.Metrics
		if len(metrics) == 0 || len(names) == 0 {
			continue
		}
		m := metrics[0]
		at := fmt.Sprintf("{title: %s, metric: %s, probe: %s, ", quoted(p.name+": "+m.Name), m.Name, p.name)
		tables = append(tables,
			fmt.Sprintf("%srows: [%s], values: [median, interval, n]}", at, strings.Join(names, ", ")))
		series := ""
		if len(names) > 1 {
			series = ", series: [" + strings.Join(names[1:], ", ") + "]"
		}
		figures = append(figures, fmt.Sprintf("%sx: %s%s}", at, names[0], series))
	}
	if len(tables) == 0 {
		return
	}
	say("%-58s # %s", "report:", "what trivet bench report makes of it (docs/report.md)")
	for _, part := range []struct {
		name string
		list []string
	}{{"figures", figures}, {"tables", tables}} {
		say("  %s:", part.name)
		for _, item := range part.list {
			say("    - %s", item)
		}
	}
}

// quoted quotes a text for YAML, also within braces.
func quoted(s string) string {
	if s != "" && !strings.ContainsAny(s, "{}[],:#&*!|>'\"%@`$ ") && s == strings.TrimSpace(s) {
		return s
	}
	return strconv.Quote(s)
}
