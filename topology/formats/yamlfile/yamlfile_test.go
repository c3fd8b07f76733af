package yamlfile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// outline writes a value with its positions: line:column, and the content.
func outline(v *Value) string {
	at := fmt.Sprintf("%d:%d ", v.Pos.Line, v.Pos.Column)
	if v.Alias != nil {
		at += fmt.Sprintf("(%s at %d:%d) ", v.Alias.Text, v.Alias.Pos.Line, v.Alias.Pos.Column)
	}
	var inner []string
	for _, p := range v.Pairs {
		merged := ""
		if p.Merged {
			merged = "<<"
		}
		inner = append(inner, merged+outline(p.Key)+" = "+outline(p.Value))
	}
	for _, item := range v.Items {
		inner = append(inner, outline(item))
	}
	switch {
	case v.Shape == Mapping && v.Flow:
		return at + "{" + strings.Join(inner, "; ") + "}"
	case v.Shape == Mapping:
		return at + "map(" + strings.Join(inner, "; ") + ")"
	case v.Shape == List:
		return at + "[" + strings.Join(inner, "; ") + "]"
	}
	return at + v.String()
}

// TestValues proves that values are what the text says, and have the right positions: columns count
// characters, not bytes, and both kinds of line ends count as one.
func TestValues(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "1:1 nothing",
		"# nothing\n":                   "1:1 nothing",
		"a: 1\nb: [x, 'y z', ~]\n":      `1:1 map(1:1 "a" = 1:4 "1"; 2:1 "b" = 2:4 [2:5 "x"; 2:8 "y z"; 2:15 nothing])`,
		"\ufeffa:\r\n  - b: c\r\n  - d": `1:1 map(1:1 "a" = 2:3 [2:5 map(2:5 "b" = 2:8 "c"); 3:5 "d"])`,
		"ü: {ä: ö, b: }":                `1:1 map(1:1 "ü" = 1:4 {1:5 "ä" = 1:8 "ö"; 1:11 "b" = 1:14 nothing})`,
		"a: &x {b: 1}\nc: *x":           `1:1 map(1:1 "a" = 1:4 {1:8 "b" = 1:11 "1"}; 2:1 "c" = 1:4 (*x at 2:4) {1:8 "b" = 1:11 "1"})`,
		"a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}": `1:1 map(1:1 "a" = 1:4 {1:8 "b" = 1:11 "1"; 1:14 "c" = 1:17 "2"}; ` +
			`2:1 "d" = 2:4 {2:13 "c" = 2:16 "3"; <<1:8 "b" = 1:11 "1"})`,
		"null: 1\ntrue: 2\n0x1f: 3": `1:1 map(1:1 "null" = 1:7 "1"; 2:1 "true" = 2:7 "2"; 3:1 "0x1f" = 3:7 "3")`,
		"a: |\n  text\n  more\n":    `1:1 map(1:1 "a" = 1:4 "text\nmore\n")`,
	} {
		v, problems := Dialect{}.Parse("f", []byte(text))
		if len(problems) > 0 {
			t.Errorf("%q: %s", text, problems)
		} else if got := outline(v); got != want {
			t.Errorf("%q\nwant %s\ngot  %s", text, want, got)
		}
	}
}

// TestProblems proves that text that is not YAML, or not the part that this package supports, is
// reported with its line, and what to do.
func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: 2\na: 3\na: 4\n": "f:3:1  a: appears twice in the same mapping; keep one of them\nf:4:1  a: appears twice in the same mapping; keep one of them",
		"[a]: 1":                   "f:1:1  a key is a word, not a list; write it in quotes",
		"a: &a [*a]":               "f:1:8  *a is used inside its own &a",
		"a: *b":                    "f:1  not YAML: unknown anchor 'b' referenced; define it before: &name",
		"x: &x 1\na: {<<: *x}":     "f:1:4  << takes a mapping, not a value; write <<: *name",
		"a: !what 1":               "f:1:4  a topology has no use for the tag !what; leave it out",
		"a: 1\n---\nb: 1\n":        "f:2:1  a second document begins here; write one topology a file",
		"a:\n  b: 1\n c: 2\n":      "f:3  not YAML: did not find expected key; write key: value, and indent what belongs together alike",
		"a:\n\tb: 1\n":             "f:2  not YAML: found character that cannot start any token; indent with spaces, not tabs",
		"a: [1\nb: 2\n":            "f:1  not YAML: did not find expected ',' or ']'; close the bracket, or put a comma between what is in it",
		"a: [\n":                   "f:1  not YAML: did not find expected node content; close the bracket, or write a value",
		"a: \"b\n":                 "f:1  not YAML: found unexpected end of stream; close the quote or bracket",
		"a: {h[1-8]: host}":        `f:1  not YAML: did not find expected ',' or '}'; within {} and [] write ranges in quotes: "h[1-8]"`,
		"ok: 1\nü: \xff":           "f:2:4  this is not text: there is a byte 0xff; a topology file is YAML in UTF-8",
		"a: \x00":                  "f:1:4  this is not text: there is a byte 0x00; a topology file is YAML in UTF-8",
		"\xff\xfea\x00":            "f:1:1  this is not text: there is a byte 0xff; a topology file is YAML in UTF-8",
		strings.Repeat("[", 65) + "1" + strings.Repeat("]", 65): "f:1:66  lists and mappings are nested more than 64 deep; a topology needs no more than ten",
	} {
		_, problems := Dialect{Ranges: true}.Parse("f", []byte(text))
		if got := fmt.Sprint(problems.Err()); got != want {
			t.Errorf("%q\nwant %s\ngot  %s", text, want, got)
		}
	}
}

// TestDialects proves that hints mention ranges only for formats that have them, and that tags are
// not a problem if other programs read the file too.
func TestDialects(t *testing.T) {
	if _, problems := (Dialect{}).Parse("f", []byte("a: {h[1-8]: host}")); !strings.Contains(problems.Error(), "close the bracket") {
		t.Error(problems)
	}
	if _, problems := (Dialect{}).Parse("f", []byte(strings.Repeat("\n", 3<<19))); strings.Contains(problems.Error(), "h[1-8]") {
		t.Error(problems)
	}
	v, problems := Dialect{Tags: true}.Parse("f", []byte("a: !vault |\n  x\nb: !many [1]"))
	if len(problems) > 0 || v.Get("a").Text != "x\n" || v.Get("b").Items[0].Text != "1" || v.Get("c") != nil {
		t.Error(v, problems)
	}
}

// TestBombs proves that files that expand to too much are refused with a short message. (That this
// takes seconds at most shows in the time that the test takes; it contains no clock.)
func TestBombs(t *testing.T) {
	var merges strings.Builder
	merges.WriteString("m0: &m0 {a: 1}\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&merges, "m%d: &m%d {<<: [%s], k%d: 1}\n", i, i, strings.Repeat(fmt.Sprintf("*m%d, ", i-1), 3000), i)
	}
	for name, text := range map[string]string{
		"merge keys":     merges.String(),
		"deep lists":     "a: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"deeper lists":   "a: " + strings.Repeat("[", 4<<20),
		"deep mappings":  "a: " + strings.Repeat("{a: ", 4<<20),
		"deep blocks":    strings.Repeat("- ", 4<<20),
		"many brackets":  "a: [" + strings.Repeat("[],", 4<<20) + "]",
		"many keys":      strings.Repeat("x: 1\n", 3<<20),
		"many lines":     strings.Repeat("\n", 15<<20),
		"many anchors":   strings.Repeat("&a ", 5<<20),
		"many questions": strings.Repeat("? ", 5<<20),
		"many documents": strings.Repeat("---\n", 1<<20),
	} {
		_, problems := Dialect{}.Parse("f", []byte(text))
		if problems.Err() == nil {
			t.Errorf("%s: no problem", name)
		} else if message := problems[0].String(); len(message) > 200 {
			t.Errorf("%s: the message has %d bytes: %.200s…", name, len(message), message)
		}
	}
}

// TestJSON proves that a value becomes what encoding/json would make of it, that each value is
// counted, including those of aliases each time they are used, and that aliases cannot go too deep.
func TestJSON(t *testing.T) {
	v, _ := Dialect{}.Parse("f", []byte("a: &a [1, 0x10, 1.5, true, ~, '7', .inf, 2020-01-01]\nb: {c: *a}\n"))
	budget := 100
	got, err := v.JSON(&budget)
	text, _ := json.Marshal(got)
	if want := `{"a":[1,16,1.5,true,null,"7",".inf","2020-01-01"],"b":{"c":[1,16,1.5,true,null,"7",".inf","2020-01-01"]}}`; err != nil || string(text) != want {
		t.Errorf("%v\nwant %s\ngot  %s", err, want, text)
	}
	if budget != 80 {
		t.Errorf("there are 20 values, and %d were counted", 100-budget)
	}
	budget = 19
	if _, err := v.JSON(&budget); err == nil || budget >= 0 {
		t.Errorf("19 values are enough: %v, %d", err, budget)
	}
	laughs := "a0: &a0 [0, 0]\n"
	for i := 1; i < 80; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [*a%d]\n", i, i, i-1)
	}
	v, _ = Dialect{}.Parse("f", []byte(laughs))
	budget = 1_000_000
	if _, err := v.JSON(&budget); err == nil || !strings.Contains(err.Error(), "more than 64 deep") {
		t.Errorf("aliases in aliases: %v", err)
	}
}

// anyText draws texts that YAML could take for something else.
var anyText = rapid.OneOf(
	rapid.SampledFrom([]string{"", "true", "No", "null", "~", "1", "1e3", "0x1f", "1:20", ".inf", "2020-01-01", "<<", "=", "a: b", "a #b", "- a", "a ", " a",
		"{", "a\nb", "\ufeff", "\u2028", "'", `"`, `\`, "!a", "&a", "*a", "?", "%a", "@a", "tcp:1.2.3.4:1", "a:", strings.Repeat("long ", 300)}),
	rapid.String())

// TestQuoting proves that what is written reads back unchanged, with this package and with the YAML
// library alone: text as text, in flow and block style, as keys and as values.
func TestQuoting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key, value := anyText.Draw(t, "key"), anyText.Draw(t, "value")
		want := map[string]any{key: value}
		for _, text := range []string{Line("", key, Quote(value)), "{" + FlowKey(key) + ": " + Quoted(value) + "}", Flow(want)} {
			v, problems := Dialect{}.Parse("f", []byte(text))
			budget := 10
			if len(problems) > 0 {
				t.Fatalf("%s: %s", text, problems)
			}
			if got, _ := v.JSON(&budget); !reflect.DeepEqual(got, any(want)) {
				t.Fatalf("%s\nis %q", text, got)
			}
			var m map[string]any
			if err := yaml.Unmarshal([]byte(text), &m); err != nil || !reflect.DeepEqual(m, want) {
				t.Fatalf("%s\nis %q (%v)", text, m, err)
			}
		}
	})
}

// TestLine proves how keys are written in block style, with and without values, also in lists.
func TestLine(t *testing.T) {
	long := strings.Repeat("k", 1100)
	text := strings.Join([]string{Line("", "a", ""), Line("  - ", "b", "1"), Line("    ", "c", ""), Line("      ", long, "2"), Line("  - ", long, "3"), ""}, "\n")
	v, problems := Dialect{}.Parse("f", []byte(text))
	if len(problems) > 0 {
		t.Fatalf("%s\n%s", problems, text)
	}
	budget := 100
	got, _ := v.JSON(&budget)
	want := map[string]any{"a": []any{map[string]any{"b": 1.0, "c": map[string]any{long: 2.0}}, map[string]any{long: 3.0}}}
	if !reflect.DeepEqual(got, any(want)) {
		t.Errorf("%s\nis %v", text, got)
	}
}

// FuzzParse proves that no file makes the parser panic, and that a value it returns has positions
// in the file, and reads the same when it is written.
func FuzzParse(f *testing.F) {
	f.Add([]byte("a: &a {b: [1, 'x', ~]}\nc: {<<: *a, d: !t |\n   y}\n"))
	f.Add([]byte("\ufeffa:\r\n  - b\r\n"))
	f.Add([]byte("---"))
	f.Add([]byte("-.000000"))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, problems := Dialect{}.Parse("f", data)
		if problems.Err() != nil {
			return
		}
		breaks := strings.FieldsFunc(string(data), func(r rune) bool { return !strings.ContainsRune("\n\r\u0085\u2028\u2029", r) })
		if lines := 2 + utf8.RuneCountInString(strings.Join(breaks, "")); v.Pos.Line < 1 || v.Pos.Line > lines || v.Pos.Column < 1 { // what is missing is positioned after the last line
			t.Fatalf("%s, of %d lines", v.Pos, lines)
		}
		budget := 10_000
		first, err := v.JSON(&budget)
		if err != nil {
			return
		}
		again, problems := Dialect{}.Parse("f", []byte(Flow(first)))
		if len(problems) > 0 {
			t.Fatalf("%s\n%s", problems, Flow(first))
		}
		budget = 10_000
		if second, _ := again.JSON(&budget); Flow(second) != Flow(first) {
			t.Fatalf("%s\n%s", Flow(first), Flow(second))
		}
	})
}
