package topology

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/words"
)

// LinkChange is a change to a link: nil fields stay as they are.
type LinkChange struct {
	Up        *bool
	Bandwidth *Rate
	Delay     *Duration
	Jitter    *Duration
	Loss      *Fraction
	Queue     *Queue
	MTU       *int

	Reorder   *Fraction
	Gap       *int
	Duplicate *Fraction
	Corrupt   *Fraction

	LossCorrelation      *Fraction
	DelayCorrelation     *Fraction
	ReorderCorrelation   *Fraction
	DuplicateCorrelation *Fraction
	CorruptCorrelation   *Fraction
}

// linkOption is an option of a link in a change: how it is read, put into effect and written.
type linkOption struct {
	name  string
	set   func(c *LinkChange, value string) error
	apply func(c LinkChange, to *Impairment)
	text  func(c LinkChange) (value string, given bool)
	note  func(c *LinkChange, to Impairment)
	same  func(a, b Impairment) bool
}

func option[T comparable](name string, of func(*LinkChange) **T, at func(*Impairment) *T, parse func(string) (T, error)) linkOption {
	return linkOption{name,
		func(c *LinkChange, value string) error {
			*of(c) = new(T)
			return setOrNone(*of(c), value, parse)
		},
		func(c LinkChange, to *Impairment) {
			if from := *of(&c); from != nil {
				*at(to) = *from
			}
		},
		func(c LinkChange) (string, bool) {
			v := *of(&c)
			if v == nil {
				return "", false
			}
			if *v == *new(T) {
				return "none", true
			}
			return fmt.Sprint(*v), true
		},
		func(c *LinkChange, to Impairment) { *of(c) = at(&to) },
		func(a, b Impairment) bool { return *at(&a) == *at(&b) },
	}
}

func share(name string, of func(*LinkChange) **Fraction, at func(*Impairment) *Fraction) linkOption {
	return option(name, of, at, ParseFraction)
}

var linkOptions = []linkOption{
	option("bandwidth", func(c *LinkChange) **Rate { return &c.Bandwidth }, func(i *Impairment) *Rate { return &i.Bandwidth }, ParseRate),
	option("delay", func(c *LinkChange) **Duration { return &c.Delay }, func(i *Impairment) *Duration { return &i.Delay }, ParseDuration),
	option("jitter", func(c *LinkChange) **Duration { return &c.Jitter }, func(i *Impairment) *Duration { return &i.Jitter }, ParseDuration),
	share("loss", func(c *LinkChange) **Fraction { return &c.Loss }, func(i *Impairment) *Fraction { return &i.Loss }),
	option("queue", func(c *LinkChange) **Queue { return &c.Queue }, func(i *Impairment) *Queue { return &i.Queue }, ParseQueue),
	option("mtu", func(c *LinkChange) **int { return &c.MTU }, func(i *Impairment) *int { return &i.MTU }, ParseMTU),
	share("reorder", func(c *LinkChange) **Fraction { return &c.Reorder }, func(i *Impairment) *Fraction { return &i.Reorder }),
	option("gap", func(c *LinkChange) **int { return &c.Gap }, func(i *Impairment) *int { return &i.Gap }, ParseGap),
	share("duplicate", func(c *LinkChange) **Fraction { return &c.Duplicate }, func(i *Impairment) *Fraction { return &i.Duplicate }),
	share("corrupt", func(c *LinkChange) **Fraction { return &c.Corrupt }, func(i *Impairment) *Fraction { return &i.Corrupt }),
	share("loss_correlation", func(c *LinkChange) **Fraction { return &c.LossCorrelation }, func(i *Impairment) *Fraction { return &i.LossCorrelation }),
	share("delay_correlation", func(c *LinkChange) **Fraction { return &c.DelayCorrelation }, func(i *Impairment) *Fraction { return &i.DelayCorrelation }),
	share("reorder_correlation", func(c *LinkChange) **Fraction { return &c.ReorderCorrelation }, func(i *Impairment) *Fraction { return &i.ReorderCorrelation }),
	share("duplicate_correlation", func(c *LinkChange) **Fraction { return &c.DuplicateCorrelation }, func(i *Impairment) *Fraction { return &i.DuplicateCorrelation }),
	share("corrupt_correlation", func(c *LinkChange) **Fraction { return &c.CorruptCorrelation }, func(i *Impairment) *Fraction { return &i.CorruptCorrelation }),
}

// LinkOptions are the names of what a direction of a link can be told, and a LinkChange can change.
func LinkOptions() (names []string) {
	for _, o := range linkOptions {
		names = append(names, o.name)
	}
	return names
}

// ParseLinkChange reads the words of a change: "up", "down", "delay=10ms", "loss=1%", "delay=none".
func ParseLinkChange(words []string) (LinkChange, error) {
	var c LinkChange
	if len(words) == 0 {
		return c, Mistaken("write up, down or settings like delay=10ms loss=1%", "nothing to change")
	}
	for _, w := range words {
		if w == "up" || w == "down" {
			up := w == "up"
			c.Up = &up
			continue
		}
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return c, Mistaken("write up, down or settings like delay=10ms loss=1%", "%q is not a change to a link", w)
		}
		if err := c.set(key, value); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *LinkChange) set(key, value string) error {
	for _, o := range linkOptions {
		if o.name == key {
			return o.set(c, value)
		}
	}
	hint := DidYouMean(key, LinkOptions())
	if hint == "" {
		hint = words.Choose(LinkOptions())
	}
	return Mistaken(hint, "%s: no such link option", key)
}

func setOrNone[T any](into *T, value string, parse func(string) (T, error)) (err error) {
	if value == "none" || value == "0" {
		return nil
	}
	*into, err = parse(value)
	return err
}

const mostGap = 1_000_000

// ParseGap reads how many packets lie between two that are reordered.
func ParseGap(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 1 || n > mostGap {
		return 0, Mistaken("write a number of packets, 1 to 1000000", "%q is not a gap", s)
	}
	return n, nil
}

// MTUs, in bytes of an IP packet.
const (
	MTU          = 1500 // of a link that nobody has given another
	MinMTU       = 68   // RFC 791, section 3.2
	MinMTU6      = 1280 // with IPv6: RFC 8200, section 5
	minMTUOfOSPF = 256  // its engines take no less
	MaxMTU       = 9216 // what switches that pass jumbo frames take
)

var mtuHint = fmt.Sprintf("write the bytes of the largest IP packet, %d to %d", MinMTU, MaxMTU)

// ParseMTU reads an MTU.
func ParseMTU(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < MinMTU || n > MaxMTU {
		return 0, Mistaken(mtuHint, "%q is not an MTU", s)
	}
	return n, nil
}

// Apply changes the link, in both directions.
func (c LinkChange) Apply(l *Link) {
	if c.Up != nil {
		l.Down = !*c.Up
	}
	for _, i := range []*Impairment{&l.Impairment, l.Ends[0].Egress, l.Ends[1].Egress} {
		if i == nil {
			continue
		}
		for _, o := range linkOptions {
			o.apply(c, i)
		}
	}
}

// Between returns what sets those options of a link that are others in another one, in any
// direction, to what its first end sends there by; false: that does not make it the other one, as
// the directions differ from each other.
func Between(from, to *Link) (c LinkChange, ok bool) {
	if from.Down != to.Down {
		up := !to.Down
		c.Up = &up
	}
	for _, o := range linkOptions {
		if !o.same(from.Egress(0), to.Egress(0)) || !o.same(from.Egress(1), to.Egress(1)) {
			o.note(&c, to.Egress(0))
		}
	}
	after := from.Clone()
	c.Apply(after)
	return c, after.Egress(0) == to.Egress(0) && after.Egress(1) == to.Egress(1)
}

func (c LinkChange) String() string {
	var words []string
	for _, o := range linkOptions {
		if value, given := o.text(c); given {
			words = append(words, o.name+"="+value)
		}
	}
	if c.Up != nil {
		words = append(words, map[bool]string{true: "up", false: "down"}[*c.Up])
	}
	return strings.Join(words, " ")
}

// Action is what an event does: change a link, or run a command in a node.
type Action struct {
	Ends   [2]string // of the link to change, given as Endpoint.Node or Interface
	Change LinkChange
	Node   string // in which to run Run, a shell command
	Run    string
}

var (
	eventPattern = regexp.MustCompile(`^at\s+(\S+)\s*:\s*(.+)$`)
	linkAction   = regexp.MustCompile(`^(?:link\s+)?(\S+)\s+--\s+(\S+)\s+(.+)$`)
	runAction    = regexp.MustCompile(`^(\S+)\s+run\s+(.+)$`)
)

// ParseEvent reads "at 30s: r1 -- r2 down", "at 1min: r1 -- r2 delay=20ms", "at 5s: h1 run ping -c1
// h2".
func ParseEvent(s string) (Event, error) {
	m := eventPattern.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return Event{}, Mistaken("write at 30s: r1 -- r2 down", "%q is not an event", s)
	}
	at, err := ParseDuration(m[1])
	if err != nil {
		return Event{}, err
	}
	action, err := ParseAction(m[2])
	return Event{At: at, Action: action}, err
}

// ParseAction reads what an event does: the part after "at 30s:".
func ParseAction(s string) (Action, error) {
	if m := linkAction.FindStringSubmatch(s); m != nil {
		change, err := ParseLinkChange(strings.Fields(m[3]))
		return Action{Ends: [2]string{m[1], m[2]}, Change: change}, err
	}
	if m := runAction.FindStringSubmatch(s); m != nil {
		return Action{Node: m[1], Run: m[2]}, nil
	}
	return Action{}, Mistaken("write r1 -- r2 down, r1 -- r2 delay=20ms loss=1% or h1 run COMMAND", "%q is not an action", s)
}

func (a Action) String() string {
	if a.Node != "" {
		return a.Node + " run " + a.Run
	}
	return a.Ends[0] + " -- " + a.Ends[1] + " " + a.Change.String()
}

func (e Event) String() string { return "at " + e.At.String() + ": " + e.Action.String() }

func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a *Action) UnmarshalText(b []byte) (err error) { *a, err = ParseAction(string(b)); return }
