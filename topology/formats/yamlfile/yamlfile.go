// Package yamlfile reads YAML files as values that know their positions, for the formats that are
// YAML; and it writes text, keys and values so that they read back unchanged.
//
// It supports the parts of YAML that people write in a topology: mappings, lists, scalars, anchors
// and aliases, and merge keys, in one document. Time and memory are bounded even for broken or
// hostile files, far above what a topology needs; but aliases share the value of their anchor, so a
// small file can stand for a huge value: whatever walks a Value must bound that walk.
package yamlfile

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// Limits on what is read.
const (
	maxIndicators = 1_500_000 // line ends, and YAML's punctuation: each may begin a value
	maxDepth      = 64        // nested mappings and lists
	maxMerged     = 1_000_000 // keys that << adds
	maxBisect     = 1 << 20   // bytes of the largest file in which the line of an error is searched for
)

// Shape is the structure of a value.
type Shape int

// The shapes, by how much they contain.
const (
	Nothing Shape = iota // null, or no text at all
	Scalar
	Mapping
	List
)

func (s Shape) String() string { return [...]string{"nothing", "a value", "a mapping", "a list"}[s] }

// Value is a value of a file. Aliases share the value of their anchor.
type Value struct {
	Shape Shape
	Pos   topology.Position
	Text  string   // of a scalar, as written but unquoted
	Plain any      // of a scalar: as encoding/json would decode it
	Pairs []Pair   // of a mapping, in order, each key once; those of << are last
	Items []*Value // of a mapping, in order, each key once; those from << last
	Flow  bool     // a mapping or list in flow style (in brackets)
	Alias *Value   // if the value is that of an anchor: the *name in the text
}

// Pair is a key, which is a scalar, and its value.
type Pair struct {
	Key, Value *Value
	Merged     bool // from <<
}

// Get returns the value of a key, or nil.
func (v *Value) Get(key string) *Value {
	for _, p := range v.Pairs {
		if p.Key.Text == key {
			return p.Value
		}
	}
	return nil
}

// String describes, in messages, a value that has the wrong shape.
func (v *Value) String() string {
	if v.Shape == Scalar {
		return strconv.Quote(formats.Clip(v.Text))
	}
	return v.Shape.String()
}

// JSON returns the value as encoding/json would decode it: map[string]any, []any, string, float64,
// bool, nil. Each value in it, including those of aliases each time they are used, takes 1 from
// budget. It fails if budget falls below zero, or if nested aliases go deeper than a file's own
// lists and mappings may.
func (v *Value) JSON(budget *int) (any, error) { return v.json(budget, 0) }

func (v *Value) json(budget *int, depth int) (out any, err error) {
	if *budget--; *budget < 0 {
		return nil, errors.New("too many values")
	}
	if depth > maxDepth {
		return nil, errDepth
	}
	switch v.Shape {
	case Scalar:
		return v.Plain, nil
	case List:
		list := make([]any, len(v.Items))
		for i, item := range v.Items {
			if list[i], err = item.json(budget, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case Mapping:
		m := make(map[string]any, len(v.Pairs))
		for _, p := range v.Pairs {
			if m[p.Key.Text], err = p.Value.json(budget, depth+1); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
	return nil, nil
}

var errDepth = errors.New("lists and mappings are nested more than " + strconv.Itoa(maxDepth) + " deep")

// Dialect is what differs between formats.
type Dialect struct {
	Ranges bool // h[1-8] is a range of names: hints mention it
	Tags   bool // tags like !vault are ignored, as other programs use them
}

// Parse returns the file's value, which is Nothing if the file has none, and what is wrong with it
// as YAML; the value is nil if it could not be read at all.
func (d Dialect) Parse(file string, data []byte) (*Value, topology.Problems) {
	s := source{Dialect: d, file: file, data: data}
	top := s.document()
	if top == nil {
		return nil, s.problems
	}
	c := converter{source: &s, done: map[*yaml.Node]*Value{}}
	v := c.value(top, 0)
	return v, s.problems
}

// converter makes values from the parser's nodes: it follows aliases and merge keys.
type converter struct {
	*source
	done   map[*yaml.Node]*Value // by anchor; nil while being made
	merges int
}

func (c *converter) at(n *yaml.Node) topology.Position {
	return topology.Position{File: c.file, Line: n.Line, Column: n.Column}
}

func (c *converter) value(n *yaml.Node, depth int) *Value {
	if n.Kind == yaml.AliasNode {
		return c.alias(n)
	}
	v := &Value{Pos: c.at(n), Flow: n.Style&yaml.FlowStyle != 0}
	if depth > maxDepth {
		c.problems.Add(v.Pos, "a topology needs no more than ten", "%s", errDepth)
		return v
	}
	if !c.Tags && n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(n.Tag, "!!") {
		c.problems.Add(v.Pos, "leave it out", "a topology has no use for the tag %s", n.Tag)
	}
	if n.Anchor != "" {
		c.done[n] = nil
	}
	switch n.Kind {
	case yaml.ScalarNode:
		v.Shape, v.Text, v.Plain = Scalar, n.Value, plain(n)
		if n.ShortTag() == "!!null" {
			v.Shape = Nothing
		}
	case yaml.SequenceNode:
		v.Shape = List
		for _, item := range n.Content {
			v.Items = append(v.Items, c.value(item, depth+1))
		}
	case yaml.MappingNode:
		v.Shape = Mapping
		c.mapping(v, n.Content, depth)
	}
	if n.Anchor != "" {
		c.done[n] = v
	}
	return v
}

// plain is a scalar as encoding/json would decode it.
func plain(n *yaml.Node) any {
	var v any
	if slices.Contains([]string{"!!bool", "!!int", "!!float"}, n.ShortTag()) && n.Decode(&v) != nil {
		return n.Value
	}
	switch v := v.(type) {
	case bool:
		return v
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
	}
	return n.Value
}

func (c *converter) alias(n *yaml.Node) *Value {
	v := c.done[n.Alias]
	if v == nil {
		c.problems.Add(c.at(n), "", "*%s is used inside its own &%s", n.Value, n.Value)
		return &Value{Pos: c.at(n)}
	}
	use := *v
	use.Alias = &Value{Pos: c.at(n), Text: "*" + n.Value}
	return &use
}

func (c *converter) mapping(v *Value, content []*yaml.Node, depth int) {
	seen := make(map[string]bool, len(content)/2)
	var merges []*Value
	for i := 0; i < len(content); i += 2 {
		if content[i].ShortTag() == "!!merge" {
			merges = append(merges, c.value(content[i+1], depth+1))
			continue
		}
		key, val := c.value(content[i], depth+1), c.value(content[i+1], depth+1)
		switch {
		case key.Shape > Scalar:
			c.problems.Add(key.Pos, "write it in quotes", "a key is a word, not %s", key.Shape)
		case seen[key.Text]:
			c.problems.Add(key.Pos, "keep one of them", "%s: appears twice in the same mapping", formats.Clip(key.Text))
		default:
			key.Shape, seen[key.Text] = Scalar, true
			v.Pairs = append(v.Pairs, Pair{Key: key, Value: val})
		}
	}
	for _, m := range merges {
		c.merge(v, m, seen)
	}
}

// merge adds the pairs of a << mapping (or list of mappings) whose keys are not there yet.
func (c *converter) merge(v, from *Value, seen map[string]bool) {
	if c.merges++; c.merges > maxMerged {
		return // reported at the first one too many
	}
	if from.Shape == List {
		for _, item := range from.Items {
			c.merge(v, item, seen)
		}
		return
	}
	if from.Shape != Mapping {
		c.problems.Add(from.Pos, "write <<: *name", "<< takes a mapping, not %s", from.Shape)
		return
	}
	if c.merges += len(from.Pairs); c.merges > maxMerged {
		c.problems.Add(from.Pos, "use fewer merge keys", "<< merges more than %d keys into the file", maxMerged)
		return
	}
	for _, p := range from.Pairs {
		if !seen[p.Key.Text] {
			seen[p.Key.Text] = true
			v.Pairs = append(v.Pairs, Pair{p.Key, p.Value, true})
		}
	}
}
