package words

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestPlural proves that one thing is singular, that none and several are plural, and that words
// get their English ending.
func TestPlural(t *testing.T) {
	for _, c := range []struct {
		n    int
		what string
		want string
	}{
		{1, "link", "1 link"}, {0, "link", "0 links"}, {2, "link", "2 links"}, {-1, "link", "-1 links"},
		{1, "switch", "1 switch"}, {2, "switch", "2 switches"}, {3, "address", "3 addresses"}, {2, "prefix", "2 prefixes"},
		{12, "other reason", "12 other reasons"}, {2, "node", "2 nodes"},
	} {
		if got := Plural(c.n, c.what); got != c.want {
			t.Errorf("Plural(%d, %q) is %q, want %q", c.n, c.what, got, c.want)
		}
	}
}

// TestSome proves that few names are all listed, and that of many it is said how many more there
// are.
func TestSome(t *testing.T) {
	for want, names := range map[string][]string{"": nil, "a": {"a"}, "a, b, c": {"a", "b", "c"}, "a, b, c and 2 more": {"a", "b", "c", "d", "e"}} {
		if got := Some(names); got != want {
			t.Errorf("%q are %q, not %q", names, got, want)
		}
	}
}

// TestPeriod proves that a period is in its largest whole unit, and without a number where that is
// one.
func TestPeriod(t *testing.T) {
	for d, want := range map[time.Duration]string{7 * 24 * time.Hour: "week", 14 * 24 * time.Hour: "2 weeks", 36 * time.Hour: "36 hours", time.Hour: "hour",
		90 * time.Second: "90 seconds", time.Second: "second", 1500 * time.Millisecond: "1.5s", 400 * time.Millisecond: "400ms"} {
		if got := Period(d); got != want {
			t.Errorf("%v: every %s, not every %s", d, got, want)
		}
	}
}

// TestJSON proves that Go's guesses at what a word should have been do not reach users.
func TestJSON(t *testing.T) {
	for text, want := range map[string]string{
		"nope":         "this is not JSON: invalid character 'o'",
		`{"a": "ten"}`: "a must be a whole number, not string",
		"[1]":          "the value must be an object, not array",
		`{"a": `:       "this is not JSON: it ends too early",
	} {
		var v struct {
			A int `json:"a"`
		}
		if err := JSON(json.Unmarshal([]byte(text), &v)); err.Error() != want {
			t.Errorf("%s: %q, want %q", text, err, want)
		}
	}
}

// TestPrintable proves that what might control a terminal or break a line is escaped, and nothing
// else; that Text keeps lines, and that PlainJSON remains the same JSON.
func TestPrintable(t *testing.T) {
	const hostile = "a\x1b[2J\u202e\u009b\u0007\n\tb\U000e0001 ü→\x80"
	if got, want := Printable(hostile), `a\x1b[2J\u202e\u009b\a\n\tb\U000e0001 ü→�`; got != want {
		t.Errorf("Printable gives %q, not %q", got, want)
	}
	if got, want := Text("one\n\ttwo\x1b\r"), "one\n\ttwo\\x1b\\r"; got != want {
		t.Errorf("Text gives %q, not %q", got, want)
	}
	var v map[string]string
	b, err := json.MarshalIndent(map[string]string{"x": strings.ToValidUTF8(hostile, "?")}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	b = PlainJSON(b)
	if text := strings.ReplaceAll(string(b), "\n", ""); Printable(text) != text {
		t.Errorf("PlainJSON leaves %q", text)
	}
	if err := json.Unmarshal(b, &v); err != nil || v["x"] != strings.ToValidUTF8(hostile, "?") {
		t.Errorf("PlainJSON has made another value: %q, %v", v["x"], err)
	}
}

// TestShell proves that a shell gives a program the words that were quoted for it.
func TestShell(t *testing.T) {
	given := []string{"printf", `%s\0`, "", "a b", "it's", `$HOME "\`, "*", "a\nb"}
	out, err := exec.Command("/bin/sh", "-c", Shell(given...)).Output()
	if got, want := string(out), strings.Join(given[2:], "\x00")+"\x00"; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// TestNumbers proves how numbers are listed.
func TestNumbers(t *testing.T) {
	for want, list := range map[string][]int{"": nil, "5": {5}, "5 and 8": {5, 8}, "5, 8 and 10": {5, 8, 10}} {
		if got := Numbers(list); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
}
