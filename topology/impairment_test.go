package topology

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestLinkOptions proves that every field of an impairment is one option, with a field of
// LinkChange beside it, named as JSON has it, and in the same order, so that files, commands and
// JSON say the same; and that each has a meaning.
func TestLinkOptions(t *testing.T) {
	of := reflect.TypeFor[Impairment]()
	change := reflect.TypeFor[LinkChange]()
	if len(LinkOptions) != of.NumField() || change.NumField() != of.NumField()+1 { // and Up
		t.Fatalf("%d options, %d fields of Impairment, %d of LinkChange", len(LinkOptions), of.NumField(), change.NumField())
	}
	for i, o := range LinkOptions {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if o.Field != f.Name || o.Name != name {
			t.Errorf("%s, field %s: field %d of Impairment is %s, in JSON %s", o.Name, o.Field, i, f.Name, name)
		}
		if c, ok := change.FieldByName(o.Field); !ok || c.Type != reflect.PointerTo(f.Type) {
			t.Errorf("%s: LinkChange has no *%s of that name", o.Name, f.Type)
		}
		if zero, err := o.Parse("none"); err != nil || reflect.TypeOf(zero) != f.Type {
			t.Errorf("%s: none is a %T (%v), the field a %s", o.Name, zero, err, f.Type)
		}
		if o.Meaning == "" {
			t.Errorf("%s has no meaning", o.Name)
		}
	}
}

// TestImpairmentWords proves in which words, and in which order, pictures and tables have what a
// link is told, and what each option says that is out of its limits.
func TestImpairmentWords(t *testing.T) {
	all := Impairment{Bandwidth: 1e7, Delay: 10e6, Jitter: 2e6, Loss: 0.001, Queue: Queue{Limit: 100}, MTU: 1400, Reorder: 0.25, Gap: 5, Duplicate: 0.01, Corrupt: 0.001,
		LossCorrelation: 0.25, DelayCorrelation: 0.26, ReorderCorrelation: 0.27, DuplicateCorrelation: 0.28, CorruptCorrelation: 0.29}
	rarer := "reorder 25%, duplicate 1%, corrupt 0.1%, loss correlation 25%, delay correlation 26%, reorder correlation 27%, duplicate correlation 28%, corrupt correlation 29%, gap 5"
	if got := strings.Join(all.Rarer(), ", "); got != rarer {
		t.Errorf("got %s", got)
	}
	if got := strings.Join(all.Words(), ", "); got != "10mbit, 10ms, ±2ms, 0.1% loss, queue 100, MTU 1400, "+rarer {
		t.Errorf("got %s", got)
	}
	for _, c := range []struct {
		i    Impairment
		want string
	}{
		{all, ""},
		{Impairment{Bandwidth: 1e15 + 1}, "a bandwidth of 1000000.000000001gbit is out of range; the maximum is 1000000gbit"},
		{Impairment{Delay: -1}, "a delay cannot be negative; write 10ms"},
		{Impairment{Jitter: 1e12 + 1e6}, "a delay of 1000.001s is out of range; the maximum is 1000s"},
		{Impairment{Loss: 2}, "loss 2 is not between 0% and 100%; write 0.1%"},
		{Impairment{Queue: Queue{Limit: -1}}, `"-1" is not a queue length; write a number of packets, 1 to 10000000, or a discipline like fq_codel`},
		{Impairment{MTU: 67}, "67 is not an MTU; write the bytes of the largest IP packet, 68 to 9216"},
		{Impairment{Gap: -1}, "-1 is not a gap; write a number of packets, 1 to 1000000"},
		{Impairment{CorruptCorrelation: -0.5}, "corrupt_correlation -0.5 is not between 0% and 100%; write 0.1%"},
	} {
		top := &Topology{Links: []*Link{{Ends: [2]Endpoint{{Node: "a"}, {Node: "b"}}, Impairment: c.i}}}
		top.AddNode(Host, "a")
		top.AddNode(Host, "b")
		var got []string
		for _, p := range Validate(top) {
			got = append(got, strings.TrimPrefix(p.String(), "link a -- b: "))
		}
		if got = slices.Compact(got); strings.Join(got, "\n") != c.want { // of both directions
			t.Errorf("%+v: got %q, want %q", c.i, got, c.want)
		}
	}
}

// TestArrives proves that what a link does to packets is counted where it takes some of them from
// receivers: an option that is new must say here whether it does.
func TestArrives(t *testing.T) {
	takes := map[string]float64{"loss": 0.5, "corrupt": 0.5, "bandwidth": 0, "delay": 0, "jitter": 0, "queue": 0, "mtu": 0, "reorder": 0,
		"gap": 0, "duplicate": 0}
	for _, o := range LinkOptions {
		taken, known := takes[o.Name]
		if !known && !strings.HasSuffix(o.Name, "_correlation") {
			t.Errorf("nobody says whether %s takes packets from receivers: see Impairment.Arrives", o.Name)
		}
		var i Impairment
		text := map[string]string{"bandwidth": "1mbit", "delay": "1ms", "jitter": "1ms", "queue": "10", "mtu": "1000", "gap": "5"}[o.Name]
		if text == "" {
			text = "50%"
		}
		v, err := o.Parse(text)
		if err != nil {
			t.Fatal(o.Name, err)
		}
		o.in(&i).Set(reflect.ValueOf(v))
		if got := i.Arrives(); got != 1-taken {
			t.Errorf("of what crosses a link with %s %s the share %v arrives, not %v", o.Name, text, got, 1-taken)
		}
	}
	if got := (Impairment{Loss: 0.5, Corrupt: 0.5, Duplicate: 0.5}).Arrives(); got != 0.25 {
		t.Errorf("half of what is not lost is damaged, and %v arrives", got)
	}
}
