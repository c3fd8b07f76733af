package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/bench/verify"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

func (a *app) verify() *cobra.Command {
	var o verify.Options
	var file string
	cmd := &cobra.Command{
		Use:   "verify [LAB|FILE]",
		Short: "Measure whether a lab is what its topology says",
		Long: "Measure whether a lab that is up is what its topology says: for each link, in each direction, rate, delay, jitter,\n" +
			"loss, reordering, duplicates, damage, queue, MTU and whether it is up; addresses, routes and names; that what the\n" +
			"topology promises to reach each other does, by ICMP, TCP and UDP; and that nothing leads out of the lab.\n" +
			"Hosts send each other packets to find out: other traffic in the lab disturbs the measurement, and is disturbed by it.\n" +
			"It exits with 0 if all holds, with 5 if something does not, and with 6 if nothing is wrong but something could not be\n" +
			"told: that is marked ?, never ok.\n\n" +
			"What somebody has changed in the lab since it came up is wrong where it contradicts the topology. Anything else\n" +
			"that nobody asked for is noted, with !. So is in what the lab, as it runs, differs from the file that it came from;\n" +
			"with FILE, the lab is to be what that file says.",
		Example:           "  trivet verify\n  trivet verify campus --quick\n  trivet verify campus.yaml\n  trivet verify --look\n  trivet verify --json | jq '.links[] | .directions[] | select(.checks[].verdict == \"wrong\")'",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if _, err := lab.Load(args[0]); errors.Is(err, lab.ErrNone) && file == "" && isFile(args[0]) {
					file = args[0]
				} else {
					a.lab = args[0]
				}
			}
			c, state, err := a.client()
			if err != nil {
				return err
			}
			if err := compareWithFile(cmd.Context(), c, state, file, &o); err != nil {
				return err
			}
			s := newStages(a.err)
			if s.live && !a.json {
				o.Progress = func(stage string, done, total int) {
					s.step(lab.Progress{Stage: stage, Done: done, Total: total})
				}
			}
			r, err := verify.Run(cmd.Context(), c, o)
			if s.drawn > 0 {
				fmt.Fprintf(a.err, "\r%s\r", strings.Repeat(" ", s.drawn))
			}
			if err != nil {
				return err
			}
			return a.showVerified(r, o.Look)
		},
	}
	cmd.Flags().BoolVar(&o.Quick, "quick", false,
		"shorter streams: rates are known within 3 %, losses roughly; what comes and goes may be missed")
	cmd.Flags().BoolVar(&o.Strict, "strict", false, "what is only noted (lines with !) is an error, too")
	cmd.Flags().BoolVar(&o.Look, "look", false,
		"send nothing: only look at devices, addresses, routes, names and settings")
	cmd.Flags().StringVar(&file, "file", "", "the lab is to be what this file says")
	return cmd
}

// compareWithFile has the lab compared with a file or (file "") with the one that it came from, if
// that can be read without running it.
func compareWithFile(ctx context.Context, c *lab.Client, state lab.State, file string, o *verify.Options) error {
	o.Promised = file != ""
	if !o.Promised {
		if file = state.File(); state.Source == lab.OfExperiment || strings.HasSuffix(file, ".py") {
			return nil
		}
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			return nil
		}
	}
	info, err := c.Info(ctx)
	if err != nil {
		return err
	}
	o.FileName = filepath.Base(file)
	if o.File, err = asBroughtUp(file, info.Topology); err != nil && o.Promised {
		return err
	}
	return nil
}

// asBroughtUp reads a file and resolves it as for a running lab, from which it takes what the file
// leaves open.
func asBroughtUp(file string, running *topology.Topology) (*topology.Topology, error) {
	var s source
	t, _, err := s.load(file)
	if err != nil {
		return nil, err
	}
	t.Name = running.Name // MAC addresses are derived from it
	t.Datapath, t.IPv6, t.Routes = cmp.Or(t.Datapath, running.Datapath), cmp.Or(t.IPv6, running.IPv6),
		cmp.Or(t.Routes, running.Routes)
	if len(t.Controllers) == 0 {
		t.Controllers = running.Controllers
	}
	topology.Inherit(t, running)
	r, _, err := s.resolve(t)
	if err != nil {
		return nil, err
	}
	return r, r.ReadKeys(os.ReadFile)
}

func (a *app) showVerified(r *verify.Result, looked bool) error {
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		if !looked {
			a.say("%s  %s, both directions: asked / got, %.3g s", r.Lab, words.Plural(len(r.Links), "link"), r.Seconds)
			a.showLinks(r)
		}
		for _, text := range r.Says(verify.Wrong) {
			a.say("✗ %s", text)
		}
		if !looked {
			for _, text := range summed(r.Says(verify.Untold)) {
				a.say("? %s", text)
			}
		}
		for _, text := range r.Notes {
			a.say("! %s", text)
		}
		a.say("%s", summary(r))
	}
	switch {
	case !r.Holds():
		return exitCode(exitWrong)
	case !r.Told():
		return exitCode(exitUntold)
	}
	return nil
}

// summary is the last line.
func summary(r *verify.Result) string {
	var parts []string
	for _, p := range []struct {
		name  string
		count verify.Count
	}{{"addresses", r.Addresses}, {"routes", r.Routes}, {"names", r.Names}} {
		if p.count.Of > 0 {
			parts = append(parts, fmt.Sprintf("%s %d/%d", p.name, p.count.OK, p.count.Of))
		}
	}
	if c := r.Reach; c.Of > 0 {
		text := fmt.Sprintf("reach %d/%d", c.OK, c.Of)
		if c.Pairs > 0 {
			text += fmt.Sprintf(" of %d pairs", c.Pairs)
		}
		parts = append(parts, text)
	}
	if r.Apart.Of > 0 {
		parts = append(parts, fmt.Sprintf("apart %d/%d", r.Apart.OK, r.Apart.Of))
	}
	if r.Isolation.OK == r.Isolation.Of {
		parts = append(parts, "isolated from outside")
	} else {
		parts = append(parts, "NOT isolated from outside")
	}
	if r.State.OK < r.State.Of {
		parts = append(parts, words.Plural(r.State.Of-r.State.OK, "thing")+" changed that contradict the topology")
	}
	if len(r.Notes) > 0 {
		parts = append(parts, words.Plural(len(r.Notes), "note"))
	}
	all := r.OK + r.Wrong + r.Untold
	text := fmt.Sprintf("%d of %d ok", r.OK, all)
	if r.Wrong > 0 {
		text += fmt.Sprintf(", %d wrong", r.Wrong)
	}
	if r.Untold > 0 {
		text += fmt.Sprintf(", %d unknown", r.Untold)
	}
	return strings.Join(append(parts, text), "   ")
}

// mostAlike is how many directions with the same remark are listed separately.
const mostAlike = 3

// summed joins lines that say the same about many directions.
func summed(lines []string) (out []string) {
	count, order := map[string][]string{}, []string{}
	for _, l := range lines {
		where, why, _ := strings.Cut(l, "  ")
		if count[why] == nil {
			order = append(order, why)
		}
		count[why] = append(count[why], where)
	}
	for _, why := range order {
		where := count[why]
		if n := len(where); n > mostAlike {
			where = append(where[:mostAlike:mostAlike], fmt.Sprintf("%d more", n-mostAlike))
		}
		out = append(out, strings.Join(where, ", ")+"  "+why)
	}
	return out
}

// showLinks prints a line for each direction, without columns that no link has a value for.
func (a *app) showLinks(r *verify.Result) {
	asked := map[string]bool{verify.Rate: true, verify.Delay: true, verify.Loss: true}
	for _, l := range r.Links {
		for _, d := range l.Directions {
			for _, c := range d.Checks {
				more := c.Asked > 0 // asked for more than the default
				switch c.What {
				case verify.MTU:
					more = c.Asked != topology.MTU
				case verify.Queue:
					more = !c.Default
				}
				asked[c.What] = asked[c.What] || more || c.Verdict == verify.Wrong
			}
		}
	}
	head := []string{"DIRECTION"}
	for _, m := range verify.Measured {
		if asked[m.What] {
			head = append(head, strings.ToUpper(m.What))
		}
	}
	rows := [][]string{append(head, "")}
	for _, l := range r.Links {
		for _, d := range l.Directions {
			row := []string{d.From + " → " + d.To}
			for _, m := range verify.Measured {
				if asked[m.What] {
					row = append(row, pair(d.Check(m.What), m.Unit))
				}
			}
			rows = append(rows, append(row, mark(&d)))
		}
	}
	a.table(rows)
}

// mark returns the verdict on a direction, and the checks that it is about.
func mark(d *verify.Direction) string {
	v := d.Verdict()
	if v == verify.OK {
		if up := d.Check(verify.Up); up != nil && up.Asked == 0 {
			return "ok (down)"
		}
		return "ok"
	}
	what := d.Named(v)
	sign := map[verify.Verdict]string{verify.Wrong: "✗ ", verify.Untold: "? "}[v]
	if len(what) > 2 {
		what = append(what[:2], "…")
	}
	return sign + strings.Join(what, ", ")
}

// pair shows what was asked for and what was measured.
func pair(c *verify.Check, unit string) string {
	if c == nil {
		return "–"
	}
	share := unit == "%"
	unit, scale := scaled(unit, c.Asked)
	number := func(v float64) string { return fmt.Sprintf("%.4g", v/scale) }
	asked, got := "–", "–"
	if c.Asked != 0 {
		asked = number(c.Asked)
	}
	if c.Got != nil {
		if got = number(*c.Got); c.What == verify.Delay && c.Asked == 0 || c.What == verify.Rate || share {
			got = fmt.Sprintf("%.3g", *c.Got/scale)
		}
		if c.Asked == 0 && c.What == verify.Delay {
			got = fmt.Sprintf("%.2f", *c.Got/scale)
		}
		if c.AtLeast {
			got = "≥ " + got
		}
		if share && c.Asked > 0 && c.Low != nil {
			got += fmt.Sprintf(" ±%.2g", (*c.High-*c.Low)/2/scale)
		}
	}
	if asked == "–" && got == "–" {
		return "–"
	}
	return strings.TrimSpace(asked + " / " + got + " " + unit)
}

// scaled returns the unit, and its size, in which a value of a unit is shown.
func scaled(unit string, asked float64) (string, float64) {
	switch {
	case unit == "s":
		return "ms", 1e-3
	case unit == "%":
		return unit, 0.01
	case unit == "bit/s" && asked >= 1e9:
		return "Gbit/s", 1e9
	case unit == "bit/s" && asked >= 1e6:
		return "Mbit/s", 1e6
	case unit == "bit/s" && asked >= 1e3:
		return "kbit/s", 1e3
	}
	return unit, 1
}
