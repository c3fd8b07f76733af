package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/term"

	"trivet.dev/trivet/topology"
)

// splitLine splits a line of the prompt into words, as a shell does with quotes and backslashes.
// shell says that it contains something else that a shell would interpret, such as a |.
func splitLine(line string) (words []string, shell bool, err error) {
	var word strings.Builder
	begun := false
	quote := rune(0)
	escaped := false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == ' ' || c == '\t':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		case c == '#' && !begun:
			return words, shell, nil
		default:
			shell = shell || strings.ContainsRune("|<>;&`$", c)
			word.WriteRune(c)
			begun = true
		}
	}
	if quote != 0 {
		return nil, false, fmt.Errorf("the quotation mark %c is not closed", quote)
	}
	if escaped {
		return nil, false, errors.New("nothing follows the last \\")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, shell, nil
}

// completer handles the keys with which the prompt helps: Tab and Ctrl-R.
type completer struct {
	prompt   *prompt
	terminal *term.Terminal
	sought   string // what Ctrl-R looks for
	found    string // the last match
	passed   int    // how many lines of the history, from the latest to that one, it has searched
}

const (
	keyTab   = '\t'
	keyCtrlR = 18
)

// key changes the line as a key asks, or leaves the key to the terminal.
func (c *completer) key(line string, pos int, key rune) (string, int, bool) {
	switch key {
	case keyTab:
		line, pos = c.complete(line, pos)
		return line, pos, true
	case keyCtrlR: // the latest line that contains what was typed; pressed again, the one before
		if line != c.found || c.found == "" {
			c.sought, c.passed = line, 0
		}
		found, passed := c.prompt.history.find(c.sought, c.passed)
		if passed == c.passed {
			return line, pos, true
		}
		c.found, c.passed = found, passed
		return found, len(found), true
	}
	return line, pos, false
}

func (c *completer) complete(line string, pos int) (string, int) {
	before := line[:pos]
	start := strings.LastIndexByte(before, ' ') + 1
	prefix := before[start:]
	var fits []string
	for _, w := range c.prompt.candidates(strings.Fields(before[:start]), prefix) {
		if strings.HasPrefix(w, prefix) {
			fits = append(fits, w)
		}
	}
	slices.Sort(fits)
	fits = slices.Compact(fits)
	if len(fits) == 0 {
		return line, pos
	}
	word := fits[0]
	for _, f := range fits[1:] {
		for !strings.HasPrefix(f, word) {
			word = word[:len(word)-1]
		}
	}
	if word == prefix && len(fits) > 1 {
		width, _, err := term.GetSize(1)
		if err != nil || width <= 0 {
			width = 80
		}
		fmt.Fprintln(c.terminal, wrap(fits, "  ", 0, width-1))
		return line, pos
	}
	if len(fits) == 1 && !strings.HasSuffix(word, "=") && !strings.HasPrefix(line[pos:], " ") {
		word += " "
	}
	return before[:start] + word + line[pos:], start + len(word)
}

// candidates returns the words that may follow words.
func (p *prompt) candidates(words []string, prefix string) (out []string) {
	info, err := p.client.Info(context.Background())
	if err != nil {
		return nil
	}
	nodes := nodeNames(info.Topology)
	if len(words) > 0 && (words[0] == "time" || words[0] == "noecho") {
		words = words[1:]
	}
	if len(words) == 0 {
		return slices.Concat(nodes, mininetNames(), p.own())
	}
	switch {
	case words[0] == "switch" && len(words) == 1:
		return nodeNames(&topology.Topology{Nodes: info.Topology.NodesOf(topology.Switch)})
	case words[0] == "switch" && len(words) == 2:
		return []string{"start", "stop"}
	case words[0] == "help":
		out = mininetNames()
	}
	if !slices.Contains(p.own(), words[0]) && words[0] != "help" {
		return nodes
	}
	if words[0] == "link" && (len(words) == 1 || words[1] != "set" && words[1] != "flap") {
		if len(words) == 1 {
			out = append(linkNames(info.Topology, prefix), nodes...)
		} else {
			words = append([]string{"link", "set"}, words[1:]...)
			out = nodes
		}
	}
	var text bytes.Buffer
	root := (&app{out: &text, err: io.Discard}).root()
	root.SetArgs(append(append([]string{"__complete"}, words...), prefix))
	_ = root.ExecuteContext(context.Background())
	for line := range strings.Lines(text.String()) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); word != "" && word[0] != ':' {
			out = append(out, word)
		}
	}
	return out
}

// wrap arranges words, with something between them, in lines of at most a given width.
func wrap(words []string, between string, indent, width int) string {
	var lines []string
	line := strings.Repeat(" ", indent)
	for _, w := range words {
		if len(line)+len(w) > width && len(strings.TrimSpace(line)) > 0 {
			lines = append(lines, strings.TrimRight(line, " "))
			line = strings.Repeat(" ", indent)
		}
		line += w + between
	}
	return strings.Join(append(lines, strings.TrimRight(line, " ")), "\n")
}
