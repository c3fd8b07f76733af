package routerd

import (
	"slices"
	"strings"
)

// updateFRR returns the vtysh commands that change one version of a daemon's file into another, so
// that the daemon keeps the neighbours that the change does not concern. It returns nil if the
// daemon has to be restarted.
func updateFRR(old, new string) []string {
	was, ok := blocks(old), blocks(new)
	commands := []string{"configure terminal"}
	for _, b := range was {
		if b.isRule() && !slices.ContainsFunc(ok, func(o block) bool { return o.head == b.head }) {
			commands = append(commands, "no "+b.head)
			continue
		}
		after := linesOf(ok, b.head)
		commands = b.add(commands, func(line string) bool { return !slices.Contains(after, line) }, "no ")
	}
	for _, b := range ok {
		if b.isRule() && len(b.lines) == 0 &&
			!slices.ContainsFunc(was, func(o block) bool { return o.head == b.head }) {
			commands = append(commands, b.head, "exit")
		}
		before := linesOf(was, b.head)
		commands = b.add(commands, func(line string) bool { return !slices.Contains(before, line) }, "")
	}
	for _, c := range commands {
		// Neighbours would take it for another router anyway.
		if slices.Contains(strings.Fields(c), "router-id") || strings.HasPrefix(c, "no router ") {
			return nil
		}
	}
	return commands
}

// block is a command and the commands below it.
type block struct {
	head  string // "": the top level of the file
	lines []string
}

// isRule reports whether the block means something without any lines.
func (b block) isRule() bool { return strings.HasPrefix(b.head, "route-map ") }

func blocks(text string) []block {
	out := []block{{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch below := strings.TrimPrefix(line, " "); {
		case below != line:
			last := &out[len(out)-1]
			last.lines = append(last.lines, below)
		case strings.HasPrefix(line, "interface ") || strings.HasPrefix(line, "router ") || strings.HasPrefix(line,
			"route-map "):
			out = append(out, block{head: line})
		default:
			out[0].lines = append(out[0].lines, line)
		}
	}
	return out
}

func linesOf(all []block, head string) []string {
	for _, b := range all {
		if b.head == head {
			return b.lines
		}
	}
	return nil
}

// add appends the commands for those of the block's lines that are to be sent.
func (b block) add(commands []string, said func(string) bool, prefix string) []string {
	first := true
	for _, line := range b.lines {
		if !said(line) {
			continue
		}
		if first && b.head != "" {
			commands = append(commands, b.head)
		}
		first = false
		commands = append(commands, prefix+line)
	}
	if !first && b.head != "" {
		commands = append(commands, "exit")
	}
	return commands
}
