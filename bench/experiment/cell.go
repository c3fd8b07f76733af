package experiment

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Cell is a combination of levels, expanded.
type Cell struct {
	ID       string    `json:"id"` // "hops=2 datapath=ovs"
	Levels   []Setting `json:"levels,omitempty"`
	Lab      Lab       `json:"lab"`
	Groups   [][]Probe `json:"probes"` // groups run one after the other, the probes of a group together
	Schedule []Event   `json:"schedule,omitempty"`
	Bare     bool      `json:"bare,omitempty"` // needs no lab that is up: all probes bring up their own
}

// Setting is a factor at one of its levels.
type Setting struct {
	Factor string `json:"factor"`
	Name   string `json:"name"`
	Value  any    `json:"value"`
	level  *Level
}

// Lab describes the lab to bring up.
type Lab struct {
	Generate string `json:"generate,omitempty"` // a generator with its arguments: linear,10
	Nodes    string `json:"nodes,omitempty"`    // what a generator makes: switch (the default), router
	File     string `json:"file,omitempty"`     // a topology's, relative to the experiment's
	Topo     string `json:"topo,omitempty"`     // which topology, if the file has several
	// Whether root does what a file of another format asks for: true, false; empty: ask.
	Commands string          `json:"run_commands,omitempty"`
	Topology json.RawMessage `json:"topology,omitempty"` // written in the experiment itself
	Options  Options         `json:"options,omitempty"`  // of the vocabulary: datapath, controller, target
	Links    []string        `json:"links,omitempty"`    // change of all links: delay=10ms
	Changes  []string        `json:"changes,omitempty"`  // of single links: s1 -- s2 delay=10ms
	files    *topologyFiles  // the experiment's
}

// Probe is a measurement with its options, ready to run.
type Probe struct {
	Name     string        `json:"name"` // unique in an experiment
	Kind     string        `json:"kind"`
	Options  Options       `json:"options,omitempty"`
	After    time.Duration `json:"after_ns,omitempty"` // begins this long after its group, in nanoseconds
	Timeout  time.Duration `json:"timeout_ns"`         // from its own beginning
	Estimate time.Duration `json:"estimate_ns"`        // of its duration, including After
	kind     *ProbeKind
	pos      topology.Position
}

// Event happens while the probes run, at a time after their beginning.
type Event struct {
	At     topology.Duration `json:"at"`
	What   string            `json:"what"` // "r1 -- r2 down", "kill r1"
	Action topology.Action   `json:"-"`    // unless Kill is set
	Kill   string            `json:"-"`    // the node or controller to kill
	pos    topology.Position
}

// cell expands one combination of levels.
func (x *expander) cell(levels []Setting) Cell {
	x.set(levels)
	c := Cell{Levels: levels, ID: cellID(levels)}
	c.Lab = x.lab()
	x.of = c.Lab
	if c.Groups = x.probes(); len(c.Groups) == 0 && x.problems.Err() == nil {
		x.say(x.e.probes, "skip it, or give it a probe", "there is no probe for %s", c.ID)
	}
	c.Bare = !slices.ContainsFunc(slices.Concat(c.Groups...), func(p Probe) bool { return !p.kind.OwnLab })
	c.Schedule = x.schedule()
	x.late(&c)
	return c
}

func cellID(levels []Setting) string {
	if len(levels) == 0 {
		return "all"
	}
	words := lists.Map(levels, func(l Setting) string { return l.Factor + "=" + l.Name })
	return strings.Join(words, " ")
}

func (x *expander) lab() Lab {
	l := x.topology(x.e.topology)
	if l.File != "" {
		l.files = x.e.files
	}
	at := x.e.lab
	switch {
	case at == nil || at.Shape == yamlfile.Nothing:
		at = &yamlfile.Value{Shape: yamlfile.Mapping, Pos: x.e.topology.Pos}
	case at.Shape != yamlfile.Mapping:
		x.say(at, "write lab: {datapath: ovs}", "lab: takes options, not %s", at)
		return l
	}
	l.Options = x.options(at, "a lab", x.e.vocabulary.Lab, map[string]func(*yamlfile.Value){
		"links":  func(v *yamlfile.Value) { l.Links = x.allLinks(v) },
		"change": func(v *yamlfile.Value) { l.Changes = x.changes(v) },
	})
	x.e.move(l.Options)
	return l
}

// topology reads linear,10, a file's name, {generate: …}, {file: …}, or nodes and links.
func (x *expander) topology(v *yamlfile.Value) (l Lab) {
	switch {
	case v.Shape == yamlfile.Scalar:
		text := x.text(v)
		if name, _, _ := strings.Cut(text, ","); isGenerator(name) {
			l.Generate = x.generator(v, text)
		} else {
			l.File = x.file(v, text)
		}
	case v.Shape == yamlfile.Mapping && v.Get("generate") != nil:
		nodes := Option{Name: "nodes", Type: Word, Words: []string{string(topology.Switch), string(topology.Router)}}
		o := x.options(v, "a generated topology", []Option{{Name: "generate", Type: Text, Required: true}, nodes}, nil)
		l.Generate, l.Nodes = x.generator(v.Get("generate"), o["generate"]), o["nodes"]
	case v.Shape == yamlfile.Mapping && v.Get("file") != nil:
		o := x.options(v, "a topology's file",
			[]Option{{Name: "file", Type: Text, Required: true}, {Name: "topo", Type: Text},
				{Name: "run_commands", Type: Truth}}, nil)
		l.File, l.Topo, l.Commands = x.file(v.Get("file"), o["file"]), o["topo"], o["run_commands"]
	case v.Shape == yamlfile.Mapping:
		l.Topology, _ = json.Marshal(x.plain(v, 0))
	default:
		x.say(v, "write topology: linear,2  or topology: campus.yaml",
			"topology: takes a generator, a file, or nodes and links, not %s", v)
	}
	return l
}

func isGenerator(name string) bool {
	return slices.ContainsFunc(topology.Generators(),
		func(g topology.GeneratorInfo) bool { return g.Name == strings.TrimSpace(name) })
}

// generator stores a specification; Plan.Check makes the topology.
func (x *expander) generator(v *yamlfile.Value, spec string) string {
	if name, _, _ := strings.Cut(spec, ","); !isGenerator(name) {
		names := lists.Map(topology.Generators(), func(g topology.GeneratorInfo) string { return g.Name })
		x.say(v, nearest(name, names), "%s: no such generator", formats.Clip(name))
	}
	return spec
}

func (x *expander) file(v *yamlfile.Value, name string) string {
	if filepath.Ext(name) == "" {
		names := lists.Map(topology.Generators(), func(g topology.GeneratorInfo) string { return g.Name })
		word, _, _ := strings.Cut(name, ",")
		hint := topology.DidYouMean(word, names)
		hint = cmp.Or(hint, "write a file like campus.yaml, or one of "+strings.Join(names, ", "))
		x.say(v, hint, "%s: is neither a generator nor the file of a topology", formats.Clip(name))
	}
	return name
}

// allLinks reads {delay: 10ms, bandwidth: 1gbit}.
func (x *expander) allLinks(v *yamlfile.Value) (words []string) {
	if v.Shape != yamlfile.Mapping {
		x.say(v, "write links: {delay: 10ms}", "links: takes options, not %s", v)
		return nil
	}
	for _, p := range v.Pairs {
		if p.Value.Shape != yamlfile.Scalar {
			x.say(p.Value, "write delay: 10ms", "%s: needs a value, not %s", formats.Clip(p.Key.Text), p.Value.Shape)
			continue
		}
		change, err := topology.ParseLinkChange([]string{p.Key.Text + "=" + x.text(p.Value)})
		if err != nil {
			x.wrong(p.Value, "links", err)
			continue
		}
		words = append(words, change.String())
	}
	return words
}

// changes reads a list of "s1 -- s2 delay=10ms".
func (x *expander) changes(v *yamlfile.Value) (out []string) {
	for _, item := range itemsOf(v) {
		a, err := topology.Action{}, error(nil)
		if item.Shape != yamlfile.Scalar {
			err = topology.Mistaken("write s1 -- s2 delay=10ms", "a change is a text, not %s", item.Shape)
		} else if a, err = topology.ParseAction(x.text(item)); err == nil && a.Node != "" {
			err = topology.Mistaken("write s1 -- s2 delay=10ms", "before the probes only links can be changed")
		}
		if err != nil {
			x.wrong(item, "change", err)
			continue
		}
		out = append(out, a.String())
	}
	return out
}

func itemsOf(v *yamlfile.Value) []*yamlfile.Value {
	switch v.Shape {
	case yamlfile.List:
		return v.Items
	case yamlfile.Nothing:
		return nil
	}
	return []*yamlfile.Value{v}
}

// probes reads a list of probes; a list in it is a group that runs together.
func (x *expander) probes() (groups [][]Probe) {
	names := map[string]bool{}
	for _, item := range x.e.probes.Items {
		var group []Probe
		for _, one := range itemsOf(item) {
			if p, ok := x.probe(one, names); ok {
				group = append(group, p)
			}
		}
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	return groups
}

// probe reads ping: {from: h1, to: h2}.
func (x *expander) probe(v *yamlfile.Value, names map[string]bool) (Probe, bool) {
	if !x.spend(v) {
		return Probe{}, false
	}
	if v.Shape == yamlfile.Scalar { // a probe without options
		v = &yamlfile.Value{Shape: yamlfile.Mapping, Pos: v.Pos,
			Pairs: []yamlfile.Pair{{Key: v, Value: &yamlfile.Value{Pos: v.Pos}}}}
	}
	if v.Shape != yamlfile.Mapping || len(v.Pairs) != 1 {
		x.say(v, "write - ping: {from: h1, to: h2}", "a probe is one word with its options, not %s", v)
		return Probe{}, false
	}
	key, given := v.Pairs[0].Key, v.Pairs[0].Value
	i := slices.IndexFunc(x.e.vocabulary.Probes, func(k ProbeKind) bool { return k.Name == key.Text })
	if i < 0 {
		kinds := lists.Map(x.e.vocabulary.Probes, func(k ProbeKind) string { return k.Name })
		x.say(key, nearest(key.Text, kinds), "%s: no such probe", formats.Clip(key.Text))
		return Probe{}, false
	}
	if given.Shape == yamlfile.Scalar || given.Shape == yamlfile.List {
		x.say(given, "write "+key.Text+": {from: h1, to: h2}", "%s: takes options, not %s", key.Text, given)
		return Probe{}, false
	}
	if given.Shape == yamlfile.Nothing {
		given = &yamlfile.Value{Shape: yamlfile.Mapping, Pos: key.Pos}
	}
	if where := given.Get("where"); where != nil && !x.holds(where) {
		return Probe{}, false
	}
	return x.probeOf(&x.e.vocabulary.Probes[i], key, x.e.overlaid(key.Text, given), names), true
}

// holds says whether a cell has the levels for which a probe runs: where: {pairs: [2, 3]}.
func (x *expander) holds(where *yamlfile.Value) bool {
	if where.Shape != yamlfile.Mapping || len(where.Pairs) == 0 {
		x.say(where, "write where: {hops: [2, 10]}", "where: takes factors with levels, not %s", where)
		return true
	}
	all := true
	for _, p := range where.Pairs {
		f := x.e.factor(p.Key.Text)
		if f == nil {
			var names []string
			for i := range x.e.Factors {
				names = append(names, x.e.Factors[i].Name)
			}
			x.say(p.Key, nearest(p.Key.Text, names), "where: there is no factor %s", formats.Clip(p.Key.Text))
			continue
		}
		x.used[f.Name] = true
		one := false
		for _, level := range itemsOf(p.Value) {
			// (A level may be missing from f itself, where quick: has left it out.)
			one = one || level.Text == x.names[f.Name]
			if !slices.Contains(x.e.written[f.Name], level.Text) {
				x.say(level, nearest(level.Text, x.e.written[f.Name]), "where: %s is not a level of %s",
					formats.Clip(level.Text), f.Name)
			}
		}
		all = all && one
	}
	return all
}

var probeName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_. -]{0,59}$`)

func (x *expander) probeOf(kind *ProbeKind, key, given *yamlfile.Value, names map[string]bool) Probe {
	p := Probe{Kind: kind.Name, Name: kind.Name, kind: kind, pos: key.Pos}
	known := append(slices.Clone(kind.Options), Option{Name: "timeout", Type: Time}, Option{Name: "after", Type: Time})
	p.Options = x.options(given, kind.Name, known, map[string]func(*yamlfile.Value){"name": func(v *yamlfile.Value) {
		if p.Name = v.Text; v.Shape != yamlfile.Scalar || !probeName.MatchString(p.Name) ||
			strings.Contains(p.Name, "$") {
			x.say(v, "take letters, digits and _", "%s: cannot be the name of a probe; it is the same in all cells", v)
		}
	}, "where": func(*yamlfile.Value) {}})
	if x.problems.Err() == nil {
		if err := kind.check(p.Options); err != nil {
			x.wrong(key, kind.Name, err)
		}
	}
	if names[p.Name] {
		x.say(key, "give one of them a name of its own:  name: OTHER", "there is already a probe %s", p.Name)
	}
	names[p.Name] = true
	x.e.shorten(p.Options)
	if kind.Estimate != nil {
		p.Estimate = max(0, kind.Estimate(p.Options, x.of))
	}
	p.Timeout, p.After = p.Options.Time("timeout"), p.Options.Time("after")
	delete(p.Options, "timeout")
	delete(p.Options, "after")
	if p.Timeout > 0 && p.Timeout < p.Estimate {
		x.warn(key, "give it more time, or leave it out", "%s: timeout: %s is less than the %s that it takes", p.Name,
			topology.Duration(p.Timeout), About(p.Estimate))
	}
	if p.Timeout == 0 {
		p.Timeout = kind.timeout(p.Options, p.Estimate)
	}
	p.Estimate += p.After
	return p
}

// shorten makes a probe send for less time, or fewer echoes, in a quick run.
func (e *Experiment) shorten(o Options) {
	if e.Shortened == 0 {
		return
	}
	if o.Time("time") > e.Shortened {
		o["time"] = topology.Duration(e.Shortened).String()
	}
	if every := o.Time("interval"); o["count"] != "" && every > 0 && time.Duration(o.Int("count"))*every > e.Shortened {
		o["count"] = strconv.Itoa(max(1, int(e.Shortened/every)))
	}
}

// schedule reads a list of "at 5s: r1 -- r2 down", which is a mapping if it is not quoted.
func (x *expander) schedule() (out []Event) {
	if x.e.schedule == nil {
		return nil
	}
	for _, item := range itemsOf(x.e.schedule) {
		switch item.Shape {
		case yamlfile.Scalar:
			out = x.event(out, item, x.text(item))
		case yamlfile.Mapping:
			for _, p := range item.Pairs {
				for _, action := range itemsOf(p.Value) {
					if action.Shape != yamlfile.Scalar {
						x.say(p.Key, "write at 5s: r1 -- r2 down", "schedule: an action is a text, not %s",
							action.Shape)
						continue
					}
					out = x.event(out, p.Key, x.text(p.Key)+": "+x.text(action))
				}
			}
		default:
			x.say(item, "write at 5s: r1 -- r2 down", "schedule: an event is a text, not %s", item.Shape)
		}
	}
	slices.SortStableFunc(out, func(a, b Event) int { return int(max(-1, min(1, a.At-b.At))) })
	return out
}

// late warns of events at times when no probe runs any more.
func (x *expander) late(c *Cell) {
	var longest time.Duration
	for _, p := range slices.Concat(c.Groups...) {
		longest = max(longest, p.Estimate)
	}
	for _, e := range c.Schedule {
		if time.Duration(e.At) >= longest && len(c.Groups) > 0 {
			x.warn(&yamlfile.Value{Pos: e.pos}, "schedule it earlier, or make the probes longer",
				"schedule: at %s: %s: the probes have ended by then, after about %s", e.At, e.What, About(longest))
		}
	}
}

var killEvent = regexp.MustCompile(`^at\s+(\S+)\s*:\s*kill\s+(\S+)$`)

func (x *expander) event(events []Event, v *yamlfile.Value, text string) []Event {
	e := Event{pos: v.Pos}
	var err error
	if m := killEvent.FindStringSubmatch(strings.TrimSpace(text)); m != nil {
		e.Kill, e.What = m[2], "kill "+m[2]
		e.At, err = topology.ParseDuration(m[1])
	} else {
		var parsed topology.Event
		parsed, err = topology.ParseEvent(text)
		e.At, e.Action = parsed.At, parsed.Action
		e.What = parsed.Action.String()
	}
	if err != nil {
		x.wrong(v, "schedule", err)
		return events
	}
	return append(events, e)
}
