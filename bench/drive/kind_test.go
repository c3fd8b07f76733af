package drive

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/topology"
)

// All that there is of a probe. No other file knows of it.
func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "toy", Doc: "How long an answer is.",
		Options: []experiment.Option{fromNode, toNode, {Name: "count", Type: experiment.Whole, Default: "3", Doc: "Letters to ask for."}},
		Check: func(o experiment.Options) error {
			if o.Int("count") > 5 {
				return errors.New("count: nobody has more than 5")
			}
			return nil
		},
		Estimate: func(o experiment.Options, _ experiment.Lab) time.Duration {
			return time.Duration(o.Int("count")) * time.Second
		},
		Patience: func(experiment.Options) time.Duration { return time.Hour },
		Metrics:  []experiment.Metric{between("letters", "1"), between("vowels", "1")},
	}, order: 1000, chief: []string{"letters"}, tools: []string{"sh"}, run: func(ctx context.Context, b *bed) (o experiment.Measured, err error) {
		text, err := b.output(ctx, b.options.Text("from"), "say", b.options.Text("count"))
		o.Measurements = []result.Measurement{{Metric: "letters", Unit: "1", Values: []float64{float64(len(text))}, Labels: b.labels()},
			{Metric: "vowels", Unit: "1", Values: []float64{float64(strings.Count(string(text), "a"))}, Labels: b.labels()}}
		return o, err
	}})
}

// spoken is nodes where every program says a word.
type spoken struct{ noLab }

func (spoken) run(_ context.Context, _ string, _ []string, _ io.Reader, out, _ io.Writer) error {
	_, err := io.WriteString(out, "abc")
	return err
}

// TestToy proves that a probe is its own struct: it is listed, checked, estimated, run on any
// place, and shown by its chief metric, with its programs in the record, though nothing else names
// it.
func TestToy(t *testing.T) {
	if all := Vocabulary().Probes; all[len(all)-1].Name != "toy" || all[0].Name != "ping" {
		t.Errorf("they are out of order: %s … %s", all[0].Name, all[len(all)-1].Name)
	}
	const text = "topology: linear,2\nprobes: [toy: {from: h1, to: h2, count: 4}]\n"
	if _, problems := experiment.Read("x.yaml", []byte(strings.Replace(text, "4", "6", 1)), Vocabulary()); problems.Err() == nil || !strings.Contains(problems.Err().Error(), "toy: count: nobody has more than 5") {
		t.Error(problems)
	}
	p := planOf(t, text)
	one := p.Cells[0].Groups[0][0]
	if one.Estimate != 4*time.Second || one.Timeout != time.Hour || !slices.Contains(Tools(p), "sh") {
		t.Errorf("%s, %s, %v", one.Estimate, one.Timeout, Tools(p))
	}
	if _, v := run(t, &instance{cell: &p.Cells[0], topology: &topology.Topology{}, lab: spoken{}}, one); v["letters h1 h2"][0] != 3 || v["vowels h1 h2"][0] != 1 {
		t.Error(v)
	}
	if !Shows("toy", "letters") || Shows("toy", "vowels") || !Shows("up_down", "down") {
		t.Error("not the chief metrics are shown")
	}
	defer func() {
		if recover() == nil {
			t.Error("two probes have one name")
		}
	}()
	register(kind{ProbeKind: experiment.ProbeKind{Name: "toy"}})
}
