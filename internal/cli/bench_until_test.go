package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/result"
)

// TestDecisions proves what is said at the end of an experiment that goes on until it is decided:
// how it ended, and of each statement since how many repetitions it has been decided without a
// break, or about how many would decide it.
func TestDecisions(t *testing.T) {
	look := func(n int, ends string, open ...bool) result.Look {
		l := result.Look{Repetitions: n, Level: 0.0123, Ends: ends}
		for i, is := range open {
			outcome := string(report.Holds)
			if is {
				outcome = string(report.CannotTell)
			}
			l.Statements = append(l.Statements, result.Judged{What: string(rune('a' + i)), Outcome: outcome, Open: is, Needed: 70 * i})
		}
		return l
	}
	for _, c := range []struct {
		looks []result.Look
		after []int
		said  []string
	}{
		{[]result.Look{look(6, "", false, true, false), look(8, "", false, true, true), look(10, result.EndsDecided, false, false, false)}, []int{6, 10, 10},
			[]string{"ended after 10 repetitions of at most 20, as all is decided that can be (3 looks, each statement judged at 1.2 %)", "after 6    holds   a", "after 10   holds   c"}},
		{[]result.Look{look(20, result.EndsMost, false, true)}, []int{20, 0}, []string{"ended with the most, 20 repetitions; 1 of 2 statements undecided", "open       cannot tell   b  (about 70 repetitions would tell)"}},
		{[]result.Look{look(6, "", true)}, []int{0}, []string{"not ended; last looked at after 6 repetitions of at most 20, with 1 of 1 statement undecided", "open   cannot tell   a\n"}},
		{nil, nil, []string{"no statement was judged yet"}},
	} {
		run := &result.Run{Looks: c.looks}
		run.Header.Experiment.Repetitions = 20
		d := decisionsOf(run)
		var after []int
		for _, s := range d.Statements {
			after = append(after, s.After)
		}
		var out bytes.Buffer
		(&app{out: &out, err: &out}).showDecisions(d)
		if !slices.Equal(after, c.after) {
			t.Errorf("decided after %v, want %v", after, c.after)
		}
		for _, want := range c.said {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s\ndoes not say %q", &out, want)
			}
		}
	}
}

// TestUntilAsked proves which flags make an experiment one that goes on until it is decided, with
// how many repetitions at most, and which are refused with what to do; and that where nothing is
// stated there is nothing to decide.
func TestUntilAsked(t *testing.T) {
	const rest = "topology: linear,2\nprobes: [ping: {from: h1, to: h2}]\nfactors: {f: [1, 2]}\nrepetitions: 12\n"
	const states = "paper: {trends: [{metric: rtt, at: {f: 1}, is: above, than: {f: 2}}]}\n"
	for _, c := range []struct {
		text  string
		asked benchRunning
		most  int // 0: it does not
		want  string
	}{
		{states, benchRunning{}, 0, ""},
		{states, benchRunning{until: "decided"}, 12, ""},
		{states, benchRunning{until: "decided", atMost: 30}, 30, ""},
		{states + "until: decided\nat_most: 40\n", benchRunning{}, 40, ""},
		{states + "until: decided\nat_most: 40\n", benchRunning{atMost: 20}, 20, ""},
		{states + "until: decided\nat_most: 40\n", benchRunning{repetitions: 3}, 0, ""},
		{states + "until: decided\nat_most: 40\n", benchRunning{quick: true}, 40, ""},
		{states + "until: decided\nat_most: 40\nquick: {repetitions: 2}\n", benchRunning{quick: true}, 0, ""},
		{"until: decided\nreport: {compare: {factor: f, margin: 5%}}\n", benchRunning{}, 12, ""},
		{"report: {compare: {factor: f}}\n", benchRunning{until: "decided"}, 12, "warning: compare: has no margin"},
		{states, benchRunning{until: "bored"}, 0, `--until: "bored": an experiment goes on until it is decided; write decided`},
		{states, benchRunning{atMost: 20}, 0, "--at-most goes with --until decided"},
		{states, benchRunning{until: "decided", atMost: 4}, 0, "at most 4 repetitions cannot decide anything"},
		{"", benchRunning{until: "decided"}, 0, "nothing is stated that could be decided; write paper:"},
		{states + "until: decided\n", benchRunning{every: "1h", times: 2}, 0, "a campaign has as many rounds"},
	} {
		b := c.asked
		b.file, b.out, b.on = filepath.Join(t.TempDir(), "x.yaml"), "none.jsonl", "local"
		if err := os.WriteFile(b.file, []byte(rest+c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		p, warnings, err := b.plan()
		said := ""
		if err != nil {
			said = err.Error()
		}
		for _, w := range warnings {
			said += w.String()
		}
		most := 0
		if p != nil && p.Until != nil {
			most = len(p.Runs) / 2
		}
		if most != c.most || c.want == "" && p == nil || !strings.Contains(said, c.want) {
			t.Errorf("%+v\n%sat most %d, want %d: %s, want %q", c.asked, c.text, most, c.most, said, c.want)
		}
	}
}
