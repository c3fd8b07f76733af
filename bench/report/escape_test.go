package report

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"trivet.dev/trivet/measure/environment"
)

var latexCommand = regexp.MustCompile(`^\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|ldots|)\{\}|^\\[{}$&#%_,]|^\{\\char(34|96)\}|^'\{\}|^\$(-|\\pm|\\rightarrow|\\leq|\\geq|\\mu|\\tau|\\delta|\\times|\\cdot)\$`)

// harmless checks that a text is letters, plain signs and the commands that escaping makes, and
// nothing else.
func harmless(s string) error {
	for s != "" {
		if m := latexCommand.FindString(s); m != "" {
			s = s[len(m):]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		if strings.ContainsRune("\\{}$&#%_^~\"`'\n\r", r) || r < ' ' || r == utf8.RuneError {
			return fmt.Errorf("%q stands for itself at %q", r, s)
		}
		s = s[size:]
	}
	return nil
}

// FuzzLaTeX proves that no text, whatever it holds, means anything to LaTeX: neither a command, nor
// the end of a cell, a row or a comment.
func FuzzLaTeX(f *testing.F) {
	for _, s := range []string{`\input{/etc/passwd}`, `a & b \\ % c`, "$x^2_3$ #1 ~ \"q\" `x'", "µ → τ δ × · – … Ünïcode Þ 漢\x00\n\r\u2028\u202e", `\\`, "{", "}", `^^5c`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if err := harmless(EscapeLaTeX(s)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLaTeX proves, with LaTeX itself, that a table of hostile texts becomes a document of one
// page, in which they stand as they are.
func TestLaTeX(t *testing.T) {
	if _, err := exec.LookPath("pdflatex"); err != nil {
		t.Skip("there is no pdflatex here; it is of the package texlive-latex-recommended, which is too large to be asked for")
	}
	hostile := `\input{x} & \\ % $ # _ ^^5c ~ " ` + "`" + ` ' <b> { } ÄÞ漢 µτδ×· →−–…±≤`
	table := Table{Title: hostile, Heads: 1, Columns: []string{hostile, "[n]"}, Notes: []string{hostile}, Fidelity: Fidelity{Level: environment.Bad, Samples: 2, Suspect: 1},
		Rows: []Row{{Cells: []Cell{{Text: hostile}, {Text: "2.834e-06", Level: environment.Bad}}}, {Cells: []Cell{{Text: "[x]"}, {Text: "5"}}, Rule: true}}}
	var b strings.Builder
	b.WriteString("\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n")
	if err := table.LaTeX(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\\end{document}\n")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.tex"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "a.tex")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "(1 page") {
		t.Errorf("%v: %s\n%s", err, out, b.String())
	}
}

// TestClean proves that what would hide or turn around a text does not come through.
func TestClean(t *testing.T) {
	if got := Clean("a\x00b\nc\u202ed\ufeffe\xfff\u2028g"); got != "a b c d e f g" {
		t.Errorf("%q", got)
	}
}

// TestNumber proves how numbers are written.
func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1: "1", 12345.678: "12\u202f346", -1e4: "-10\u202f000", 9999.4: "9999", 100000: "100\u202f000", -123456: "-123\u202f456", 2240754.2: "2\u202f240\u202f754", 1e8: "100\u202f000\u202f000", -12345678: "-12\u202f345\u202f678", 0.73: "0.7300", 3.14159: "3.142", -0.00012346: "-0.0001235", 1e12: "1e+12", 2e-9: "2e-09", 100: "100"} {
		if got := Number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}
