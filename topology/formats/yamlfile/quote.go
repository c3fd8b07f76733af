package yamlfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxKey is how long a key may be, in bytes, before it needs a leading question mark: a little less
// than the 1024 characters of YAML 1.2, section 7.4.2.
const maxKey = 1000

var (
	// plainText needs no quotes anywhere: it has none of YAML's punctuation.
	plainText = regexp.MustCompile(`^[A-Za-z0-9_./]([A-Za-z0-9_./%+@=-]|:[A-Za-z0-9_./])*( ([A-Za-z0-9_./%+@=-]|:[A-Za-z0-9_./])+)*$`)
	// looksTyped matches what may not be a string to YAML, or to some version of it.
	looksTyped = regexp.MustCompile(`(?i)^(true|false|null|yes|no|on|off|y|n|[-+]?[.0-9][0-9a-f_.:xo+-]*|[-+]?\.(inf|nan).*|<<|=)$`)
)

// Quote writes a text so that it reads as the same text, without quotes if possible.
func Quote(s string) string {
	if plainText.MatchString(s) && !LooksTyped(s) {
		return s
	}
	return Quoted(s)
}

// LooksTyped says whether an unquoted text may be a number or something else than a string to YAML
// 1.1 or 1.2.
func LooksTyped(s string) bool { return looksTyped.MatchString(s) }

// Quoted writes a text in double quotes.
func Quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// FlowKey is Quote for keys in flow mappings (in braces).
func FlowKey(s string) string {
	if s = Quote(s); len(s) > maxKey {
		return "? " + s
	}
	return s
}

// Line writes a key and the text of its value, if any, as a line of block style, without its line
// end. The line begins with start: the indentation and perhaps a dash.
func Line(start, key, value string) string {
	between := ":"
	if key = Quote(key); len(key) > maxKey {
		between = "\n" + strings.Repeat(" ", len(start)) + ":"
		key = "? " + key
	}
	return start + key + strings.TrimRight(between+" "+value, " ")
}

// Number writes a finite number; -0 is 0, as YAML reads it back.
func Number(f float64) string {
	if f == 0 {
		return "0"
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// Flow writes any value on one line, in its encoding/json form.
func Flow(v any) string {
	var seen any // only of types that encoding/json decodes into an any
	data, err := json.Marshal(v)
	if err != nil || json.Unmarshal(data, &seen) != nil {
		seen = fmt.Sprint(v)
	}
	return flow(seen)
}

func flow(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return Number(v)
	case []any:
		items := make([]string, len(v))
		for i := range v {
			items[i] = flow(v[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		var items []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			items = append(items, FlowKey(key)+": "+flow(v[key]))
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	return Quote(v.(string))
}
