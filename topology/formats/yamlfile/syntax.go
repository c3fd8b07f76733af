package yamlfile

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"trivet.dev/trivet/topology"
)

// source is a file being parsed as YAML, and its problems.
type source struct {
	Dialect
	file     string
	data     []byte
	problems topology.Problems
}

func (s *source) add(line, column int, hint, format string, args ...any) {
	s.problems.Add(topology.Position{File: s.file, Line: line, Column: column}, hint, format, args...)
}

// document returns the file's only document; nil if it is not YAML.
func (s *source) document() *yaml.Node {
	if !s.legible() {
		return nil
	}
	if s.punctuation() > maxIndicators {
		hint := "no topology needs that many"
		if s.Ranges {
			hint = "write ranges like h[1-8]"
		}
		s.add(0, 0, hint, "too many lines, keys and brackets (more than %d)", maxIndicators)
		return nil
	}
	var doc, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(s.data))
	err := decoder.Decode(&doc)
	if err == io.EOF {
		return &yaml.Node{Line: 1, Column: 1}
	}
	if err == nil {
		if err = decoder.Decode(&second); err == io.EOF {
			return doc.Content[0]
		}
	}
	if err == nil {
		s.add(second.Line, second.Column, "write one topology a file", "a second document begins here")
	} else {
		s.syntax(err)
	}
	return nil
}

// legible refuses what is not text.
func (s *source) legible() bool {
	for at := 0; at < len(s.data); {
		r, size := utf8.DecodeRune(s.data[at:])
		if r == utf8.RuneError && size == 1 || r < ' ' && r != '\n' && r != '\r' && r != '\t' {
			before := s.data[:at]
			s.add(1+bytes.Count(before, []byte("\n")), 1+utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]),
				"a topology file is YAML in UTF-8", "this is not text: there is a byte 0x%02x", s.data[at])
			return false
		}
		at += size
	}
	return true
}

// punctuation counts the characters that may begin a value.
func (s *source) punctuation() int {
	n := bytes.Count(s.data, []byte(": ")) + bytes.Count(s.data, []byte("- "))
	for _, c := range "\n,[{?" {
		n += bytes.Count(s.data, []byte(string(c)))
	}
	return n
}

var syntaxErrorText = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntax reports what the parser refused.
func (s *source) syntax(err error) {
	line, message := 0, err.Error()
	if m := syntaxErrorText.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = m[2]
	}
	if len(s.data) <= maxBisect {
		line = lineOf(s.data, err)
	}
	var text []byte
	if lines := bytes.SplitN(s.data, []byte("\n"), line+1); line > 0 && line <= len(lines) {
		text = lines[line-1]
	}
	s.add(line, 0, s.syntaxHint(message, text), "not YAML: %s", message)
}

var rangeInBrackets = regexp.MustCompile(`[{\[].*[A-Za-z_-]\[[0-9]`)

// syntaxHint says what to do about a syntax error in a line.
func (s *source) syntaxHint(message string, line []byte) string {
	switch {
	case s.Ranges && rangeInBrackets.Match(line):
		return `within {} and [] write ranges in quotes: "h[1-8]"`
	case bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("\t")):
		return "indent with spaces, not tabs"
	case strings.Contains(message, "unexpected end of stream"):
		return "close the quote or bracket"
	case strings.Contains(message, "expected ',' or"):
		return "close the bracket, or put a comma between what is in it"
	case strings.Contains(message, "expected node content"):
		return "close the bracket, or write a value"
	case strings.Contains(message, "unknown anchor"):
		return "define it before: &name"
	case strings.Contains(message, "expected key"), strings.Contains(message, "expected ':'"):
		return "write key: value, and indent what belongs together alike"
	}
	return "put text with signs like : # * & % @ in quotes"
}

// lineOf finds the line of a syntax error: the parser names the beginning of the construct that the
// error is in, or an adjacent line, or none. The error is at the end of the shortest prefix of the
// file that gives the same error.
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
