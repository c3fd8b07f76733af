// Package words writes what people read.
package words

import (
	"fmt"
	"strings"
)

// Plural counts things: "1 switch", "2 switches", "0 links". what is one of them, and may be several words of which
// the last is counted.
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
