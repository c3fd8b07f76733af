package c3edge

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"trivet.dev/trivet/topology"
)

// Bounds on what is parsed, far above any testbed.
const (
	maxSize  = 1 << 20 // bytes
	maxDepth = 50      // of lists and mappings in each other
	maxKept  = 1000    // values kept under one unknown key
)

// document is a parsed file.
type document struct {
	file     string
	anchors  map[string]ast.Node
	problems topology.Problems
}

// entry is a key and its value.
type entry struct {
	key   string
	at    ast.Node // the key
	value ast.Node
}

// parse returns the file's top level, nil where it is not one YAML mapping.
func (d *document) parse(data []byte) ast.Node {
	top := topology.Position{File: d.file, Line: 1, Column: 1}
	switch {
	case len(data) > maxSize:
		d.problems.Add(top, "", "is larger than %d MiB, which no emulation needs", maxSize>>20)
		return nil
	case !utf8.Valid(data):
		d.problems.Add(invalidAt(d.file, data), "save it as UTF-8", "this byte is not UTF-8 text")
		return nil
	case depth(data) > maxDepth:
		d.problems.Add(top, "", "lists and mappings are more than %d deep", maxDepth)
		return nil
	}
	f, err := safely(data)
	if err != nil {
		d.syntax(err)
		return nil
	}
	var bodies []ast.Node
	for _, doc := range f.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	if len(bodies) != 1 {
		d.problems.Add(top, "write one, with emu: at its top", "the file holds %d documents", len(bodies))
		return nil
	}
	d.anchors = map[string]ast.Node{}
	ast.Walk(visitor(func(n ast.Node) {
		if a, ok := n.(*ast.AnchorNode); ok {
			d.anchors[a.Name.GetToken().Value] = a.Value
		}
	}), bodies[0])
	return bodies[0]
}

// safely parses; what makes the parser itself fail is an error as well.
func safely(data []byte) (f *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			f, err = nil, fmt.Errorf("cannot be parsed: %v", r)
		}
	}()
	return parser.ParseBytes(bytes.TrimPrefix(data, []byte("\uFEFF")), 0)
}

func (d *document) syntax(err error) {
	pos := topology.Position{File: d.file, Line: 1, Column: 1}
	message := err.Error()
	var e yaml.Error
	if errors.As(err, &e) {
		message = e.GetMessage()
		if t := e.GetToken(); t != nil && t.Position != nil {
			pos.Line, pos.Column = t.Position.Line, t.Position.Column
		}
	}
	d.problems.Add(pos, "", "not YAML: %s", clip(message))
}

func invalidAt(file string, data []byte) topology.Position {
	valid := 0
	for valid < len(data) {
		r, size := utf8.DecodeRune(data[valid:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		valid += size
	}
	before := data[:valid]
	return topology.Position{File: file, Line: 1 + bytes.Count(before, []byte("\n")),
		Column: 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])}
}

// depth is about how deep brackets, dashes in a line, and indented lines nest.
// It looks at bytes only, before any parser does.
func depth(data []byte) int {
	brackets, deepest, indents, last := 0, 0, 0, 0
	for line := range bytes.Lines(data) {
		rest := bytes.TrimLeft(line, " ")
		indent := len(line) - len(rest)
		if indent > last {
			indents++ // a deeper line may be one level more
		} else {
			indents = min(indents, indent)
		}
		last = indent
		dashes := 0
		for len(rest) > 1 && (rest[0] == '-' || rest[0] == '?') && (rest[1] == ' ' || rest[1] == '\t') {
			dashes++
			rest = bytes.TrimLeft(rest[1:], " \t")
		}
		for _, c := range rest {
			switch c {
			case '[', '{':
				brackets++
				deepest = max(deepest, brackets)
			case ']', '}':
				brackets = max(0, brackets-1)
			}
		}
		deepest = max(deepest, indents, dashes)
	}
	return deepest
}

type visitor func(ast.Node)

func (v visitor) Visit(n ast.Node) ast.Visitor {
	v(n)
	return v
}

// follow goes through anchors, aliases and tags to the value.
func (d *document) follow(n ast.Node) ast.Node {
	for range maxDepth {
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.TagNode:
			n = x.Value
		case *ast.AliasNode:
			to, ok := d.anchors[x.Value.GetToken().Value]
			if !ok {
				d.bad(n, "", "there is no anchor %s", clip(x.String()))
				return nil
			}
			n = to
		default:
			return n
		}
	}
	d.bad(n, "", "the anchors go in a circle")
	return nil
}

// mapping returns the entries of a mapping, in order; nil where it is none.
func (d *document) mapping(n ast.Node, what string) []entry {
	n = d.follow(n)
	var values []*ast.MappingValueNode
	switch x := n.(type) {
	case *ast.MappingNode:
		values = x.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{x}
	case nil, *ast.NullNode:
		return nil
	default:
		d.bad(n, "", "%s: %s is not a mapping", what, kindOf(n))
		return nil
	}
	var out []entry
	seen := map[string]bool{}
	for _, v := range values {
		key, ok := scalar(d.follow(v.Key))
		if null, isNull := v.Key.(*ast.NullNode); isNull { // a node may be called so
			key, ok = null.GetToken().Value, true
		}
		switch {
		case !ok:
			d.bad(v.Key, "", "%s: a key must be a word", what)
		case seen[key]:
			d.bad(v.Key, "remove one of them", "%s: %q is there already", what, clip(key))
		default:
			seen[key] = true
			out = append(out, entry{key, v.Key, v.Value})
		}
	}
	return out
}

// list returns the elements of a list; nil where it is none.
func (d *document) list(n ast.Node, what string) []ast.Node {
	switch x := d.follow(n).(type) {
	case *ast.SequenceNode:
		return x.Values
	case nil, *ast.NullNode:
	default:
		d.bad(n, "begin each with a dash", "%s: %s is not a list", what, kindOf(x))
	}
	return nil
}

// text returns a scalar as written.
func (d *document) text(n ast.Node, what string) (string, bool) {
	x := d.follow(n)
	s, ok := scalar(x)
	switch {
	case x == nil:
		return "", false
	case !ok:
		d.bad(n, "", "%s: %s is not a single value", what, kindOf(x))
	case strings.Contains(s, "{{"):
		d.bad(n, "write the value itself", "%s: %q is a template of Ansible", what, clip(s))
		ok = false
	}
	return s, ok
}

func scalar(n ast.Node) (string, bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value, true
	case *ast.LiteralNode:
		return x.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// plain returns a value as Go's own types, as far as budget values go.
func (d *document) plain(n ast.Node, budget *int) any {
	if *budget--; *budget < 0 {
		return nil
	}
	n = d.follow(n)
	switch x := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		m := map[string]any{}
		for _, e := range d.mapping(n, "mapping") {
			m[e.key] = d.plain(e.value, budget)
		}
		return m
	case *ast.SequenceNode:
		list := make([]any, len(x.Values))
		for i, e := range x.Values {
			list[i] = d.plain(e, budget)
		}
		return list
	case *ast.IntegerNode:
		return x.Value
	case *ast.FloatNode:
		if !math.IsInf(x.Value, 0) {
			return x.Value
		}
	case *ast.BoolNode:
		return x.Value
	}
	s, ok := scalar(n)
	if !ok {
		return nil
	}
	return s
}

func (d *document) pos(n ast.Node) topology.Position {
	p := topology.Position{File: d.file}
	if n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
		p.Line, p.Column = n.GetToken().Position.Line, n.GetToken().Position.Column
	}
	return p
}

func (d *document) bad(n ast.Node, hint, format string, args ...any) {
	d.problems.Add(d.pos(n), hint, format, args...)
}

func (d *document) warn(n ast.Node, hint, format string, args ...any) {
	d.problems.Warn(d.pos(n), hint, format, args...)
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	}
	if s, ok := scalar(n); ok {
		return fmt.Sprintf("%q", clip(s))
	}
	return "this"
}

// clip keeps text from a file printable in a message.
func clip(s string) string {
	if utf8.RuneCountInString(s) > 80 {
		return string([]rune(s)[:80]) + "…"
	}
	return s
}
