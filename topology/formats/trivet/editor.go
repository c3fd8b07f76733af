package trivet

import (
	"cmp"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// setting is a key and value to write into a link's options.
type setting struct {
	key, value string
	others     []string // other spellings of the key
	inner      *setting // the value is that of an end's options, of which this alone is set
	// The value is these: where the same are in lines of their own, each changes in its place.
	files []topology.NodeFile
}

// is says whether a key is that of the setting.
func (s setting) is(key string) bool { return key == s.key || slices.Contains(s.others, key) }

func settings(c topology.LinkChange) (out []setting) {
	change := reflect.ValueOf(c)
	for _, f := range fieldsOf(reflect.TypeFor[topology.Impairment](), "") {
		name := reflect.TypeFor[topology.Impairment]().FieldByIndex(f.index).Name
		if v := change.FieldByName(name); !v.IsNil() {
			out = append(out, setting{key: f.names[0], value: flowValue(v.Elem(), f)})
		}
	}
	if c.Up != nil {
		out = append(out, setting{key: "down", value: strconv.FormatBool(!*c.Up)})
	}
	return out
}

// editor collects replacements in a text with LF line ends.
type editor struct {
	text     string
	settings []setting
	link     topology.Link // before the change
	edits    []edit
}

type edit struct {
	from, to int
	text     string
}

func (e *editor) replace(from, to int, text string) { e.edits = append(e.edits, edit{from, to, text}) }

// errInPlace ends an edit when the text is not written in a way that the editor can handle.
var errInPlace = errors.New("cannot be changed in place")

// try edits; it returns the new text, or says that it could not.
func (e *editor) try(change func()) (out string, err error) {
	defer func() {
		if r := recover(); r == errInPlace {
			err = errInPlace
		} else if r != nil {
			panic(r)
		}
	}()
	change()
	return e.apply(), nil
}

func (e *editor) apply() string {
	slices.SortStableFunc(e.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out strings.Builder
	last := 0
	for _, ed := range e.edits {
		if ed.from < last {
			panic(errInPlace)
		}
		out.WriteString(e.text[last:ed.from] + ed.text)
		last = ed.to
	}
	return out.String() + e.text[last:]
}

// offset returns the offset of a position in the text.
func (e *editor) offset(p topology.Position) int {
	at := 0
	for range p.Line - 1 {
		next := strings.IndexByte(e.text[at:], '\n')
		if next < 0 {
			panic(errInPlace)
		}
		at += next + 1
	}
	for i := range e.text[at:] {
		if p.Column--; p.Column == 0 {
			return at + i
		}
	}
	return len(e.text)
}

var (
	quotedScalar = regexp.MustCompile(`^("([^"\\\n]|\\.)*"|'([^'\n]|'')*')`)
	anchorText   = regexp.MustCompile(`^&\S+\s+`)
)

// closing returns the offset just after the bracket that closes the one at from.
func (e *editor) closing(from int) int {
	depth, begins := 0, true // begins: a quote here would begin a text
	for i := from; i < len(e.text); i++ {
		c := e.text[i]
		switch {
		case begins && (c == '"' || c == '\''):
			i += max(len(quotedScalar.FindString(e.text[i:])), 1) - 1
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case c == '#' && (e.text[i-1] == ' ' || e.text[i-1] == '\n'):
			i += strings.IndexByte(e.text[i:]+"\n", '\n') - 1
		}
		if c != ' ' && c != '\n' {
			begins = strings.IndexByte("{[,:", c) >= 0
		}
	}
	panic(errInPlace)
}

// span returns the range of a value that is written on one line.
func (e *editor) span(v *yamlfile.Value) (from, to int) {
	if v.Alias != nil {
		v = v.Alias
	}
	from = e.offset(v.Pos)
	from += len(anchorText.FindString(e.text[from:]))
	if v.Flow {
		return from, e.closing(from)
	}
	if q := quotedScalar.FindString(e.text[from:]); q != "" {
		return from, from + len(q)
	}
	if v.Shape > yamlfile.Scalar || v.Text == "" || !strings.HasPrefix(e.text[from:], v.Text) {
		panic(errInPlace)
	}
	return from, from + len(v.Text)
}

// flowOptions writes an entry's options again, on one line; if changed, with the change.
func (e *editor) flowOptions(v *yamlfile.Value, changed bool) string {
	var items []string
	if v != nil && v.Alias != nil {
		if !changed {
			return v.Alias.Text
		}
		items = append(items, "<<: "+v.Alias.Text)
	} else if v != nil {
		for _, p := range v.Pairs {
			if !changed || !e.sets(p.Key.Text) {
				items = append(items, yamlfile.Quote(p.Key.Text)+": "+flowSource(p.Value))
			}
		}
	}
	if changed {
		for _, s := range e.settings {
			items = append(items, s.key+": "+s.value)
		}
	}
	if len(items) == 0 {
		return ""
	}
	return "{" + strings.Join(items, ", ") + "}"
}

func (e *editor) sets(key string) bool {
	return slices.ContainsFunc(e.settings,
		func(s setting) bool { return s.is(key) || s.key == "down" && key == "state" })
}

// flowSource writes a value on one line.
func flowSource(v *yamlfile.Value) string {
	var items []string
	switch {
	case v.Alias != nil:
		return v.Alias.Text
	case v.Shape == yamlfile.List:
		for _, item := range v.Items {
			items = append(items, flowSource(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case v.Shape == yamlfile.Mapping:
		for _, p := range v.Pairs {
			items = append(items, yamlfile.Quote(p.Key.Text)+": "+flowSource(p.Value))
		}
		return "{" + strings.Join(items, ", ") + "}"
	case v.Shape == yamlfile.Nothing:
		return "null"
	}
	if _, text := v.Plain.(string); text {
		return yamlfile.Quote(v.Text)
	}
	return v.Text
}

// setOptions changes the keys that are there and adds those that are not.
func (e *editor) setOptions(v *yamlfile.Value) {
	for _, end := range []string{"from", "to"} { // an end may have an impairment of its own, which changes as well
		if own := v.Get(end); own != nil && own.Shape == yamlfile.Mapping {
			for _, s := range e.settings {
				e.setKey(own, s)
			}
		}
	}
	missing := lists.Filter(e.settings, func(s setting) bool { return !e.setKey(v, s) && e.differs(s) })
	if len(missing) > 0 {
		e.addKeys(v, missing)
	}
}

// setKey replaces the value of a key; it says whether the key was there.
func (e *editor) setKey(v *yamlfile.Value, s setting) bool {
	for _, p := range v.Pairs {
		word, is := s.value, s.is(p.Key.Text)
		if s.key == "down" && p.Key.Text == "state" {
			word, is = map[string]string{"true": "down", "false": "up"}[s.value], true
		}
		if is && !p.Merged {
			switch {
			case s.inner != nil && p.Value.Shape == yamlfile.Mapping && p.Value.Alias == nil:
				if !e.setKey(p.Value, *s.inner) {
					e.addKeys(p.Value, []setting{*s.inner})
				}
			case s.files != nil && e.setFiles(p.Value, s.files):
			case p.Value.Shape == yamlfile.List && !p.Value.Flow:
				e.setList(p.Key, p.Value, word)
			case p.Value.Shape == yamlfile.Mapping && !p.Value.Flow && p.Value.Alias == nil:
				e.setBlock(p.Key, word)
			default:
				from, to := e.span(p.Value)
				e.replace(from, to, word)
			}
			return true
		}
	}
	return false
}

// setBlock replaces a mapping in block style: all lines that are indented deeper than its key.
func (e *editor) setBlock(key *yamlfile.Value, word string) {
	_, colon := e.span(key)
	if !strings.HasPrefix(e.text[colon:], ":") {
		panic(errInPlace)
	}
	_, end := e.below(key, colon)
	e.replace(colon+1, end, " "+word)
}

// below is the range of the lines after the one at an offset that are indented deeper than a key.
func (e *editor) below(key *yamlfile.Value, at int) (from, to int) {
	from = at + strings.IndexByte(e.text[at:]+"\n", '\n')
	to = from
	for at := from; at < len(e.text); { // a blank line belongs to it if more of it follows
		at++
		line, _, _ := strings.Cut(e.text[at:], "\n")
		if plain := strings.TrimLeft(line, " "); plain != "" && len(line)-len(plain) < key.Pos.Column {
			break
		} else if plain != "" {
			to = at + len(line)
		}
		at += len(line)
	}
	return from, to
}

// setFiles changes what is said of files in block style, each in its place. It says whether it did:
// these are the same files, in the same order.
func (e *editor) setFiles(v *yamlfile.Value, files []topology.NodeFile) bool {
	if v.Shape != yamlfile.Mapping || v.Flow || v.Alias != nil || len(v.Pairs) != len(files) {
		return false
	}
	for i, p := range v.Pairs {
		if p.Merged || p.Value.Alias != nil || p.Key.Text != files[i].Path {
			return false
		}
	}
	for i, p := range v.Pairs {
		is := cmp.Or(files[i].File, files[i].Text)
		if is == p.Value.Text {
			continue
		}
		from := e.offset(p.Value.Pos)
		if head := blockHead.FindString(e.text[from:]); head != "" {
			e.setText(p.Key, from, head, is)
			continue
		}
		from, to := e.span(p.Value)
		e.replace(from, to, yamlfile.Quote(is))
	}
	return true
}

var (
	// blockHead matches what precedes a text in lines of its own.
	blockHead = regexp.MustCompile(`^[|>][-+1-9]*`)
	// literal matches texts that can be such, after "|".
	literal = regexp.MustCompile(`^[^ \t\n\pC\x{2028}\x{2029}]([\t\n\PC]*[^\n\pC])?\n$`)
)

// setText replaces a text in lines of its own, below a key; what precedes it is at an offset.
func (e *editor) setText(key *yamlfile.Value, at int, head, text string) {
	from, to := e.below(key, at)
	if !literal.MatchString(text) || strings.ContainsAny(text, "\u2028\u2029") {
		e.replace(at, to, yamlfile.Quote(text))
		return
	}
	indent := strings.Repeat(" ", key.Pos.Column+1)
	for line := range strings.Lines(e.text[min(from+1, to):to]) {
		if plain := strings.TrimLeft(line, " "); plain != "\n" {
			indent = line[:len(line)-len(plain)]
			break
		}
	}
	var lines strings.Builder
	for line := range strings.Lines(text) {
		if lines.WriteByte('\n'); line != "\n" {
			lines.WriteString(indent + strings.TrimSuffix(line, "\n"))
		}
	}
	e.replace(at, at+len(head), "|")
	e.replace(from, to, lines.String())
}

// differs says whether a setting differs from what the link already has, from defaults or
// otherwise.
func (e *editor) differs(s setting) bool {
	if s.key == "down" {
		return s.value != strconv.FormatBool(e.link.Down)
	}
	now := reflect.ValueOf(e.link.Impairment)
	for _, f := range fieldsOf(now.Type(), "") {
		if f.names[0] == s.key {
			return flowValue(now.FieldByIndex(f.index), f) != s.value
		}
	}
	return true
}

// addKeys adds keys to a mapping: in braces at its end, in block style after its last line that can
// be identified.
func (e *editor) addKeys(v *yamlfile.Value, add []setting) {
	items := lists.Map(add, func(s setting) string { return s.key + ": " + s.value })
	if v.Flow {
		from, to := e.span(v)
		inside := e.text[from+1 : to-1]
		switch {
		case strings.TrimSpace(inside) == "":
			e.replace(from+1, to-1, strings.Join(items, ", "))
		case strings.ContainsAny(inside, "\n") || strings.HasSuffix(strings.TrimSpace(inside), ","):
			e.replace(from+1, from+1, strings.Join(items, ", ")+", ")
		default:
			end := from + 1 + len(strings.TrimRight(inside, " "))
			e.replace(end, end, ", "+strings.Join(items, ", "))
		}
		return
	}
	indent := "\n" + strings.Repeat(" ", v.Pos.Column-1)
	for _, p := range slices.Backward(v.Pairs) {
		if p.Merged || p.Value.Shape != yamlfile.Scalar || p.Value.Pos.Line != p.Key.Pos.Line || p.Value.Alias != nil {
			continue
		}
		_, end := e.span(p.Value)
		if n := strings.IndexByte(e.text[end:], '\n'); n >= 0 {
			end += n
		} else {
			end = len(e.text)
		}
		e.replace(end, end, indent+strings.Join(items, indent))
		return
	}
	start := e.offset(v.Pos)
	e.replace(start, start, strings.Join(items, indent)+indent)
}
