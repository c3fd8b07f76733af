package trivet

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

var (
	// plainText needs no quotes in any place: no punctuation that YAML knows.
	plainText = regexp.MustCompile(`^[A-Za-z0-9_./]([A-Za-z0-9_./%+@=-]|:[A-Za-z0-9_./])*( ([A-Za-z0-9_./%+@=-]|:[A-Za-z0-9_./])+)*$`)
	// plainBlock may hold ranges; it is no text for flow style.
	plainBlock = regexp.MustCompile(`^[A-Za-z0-9_.]([A-Za-z0-9_.,/+\[\]-]|:[A-Za-z0-9_])*( -- ([A-Za-z0-9_.,/+\[\]-]|:[A-Za-z0-9_])+)*$`)
	// plainLeaf is what numbers, addresses and the like look like.
	plainLeaf = regexp.MustCompile(`^[A-Za-z0-9.]([A-Za-z0-9.:/%+ -]*[A-Za-z0-9.%/])?$`)
	// looksTyped may be no text to YAML, or to some version of it.
	looksTyped = regexp.MustCompile(`(?i)^(true|false|null|yes|no|on|off|y|n|[-+]?[.0-9][0-9a-f_.:xo+-]*|[-+]?\.(inf|nan).*|<<|=)$`)
)

// quote writes a text so that it reads as the same text, without quotes where it can.
func quote(s string) string {
	if plainText.MatchString(s) && !looksTyped.MatchString(s) {
		return s
	}
	return quoted(s)
}

// quoteBlock is quote for the keys and items of block style, where ranges need no quotes.
func quoteBlock(s string) string {
	if plainBlock.MatchString(s) && !looksTyped.MatchString(s) {
		return s
	}
	return quote(s)
}

// quoteKey is quote for keys, which YAML wants announced where they are long.
func quoteKey(s string) string {
	if s = quote(s); len(s) > 1000 {
		return "? " + s
	}
	return s
}

// quoteLeaf writes the text of a value that is read by its text, whatever YAML takes it for.
func quoteLeaf(s string) string {
	if plainLeaf.MatchString(s) {
		return s
	}
	return quoted(s)
}

func quoted(s string) string {
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

func number64(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// foreignOptions writes the x- keys.
func foreignOptions(m foreign) (out []string) {
	for _, key := range sortedKeys(m) {
		out = append(out, quoteKey("x-"+key)+": "+flowJSON(asJSON(m[key])))
	}
	return out
}

// asJSON makes any value one of those that encoding/json reads into an any.
func asJSON(v any) (out any) {
	data, err := json.Marshal(v)
	if err != nil || json.Unmarshal(data, &out) != nil {
		return fmt.Sprint(v)
	}
	return out
}

func flowJSON(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return number64(v)
	case []any:
		items := make([]string, len(v))
		for i := range v {
			items[i] = flowJSON(v[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		var items []string
		for _, key := range sortedKeys(v) {
			items = append(items, quoteKey(key)+": "+flowJSON(v[key]))
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	return quote(v.(string))
}
