package miniedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// Limits on what is decoded, far above any network that MiniEdit can draw.
const (
	maxDepth  = 64        // nested objects and lists
	maxValues = 1_000_000 // in a file
)

// value is a JSON value and its position.
type value struct {
	line, column int
	v            any // string, json.Number, bool, nil, []*value or *object
}

// object is a JSON object, in the file's order.
type object struct {
	keys    []string
	members map[string]*value
}

func (o *object) get(key string) *value {
	if o == nil {
		return nil
	}
	return o.members[key]
}

// parser reads JSON and records the line and column of each value, which encoding/json alone does
// not.
type parser struct {
	file     string
	data     []byte
	dec      *json.Decoder
	problems topology.Problems
	values   int

	offset, line, column int // the cursor: only moves forward, so that long lines cost nothing
}

// errReported stops the parser where it makes no sense to continue; the problem has been recorded.
var errReported = errors.New("reported")

// parse returns the file's value, or nil if it is not JSON.
func parse(file string, data []byte) (*value, topology.Problems) {
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	p := &parser{file: file, data: data, line: 1, column: 1}
	if at := invalidUTF8(data); at >= 0 {
		p.moveTo(at)
		p.fail("save it as UTF-8", "this byte is not UTF-8 text")
		return nil, p.problems
	}
	p.dec = json.NewDecoder(bytes.NewReader(data))
	p.dec.UseNumber()
	root, err := p.value(0)
	if err == nil {
		p.moveTo(int(p.dec.InputOffset()))
		p.skipBlanks()
		if p.offset < len(p.data) {
			p.fail("remove it", "something follows the end of the topology")
			return nil, p.problems
		}
		return root, p.problems
	}
	if err != errReported {
		p.syntax(err)
	}
	return nil, p.problems
}

func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

// value reads the next value; depth is that of the object or list around it.
func (p *parser) value(depth int) (*value, error) {
	p.moveTo(int(p.dec.InputOffset()))
	p.skipBlanks()
	v := &value{line: p.line, column: p.column}
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	if p.values++; p.values > maxValues {
		return nil, p.fail("", "holds more than %d values, which no topology needs", maxValues)
	}
	delim, ok := token.(json.Delim)
	if !ok {
		v.v = token
		return v, p.number(token)
	}
	if depth == maxDepth {
		return nil, p.fail("a topology needs no more than four", "objects and lists are more than %d deep", maxDepth)
	}
	if delim == '{' {
		v.v, err = p.object(v, depth+1)
	} else {
		v.v, err = p.list(v, depth+1)
	}
	return v, err
}

// number refuses numbers that no program can represent.
func (p *parser) number(token json.Token) error {
	if n, ok := token.(json.Number); ok {
		if _, err := strconv.ParseFloat(n.String(), 64); err != nil {
			return p.fail("", "the number is out of range")
		}
	}
	return nil
}

func (p *parser) object(start *value, depth int) (*object, error) {
	o := &object{members: map[string]*value{}}
	for p.dec.More() {
		p.moveTo(int(p.dec.InputOffset()))
		p.skipBlanks()
		line, column := p.line, p.column
		token, err := p.dec.Token()
		if err != nil {
			return nil, p.truncated(err, start, "object")
		}
		key, _ := token.(string)
		v, err := p.value(depth)
		if err != nil {
			return nil, p.truncated(err, start, "object")
		}
		if before := o.members[key]; before != nil {
			p.problems.Add(topology.Position{File: p.file, Line: line, Column: column}, "remove one of them",
				"%q is already defined at line %d", formats.Clip(key), before.line)
			continue
		}
		o.keys = append(o.keys, key)
		o.members[key] = v
	}
	_, err := p.dec.Token()
	return o, p.truncated(err, start, "object")
}

func (p *parser) list(start *value, depth int) ([]*value, error) {
	list := []*value{}
	for p.dec.More() {
		v, err := p.value(depth)
		if err != nil {
			return nil, p.truncated(err, start, "list")
		}
		list = append(list, v)
	}
	_, err := p.dec.Token()
	return list, p.truncated(err, start, "list")
}

// truncated reports the end of the file within an object or list.
func (p *parser) truncated(err error, start *value, what string) error {
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	p.moveTo(len(p.data))
	return p.fail("it seems to be cut off; save it again", "the file ends within the %s that starts at line %d", what,
		start.line)
}

func (p *parser) syntax(err error) {
	message := words.JSON(err).Error()
	var s *json.SyntaxError
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		p.moveTo(len(p.data))
		message = "the file ends before the topology does"
	case errors.As(err, &s):
		// The offset counts from where the decoder began to read the value, or from the start of
		// the file; either way the error is after the last token.
		p.moveTo(int(p.dec.InputOffset()))
		p.skipBlanks()
	}
	p.fail("a .mn file is JSON as MiniEdit saves it", "%s", message)
}

// fail records a problem at the cursor.
func (p *parser) fail(hint, format string, args ...any) error {
	p.problems.Add(topology.Position{File: p.file, Line: p.line, Column: p.column}, hint, format, args...)
	return errReported
}

// moveTo moves the cursor forward; columns count characters.
func (p *parser) moveTo(offset int) {
	passed := p.data[p.offset:min(max(offset, p.offset), len(p.data))]
	p.offset += len(passed)
	if lines := bytes.Count(passed, []byte("\n")); lines > 0 {
		p.line += lines
		p.column = 1
		passed = passed[bytes.LastIndexByte(passed, '\n')+1:]
	}
	p.column += utf8.RuneCount(passed)
}

// skipBlanks skips what is between two tokens.
func (p *parser) skipBlanks() {
	rest := p.data[p.offset:]
	p.moveTo(p.offset + len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,:")))
}

// plain returns a value as Go's own types: map[string]any, []any, string, int64, float64, bool,
// nil.
func plain(v *value) any {
	switch x := v.v.(type) {
	case *object:
		m := make(map[string]any, len(x.keys))
		for k, e := range x.members {
			m[k] = plain(e)
		}
		return m
	case []*value:
		list := make([]any, len(x))
		for i, e := range x {
			list[i] = plain(e)
		}
		return list
	case json.Number:
		if i, err := x.Int64(); err == nil {
			return i
		}
		f, _ := x.Float64()
		return f
	}
	return v.v
}

// kindOf names a value's type for messages.
func kindOf(v *value) string {
	switch x := v.v.(type) {
	case string:
		return strconv.Quote(formats.Clip(x))
	case json.Number:
		return x.String()
	case bool:
		return fmt.Sprint(x)
	case nil:
		return "null"
	case *object:
		return "an object"
	}
	return "a list"
}
