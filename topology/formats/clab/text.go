package clab

import (
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// brace matches the only templates that are accepted: those that produce two opening braces.
var brace = regexp.MustCompile("^\\{\\{ *(\"\\{\\{\"|`\\{\\{`) *\\}\\}")

// escape escapes a text so that expand returns the original.
var escape = strings.NewReplacer("$", "$$", "{{", "{{`{{`}}")

// expand turns a file into plain YAML. containerlab executes the file as a template of Go, and then
// replaces environment variables anywhere in it. Templates are refused here.
func expand(file string, data []byte) ([]byte, topology.Problems) {
	var problems topology.Problems
	read, hint := string(data),
		"write the file that containerlab makes of it: containerlab deploy --export-rendered-topology FILE"
	text, at, wrong := plain(read)
	if wrong == "" {
		read, hint = text, "close it, or write $$ for a dollar sign"
		text, at, wrong = variables(text, os.LookupEnv)
	}
	if wrong != "" {
		before := read[:at]
		line := strings.LastIndexByte(before, '\n') + 1
		pos := topology.Position{File: file, Line: 1 + strings.Count(before, "\n"),
			Column: 1 + utf8.RuneCountInString(before[line:])}
		problems.Add(pos, hint, "%s", wrong)
		return nil, problems
	}
	return []byte(text), nil
}

// plain replaces the templates that stand for braces. At any other template it stops, and returns
// where that is and why.
func plain(text string) (out string, at int, wrong string) {
	var b strings.Builder
	for {
		i := strings.Index(text[at:], "{{")
		if i < 0 {
			b.WriteString(text[at:])
			return b.String(), 0, ""
		}
		b.WriteString(text[at : at+i])
		at += i
		match := brace.FindString(text[at:min(len(text), at+64)])
		if match == "" {
			return "", at, "the file is a template: {{ begins what containerlab would compute"
		}
		b.WriteString("{{")
		at += len(match)
	}
}

// variables replaces $V, ${V} and ${V:=x} by values of the environment, as containerlab does. A
// variable that is unset or empty, and has no default, is left as it is. $$ is a dollar sign; $1 is
// not a variable.
func variables(text string, lookup func(string) (string, bool)) (out string, at int, wrong string) {
	var b strings.Builder
	value := func(name string) string {
		if v, _ := lookup(name); v != "" {
			return v
		}
		return "$" + name
	}
	for at < len(text) && b.Len() <= formats.MaxSize {
		i := strings.IndexByte(text[at:], '$')
		if i < 0 {
			break
		}
		b.WriteString(text[at : at+i])
		at += i
		rest := text[at+1:]
		switch name := leadingName(rest); {
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			at += 2
		case name != "" && name != "_":
			b.WriteString(value(name))
			at += 1 + len(name)
		case strings.HasPrefix(rest, "{") && leadingName(rest[1:]) != "":
			name = leadingName(rest[1:])
			end := strings.IndexAny(rest, "}\r\n")
			if end < 0 || rest[end] != '}' {
				return "", at, "${" + formats.Clip(name) + " has no closing brace"
			}
			b.WriteString(substituted(name, rest[1+len(name):end], value, lookup))
			at += 1 + end + 1
		default:
			b.WriteByte('$')
			at++
		}
	}
	if b.WriteString(text[at:]); b.Len() > formats.MaxSize {
		return "", at, "with what its variables stand for, the file is larger than any topology needs"
	}
	return b.String(), 0, ""
}

// substituted returns the value of an expression in braces, which consists of a variable's name and
// what follows it.
func substituted(name, expression string, value func(string) string, lookup func(string) (string, bool)) string {
	v, set := lookup(name)
	operator, otherwise := "", ""
	for _, o := range []string{":-", ":=", ":+", "-", "=", "+"} {
		if rest, ok := strings.CutPrefix(expression, o); ok {
			operator, otherwise = strings.TrimPrefix(o, ":"), rest
			if o == ":-" || o == ":=" {
				set = v != ""
			}
			break
		}
	}
	if other, ok := strings.CutPrefix(otherwise, "$"); ok && other != "" && leadingName(other) == other {
		otherwise = value(other)
	}
	switch {
	case operator == "+" && otherwise != "" && !set:
		return ""
	case otherwise != "" && operator == "+" == set:
		return otherwise
	}
	return value(name)
}

// leadingName returns the name of a variable at the beginning of a text, or "".
func leadingName(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if end < 0 {
		end = len(text)
	}
	if first, _ := utf8.DecodeRuneInString(text); unicode.IsDigit(first) {
		return ""
	}
	return text[:end]
}
