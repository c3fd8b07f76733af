package reporttest

import (
	"strconv"
	"strings"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
)

// Hostile is a text that would run in a page, leave an attribute, a script, a style or a comment,
// or break XML and LaTeX, if anything of it were taken for more than text.
const Hostile = "</script></style></title>--><svg onload=alert(1)>\"'`><img src=x onerror=document.title='taken'>{{.}}${x}]]>&lt;\\input{x}%&#$\x00\u2028\u202e"

// HostileResult has a text wherever a result may have one.
func HostileResult(text string) (result.Header, []result.Sample) {
	quoted := strconv.Quote(strings.ToValidUTF8(text, "?"))
	h := Header()
	h.Experiment.Name, h.Experiment.Title, h.Experiment.File = text, text, text
	h.Command = []string{text, "b"}
	e := &h.Environment
	e.Host, e.CPU.Model, e.Kernel, e.System, e.Trivet = text, text, text, text, text
	h.Environment.Sysctls, h.Environment.Missing = map[string]string{text: text}, []string{text}
	h.Experiment.Factors = append(h.Experiment.Factors, result.Factor{Name: text, Levels: []string{text, "other"}})
	h.Experiment.Text = "# " + strings.Join(strings.Fields(text), " ") + "\ntopology: " + quoted + "\nfactors: {" +
		quoted + ": [1]}\nreport:\n  compare: {title: " + quoted + ", note: " + quoted + ", factor: " + quoted +
		", margin: {" + quoted + ": 1ms, throughput: 1furlongs}}\n  figures:\n" +
		"    - {title: " + quoted + ", metric: throughput, x: hops, unit: " + quoted +
		"}\n    - {metric: throughput, kind: time, title: x}\n    - {metric: throughput, kind: bar, x: " + quoted +
		"}\n" +
		"  tables:\n    - {title: " + quoted + ", metric: throughput, rows: [" + quoted + ", hops]}\n" +
		"paper:\n  source: " + quoted + "\n  note: " + quoted + "\n  numbers: [{metric: throughput, levels: {" +
		quoted + ": " + quoted + "}, value: 1, unit: " + quoted + "}]\n" +
		"  trends: [{metric: throughput, text: " + quoted + ", along: hops, is: falls, at: {" + quoted + ": " + quoted +
		"}}]\n"
	samples := Samples()[:60] // three repetitions
	for i := range samples {
		s := &samples[i]
		s.Cell, s.Probe, s.Kind, s.Pair = text, text+s.Probe, text, text
		s.Factors[text] = text
		if s.Repetition%2 == 0 { // so that there are two levels to compare
			s.Factors[text] = "other"
		}
		s.Verdict = &environment.Verdict{Level: environment.Level(text),
			Reasons: []environment.Reason{{Level: environment.Bad, Code: text, Text: text}}}
		for k := range s.Events {
			s.Events[k].What = text
		}
		if s.Failure != "" {
			s.Failure = text
		}
		for k := range s.Measurements {
			s.Measurements[k].Labels = map[string]string{text: text}
		}
	}
	return h, samples
}
