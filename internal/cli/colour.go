package cli

import (
	"io"
	"os"
	"strings"
)

// Colours for what must not be overlooked; used on terminals only.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// paint colours a text if the terminal on which it will appear allows it. NO_COLOR (no-color.org)
// and TERM=dumb keep it plain.
func (a *app) paint(colour, text string) string { return paintFor(a.out, colour, text) }

func paintFor(out io.Writer, colour, text string) string {
	if text == "" || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !isTerminal(out) {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// plain is a text without its colours, for measuring its width.
func plain(text string) string {
	for {
		before, after, found := strings.Cut(text, "\x1b[")
		if !found {
			return text
		}
		_, rest, _ := strings.Cut(after, "m")
		text = before + rest
	}
}
