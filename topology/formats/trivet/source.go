package trivet

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"trivet.dev/trivet/topology"
)

// What a file may ask of the reader. The limits bound time and memory for files
// that are broken or hostile, far beyond what a topology needs.
const (
	maxIndicators = 1_500_000 // line ends, and YAML's punctuation: each may cost a value
	maxDepth      = 64        // of mappings and lists in one another
	maxMerged     = 1_000_000 // keys that << brings
	maxBisect     = 1 << 20   // bytes of the largest file in which the line of a mistake is searched
)

// limits bound what ranges and aliases expand to.
type limits struct {
	items int // nodes, and links
	work  int // values read, counting those of ranges and aliases each time
}

var atMost = limits{items: 1_000_000, work: 10_000_000}

type shape int

const (
	nothing shape = iota
	scalar
	mapping
	list
)

func (s shape) String() string { return [...]string{"nothing", "a value", "a mapping", "a list"}[s] }

// value is a value of the file: YAML without most of its ways of writing, but with positions.
// Aliases share the value of their anchor.
type value struct {
	shape shape
	pos   topology.Position
	text  string // of a scalar, as written but unquoted
	plain any    // of a scalar: as JSON has it
	pairs []pair
	items []*value
	flow  bool   // a mapping or list in brackets
	alias *value // *name, where the value stands for its anchor's
}

type pair struct {
	key, value *value
	merged     bool // by <<
}

// get returns the value of a key, or nil.
func (v *value) get(key string) *value {
	for _, p := range v.pairs {
		if p.key.text == key {
			return p.value
		}
	}
	return nil
}

// json returns the value as encoding/json would: numbers are float64.
func (v *value) json(d *decoder, depth int) any {
	d.spend(v, 1)
	if depth > maxDepth { // aliases in aliases can lie deeper than the file itself
		d.add(v, "", "lists and mappings lie deeper than %d in one another", maxDepth)
		return nil
	}
	switch v.shape {
	case scalar:
		return v.plain
	case list:
		out := make([]any, len(v.items))
		for i, item := range v.items {
			out[i] = item.json(d, depth+1)
		}
		return out
	case mapping:
		out := make(map[string]any, len(v.pairs))
		for _, p := range v.pairs {
			out[p.key.text] = p.value.json(d, depth+1)
		}
		return out
	}
	return nil
}

// parse returns the file's top value; on a syntax error, nil and what is wrong.
func parse(data []byte) (*value, topology.Problems) {
	if p := legible(data); p != nil {
		return nil, topology.Problems{*p}
	}
	if punctuation(data) > maxIndicators {
		return nil, topology.Problems{{Hint: "write ranges like h[1-8]", Message: fmt.Sprintf("too many lines, keys and brackets (more than %d)", maxIndicators)}}
	}
	top, p := parseYAML(data)
	if p != nil {
		return nil, topology.Problems{*p}
	}
	c := converter{done: map[*yaml.Node]*value{}}
	return c.value(top, 0), c.problems
}

// legible refuses what is no text.
func legible(data []byte) *topology.Problem {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 || r < ' ' && r != '\n' && r != '\r' && r != '\t' {
			return &topology.Problem{Pos: topology.Position{Line: 1 + bytes.Count(data[:at], []byte("\n"))}, Hint: "a topology file is YAML in UTF-8",
				Message: fmt.Sprintf("this is no text: there is a byte 0x%02x", data[at])}
		}
		at += size
	}
	return nil
}

// punctuation counts what may begin a value.
func punctuation(data []byte) int {
	n := bytes.Count(data, []byte(": ")) + bytes.Count(data, []byte("- "))
	for _, c := range "\n,[{?" {
		n += bytes.Count(data, []byte(string(c)))
	}
	return n
}

// parseYAML returns the only document in the file, or nil where there is none.
func parseYAML(data []byte) (*yaml.Node, *topology.Problem) {
	var doc, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&doc)
	if err == io.EOF {
		return nil, nil
	}
	if err == nil {
		if err = decoder.Decode(&second); err == io.EOF {
			return doc.Content[0], nil
		}
	}
	if err == nil {
		return nil, &topology.Problem{Pos: topology.Position{Line: second.Line, Column: second.Column}, Hint: "write one topology a file", Message: "a second document begins here"}
	}
	line, message := syntaxError(err)
	if len(data) <= maxBisect {
		line = lineOf(data, err)
	}
	p := &topology.Problem{Pos: topology.Position{Line: line}, Message: "not YAML: " + message}
	if lines := bytes.SplitN(data, []byte("\n"), line+1); line > 0 && line <= len(lines) && rangeInBrackets.Match(lines[line-1]) {
		p.Hint = `within {} and [] write ranges in quotes: "h[1-8]"`
	}
	return nil, p
}

var rangeInBrackets = regexp.MustCompile(`[{\[].*[A-Za-z_-]\[[0-9]`)

var syntaxErrorText = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func syntaxError(err error) (line int, message string) {
	m := syntaxErrorText.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, err.Error()
	}
	line, _ = strconv.Atoi(m[1])
	return line, m[2]
}

// lineOf finds the line of a syntax error: the parser names the beginning of what it
// was in, or a line beside it, or none. The mistake is where the shortest beginning
// of the file ends that gives the same error.
func lineOf(data []byte, want error) int {
	var ends []int
	for i, c := range data {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	line, _ := slices.BinarySearchFunc(ends, true, func(end int, _ bool) int {
		decoder := yaml.NewDecoder(bytes.NewReader(data[:end]))
		for {
			if err := decoder.Decode(new(yaml.Node)); err == io.EOF {
				return -1
			} else if err != nil && err.Error() == want.Error() {
				return 0
			} else if err != nil {
				return -1
			}
		}
	})
	return line + 1
}

// converter makes values of the parser's nodes: it follows aliases and merge keys.
type converter struct {
	done     map[*yaml.Node]*value // anchors; nil while they are being made
	problems topology.Problems
	merges   int
}

func at(n *yaml.Node) topology.Position { return topology.Position{Line: n.Line, Column: n.Column} }

func (c *converter) value(n *yaml.Node, depth int) *value {
	if n == nil {
		return &value{}
	}
	if n.Kind == yaml.AliasNode {
		return c.alias(n)
	}
	v := &value{pos: at(n), flow: n.Style&yaml.FlowStyle != 0}
	if depth > maxDepth {
		c.problems.Add(v.pos, "a topology needs no more than ten", "lists and mappings lie deeper than %d in one another", maxDepth)
		return v
	}
	if n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(n.Tag, "!!") {
		c.problems.Add(v.pos, "leave it out", "a topology has no use for the tag %s", n.Tag)
	}
	if n.Anchor != "" {
		c.done[n] = nil
	}
	switch n.Kind {
	case yaml.ScalarNode:
		v.shape, v.text, v.plain = scalar, n.Value, plain(n)
		if n.ShortTag() == "!!null" {
			v.shape = nothing
		}
	case yaml.SequenceNode:
		v.shape = list
		for _, item := range n.Content {
			v.items = append(v.items, c.value(item, depth+1))
		}
	case yaml.MappingNode:
		v.shape = mapping
		c.mapping(v, n.Content, depth)
	}
	if n.Anchor != "" {
		c.done[n] = v
	}
	return v
}

// plain is a scalar as encoding/json would have it.
func plain(n *yaml.Node) any {
	var v any
	switch n.ShortTag() {
	case "!!bool", "!!int", "!!float":
		if n.Decode(&v) != nil {
			return n.Value
		}
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

func (c *converter) alias(n *yaml.Node) *value {
	v := c.done[n.Alias]
	if v == nil {
		c.problems.Add(at(n), "", "*%s is part of its own &%s", n.Value, n.Value)
		return &value{pos: at(n)}
	}
	use := *v
	use.alias = &value{pos: at(n), text: "*" + n.Value}
	return &use
}

func (c *converter) mapping(v *value, content []*yaml.Node, depth int) {
	seen := make(map[string]bool, len(content)/2)
	var merges []*value
	for i := 0; i < len(content); i += 2 {
		if content[i].ShortTag() == "!!merge" {
			merges = append(merges, c.value(content[i+1], depth+1))
			continue
		}
		key, val := c.value(content[i], depth+1), c.value(content[i+1], depth+1)
		switch {
		case key.shape > scalar:
			c.problems.Add(key.pos, "write it in quotes", "a key is a word, not %s", key.shape)
		case seen[key.text]:
			c.problems.Add(key.pos, "keep one of them", "%s: is here twice in the same mapping", clip(key.text))
		default:
			key.shape, seen[key.text] = scalar, true
			v.pairs = append(v.pairs, pair{key: key, value: val})
		}
	}
	for _, m := range merges {
		c.merge(v, m, seen)
	}
}

// merge adds the pairs of a << mapping (or list of them) whose keys are not there yet.
func (c *converter) merge(v, from *value, seen map[string]bool) {
	if c.merges++; c.merges > maxMerged {
		return // told when it began
	}
	if from.shape == list {
		for _, item := range from.items {
			c.merge(v, item, seen)
		}
		return
	}
	if from.shape != mapping {
		c.problems.Add(from.pos, "write <<: *name", "<< takes a mapping, not %s", from.shape)
		return
	}
	if c.merges += len(from.pairs); c.merges > maxMerged {
		c.problems.Add(from.pos, "use fewer merge keys", "<< brings more than %d keys into the file", maxMerged)
		return
	}
	for _, p := range from.pairs {
		if !seen[p.key.text] {
			seen[p.key.text] = true
			v.pairs = append(v.pairs, pair{p.key, p.value, true})
		}
	}
}
