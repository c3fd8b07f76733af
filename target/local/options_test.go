package local

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

// TestKernelOptions proves of each option of links that the kernel is said to do that disciplines
// are others without it, and that no option is done by nobody: what the kernel does not know, a
// delay line does.
func TestKernelOptions(t *testing.T) {
	for _, name := range topology.LinkOptionNames() {
		if !slices.Contains(kernelOptions, name) && !slices.Contains(delayline.LinkOptions, name) {
			t.Errorf("neither the kernel nor delay lines do %s", name)
		}
	}
	all := topology.Link{Impairment: topology.Impairment{Bandwidth: 20e6, Delay: 5e6, Jitter: 1e6, Loss: 0.2, Queue: topology.Queue{Limit: 30}, MTU: 9000, Reorder: 0.3, Gap: 4, Duplicate: 0.2, Corrupt: 0.2,
		LossCorrelation: 0.5, DelayCorrelation: 0.5, ReorderCorrelation: 0.5, DuplicateCorrelation: 0.5, CorruptCorrelation: 0.5}}
	of := func(l topology.Link) []qdisc { return disciplines(1, l.MTUAt(0), l.Impairment) }
	if !reflect.DeepEqual(of(all), of(all)) {
		t.Fatal("the same link has other disciplines a second time")
	}
	for _, name := range kernelOptions {
		change, err := topology.ParseLinkChange([]string{name + "=none"})
		if err != nil {
			t.Fatal(err)
		}
		less := all
		if change.Apply(&less); reflect.DeepEqual(of(all), of(less)) {
			t.Errorf("without %s the disciplines are as with it", name)
		}
	}
}

// TestToyOption proves that an option of links that is an entry of topology.LinkOptions, and
// nothing else, is read from files and written, in the schema and in changes, checked and shown;
// and that what does not know it refuses it, by name. As a test cannot add a field to Impairment,
// the entry takes the place of gap, and has its field.
func TestToyOption(t *testing.T) {
	was := topology.LinkOptions
	t.Cleanup(func() { topology.LinkOptions = was })
	topology.LinkOptions = slices.Clone(was)
	toy := &topology.LinkOptions[slices.IndexFunc(was, func(o topology.LinkOption) bool { return o.Field == "Gap" })]
	toy.Name, toy.Meaning = "toy_wheels", "How many wheels it has: 4."

	file := "name: toys\nnodes:\n  h[1-2]: host\nlinks:\n  - h1 -- h2: {delay: 10ms, toy_wheels: 4}\n"
	top, problems := trivet.Read("toys.yaml", []byte(file))
	if problems.Err() != nil || top.Links[0].Gap != 4 {
		t.Fatalf("%v: read as %+v", problems, top)
	}
	if data, lost, err := trivet.Write(top); err != nil || len(lost) > 0 || string(data) != file {
		t.Errorf("written as\n%s(lost %v, %v)", data, lost, err)
	}
	for _, key := range []string{"gap", "toy_wheels: many"} { // the one is no more, the other no number
		_, problems := trivet.Read("toys.yaml", []byte(strings.Replace(file, "toy_wheels", key, 1)))
		if problems.Err() == nil {
			t.Errorf("%s is no mistake", key)
		}
	}
	var schema struct {
		Defs map[string]struct {
			Properties map[string]struct{ Description, Pattern string }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(trivet.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"link", "end"} {
		if got := schema.Defs[of].Properties["toy_wheels"]; got.Description != toy.Meaning || got.Pattern == "" {
			t.Errorf("the schema has of %s %+v", of, got)
		}
	}

	change, err := topology.ParseLinkChange([]string{"toy_wheels=6"})
	if err != nil || change.String() != "toy_wheels=6" {
		t.Fatalf("a change is %s, %v", change, err)
	}
	saved, err := trivet.SetLink([]byte(file), "h1", "h2", change)
	if want := strings.Replace(file, "4", "6", 1); err != nil || string(saved) != want {
		t.Errorf("saved as\n%s(%v)", saved, err)
	}
	if change.Apply(top.Links[0]); top.Links[0].Gap != 6 {
		t.Errorf("changed to %+v", top.Links[0])
	}
	if _, err := topology.ParseLinkChange([]string{"toy_weels=6"}); err == nil || !strings.Contains(err.Error(), "did you mean toy_wheels?") {
		t.Errorf("misspelt: %v", err)
	}
	if got := top.Links[0].Words(); !slices.Equal(got, []string{"10ms", "toy wheels 6"}) {
		t.Errorf("shown as %q", got)
	}
	bad := top.Clone()
	bad.Links[0].Gap = -1
	if topology.Validate(bad).Err() == nil {
		t.Error("less than no wheels are valid")
	}

	if got := (&Record{Netem: true}).lacks(top.Links[0].Impairment); got != "toy_wheels" {
		t.Errorf("of the kernel %q is missing", got)
	}
	l := &Lab{lines: map[string]*delayline.Line{"h1 h2": {}}}
	if err := l.impair(plan.Link{Key: "h1 h2", Link: top.Links[0]}); err == nil || err.Error() != "link h1-h2: a delay line cannot do toy_wheels; leave it out" {
		t.Errorf("a delay line says %v", err)
	}
	top.Links[0].Ends[1] = topology.Endpoint{Interface: "eth7"}
	if err := checkShapes(top); err == nil || err.Error() != "link h1-eth7: the kernel cannot do toy_wheels, and the link leaves the machine; leave it out" {
		t.Errorf("of a link that leaves the machine: %v", err)
	}
}
