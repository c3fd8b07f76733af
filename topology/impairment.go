package topology

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
)

// Impairment makes a link worse than a plain wire. The zero value is a plain wire.
type Impairment struct {
	// On layer 2: including the Ethernet header, without preamble and FCS.
	Bandwidth Rate     `json:"bandwidth,omitempty"`
	Delay     Duration `json:"delay,omitempty"`  // one way
	Jitter    Duration `json:"jitter,omitempty"` // standard deviation of the delay; packets stay in order
	Loss      Fraction `json:"loss,omitempty"`   // of packets, independent of each other
	Queue     Queue    `json:"queue,omitzero"`   // how packets wait; zero: see QueueLimit
	MTU       int      `json:"mtu,omitempty"`    // bytes of the largest IP packet; 0: MTU, or that of a real interface

	// The following have the meaning that they have for netem (tc-netem(8)). A share Reorder of
	// packets is sent at once, ahead of delayed ones; with Gap, only packets that come Gap packets
	// after the last reordered one are candidates. In a share Corrupt of packets, one random bit is
	// inverted.
	Reorder   Fraction `json:"reorder,omitempty"`
	Gap       int      `json:"gap,omitempty"`
	Duplicate Fraction `json:"duplicate,omitempty"`
	Corrupt   Fraction `json:"corrupt,omitempty"`

	// The correlation of each random value with that of the packet before; 0: they are independent.
	LossCorrelation      Fraction `json:"loss_correlation,omitempty"`
	DelayCorrelation     Fraction `json:"delay_correlation,omitempty"` // of the jitter
	ReorderCorrelation   Fraction `json:"reorder_correlation,omitempty"`
	DuplicateCorrelation Fraction `json:"duplicate_correlation,omitempty"`
	CorruptCorrelation   Fraction `json:"corrupt_correlation,omitempty"`
}

// LinkChange is a change to a link: nil fields stay as they are.
type LinkChange struct {
	Up            *bool
	Bandwidth     *Rate
	Delay, Jitter *Duration
	Queue         *Queue
	MTU, Gap      *int

	Loss, Reorder, Duplicate, Corrupt *Fraction

	LossCorrelation, DelayCorrelation, ReorderCorrelation, DuplicateCorrelation, CorruptCorrelation *Fraction
}

// LinkOption is an option of a direction of a link: a field of Impairment, and the one with the
// same name in LinkChange. Whatever reads, writes, checks or shows options uses LinkOptions; what
// implements or measures them says which of them it knows.
type LinkOption struct {
	Name    string // in files, in commands and in JSON
	Field   string
	Meaning string // in a line, with the form of its values

	words string // how pictures have it, around its value; "": by its name, as what few links have
	valueKind
}

// LinkOptions are the options of links, in the order in which they are written.
var LinkOptions = []LinkOption{
	{"bandwidth", "Bandwidth", "Rate of layer 2, per direction: 1gbit, 500mbit, 64kbit.", "%v", rates},
	{"delay", "Delay", "Delay one way: 10ms, 250us, 1.5s.", "%v", spans},
	{"jitter", "Jitter", "Standard deviation of the delay; packets stay in order.", "±%v", spans},
	{"loss", "Loss", "Share of packets that are lost: 0.1%.", "%v loss", shares},
	{"queue", "Queue", "Longest queue, in packets; or what manages it: fq_codel, codel, pie, red, with parameters {codel: {target: 2ms, ecn: true}}.", "queue %v", queues},
	{"mtu", "MTU", "Largest IP packet, in bytes: 1400; else 1500.", "MTU %v", mtus},

	{"reorder", "Reorder", "Share of packets that are sent at once, ahead of those that are delayed: 25%.", "", shares},
	{"gap", "Gap", "Only every packet of this number may be reordered: 5.", "", gaps},
	{"duplicate", "Duplicate", "Share of packets that come twice: 1%.", "", shares},
	{"corrupt", "Corrupt", "Share of packets in which a bit is inverted: 0.1%.", "", shares},

	{"loss_correlation", "LossCorrelation", "How much a loss depends on whether the packet before was lost: 25%.", "",
		shares},
	{"delay_correlation", "DelayCorrelation", "How much the jitter of a packet depends on that of the one before: 25%.",
		"", shares},
	{"reorder_correlation", "ReorderCorrelation", "The same of reorder.", "", shares},
	{"duplicate_correlation", "DuplicateCorrelation", "The same of duplicate.", "", shares},
	{"corrupt_correlation", "CorruptCorrelation", "The same of corrupt.", "", shares},
}

// valueKind says how values of some options are read, and which are within limits.
type valueKind struct {
	Parse func(text string) (any, error) // returns the zero value for none and 0
	check func(name string, value any) error
}

func kindOf[T any](parse func(string) (T, error), check func(name string, v T) error) valueKind {
	return valueKind{
		func(s string) (any, error) { return OrNone(parse)(s) },
		func(name string, v any) error { return check(name, v.(T)) },
	}
}

var (
	rates = kindOf(ParseRate, func(name string, r Rate) error {
		if r <= 1e15 {
			return nil
		}
		return Mistaken("the maximum is 1000000gbit", "a %s of %s is out of range", name, r)
	})
	spans = kindOf(ParseDuration, func(_ string, d Duration) error {
		switch {
		case d < 0:
			return Mistaken("write 10ms", "a delay cannot be negative")
		case d <= 1e12:
			return nil
		}
		return Mistaken("the maximum is 1000s", "a delay of %s is out of range", d)
	})
	shares = kindOf(ParseFraction, func(name string, f Fraction) error {
		if f >= 0 && f <= 1 {
			return nil
		}
		return Mistaken("write 0.1%", "%s %v is not between 0%% and 100%%", name, float64(f))
	})
	queues = kindOf(ParseQueue, func(_ string, q Queue) error { return q.check() })
	mtus   = numbers("an MTU", MinMTU, MaxMTU, "write the bytes of the largest IP packet, %d to %d")
	gaps   = numbers("a gap", 1, 1_000_000, "write a number of packets, %d to %d")
)

func numbers(noun string, least, most int, hint string) valueKind {
	hint = fmt.Sprintf(hint, least, most)
	within := func(n int) bool { return n >= least && n <= most }
	return kindOf(func(s string) (int, error) {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || !within(n) {
			return 0, Mistaken(hint, "%q is not %s", s, noun)
		}
		return n, nil
	}, func(_ string, n int) error {
		if !within(n) {
			return Mistaken(hint, "%d is not %s", n, noun)
		}
		return nil
	})
}

// in returns the option's field in an *Impairment or a *LinkChange.
func (o *LinkOption) in(of any) reflect.Value {
	return reflect.ValueOf(of).Elem().FieldByName(o.Field)
}

// LinkOptionNames returns the names of LinkOptions.
func LinkOptionNames() []string {
	return lists.Map(LinkOptions, func(o LinkOption) string { return o.Name })
}

// given returns the options that are set, with their values.
func (i Impairment) given() iter.Seq2[*LinkOption, any] {
	return func(yield func(*LinkOption, any) bool) {
		if i == (Impairment{}) { // fast path: most links have none
			return
		}
		for k := range LinkOptions {
			if v := LinkOptions[k].in(&i); !v.IsZero() && !yield(&LinkOptions[k], v.Interface()) {
				return
			}
		}
	}
}

// Words describes the common options that are set: 10mbit, ±2ms, 1% loss, reorder 10%.
func (i Impairment) Words() (out []string) {
	for o, v := range i.given() {
		if o.words != "" {
			out = append(out, fmt.Sprintf(o.words, v))
		}
	}
	return append(out, i.Rarer()...)
}

// Rarer describes the rare options that are set, with their numbers last: loss correlation 25%, gap
// 5.
func (i Impairment) Rarer() (out []string) {
	var numbers []string
	for o, v := range i.given() {
		into := &out
		if _, ok := v.(int); ok {
			into = &numbers
		}
		if o.words == "" {
			*into = append(*into, strings.ReplaceAll(o.Name, "_", " ")+" "+fmt.Sprint(v))
		}
	}
	return append(out, numbers...)
}

// Unknown returns the first option that is set and not in known; "" if there is none.
func (i Impairment) Unknown(known []string) string {
	for o := range i.given() {
		if !slices.Contains(known, o.Name) {
			return o.Name
		}
	}
	return ""
}

// Random says whether chance decides what becomes of a packet.
func (i Impairment) Random() bool {
	return i.Loss > 0 || i.Jitter > 0 || i.Reorder > 0 || i.Duplicate > 0 || i.Corrupt > 0
}

// PerPacket says whether something happens to packets one by one, so that several must not cross
// the link as one super-packet.
func (i Impairment) PerPacket() bool { return i.Random() || i.Managed() }

// Arrives is the share of packets, in [0, 1], of which a copy crosses the direction undamaged.
// Duplicates are left out: of those one more may arrive.
func (i Impairment) Arrives() float64 { return (1 - float64(i.Loss)) * (1 - float64(i.Corrupt)) }

// Managed says whether active queue management has an effect: without a bandwidth nothing waits.
func (i Impairment) Managed() bool { return i.Bandwidth > 0 && i.Queue.Managed() }
