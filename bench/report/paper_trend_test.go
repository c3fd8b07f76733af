package report_test

import (
	"strings"
	"testing"
)

// TestTheirs proves what is said of a paper's own numbers beside each kind of statement: along a
// factor with its change, between things that have no order with the least and the most, and of two
// things how they stand to each other, at one place or at several; levels that a statement does not
// name are taken by their mean, and where the paper has no numbers nothing is said.
func TestTheirs(t *testing.T) {
	h, samples := published(`    - {metric: rtt, unit: ms, levels: {switch: 1}, along: size, values: {64: 2, 128: 6}}
    - {metric: rtt, unit: ms, levels: {switch: 2}, along: size, values: {64: 4, 128: 5}}
`)
	for statement, want := range map[string]string{
		"{metric: rtt, along: size, is: rises, at: {switch: 1}}":                            "2 → 6 ms (+200 %)",
		"{metric: rtt, along: size, is: rises}":                                             "3 → 5.500 ms (+83.3 %)",
		"{metric: rtt, is: above, at: {size: 128}, than: {size: 64}}":                       "5.500 against 3 ms (+83.3 %)",
		"{metric: rtt, is: below, at: {switch: 1}, than: {switch: 2}, along: size}":         "below at 1 of 2",
		"{metric: rtt, is: times, factor: 2, at: {size: 128}, than: {size: 64}}":            "1.833 times",
		"{metric: rtt, is: below, than: 7, unit: ms}":                                       "",
		"{metric: loss, along: size, is: flat}":                                             "",
		"{metric: rtt, along: size, is: flat, at: {switch: 2}}":                             "4 → 5 ms (+25 %)",
		"{metric: rtt, is: above, at: {size: 128, switch: 2}, than: {size: 64, switch: 1}}": "5 against 2 ms (+150 %)",
	} {
		h := h
		h.Experiment.Text += "  trends: [" + statement + "]\n"
		r := build(t, h, samples)
		if len(r.Paper.Trends) != 1 {
			t.Fatalf("%s: %v", statement, r.Problems)
		}
		if got := r.Paper.Trends[0].Theirs; got != want {
			t.Errorf("%s: %q, want %q", statement, got, want)
		}
	}
	h, samples = published("    - {metric: rtt, unit: ms, along: who, values: {them: 2, others: 3, neither: 2.5}}\n")
	h.Experiment.Text = strings.Replace(h.Experiment.Text, "paper:", "paper:\n  trends: [{metric: rtt, along: who, is: flat}]", 1)
	if got := build(t, h, samples).Paper.Trends[0].Theirs; got != "from 2 (them) to 3 ms (others)" {
		t.Errorf("%q", got)
	}
}
