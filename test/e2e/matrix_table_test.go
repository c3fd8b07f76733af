package e2e

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// matrixTable counts cells, by what forwards and what was asked.
type matrixTable struct {
	mu    sync.Mutex
	cells map[[2]string]*matrixCount
	by    string // what impairs links on this kernel, as inspect says it
}

type matrixCount struct{ right, busy int }

func (x *matrixTable) cell(f forwards, what string) *matrixCount {
	key := [2]string{f.String(), what}
	if x.cells[key] == nil {
		x.cells[key] = &matrixCount{}
	}
	return x.cells[key]
}

func (x *matrixTable) add(c matrixCell, told bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.cell(c.f, matrixImpairments[c.impairment].name)
	if told {
		n.right++
	} else {
		n.busy++
	}
}

// note takes what inspect says of impairments.
func (x *matrixTable) note(inspected string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for line := range strings.Lines(inspected) {
		if strings.HasPrefix(line, "impairments by ") {
			x.by = strings.TrimSpace(line)
		}
	}
}

func (x *matrixTable) lines() (out []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var name unix.Utsname
	_ = unix.Uname(&name)
	release, _, _ := strings.Cut(unix.ByteSliceToString(name.Release[:]), "-")
	cells, busy := 0, 0
	for _, c := range x.cells {
		cells, busy = cells+c.right+c.busy, busy+c.busy
	}
	defer func() {
		out = append(out, "", fmt.Sprintf("%d cells, of which %d were as asked and the machine was too busy for %d; Linux %s, %s.", cells, cells-busy, busy,
			release, cmp.Or(x.by, "impairments by netem")))
	}()
	head, rule := "| switches + routers |", "| --- |"
	for _, i := range matrixImpairments {
		head, rule = head+" "+i.name+" |", rule+" --- |"
	}
	out = append(out, head, rule)
	for _, f := range matrixLabs {
		line := "| " + f.String() + " |"
		for _, i := range matrixImpairments {
			c := x.cell(f, i.name)
			if line += fmt.Sprintf(" %d", c.right); c.busy > 0 {
				line += fmt.Sprintf(", %d not told", c.busy)
			}
			line += " |"
		}
		out = append(out, line)
	}
	return out
}

// Between these lines of a document the table stands.
const (
	matrixBegin = "<!-- matrix: make matrix writes this -->"
	matrixEnd   = "<!-- end of matrix -->"
)

// write puts the table into a document, or makes all of one that is empty.
func (x *matrixTable) write(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		text = []byte(matrixBegin + "\n" + matrixEnd + "\n")
	}
	before, rest, ok := strings.Cut(string(text), matrixBegin)
	_, after, ok2 := strings.Cut(rest, matrixEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s does not have the lines %q and %q", file, matrixBegin, matrixEnd)
	}
	return os.WriteFile(file, []byte(before+matrixBegin+"\n"+strings.Join(x.lines(), "\n")+"\n"+matrixEnd+after), 0o644)
}
