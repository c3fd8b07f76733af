package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/target/sites"
)

// rackSelftest tests a rack from end to end, and writes a report.
func (a *app) rackSelftest() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "selftest RACK.yaml", Short: "Try a rack with a small lab, and write a report to send in",
		Args: cobra.ExactArgs(1),
		Long: "Checks the rack, brings a lab of two devices up, pings, tries to send past the lab, verifies it, takes it down, and looks\n" +
			"whether the devices are what they were. The report has addresses, MACs, models and kernels in it, and neither keys nor\n" +
			"passwords. Exits with 1 if something does not hold.",
		Example: "  sudo trivet rack selftest rack.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			list, _, err := rackOf(args)
			if err != nil {
				return err
			}
			began := time.Now()
			if file == "" {
				file = began.Format("rack-selftest-20060102-1504.md")
			}
			t := &selftest{a: a, rack: args[0], list: list, lab: fmt.Sprintf("selftest-%d", os.Getpid())}
			if err := t.run(cmd.Context()); err != nil {
				return err
			}
			if err := writeOwn(file, t.report(began), true); err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(map[string]any{"file": file, "steps": t.steps})
			} else {
				a.say("the report is in %s", file)
			}
			if err == nil && t.failed() {
				return exitCode(exitError)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "where to write the report (default rack-selftest-DATE-TIME.md)")
	return cmd
}

// selftest is a test that is under way.
type selftest struct {
	a       *app
	rack    string
	list    *site.List
	lab     string
	checked []checkedMachine
	devices []*site.Machine // the two devices of the lab
	steps   []selfStep
}

// selfStep is a step of the test, and its result.
type selfStep struct {
	What   string  `json:"what"`
	OK     bool    `json:"ok"`
	Says   string  `json:"says"`
	Took   float64 `json:"seconds"`
	Output string  `json:"output,omitempty"`
}

// step runs a step and records its result; it says whether the step succeeded.
func (t *selftest) step(what string, f func() (says, output string, err error)) bool {
	began := time.Now()
	s := selfStep{What: what}
	var err error
	s.Says, s.Output, err = f()
	if s.OK = err == nil; err != nil {
		s.Says = err.Error()
	}
	s.Took = time.Since(began).Seconds()
	t.steps = append(t.steps, s)
	if !t.a.json {
		mark := t.a.paint(green, "ok")
		if !s.OK {
			mark = t.a.paint(red, "NO")
		}
		t.a.say("%s  %s (%.1f s): %s", mark, what, s.Took, s.Says)
	}
	return s.OK
}

func (t *selftest) failed() bool {
	return slices.ContainsFunc(t.steps, func(s selfStep) bool { return !s.OK })
}

func (t *selftest) run(ctx context.Context) error {
	var wrong error
	t.step("check", func() (says, output string, err error) {
		found, err := sites.CheckRack(ctx, t.list, t.list.Machines, lab.Owner())
		if wrong = err; err != nil {
			return "", "", err
		}
		t.checked = checkedOf(found)
		return t.check()
	})
	if wrong != nil {
		return wrong
	}
	if !t.step("choose two devices", t.choose) {
		return nil
	}
	var were map[string][]string
	if !t.step("note what the devices are", func() (_, _ string, err error) {
		were, err = sites.Traces(ctx, t.devices, lab.Owner())
		return "done", "", err
	}) {
		return nil
	}
	t.step("ways past a lab, without one", func() (string, string, error) { return t.around(ctx, false) })
	t.withLab(ctx)
	t.step("the devices are what they were",
		func() (string, string, error) { return t.unchanged(context.WithoutCancel(ctx), were) })
	return nil
}

// withLab brings a lab up, tests it, and takes it down.
func (t *selftest) withLab(ctx context.Context) {
	dir, err := os.MkdirTemp("", "trivet-selftest-")
	if err != nil {
		t.step("up", func() (string, string, error) { return "", "", err })
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "selftest.yaml")
	text := fmt.Sprintf("nodes:\n  s1: switch\n  s2: switch\n  h1: {host: {on: %q}}\n  h2: {host: {on: %q}}\nlinks: [h1 -- s1, s1 -- s2, s2 -- h2]\n",
		t.devices[0].Name, t.devices[1].Name)
	if !t.step("up", func() (string, string, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", "", err
		}
		return t.trivet(ctx, "up", file, "--on", t.rack, "--name", t.lab)
	}) {
		return
	}
	t.step("ping --all", func() (string, string, error) { return t.trivet(ctx, "ping", "--all", "--lab", t.lab) })
	t.step("verify", func() (says, output string, err error) {
		says, output, err = t.trivet(ctx, "verify", "--quick", "--lab", t.lab)
		if err != nil && t.clocksDiffer() {
			err = fmt.Errorf("%w: the clocks differ, by which delays are measured: synchronise them (chrony), and try again", err)
		}
		return says, output, err
	})
	t.step("ways past the lab", func() (string, string, error) { return t.around(ctx, true) })
	t.step("down", func() (string, string, error) { return t.trivet(context.WithoutCancel(ctx), "down", t.lab) })
}

func (t *selftest) check() (says, output string, err error) {
	var b bytes.Buffer
	to := *t.a
	to.out = &b
	to.showChecked(t.checked, true)
	n := 0
	for _, m := range t.checked {
		n += m.wrong()
	}
	if n > 0 {
		err = fmt.Errorf("%s wrong:  trivet rack check %s", words.Plural(n, "thing"), t.rack)
	}
	return "nothing is wrong", b.String(), err
}

// clocksDiffer says whether the clock of one of the two devices is wrong.
func (t *selftest) clocksDiffer() bool {
	return slices.ContainsFunc(t.checked, func(m checkedMachine) bool {
		return slices.Contains(t.names(), m.Name) &&
			slices.ContainsFunc(m.Findings, func(f finding) bool { return f.What == clockFinding && !f.OK })
	})
}

// choose takes two devices that are hosts themselves, can be reached, and are in no lab.
func (t *selftest) choose() (says, output string, err error) {
	for _, m := range t.checked {
		d := t.list.Machine(m.Name)
		if d != nil && d.Hosts == 1 && m.Lab == "" && m.MAC != "" && len(t.devices) < 2 {
			t.devices = append(t.devices, d)
		}
	}
	if len(t.devices) < 2 {
		return "", "", errors.New("there are no two devices that can be reached, are in no lab, and are hosts themselves (hosts: 1)")
	}
	return strings.Join(t.names(), ", "), "", nil
}

func (t *selftest) names() (out []string) {
	for _, d := range t.devices {
		out = append(out, d.Name)
	}
	return out
}

// around tries to send past a lab. Without a lab all attempts must succeed: otherwise they would
// prove nothing.
func (t *selftest) around(ctx context.Context, guarded bool) (says, output string, err error) {
	ways, err := sites.Around(ctx, t.list, t.devices, lab.Owner())
	if err != nil {
		return "", "", err
	}
	says = sites.Says(ways, t.names())
	var b strings.Builder
	for _, name := range t.names() {
		e := ways[name]
		for _, w := range e.Tried {
			fmt.Fprintf(&b, "%s  %s  %s\n", name, w.Name, w.Err)
		}
		if guarded && len(e.Arrived) > 0 || !guarded && len(e.Arrived) == 0 {
			err = errors.New(says)
		}
	}
	return says, b.String(), err
}

// settled is how long a device may take to return to its former state.
const settled = 20 * time.Second

func (t *selftest) unchanged(ctx context.Context, were map[string][]string) (says, output string, err error) {
	for end := time.Now().Add(settled); ; time.Sleep(time.Second) {
		now, err := sites.Traces(ctx, t.devices, lab.Owner())
		if err != nil {
			return "", "", err
		}
		var changed []string
		for _, name := range t.names() {
			for _, line := range local.Differing(were[name], now[name]) {
				changed = append(changed, name+"  "+line)
			}
		}
		if len(changed) == 0 {
			return "in " + words.Plural(len(were[t.devices[0].Name]), "line") + " of each", "", nil
		}
		if time.Now().After(end) {
			return "", strings.Join(changed, "\n") + "\n", fmt.Errorf("%s differ", words.Plural(len(changed), "line"))
		}
	}
}

// trivet runs a command as a user would.
func (t *selftest) trivet(ctx context.Context, words ...string) (says, output string, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, program, words...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches it once, from here
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if says = strings.TrimSpace(lines[len(lines)-1]); err != nil {
		err = fmt.Errorf("%s (%w)", says, err)
	}
	return says, string(out), err
}

// report returns the report in Markdown.
func (t *selftest) report(began time.Time) string {
	var b strings.Builder
	verdict := "everything held"
	if t.failed() {
		verdict = "something did not hold"
	}
	fmt.Fprintf(&b, "# trivet rack selftest: %s\n\n%s, Trivet %s, %s.\n\n", verdict,
		began.Format("2 January 2006, 15:04 MST"), version.Version, words.Plural(len(t.list.Machines), "device"))
	b.WriteString("There are addresses, MACs, models and kernels in this report, and neither keys nor passwords.\n\n| step | outcome | seconds | |\n| --- | --- | --- | --- |\n")
	for _, s := range t.steps {
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s |\n", s.What, map[bool]string{true: "ok", false: "**NO**"}[s.OK], s.Took,
			strings.ReplaceAll(words.Printable(s.Says), "|", "\\|"))
	}
	b.WriteString("\n| device | model | MAC |\n| --- | --- | --- |\n")
	for _, m := range t.checked[1:] {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.Name, strings.ReplaceAll(words.Printable(m.Model), "|", "\\|"),
			words.Printable(m.MAC))
	}
	for _, s := range t.steps {
		if s.Output != "" {
			fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n```\n", s.What,
				strings.ReplaceAll(strings.TrimRight(words.Text(s.Output), "\n"), "```", "'''"))
		}
	}
	return b.String()
}
