package trivet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// SetLink changes the link between a and b (names of nodes or interfaces, in either order) in the
// text of a file. Comments and layout elsewhere stay as they are; if the link is one of a range, it
// gets an item of its own. It fails if the file has errors, if there is no such link or more than
// one, or if the link is written in a way that only a person can change.
func SetLink(data []byte, a, b string, change topology.LinkChange) ([]byte, error) {
	return edited(data, func(r *reader, e *editor) (try, apply func(), where string, line int, err error) {
		entry, index, err := r.findLink(a, b)
		if err != nil {
			return nil, nil, "", 0, err
		}
		e.settings, e.link = settings(change), *r.t.Links[index]
		return func() { e.change(r, entry, index) }, func() { change.Apply(r.t.Links[index]) },
			fmt.Sprintf("the link %s -- %s", a, b), entry.where().Pos.Line, nil
	})
}

// edited returns the text of a file after an edit. plan finds what is to be edited: try edits it in
// the text, apply in the topology; both must give the same.
func edited(data []byte,
	plan func(*reader, *editor) (try, apply func(), what string, line int, err error)) ([]byte, error) {
	crlf := bytes.Count(data, []byte("\r\n"))
	if crlf > 0 && crlf != bytes.Count(data, []byte("\n")) {
		return nil, errors.New("the file mixes two kinds of line ends; let your editor convert it first")
	}
	text := normal(data)
	r := newReader("", text, atMost)
	if err := r.problems.Err(); err != nil {
		return nil, err
	}
	e := &editor{text: string(text)}
	try, apply, what, line, err := plan(r, e)
	if err != nil {
		return nil, err
	}
	out, err := e.try(try)
	apply()
	if again, problems := Read("", []byte(out)); err != nil || problems.Err() != nil ||
		!reflect.DeepEqual(withoutPositions(again), withoutPositions(r.t)) {
		return nil, fmt.Errorf("line %d: %s cannot be changed automatically as it is written; put it on a line of its own first", line, what)
	}
	if crlf > 0 {
		out = strings.ReplaceAll(out, "\n", "\r\n")
	}
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		out = "\ufeff" + out
	}
	return []byte(out), nil
}

// normal is the text in which positions are counted.
func normal(data []byte) []byte {
	return bytes.ReplaceAll(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
}

func withoutPositions(t *topology.Topology) *topology.Topology {
	t.Pos = topology.Position{}
	for _, n := range t.Nodes {
		n.Pos = topology.Position{}
		for k := range n.Interfaces {
			n.Interfaces[k].Pos = topology.Position{}
		}
	}
	for _, l := range t.Links {
		l.Pos = topology.Position{}
	}
	for i := range t.Schedule {
		t.Schedule[i].Pos = topology.Position{}
	}
	if t.Cluster != nil {
		t.Cluster = t.Cluster.WithoutPositions()
	}
	return t
}

// findLink returns the only link between a and b, and the entry that makes it.
func (r *reader) findLink(a, b string) (linkEntry, int, error) {
	found, count := -1, 0
	for i, l := range r.t.Links {
		x, y := l.Ends[0].Label(), l.Ends[1].Label()
		if x == a && y == b || x == b && y == a {
			found = i
			count++
		}
	}
	switch count {
	case 0:
		return linkEntry{}, 0, fmt.Errorf("there is no link %s -- %s", a, b)
	case 1:
		at := slices.IndexFunc(r.entries, func(e linkEntry) bool { return found < e.first+e.count })
		return r.entries[at], found, nil
	}
	return linkEntry{}, 0, fmt.Errorf("there are %d links %s -- %s; change the file by hand", count, a, b)
}

// change edits the entry of a link. If the entry makes several links, all parts but the last get
// items of their own before it, and the entry's text is replaced by the last part.
func (e *editor) change(r *reader, entry linkEntry, index int) {
	if entry.text == nil {
		e.setOptions(entry.options)
		return
	}
	from, to := e.span(entry.text)
	texts, target := []string{e.text[from:to]}, 0
	if entry.count > 1 {
		texts, target = e.parts(r.t.Links, entry, index)
	}
	last := len(texts) - 1
	inKey := entry.parent.Shape == yamlfile.Mapping
	separator := e.separator(entry.parent, from)
	for i, text := range texts[:last] {
		e.replace(from, from, item(text, e.flowOptions(entry.options, i == target), entry.parent.Flow, inKey)+separator)
	}
	switch {
	case entry.options == nil:
		e.replace(from, to, item(texts[last], e.flowOptions(nil, last == target), entry.parent.Flow, inKey))
		return
	case last > 0:
		e.replace(from, to, texts[last])
	}
	if last == target {
		e.setEntry(entry)
	}
}

// parts writes the links of an entry as those before a link, the link itself and those after it;
// target is the index of the link's own text.
func (e *editor) parts(links []*topology.Link, entry linkEntry, index int) (texts []string, target int) {
	for _, part := range [][]*topology.Link{links[entry.first:index], links[index : index+1],
		links[index+1 : entry.first+entry.count]} {
		if len(part) > 0 && part[0] == links[index] {
			target = len(texts)
		}
		var written []writtenLink
		for _, l := range part {
			a, okA := endText(l.Ends[0])
			b, okB := endText(l.Ends[1])
			if !okA || !okB {
				panic(errInPlace)
			}
			written = append(written, writtenLink{a: a, b: b, ranged: a == l.Ends[0].Node && b == l.Ends[1].Node})
		}
		for _, text := range linkItemTexts(written) {
			if entry.parent.Flow {
				text = yamlfile.Quote(unquote(text))
			}
			texts = append(texts, text)
		}
	}
	return texts, target
}

// item writes a link and its options as an item of a list or, with inKey, as a key.
func item(text, options string, flow, inKey bool) string {
	switch {
	case inKey:
		return text + ": " + cmp.Or(options, "{}")
	case options == "":
		return text
	case flow:
		return "{" + text + ": " + options + "}"
	}
	return text + ": " + options
}

// separator is what goes between items or keys: in block style, a line end and the beginning of the
// item's line, with only the last dash in it.
func (e *editor) separator(parent *yamlfile.Value, at int) string {
	if parent.Flow {
		return ", "
	}
	line := e.text[strings.LastIndexByte(e.text[:at], '\n')+1 : at]
	keep := len(line)
	if dash := strings.TrimRight(line, " "); strings.HasSuffix(dash, "-") {
		keep = len(dash) - 1
	}
	return "\n" + strings.Repeat(" ", keep) + line[keep:]
}

func unquote(s string) string {
	if u, err := strconv.Unquote(s); err == nil {
		return u
	}
	return s
}

// setEntry changes the options of an entry that makes a single link.
func (e *editor) setEntry(entry linkEntry) {
	options := e.flowOptions(nil, true)
	_, end := e.span(entry.text)
	v := entry.options
	switch {
	case options == "":
	case v.Alias != nil:
		from, to := e.span(v)
		e.replace(from, to, e.flowOptions(v, true))
	case v.Shape == yamlfile.Nothing:
		colon := end + strings.IndexByte(e.text[end:], ':') + 1
		word := strings.TrimLeft(e.text[colon:], " ")
		from := len(e.text) - len(word)
		for _, null := range []string{"null", "~"} {
			if strings.HasPrefix(word, null) {
				e.replace(from, from+len(null), options)
				return
			}
		}
		e.replace(colon, colon, " "+options)
	default:
		e.setOptions(v)
	}
}
