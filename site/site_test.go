package site

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// TestHeardOf proves that the program's greeting is found behind what a shell says, and nothing
// after it is read by the way; that without it the last two lines are what the script says; and
// that another version's greeting, and a shell that does not end, are errors.
func TestHeardOf(t *testing.T) {
	for _, c := range []struct {
		said, left, lines, wrong string
		greets                   bool
	}{
		{said: hello() + "more\n", left: "more\n", greets: true},
		{said: "Welcome\n\n" + hello() + "more\n", left: "more\n", greets: true},
		{said: "Linux x86_64\nroot\n", lines: "Linux x86_64|root"},
		{said: "Welcome\nLinux x86_64\nuser\n", lines: "Linux x86_64|user"},
		{said: ""},
		{said: "Welcome\ntrivet other\n", wrong: "of version other"},
		{said: strings.Repeat("y\n", 1<<16), wrong: "says too much"},
	} {
		from := bufio.NewReader(strings.NewReader(c.said))
		greets, lines, err := heardOf(from)
		if greets != c.greets || strings.Join(lines, "|") != c.lines || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%.40q: %v, %q, %v", c.said, greets, lines, err)
		}
		if left, _ := io.ReadAll(from); c.greets && string(left) != c.left {
			t.Errorf("%.40q: %q is left", c.said, left)
		}
	}
}
