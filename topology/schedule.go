package topology

import (
	"regexp"
	"strings"
)

// Event is something that happens in a lab at a given time after it is up.
type Event struct {
	At     Duration `json:"at"`
	Action Action   `json:"action"`
	Pos    Position `json:"-"`
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
	return Action{}, Mistaken("write r1 -- r2 down, r1 -- r2 delay=20ms loss=1% or h1 run COMMAND",
		"%q is not an action", s)
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
