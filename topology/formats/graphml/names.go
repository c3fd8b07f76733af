package graphml

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

const maxName = 63 // the longest name of a node

// namer makes unique node names from labels; it maps a name that is taken to the next number to
// append. Case makes no difference, because names become host names.
type namer map[string]int

// reserved are the words that have a special meaning where names are used.
var reserved = map[string]bool{"all": true, "default": true, "interface": true, "lo": true, "none": true,
	"trivet": true}

// take returns a name for a label, different from all before: "São Paulo" becomes Sao-Paulo, and a
// second one Sao-Paulo-2.
func (used namer) take(label string) string {
	base := legal(label)
	key := strings.ToLower(base)
	if used[key] == 0 && !reserved[base] {
		used[key] = 2
		return base
	}
	for i := max(2, used[key]); ; i++ {
		suffix := fmt.Sprintf("-%d", i)
		candidate := base[:min(len(base), maxName-len(suffix))] + suffix
		if used[strings.ToLower(candidate)] == 0 {
			used[key], used[strings.ToLower(candidate)] = i+1, 2
			return candidate
		}
	}
}

// letters that do not decompose into an ASCII letter and marks.
var letters = strings.NewReplacer("ß", "ss", "æ", "ae", "Æ", "Ae", "ø", "o", "Ø", "O", "œ", "oe", "Œ", "Oe", "ł", "l",
	"Ł", "L", "đ", "d", "Đ", "D", "ð", "d", "þ", "th", "ı", "i")

// legal keeps a label's letters and digits, without accents, and replaces what is between them by
// dashes.
func legal(label string) string {
	if len(label) > 1000 {
		label = label[:1000]
	}
	var b strings.Builder
	dash := false
	for _, c := range norm.NFD.String(letters.Replace(label)) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', (c == '_' || c == '.') && b.Len() > 0:
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(c)
		case unicode.Is(unicode.Mn, c): // an accent
		default:
			dash = true
		}
		if b.Len() >= maxName {
			break
		}
	}
	s := b.String()
	if s = strings.TrimRight(s[:min(len(s), maxName)], "-._"); s == "" {
		return "node"
	}
	return s
}
