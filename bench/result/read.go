package result

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
)

// Run is the content of a result file.
type Run struct {
	Header   Header
	Resumes  []Resume
	Samples  []Sample
	Machines []Machines // made for it, as recorded: see Held
	Looks    []Look     // of a run that continues until it is decided

	ByRound bool // set by the caller: a report merges the repetitions of a cell within one round of a campaign

	Interrupted bool  // the last line was incomplete, and is left out
	Size        int64 // bytes of whole lines
}

// maxLine is the maximum length of a line: a million values take less.
const maxLine = 256 << 20

// ReadFile reads a result file.
func ReadFile(path string) (*Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	run, err := Read(f)
	if line := (&lineError{}); errors.As(err, &line) {
		return nil, fmt.Errorf("%s:%d: %w", path, line.number, line.err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return run, nil
}

// lineError is an error in a line.
type lineError struct {
	number int // from 1
	err    error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.number, e.err) }

func (e *lineError) Unwrap() error { return e.err }

// Read reads a result. It fails if the input is no result or has another schema, and on a malformed
// line except an incomplete last one, which an interruption leaves. Lines of unknown kinds are
// skipped.
func Read(from io.Reader) (*Run, error) {
	run := &Run{}
	lines := bufio.NewReaderSize(from, 1<<20)
	for number := 1; ; number++ {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			run.Interrupted = len(line) > 0
			break
		}
		if err == nil {
			err = run.take(line, number)
		}
		if err != nil {
			return nil, &lineError{number, err}
		}
		run.Size += int64(len(line))
	}
	if run.Size == 0 {
		return nil, errors.New("is not a result: it has no header")
	}
	run.placeMade()
	return run, nil
}

// placeMade adds the machines made for a result to its places; if they were made several times, the
// last ones.
func (run *Run) placeMade() {
	var places []*environment.Place
	add := func(e *environment.Record) {
		if places = append(places, slices.Collect(maps.Values(e.Places))...); e.Place != nil {
			places = append(places, e.Place)
		}
	}
	add(&run.Header.Environment)
	for i := range run.Resumes {
		add(&run.Resumes[i].Environment)
	}
	for _, m := range run.Machines {
		for _, p := range places {
			if p != nil && m.State == Made && p.By == m.By && p.On == m.On {
				p.Machines, p.Made = m.Environments, m.Made
			}
		}
	}
}

// readLine returns a line with its end; if the end is missing, it returns what there is and io.EOF.
func readLine(from *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("is longer than %d MiB", maxLine>>20)
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

func (run *Run) take(line []byte, number int) error {
	var kind struct {
		Record string `json:"record"`
		Schema int    `json:"schema"`
	}
	if len(bytes.TrimSpace(line)) == 0 && number > 1 {
		return nil
	}
	if err := json.Unmarshal(line, &kind); err != nil {
		return fmt.Errorf("is not a line of a result as trivet bench run writes it: %w", words.JSON(err))
	}
	switch {
	case number == 1 && kind.Record != KindHeader:
		return fmt.Errorf("is %q and not a header, with which a result begins", kind.Record)
	case number == 1 && kind.Schema != Schema:
		return fmt.Errorf("is of schema %d; this version of Trivet reads schema %d", kind.Schema, Schema)
	case number == 1:
		return json.Unmarshal(line, &run.Header)
	case kind.Record == KindHeader:
		return errors.New("is a second header; do not join results with cat: give both files")
	case kind.Record == KindResume:
		run.Resumes = append(run.Resumes, Resume{})
		return json.Unmarshal(line, &run.Resumes[len(run.Resumes)-1])
	case kind.Record == KindMachines:
		run.Machines = append(run.Machines, Machines{})
		return json.Unmarshal(line, &run.Machines[len(run.Machines)-1])
	case kind.Record == KindLook:
		run.Looks = append(run.Looks, Look{})
		return json.Unmarshal(line, &run.Looks[len(run.Looks)-1])
	case kind.Record == KindSample:
		var s Sample
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		run.Samples = append(run.Samples, s)
	}
	return nil
}

// Counted returns the samples that count: without warm-ups, and for a probe that was repeated
// because it failed or was interrupted, the last one.
func (run *Run) Counted() []Sample {
	var out []Sample
	for i, over := range run.superseded() {
		if !over && !run.Samples[i].WarmUp {
			out = append(out, run.Samples[i])
		}
	}
	return out
}

// LeftOut returns what the run left out when it was last begun or resumed.
func (run *Run) LeftOut() []LeftOut {
	if n := len(run.Resumes); n > 0 {
		return run.Resumes[n-1].LeftOut
	}
	return run.Header.LeftOut
}

// Held returns the machines that were requested and are not recorded as removed.
func (run *Run) Held() (out []Machines) {
	for _, m := range run.Machines {
		of := func(o Machines) bool { return o.Key == m.Key }
		switch {
		case m.State == Removed:
			out = slices.DeleteFunc(out, of)
		case !slices.ContainsFunc(out, of):
			out = append(out, m)
		}
	}
	return out
}

// Ended returns the last look of a run that has continued until it was decided; nil if the run has
// not ended that way.
func (run *Run) Ended() *Look {
	for i := range run.Looks {
		if run.Looks[i].Ends != "" {
			return &run.Looks[i]
		}
	}
	return nil
}

// Expected returns the number of runs to be made: the plan's, without those left out, and without
// those after the end of one that went on until it was decided.
func (run *Run) Expected() int {
	e := run.Header.Experiment
	if end := run.Ended(); end != nil && end.Repetitions > 0 && end.Repetitions < e.Repetitions {
		e.Runs, e.Repetitions = e.Runs/e.Repetitions*end.Repetitions, end.Repetitions
	}
	measured := map[string]map[int]bool{}
	for i := range run.Samples {
		s := &run.Samples[i]
		if measured[s.Cell] == nil {
			measured[s.Cell] = map[int]bool{}
		}
		measured[s.Cell][s.Run] = true
	}
	expected := e.Runs
	for _, l := range run.LeftOut() {
		for _, cell := range l.Cells {
			if l.Probe == "" {
				expected -= max(0, e.Repetitions-len(measured[cell])) // those that were measured before count
			}
		}
	}
	return expected
}

// superseded reports for each sample whether a later one replaces it. Warm-ups are never replaced.
func (run *Run) superseded() []bool {
	type key struct {
		run   int
		probe string
	}
	out, last := make([]bool, len(run.Samples)), map[key]int{}
	for i := range run.Samples {
		s := &run.Samples[i]
		if s.WarmUp {
			continue
		}
		k := key{s.Run, s.Probe}
		if before, ok := last[k]; ok {
			out[before] = true
		}
		last[k] = i
	}
	return out
}

// Mean is the default value of one repetition: the mean of its values, or for a share the share of
// all its packets. The terminal, reports and comparisons all use it: a repetition counts once,
// however many values it has.
func Mean(values []float64, count, of int) float64 {
	switch {
	case of > 0:
		return float64(count) / float64(of)
	case len(values) == 0:
		return math.NaN()
	}
	sum, same := 0.0, true
	for _, v := range values {
		sum, same = sum+v, same && v == values[0]
	}
	if same {
		return values[0] // exactly
	}
	return sum / float64(len(values))
}

// Values returns the values of a metric in a sample, for all its labels.
func (s *Sample) Values(metric string) (out []float64) {
	for _, m := range s.Measurements {
		if m.Metric == metric {
			out = append(out, m.Values...)
		}
	}
	return out
}
