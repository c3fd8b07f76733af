// Package words formats text for users.
package words

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"trivet.dev/trivet/internal/lists"
)

// Choose lists what there is to choose from: "choose a", "choose a or b", "choose one of a, b, c".
func Choose(from []string) string {
	if len(from) < 3 {
		return "choose " + strings.Join(from, " or ")
	}
	return "choose one of " + strings.Join(from, ", ")
}

// Plural formats a number of things: "1 switch", "2 switches", "0 links". what is the singular; if
// it is several words, the last takes the plural.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	for _, end := range []string{"s", "x", "ch", "sh"} {
		if strings.HasSuffix(what, end) {
			return fmt.Sprintf("%d %ses", n, what)
		}
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Numbers lists numbers: "5, 10 and 20".
func Numbers(list []int) string {
	text := ""
	for i, n := range list {
		switch {
		case i > 0 && i == len(list)-1:
			text += " and "
		case i > 0:
			text += ", "
		}
		text += strconv.Itoa(n)
	}
	return text
}

// Some lists the first of many names.
func Some(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// Period formats an interval to follow "every": "week", "2 days", "90 minutes", "400ms".
func Period(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"week", 7 * 24 * time.Hour}, {"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute},
		{"second", time.Second}} {
		switch n := d / u.unit; {
		case d == u.unit:
			return u.name
		case n > 1 && d%u.unit == 0:
			return Plural(int(n), u.name)
		}
	}
	return d.String()
}

// JSON explains an error of decoding JSON. For an unknown word, Go's own message ("invalid
// character 'o' in literal null (expecting 'u')") is misleading, and it mentions Go's types.
func JSON(err error) error {
	text, _, guess := strings.Cut(err.Error(), " in literal ")
	if !guess {
		text, _, guess = strings.Cut(text, " looking for beginning of value")
	}
	var kind *json.UnmarshalTypeError
	switch {
	case guess:
		return fmt.Errorf("this is not JSON: %s", text)
	case errors.As(err, &kind):
		at := "the value"
		if kind.Field != "" {
			at = kind.Field
		}
		return fmt.Errorf("%s must be %s, not %s", at, jsonKinds[kind.Type.Kind()], kind.Value)
	case errors.Is(err, io.ErrUnexpectedEOF) || text == "unexpected end of JSON input":
		return errors.New("this is not JSON: it ends too early")
	}
	return err
}

var jsonKinds = map[reflect.Kind]string{reflect.Struct: "an object", reflect.Map: "an object", reflect.Slice: "a list",
	reflect.Array:  "a list",
	reflect.String: "a string", reflect.Bool: "true or false", reflect.Float64: "a number", reflect.Float32: "a number",
	reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Int32: "a whole number",
	reflect.Uint64: "a whole number from 0", reflect.Uint32: "a whole number from 0",
	reflect.Uint16: "a number from 0 to 65535", reflect.Uint8: "a number from 0 to 255"}

// Printable keeps text from elsewhere, such as a file or a switch, from breaking lines or
// controlling the terminal: control and format characters are escaped as in Go.
func Printable(s string) string { return escaped(s, "") }

// Text is Printable for text that may have several lines, and tabs.
func Text(s string) string { return escaped(s, "\n\t") }

func escaped(s, but string) string {
	unprintable := func(r rune) bool { return !unicode.IsGraphic(r) && !strings.ContainsRune(but, r) }
	if strings.IndexFunc(s, unprintable) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// PlainJSON escapes, as in JSON, characters that a terminal might interpret and that an encoder
// leaves as they are.
func PlainJSON(b []byte) []byte {
	var out []byte
	for i, r := range string(b) {
		if unicode.IsGraphic(r) || r == '\n' {
			if out != nil {
				out = utf8.AppendRune(out, r)
			}
			continue
		}
		if out == nil {
			out = append(make([]byte, 0, len(b)+16), b[:i]...)
		}
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	if out == nil {
		return b
	}
	return out
}

// Shell quotes a program and its arguments as one command for a shell (POSIX, 2.2.2).
func Shell(words ...string) string {
	quoted := lists.Map(words, func(w string) string { return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'" })
	return strings.Join(quoted, " ")
}
