package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// consent says whether root does what a topology's file asks for.
type consent struct{ run, leave bool }

func (c *consent) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&c.run, "run-commands", false, "do not ask: let a file in a format other than Trivet's do all that it wants done as root (trivet validate lists it)")
	f.BoolVar(&c.leave, "no-commands", false, "leave out what the file wants done as root: its commands, and the machine's directories and interfaces in nodes")
}

// Limits on what is shown before a question, in number and in characters each; answering "a" shows
// all.
const (
	mostErrands   = 20
	longestErrand = 300
)

// agreed returns the topology without what root must not do for it. It asks the user if the
// topology comes from a format whose files are usually not reviewed before use. What root already
// did for the topology before needs no question. With machines, hosts may be machines themselves.
func (a *app) agreed(ctx context.Context, c consent, s *source, t, before *topology.Topology,
	machines bool) (*topology.Topology, error) {
	if c.run && c.leave {
		return nil, usagef("--run-commands and --no-commands exclude each other")
	}
	t = t.Clone()
	t.DirsFrom(s.dir)
	if machines { // known only once they are placed
		defer t.HostsAsMachines()()
	}
	errands := t.Errands(before)
	switch {
	case len(errands) == 0:
	case c.leave:
		t.Refuse(errands, before)
		a.say("left out: %s", countErrands(errands))
	case !c.run && t.Format != "" && t.Format != formats.Own:
		return t, a.askFor(ctx, s.file, errands, "--no-commands leaves it out")
	}
	return t, nil
}

// countErrands formats errands as "2 commands, 1 interface of the machine taken".
func countErrands(errands []topology.Errand) string {
	counts := map[string]int{}
	for _, e := range errands {
		if e.IsCommand() {
			e.Kind = "command"
		}
		counts[e.Kind]++
	}
	var out []string
	for _, k := range []struct{ kind, one, more string }{
		{"command", "1 command", "%d commands"},
		{topology.ErrandDirs, "1 directory of the machine in a node", "%d directories of the machine in nodes"},
		{topology.ErrandConfig, "1 configuration loaded into a node", "%d configurations loaded into nodes"},
		{topology.ErrandFile, "1 file put into a node", "%d files put into nodes"},
		{topology.ErrandImage, "1 container", "%d containers"},
		{topology.ErrandGuest, "1 virtual machine", "%d virtual machines"},
		{topology.ErrandPort, "1 port of the machine", "%d ports of the machine"},
		{topology.ErrandInterface, "1 interface of the machine taken", "%d interfaces of the machine taken"},
	} {
		switch n := counts[k.kind]; {
		case n == 1:
			out = append(out, k.one)
		case n > 1:
			out = append(out, fmt.Sprintf(k.more, n))
		}
	}
	return strings.Join(out, ", ")
}

// errandRows returns the rows of a table, with cells that are too long cut.
func errandRows(errands []topology.Errand, longest int) [][]string {
	rows := [][]string{{"FROM", "NODE", "WHEN", "WHAT"}}
	for _, e := range errands {
		what := []rune(e.What)
		if more := len(what) - longest; more > 0 {
			what = []rune(fmt.Sprintf("%s … (%s more)", string(what[:longest]), words.Plural(more, "character")))
		}
		e.Pos.File = filepath.Base(e.Pos.File)
		rows = append(rows, []string{e.Pos.String(), e.Node, e.Kind, string(what)})
	}
	return rows
}

// errandView is an errand in JSON.
type errandView struct {
	topology.Errand
	From string `json:"from,omitempty"`
}

func errandViews(errands []topology.Errand) []errandView {
	out := make([]errandView, len(errands))
	for i, e := range errands {
		out[i] = errandView{e, e.Pos.String()}
	}
	return out
}

// showErrands lists what root does for a topology, if anything.
func (a *app) showErrands(errands []topology.Errand) {
	if len(errands) > 0 {
		a.say("\nruns as root:")
		a.table(errandRows(errands, math.MaxInt))
	}
}

// askFor lets the user decide about errands; the error is nil if the user agrees.
func (a *app) askFor(ctx context.Context, file string, errands []topology.Errand, without string) error {
	head := file + " wants this done as root on your machine:"
	if !isTerminal(os.Stdin) || !isTerminal(a.err) {
		return usagef("%s\n%s\nthere is no terminal to ask on: --run-commands allows it, %s; nothing was changed",
			head, strings.Join(shownErrands(errands, file), "\n"), without)
	}
	question := fmt.Sprintf("do it? [y/N]  (--run-commands says yes, %s) ", without)
	if slices.ContainsFunc(errands, func(e topology.Errand) bool { return len(e.What) > longestErrand }) ||
		len(errands) > mostErrands {
		question = "do it? [y/N, a: show all] "
	}
	lines := shownErrands(errands, file)
	for {
		fmt.Fprintf(a.err, "%s\n%s\n", words.Printable(head), strings.Join(lines, "\n"))
		answer, err := a.ask(ctx, question)
		if err != nil {
			return err
		}
		switch strings.ToLower(answer) {
		case "y", "yes":
			return nil
		case "a", "all":
			lines = layOut(errandRows(errands, math.MaxInt), columnsOf(a.err))
		default:
			return errors.New("nothing was changed")
		}
	}
}

// shownErrands returns lines with the first errands, and the number of further ones.
func shownErrands(errands []topology.Errand, file string) []string {
	lines := layOut(errandRows(errands[:min(len(errands), mostErrands)], longestErrand), columnsOf(os.Stderr))
	if more := len(errands) - mostErrands; more > 0 {
		lines = append(lines, words.Printable(fmt.Sprintf("and %d more: trivet validate %s lists them", more, file)))
	}
	return lines
}

// ask asks a question on the terminal and returns the line typed in answer, or an empty one at the
// end of input.
func (a *app) ask(ctx context.Context, question string) (string, error) {
	// Discard what was typed before the question.
	_ = unix.IoctlSetInt(int(os.Stdin.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	fmt.Fprint(a.err, question)
	typed := make(chan string, 1)
	go func() {
		var line []byte
		for b := make([]byte, 1); ; line = append(line, b[0]) { // one byte at a time: what follows is for others
			if n, err := os.Stdin.Read(b); n == 0 || err != nil {
				fmt.Fprintln(a.err)
				typed <- ""
				return
			} else if b[0] == '\n' {
				typed <- strings.TrimSpace(string(line))
				return
			}
		}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return "", ctx.Err()
	case line := <-typed:
		return line, nil
	}
}
