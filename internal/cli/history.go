package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// history is the lines typed at the prompt, latest last, kept in a file of the user's.
type history struct {
	lines []string
	file  *os.File // nil: they are not saved
}

// keptLines is how many lines the prompt remembers from earlier runs.
const keptLines = 1000

func openHistory() *history {
	h := &history{}
	name := historyFile()
	if name == "" || os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return h
	}
	text, _ := os.ReadFile(name)
	h.lines = strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(text) == 0 {
		h.lines = nil
	}
	mode := os.O_APPEND
	if len(h.lines) > 2*keptLines {
		mode, h.lines = os.O_TRUNC, h.lines[len(h.lines)-keptLines:]
	}
	h.file, _ = os.OpenFile(name, os.O_CREATE|os.O_WRONLY|mode, 0o600)
	if mode == os.O_TRUNC && h.file != nil {
		_, _ = h.file.WriteString(strings.Join(h.lines, "\n") + "\n")
	}
	return h
}

// historyFile is where the history is saved; "" if root would have to write to another user's home
// directory.
func historyFile() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "trivet", "history")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	info, err := os.Stat(home)
	if err != nil {
		return ""
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
		return ""
	}
	return filepath.Join(home, ".local", "state", "trivet", "history")
}

// Add adds a line, unless it equals the one before.
func (h *history) Add(line string) {
	line = strings.TrimSpace(line)
	if line == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	h.lines = append(h.lines, line)
	if h.file != nil {
		_, _ = h.file.WriteString(line + "\n")
	}
}

func (h *history) Len() int { return len(h.lines) }

// At returns the i-th line from the end; the latest is 0.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

// find returns the latest line that contains a text, leaving out the n latest lines, and how many
// lines there are from it to the latest.
func (h *history) find(text string, n int) (string, int) {
	for i := n; i < len(h.lines); i++ {
		if line := h.At(i); strings.Contains(line, text) {
			return line, i + 1
		}
	}
	return "", n
}
