package environment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
)

// Drops are packets lost where none should be: at a port without a limit, in a datapath, or in a
// socket of the probe; or, if Expected, as the experiment intended.
type Drops struct {
	Where   string `json:"where"`
	Packets uint64 `json:"packets"`
	Of      uint64 `json:"of,omitempty"` // packets that arrived there; 0: unknown
	// The link was configured to lose them, or its queue was full, or the lab was changed.
	Expected bool `json:"expected,omitempty"`
}

// DropCounter counts the packets that something has dropped and passed on so far.
type DropCounter struct {
	Where    string
	Dropped  uint64
	Passed   uint64 // 0: unknown
	Expected bool
}

// mostGone limits the disappeared counters that an error names.
const mostGone = 3

// gone returns an error that names the counters that have disappeared since the first reading:
// their later drops are unknown.
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

// DropsBetween returns the drops between two readings. Counters that the first reading lacks, or
// that were reset since, are not included.
func DropsBetween(before, after []DropCounter) (out []Drops) {
	was := lists.Index(before, func(c DropCounter) string { return c.Where })
	now := lists.Index(after, func(c DropCounter) string { return c.Where })
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
