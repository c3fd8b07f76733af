package kathara

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// statement is a line DEVICE[ARG]=VALUE.
type statement struct {
	device, arg, value string
	pos, valuePos      topology.Position
}

var (
	statementStart = regexp.MustCompile(`^([a-z0-9_]{1,30})\[([\p{L}\p{N}_]+)\]=`)
	lineComment    = regexp.MustCompile(`\s#`)
)

// valueOf finds the value in rest, the text after the equals sign, and returns the quote before it,
// if any. A value cannot contain quotes. (Kathará would take a comment after a value without quotes
// for a part of it, which nobody intends.)
func valueOf(rest string) (value, quote string, ok bool) {
	comment := ""
	if strings.HasPrefix(rest, `"`) || strings.HasPrefix(rest, "'") {
		quote = rest[:1]
		value, comment, ok = strings.Cut(rest[1:], quote)
		if comment = strings.TrimSpace(comment); !ok || comment != "" && comment[0] != '#' {
			return "", "", false
		}
	} else if value = rest; strings.Contains(rest, "#") {
		if at := lineComment.FindStringIndex(rest); at != nil {
			value = rest[:at[0]]
		}
	}
	value = strings.TrimSpace(value)
	return value, quote, value != "" && !strings.ContainsAny(value, `"'`)
}

// metadata are the keys of what a file may say about the lab as a whole.
var metadata = []string{"LAB_NAME", "LAB_DESCRIPTION", "LAB_VERSION", "LAB_AUTHOR", "LAB_EMAIL", "LAB_WEB"}

const (
	mostProblems   = 1000    // reported for a file that is not one of Kathará's
	mostStatements = 100_000 // for thousands of devices
)

// enough says whether to stop reading because the lab has too many problems, and adds a problem
// that says so.
func (r *reader) enough(pos topology.Position) bool {
	if len(r.problems) < mostProblems {
		return false
	}
	if !r.noted["enough"] {
		r.noted["enough"] = true
		r.problems.Add(pos, "correct the others first", "there are more problems than are looked for")
	}
	return true
}

// parse splits a file into its statements, and reads what it says about the lab as a whole.
func (r *reader) parse(data []byte) (statements []statement) {
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	number := 0
	for text := range strings.SplitSeq(string(data), "\n") {
		number++
		pos := topology.Position{File: r.file, Line: number, Column: 1}
		line := strings.TrimSpace(text)
		pos.Column += utf8.RuneCountInString(text[:strings.Index(text, line)])
		switch {
		case line == "" || line[0] == '#':
			continue
		case !utf8.ValidString(line) || strings.ContainsRune(line, 0):
			r.problems.Add(pos, "write UTF-8", "this is not text")
		case r.metadata(line):
		default:
			if s, ok := r.statement(line, pos); ok {
				statements = append(statements, s)
			}
		}
		if r.enough(pos) {
			return nil
		}
		if len(statements) > mostStatements {
			r.problems.Add(pos, "make several labs of it", "a lab has at most %d lines", mostStatements)
			return nil
		}
	}
	return statements
}

func (r *reader) statement(line string, pos topology.Position) (s statement, ok bool) {
	at := statementStart.FindStringSubmatchIndex(line)
	var quote string
	if at != nil {
		s = statement{device: line[at[2]:at[3]], arg: line[at[4]:at[5]], pos: pos, valuePos: pos}
		s.value, quote, ok = valueOf(line[at[1]:])
	}
	if !ok {
		hint := `write pc1[0]="A", with one value, in quotes if a comment follows`
		switch before, value, assigned := strings.Cut(line, "="); {
		case strings.HasPrefix(line, "LAB_"):
			hint = "leave it out: of a lab as a whole Kathará takes " + strings.Join(metadata, ", ") + " alone"
		case strings.HasPrefix(line, "machines="):
			hint = "leave it out: all devices of the file are started"
		case assigned && strings.ContainsAny(strings.Trim(value, `"'`), `"'`):
			hint = "write it without quotes in the value, or put the command into a .startup file"
		case strings.ToLower(before) != before:
			hint = "names of devices have small letters, digits and _, at most 30"
		}
		r.problems.Add(pos, hint, "%q gives no option of a device a value", formats.Clip(line))
		return s, false
	}
	s.valuePos.Column += utf8.RuneCountInString(line[:at[1]+len(quote)])
	return s, true
}

// metadata reads a line LAB_…=VALUE.
func (r *reader) metadata(line string) bool {
	key, value, _ := strings.Cut(line, "=")
	if !slices.Contains(metadata, key) {
		return false
	}
	value = strings.TrimSpace(strings.NewReplacer(`"`, "", `'`, "").Replace(value))
	if key == "LAB_NAME" {
		r.t.Name = value
	} else {
		keep(&r.t.Foreign, key, value)
	}
	return true
}

// keep stores a value that means nothing to Trivet, so that it is written back.
func keep(foreign *map[string]any, key string, value any) {
	if *foreign == nil {
		*foreign = map[string]any{name: map[string]any{}}
	}
	(*foreign)[name].(map[string]any)[key] = value
}

// kept returns what keep has stored.
func kept(foreign map[string]any, key string) string {
	values, _ := foreign[name].(map[string]any)
	text, _ := values[key].(string)
	return text
}
