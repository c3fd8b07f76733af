package environment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
)

// Drops are packets that were lost where none should be: at a port without a limit, in a datapath,
// in a socket of the probe; or, where they are Expected, by what was asked for.
type Drops struct {
	Where   string `json:"where"`
	Packets uint64 `json:"packets"`
	Of      uint64 `json:"of,omitempty"` // packets that came there; 0: not known
	// A link was to lose them, or its queue was full, or something happened to the lab.
	Expected bool `json:"expected,omitempty"`
}

// DropCounter is how many packets something has dropped and passed on so far.
type DropCounter struct {
	Where    string
	Dropped  uint64
	Passed   uint64 // 0: not known
	Expected bool
}

// mostGone is how many counters that are gone are named.
const mostGone = 3

// gone says which counters of a first reading are not in the second: what they counted in between
// is not known.
func gone(before, after []DropCounter) error {
	now := lists.Set(after, func(c DropCounter) string { return c.Where })
	var names []string
	for _, c := range before {
		if !now[c.Where] {
			names = append(names, c.Where)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	more := ""
	if n := len(names) - mostGone; n > 0 {
		names, more = names[:mostGone], fmt.Sprintf("; and %d more", n)
	}
	return fmt.Errorf("counters have disappeared since the start: %s%s", strings.Join(names, "; "), more)
}

// DropsBetween is what was dropped between two readings. What was not there at the first, or began
// anew since, cannot be told.
func DropsBetween(before, after []DropCounter) (out []Drops) {
	was := lists.By(before, func(c DropCounter) string { return c.Where })
	now := lists.By(after, func(c DropCounter) string { return c.Where })
	for _, where := range slices.Sorted(maps.Keys(now)) {
		c, old := now[where], was[where]
		if n := since(c.Dropped, old.Dropped); n > 0 && was[where].Where != "" {
			d := Drops{Where: where, Packets: n, Expected: c.Expected || old.Expected}
			if c.Passed > 0 {
				d.Of = n + since(c.Passed, old.Passed)
			}
			out = append(out, d)
		}
	}
	return out
}
