// Package reach reads files that say which hosts of a lab must reach each other and which must not,
// as `trivet ping --all --expect` compares them with what is so.
package reach

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/trivet"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Limits on what ranges and aliases expand to.
const (
	maxNames = 100_000
	maxWork  = 10_000_000 // names read, and pairs stated, each time
)

// Expectation is what a file expects of the hosts of a topology.
type Expectation struct {
	otherwise bool // for pairs that no line names
	said      map[[2]string]statement
}

// statement is what the file says of a pair, and where.
type statement struct {
	reach bool
	pos   topology.Position
}

// Reaches says whether a host must get answers from another; otherwise it must get none.
func (e *Expectation) Reaches(from, to string) bool {
	if s, ok := e.said[[2]string{from, to}]; ok {
		return s.reach
	}
	return e.otherwise
}

// A section is a mapping in the file. there and back say whether, for its lines h1: h2, h1 must
// reach h2 and h2 must reach h1.
type section struct {
	there, back bool
	doc         string
}

var sections = map[string]section{
	"reach":   {true, true, "h1: [h2, h3]: h1 reaches these, and they reach h1."},
	"isolate": {false, false, "h1: [h2, h3]: h1 reaches none of these, and none of them reaches h1."},
	"one-way": {true, false,
		"h1: [h2, h3]: h1 reaches these, and none of them reaches h1, as behind NAT or a firewall."},
}

// Read reads a file about the hosts of a topology. Its error is all that is wrong with it
// (topology.Problems).
func Read(file string, data []byte, t *topology.Topology) (*Expectation, error) {
	root, problems := yamlfile.Dialect{Ranges: true}.Parse(file, data)
	r := reader{Expectation: Expectation{said: map[[2]string]statement{}}, problems: problems, hosts: map[string]bool{}}
	for _, n := range t.Nodes {
		r.hosts[n.Name] = n.Kind == topology.Host
	}
	if root != nil {
		r.file(root)
	}
	return &r.Expectation, r.problems.Err()
}

type reader struct {
	Expectation
	problems topology.Problems
	hosts    map[string]bool // every node, and whether it is a host
	work     int             // of maxWork
}

func (r *reader) file(root *yamlfile.Value) {
	if root.Shape != yamlfile.Mapping || len(root.Pairs) == 0 {
		r.problems.Add(root.Pos, "write  default: no  and  reach: {h1: h2}",
			"a file of who reaches whom is a mapping, not %s", root)
		return
	}
	r.otherwise = true
	for _, p := range root.Pairs {
		s, known := sections[p.Key.Text]
		switch {
		case p.Key.Text == "default":
			r.defaultOf(p.Value)
		case !known:
			words := append([]string{"default"}, slices.Sorted(maps.Keys(sections))...)
			r.problems.Add(p.Key.Pos, "known are "+strings.Join(words, ", "), "there is no key %q",
				formats.Clip(p.Key.Text))
		case p.Value.Shape != yamlfile.Mapping:
			r.problems.Add(p.Value.Pos, "write  "+p.Key.Text+": {h1: h2}", "%s is a mapping, not %s", p.Key.Text,
				p.Value)
		case p.Key.Text == "reach" && root.Get("default") == nil:
			r.problems.Add(p.Key.Pos, "write  default: no,  or yes to mean that",
				"reach says nothing while all other hosts reach each other, too")
		default:
			for _, line := range p.Value.Pairs {
				r.line(s, line)
			}
		}
	}
}

func (r *reader) defaultOf(v *yamlfile.Value) {
	switch {
	case v.Shape == yamlfile.Scalar && slices.Contains([]string{"yes", "true"}, v.Text):
		r.otherwise = true
	case v.Shape == yamlfile.Scalar && slices.Contains([]string{"no", "false"}, v.Text):
		r.otherwise = false
	default:
		r.problems.Add(v.Pos, "write yes or no: whether hosts of which nothing is said reach each other",
			"default is not %s", v)
	}
}

// line reads h[1-2]: [h3, h4].
func (r *reader) line(s section, line yamlfile.Pair) {
	from, ok := r.names(line.Key)
	list := []*yamlfile.Value{line.Value}
	if line.Value.Shape == yamlfile.List {
		list = line.Value.Items
	}
	if len(list) == 0 {
		r.problems.Add(line.Value.Pos, "name hosts, or leave the line out", "%s has an empty list",
			formats.Clip(line.Key.Text))
	}
	for _, v := range list {
		if !r.spend(1+len(v.Text), v.Pos) {
			return
		}
		if to, is := r.names(v); ok && is {
			r.pairs(s, v.Pos, from, to)
		}
	}
}

// names reads names of hosts: h1, h[2-4].
func (r *reader) names(v *yamlfile.Value) (names []string, ok bool) {
	if v.Shape != yamlfile.Scalar {
		r.problems.Add(v.Pos, "write h1, or h[2-4]", "hosts have names, not %s", v)
		return nil, false
	}
	for word := range strings.SplitSeq(commasEnd(v.Text), "\n") {
		some, err := trivet.Expand(strings.TrimSpace(word), maxNames)
		if err != nil {
			text, hint := topology.TextAndHint(err)
			r.problems.Add(v.Pos, hint, "%s", text)
			return nil, false
		}
		for _, name := range some {
			if host, node := r.hosts[name]; !node {
				hint := topology.DidYouMean(name, slices.Sorted(maps.Keys(r.hosts)))
				r.problems.Add(v.Pos, hint, "%s: the lab has no host %q", formats.Clip(v.Text), formats.Clip(name))
				return nil, false
			} else if !host {
				r.problems.Add(v.Pos, "name hosts: they ping each other", "%s: %s is no host",
					formats.Clip(v.Text), name)
				return nil, false
			}
		}
		names = append(names, some...)
	}
	return names, true
}

// commasEnd ends lines where a list of names has its commas: h1, h[2,4] has one.
func commasEnd(text string) string {
	inside := false
	return strings.Map(func(c rune) rune {
		switch {
		case c == '[' || c == ']':
			inside = c == '['
		case c == ',' && !inside:
			return '\n'
		}
		return c
	}, text)
}

// spend says whether the limit allows that much more work.
func (r *reader) spend(work int, pos topology.Position) bool {
	before := r.work
	if r.work += work; before <= maxWork && r.work > maxWork {
		r.problems.Add(pos, "say less of more hosts, by  default", "the file stands for more than %d pairs of hosts",
			maxWork)
	}
	return r.work <= maxWork
}

// pairs records a statement for each pair of one host in from and another in to.
func (r *reader) pairs(s section, pos topology.Position, from, to []string) {
	if !r.spend(len(from)*len(to), pos) {
		return
	}
	others := false
	for _, a := range from {
		for _, b := range to {
			if a == b {
				continue
			}
			others = true
			if !r.say(a, b, s.there, pos) || !r.say(b, a, s.back, pos) {
				return // of a line one contradiction is enough
			}
		}
	}
	if !others {
		r.problems.Add(pos, "name another host", "%s reaches itself always", from[0])
	}
}

func (r *reader) say(from, to string, reach bool, pos topology.Position) bool {
	before, ok := r.said[[2]string{from, to}]
	if ok && before.reach != reach {
		words := map[bool]string{true: "reaches", false: "does not reach"}
		r.problems.Add(pos, "leave out one of the two", "%s %s %s here, and %s it by line %d",
			from, words[reach], to, words[before.reach], before.pos.Line)
		return false
	}
	if !ok {
		r.said[[2]string{from, to}] = statement{reach, pos}
	}
	return true
}

// Schema returns the JSON Schema (draft 2020-12) of these files, which editors use for help and
// completion.
func Schema() []byte {
	type object = map[string]any
	name := object{"type": "string", "minLength": 1}
	hosts := object{"anyOf": []object{name, {"type": "array", "minItems": 1, "items": name}}}
	properties := object{"default": object{
		"enum":        []any{"yes", "no", true, false},
		"description": "Whether hosts of which nothing else is said reach each other.",
	}}
	for key, s := range sections {
		properties[key] = object{"type": "object", "additionalProperties": hosts, "description": s.doc}
	}
	out, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id":     "https://trivet.dev/schema/reach.json", "title": "Who reaches whom in a lab",
		"type": "object", "minProperties": 1, "additionalProperties": false, "properties": properties,
		"dependentRequired": object{"reach": []string{"default"}},
	}, "", "  ")
	if err != nil {
		panic(err) // impossible: made of strings and maps only
	}
	return append(out, '\n')
}
