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
	Queue     *int
	MTU       *int
}

var linkChangeKeys = []string{"bandwidth", "delay", "jitter", "loss", "queue", "mtu"}

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
	switch key {
	case "bandwidth":
		c.Bandwidth = new(Rate)
		return setOrNone(c.Bandwidth, value, ParseRate)
	case "delay":
		c.Delay = new(Duration)
		return setOrNone(c.Delay, value, ParseDuration)
	case "jitter":
		c.Jitter = new(Duration)
		return setOrNone(c.Jitter, value, ParseDuration)
	case "loss":
		c.Loss = new(Fraction)
		return setOrNone(c.Loss, value, ParseFraction)
	case "queue":
		c.Queue = new(int)
		return setOrNone(c.Queue, value, ParseQueue)
	case "mtu":
		c.MTU = new(int)
		return setOrNone(c.MTU, value, ParseMTU)
	}
	hint := DidYouMean(key, linkChangeKeys)
	if hint == "" {
		hint = words.Choose(linkChangeKeys)
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

// ParseQueue reads a queue's length in packets.
func ParseQueue(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 1 || n > 10_000_000 {
		return 0, Mistaken("write a number of packets, 1 to 10000000", "%q is not a queue length", s)
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
		assign(&i.Bandwidth, c.Bandwidth)
		assign(&i.Delay, c.Delay)
		assign(&i.Jitter, c.Jitter)
		assign(&i.Loss, c.Loss)
		assign(&i.Queue, c.Queue)
		assign(&i.MTU, c.MTU)
	}
}

func assign[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func (c LinkChange) String() string {
	var words []string
	add := func(key, value string) { words = append(words, key+"="+value) }
	if c.Bandwidth != nil {
		add("bandwidth", orNone(*c.Bandwidth))
	}
	if c.Delay != nil {
		add("delay", orNone(*c.Delay))
	}
	if c.Jitter != nil {
		add("jitter", orNone(*c.Jitter))
	}
	if c.Loss != nil {
		add("loss", orNone(*c.Loss))
	}
	for _, n := range []struct {
		key   string
		value *int
	}{{"queue", c.Queue}, {"mtu", c.MTU}} {
		switch {
		case n.value == nil:
		case *n.value == 0:
			add(n.key, "none")
		default:
			add(n.key, strconv.Itoa(*n.value))
		}
	}
	if c.Up != nil {
		words = append(words, map[bool]string{true: "up", false: "down"}[*c.Up])
	}
	return strings.Join(words, " ")
}

func orNone[T interface {
	comparable
	String() string
}](v T) string {
	if v == *new(T) {
		return "none"
	}
	return v.String()
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
