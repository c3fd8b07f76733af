package trivet

import (
	"regexp"
	"strings"

	"trivet.dev/trivet/topology/formats/yamlfile"
)

var (
	// plainBlock may contain ranges; such text cannot go unquoted in flow style.
	plainBlock = regexp.MustCompile(`^[A-Za-z0-9_.]([A-Za-z0-9_.,/+\[\]-]|:[A-Za-z0-9_])*( -- ([A-Za-z0-9_.,/+\[\]-]|:[A-Za-z0-9_])+)*$`)
	// plainLeaf matches numbers, addresses and the like.
	plainLeaf = regexp.MustCompile(`^[A-Za-z0-9.]([A-Za-z0-9.:/%+ -]*[A-Za-z0-9.%/])?$`)
)

// quoteBlock quotes keys and items of block style, where ranges need no quotes.
func quoteBlock(s string) string {
	if plainBlock.MatchString(s) && !yamlfile.LooksTyped(s) {
		return s
	}
	return yamlfile.Quote(s)
}

// quoteLeaf writes the text of a value that is read as text, whatever type YAML gives it.
func quoteLeaf(s string) string {
	if plainLeaf.MatchString(s) && !strings.Contains(s, ": ") { // "fd00:: dev eth0" would be a key and its value
		return s
	}
	return yamlfile.Quoted(s)
}

// foreignOptions writes the x- keys.
func foreignOptions(m foreign) (out []string) {
	for _, key := range sortedKeys(m) {
		out = append(out, yamlfile.FlowKey("x-"+key)+": "+yamlfile.Flow(m[key]))
	}
	return out
}
