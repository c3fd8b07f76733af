package result

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"trivet.dev/trivet/measure/environment"
)

func header() Header {
	return Header{Experiment: Experiment{Name: "figure-16", Plan: "abc", Runs: 2, Factors: []Factor{{"hops", []string{"2", "4"}}}}, Seed: math.MaxUint64,
		Command: []string{"trivet", "bench", "run", "a <b>.yaml"}, Started: time.Date(2024, 6, 1, 12, 0, 0, 5, time.UTC)}
}

func sample(run int, values ...float64) Sample {
	return Sample{Run: run, Cell: "hops=2", Factors: map[string]any{"hops": 2.0, "datapath": "ovs"}, Block: 1, Repetition: 1, Probe: "rtt", Kind: "ping",
		Started: time.Date(2024, 6, 1, 12, 0, run, 0, time.UTC), Seconds: 1.5, Measurements: []Measurement{{Metric: "rtt", Unit: "s", Values: values}}}
}

func create(t *testing.T, samples ...Sample) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.jsonl")
	w, err := Create(path, header())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(samples...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRoundTrip proves that what is written is what is read: all fields, all numbers, for samples
// of any kind.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		files++
		path := filepath.Join(dir, strconv.Itoa(files))
		w, err := Create(path, header())
		if err != nil {
			t.Fatal(err)
		}
		text := rapid.String()
		want := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Sample {
			s := Sample{Record: KindSample, Run: rapid.Int().Draw(t, "run"), Cell: text.Draw(t, "cell"), Probe: text.Draw(t, "probe"), Failure: "as said",
				Factors: map[string]any{"a": rapid.Float64().Draw(t, "a"), "b": text.Draw(t, "b"), "c": rapid.Bool().Draw(t, "c")},
				Started: time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "at"), 7).UTC(), WarmUp: rapid.Bool().Draw(t, "warm"),
				Events:  []Event{{At: 1, What: text.Draw(t, "what")}},
				Verdict: &environment.Verdict{Level: environment.Bad, Reasons: []environment.Reason{{Level: environment.Bad, Code: "x", Text: text.Draw(t, "text")}}},
				Details: json.RawMessage(`{"a":[1]}`)}
			for _, unit := range rapid.SliceOfN(rapid.StringN(1, 5, -1), 0, 3).Draw(t, "units") {
				s.Measurements = append(s.Measurements, Measurement{Metric: "m", Unit: unit, Values: rapid.SliceOfN(rapid.Float64(), 1, 9).Draw(t, "values"),
					Labels: map[string]string{"from": text.Draw(t, "label")}})
			}
			return s
		})).Draw(t, "samples")
		if err := w.Append(want...); err != nil {
			t.Fatal(err)
		}
		w.Close()
		run, err := ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		h := header()
		h.Record, h.Schema = KindHeader, Schema
		if !reflect.DeepEqual(run.Header, h) || run.Interrupted || len(run.Samples) != len(want) {
			t.Fatalf("header %+v", run.Header)
		}
		for i := range want {
			if !reflect.DeepEqual(run.Samples[i], want[i]) {
				t.Fatalf("read %+v\nwrote %+v", run.Samples[i], want[i])
			}
		}
	})
}

// TestInterrupted proves that a file cut anywhere behind its header is read up to the last whole
// line, and can be gone on with: afterwards it is whole again.
func TestInterrupted(t *testing.T) {
	path := create(t, sample(1, 1, 2), sample(2, 3))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ends := []int{}
	for i, c := range whole {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	for cut := ends[0]; cut <= len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, end := range ends {
			if end <= cut {
				lines++
			}
		}
		w, run, err := Open(path)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if len(run.Samples) != lines-1 || run.Interrupted != !slices.Contains(ends, cut) {
			t.Fatalf("cut at %d: %d samples, interrupted %v", cut, len(run.Samples), run.Interrupted)
		}
		if cut%97 == 0 || cut == len(whole)-1 { // each write waits for the disk
			if err := errors.Join(w.Resume(Resume{Command: []string{"again"}}), w.Append(sample(9, 9))); err != nil {
				t.Fatal(err)
			}
			again, err := ReadFile(path)
			if err != nil || again.Interrupted || len(again.Samples) != lines || len(again.Resumes) != 1 || again.Samples[lines-1].Run != 9 {
				t.Fatalf("cut at %d, then gone on with: %+v, %v", cut, again, err)
			}
		}
		w.Close()
	}
	for _, cut := range []int{0, 1, ends[0] - 1} {
		if _, err := Read(bytes.NewReader(whole[:cut])); err == nil {
			t.Errorf("a file of %d bytes was taken for a result", cut)
		}
	}
}

// TestRefused proves that what is no result, of another schema, broken in the middle, or in use by
// another is refused with the line and the reason, and that a file is never overwritten.
func TestRefused(t *testing.T) {
	path := create(t, sample(1, 1))
	if _, err := Create(path, header()); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("overwriting: %v", err)
	}
	w, _, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(path); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("in use: %v", err)
	}
	for _, s := range []Sample{{Probe: "p"}, sample(1, math.NaN()), sample(1, math.Inf(1)), {Measurements: []Measurement{{Metric: "m"}}},
		{Measurements: []Measurement{{Metric: "m", Unit: "s", Values: []float64{1}, At: []float64{1, 2}}}}, {Measurements: []Measurement{Share("loss", 3, 2)}}} {
		if err := w.Append(sample(2, 5), s); err == nil {
			t.Errorf("written: %+v", s)
		}
	}
	w.Close()
	whole, _ := os.ReadFile(path)
	if run, err := Read(bytes.NewReader(whole)); err != nil || len(run.Samples) != 1 {
		t.Errorf("something of the refused was written: %v, %v", run, err)
	}
	for text, want := range map[string]string{
		"":                                      "it has no header",
		"{}\n":                                  "line 1: is \"\" and not a header",
		"[1]\n":                                 "line 1: is not a line",
		"hello\n":                               "line 1: is not a line",
		`{"record":"header"}` + "\n":            "schema 0",
		`{"record":"header","schema":9}` + "\n": "this version of Trivet reads schema 1",
		string(whole) + string(whole):           "second header",
		string(whole) + "{broken\n" + string(whole): "line 3",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	if run, err := Read(strings.NewReader(string(whole) + "\n" + `{"record":"of tomorrow","x":1}` + "\n")); err != nil || len(run.Samples) != 1 {
		t.Errorf("a record of another kind: %v", err)
	}
}

// TestFullDisk proves, on a small disk, that a sample that does not fit is refused and taken back,
// and that smaller ones still go into the file afterwards.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "a.jsonl")
	w, err := Create(path, header())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(sample(1, make([]float64, 100_000)...)); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("a sample larger than the disk: %v", err)
	}
	if err := w.Append(sample(2, 7)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	run, err := ReadFile(path)
	if err != nil || len(run.Samples) != 1 || run.Samples[0].Run != 2 || run.Interrupted {
		t.Errorf("%+v, %v", run, err)
	}
}

// TestCounted proves that of samples of the same run and probe the last counts, that warm-ups never
// do, and that CSV holds them all and says so.
func TestCounted(t *testing.T) {
	failed, warm := sample(2), sample(2, 8)
	failed.Measurements, failed.Failure, warm.WarmUp = []Measurement{Share("loss", 0, 7)}, "it hung", true // it had lost nothing until then
	failed.Events = []Event{{At: 0.5, What: "r1 -- r2 down"}, {At: 1, What: "r1 -- r2 up"}}
	last := sample(2, 3, 4)
	last.Verdict = &environment.Verdict{Level: environment.Doubtful}
	last.Measurements = append(last.Measurements, Share("loss", 1, 4))
	last.Measurements[0].At, last.Measurements[0].Labels = []float64{0.25, 0.5}, map[string]string{"to": "h2", "from": "h1"}
	run, err := ReadFile(create(t, sample(1, 1), warm, failed, last))
	if err != nil {
		t.Fatal(err)
	}
	counted := run.Counted()
	if len(counted) != 2 || counted[0].Run != 1 || !slices.Equal(counted[1].Values("rtt"), []float64{3, 4}) {
		t.Errorf("%+v", counted)
	}
	var b strings.Builder
	if err := run.CSV(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	get := func(row int, column string) string { return rows[row][slices.Index(rows[0], column)] }
	want := []map[string]string{
		{"run": "1", "value": "1", "factor.hops": "2", "factor.datapath": "ovs", "superseded": "false", "metric": "rtt", "unit": "s", "fidelity": ""},
		{"value": "8", "warm_up": "true"},
		{"value": "", "failure": "it hung", "superseded": "true", "events": "0.5 r1 -- r2 down; 1 r1 -- r2 up"},
		{"value": "3", "index": "0", "at": "0.25", "labels": "from=h1 to=h2", "fidelity": "doubtful", "superseded": "false"},
		{"value": "4", "index": "1", "at": "0.5"},
		{"value": "0.25", "metric": "loss", "unit": "1", "count": "1", "of": "4"},
	}
	if len(rows) != len(want)+1 {
		t.Fatalf("%d rows:\n%s", len(rows), b.String())
	}
	for i, columns := range want {
		for column, value := range columns {
			if got := get(i+1, column); got != value {
				t.Errorf("row %d, %s: %q, want %q", i+1, column, got, value)
			}
		}
	}
}

// TestMachines proves that a result says which machines it may have left, whatever ended it, by its
// lines alone, and what those were that it was measured at.
func TestMachines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	h := header()
	h.Environment.Places = map[string]*environment.Place{"local": {Target: "local"}, "cloud": {Target: "sites", On: "cloud.yaml", By: "toy"}}
	w, err := Create(path, h)
	if err != nil {
		t.Fatal(err)
	}
	read := func() (*Run, string) {
		t.Helper()
		run, err := ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, m := range run.Held() {
			keys = append(keys, m.Key+" "+string(m.Options))
		}
		return run, strings.Join(keys, ", ")
	}
	m := Machines{On: "cloud.yaml", By: "toy", Options: json.RawMessage(`{"n":1}`)}
	for _, step := range []struct{ key, state, want string }{
		{"a", Asked, `a {"n":1}`}, {"b", Asked, `a {"n":1}, b {"n":1}`}, {"a", Made, `a {"n":1}, b {"n":1}`}, {"a", Removed, `b {"n":1}`}, {"b", Removed, ""}, {"c", Asked, `c {"n":1}`},
	} {
		m.Key, m.State, m.Made, m.Environments = step.key, step.state, nil, nil
		if step.state == Made {
			m.Made, m.Environments = map[string]map[string]string{"i1": {"image": "debian"}}, map[string]environment.Record{"i1": {Kernel: "6.1"}}
		}
		if err := w.Machines(m); err != nil {
			t.Fatal(err)
		}
		if _, held := read(); held != step.want {
			t.Errorf("%s %s: held are %s, want %s", step.key, step.state, held, step.want)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run, _ := read()
	if p := run.Header.Environment.Places["cloud"]; p.Machines["i1"].Kernel != "6.1" || p.Made["i1"]["image"] != "debian" {
		t.Errorf("%+v", p)
	}
	if len(run.Machines) != 6 || run.Machines[0].Time.IsZero() || run.Header.Environment.Places["local"].Made != nil {
		t.Errorf("%+v", run.Machines)
	}
}

// TestDocumented proves that docs/results.md names every field that a result has, every column of
// the CSV, every code of a verdict's limits, and the schema.
func TestDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/results.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			walk(of.Elem())
		case reflect.Struct:
			if seen[of] || !strings.Contains(of.PkgPath(), "trivet") {
				return
			}
			seen[of] = true
			for i := range of.NumField() {
				if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "" && !strings.Contains(doc, "`"+name+"`") {
					t.Errorf("the field %s of %s is not in docs/results.md", name, of)
				}
				walk(of.Field(i).Type)
			}
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[Header](), reflect.TypeFor[Resume](), reflect.TypeFor[Machines](), reflect.TypeFor[Look](), reflect.TypeFor[Sample]()} {
		walk(of)
	}
	for _, column := range slices.Concat(columnsBefore, columnsAfter) {
		if !strings.Contains(doc, "`"+column+"`") {
			t.Errorf("the column %s is not in docs/results.md", column)
		}
	}
	if !strings.Contains(doc, "`schema` | "+strconv.Itoa(Schema)+".") {
		t.Errorf("docs/results.md is of another schema than %d", Schema)
	}
}

// FuzzRead proves that no file, however broken, does more than be refused, and that what is read of
// one can be written again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"record":"header","schema":1,"experiment":{"name":"x"}}` + "\n" + `{"record":"sample","run":1,"probe":"p","measurements":[{"metric":"m","unit":"s","values":[1,2]}]}` + "\n" + `{"rec`))
	f.Add([]byte(`{"record":"header","schema":1}` + "\n\n" + `{"record":"resume","environment":{"load":{"busy":null}}}` + "\n"))
	f.Add([]byte("{\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		run, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		if run.Size > int64(len(data)) || run.Interrupted == (run.Size == int64(len(data))) {
			t.Fatalf("%d of %d bytes, interrupted %v", run.Size, len(data), run.Interrupted)
		}
		var b bytes.Buffer
		if err := run.CSV(&b); err != nil {
			t.Fatal(err)
		}
		for _, s := range run.Samples {
			if _, err := json.Marshal(s); err != nil {
				t.Fatal(err)
			}
		}
	})
}
