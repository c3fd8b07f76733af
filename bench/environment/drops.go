package environment

import (
	"maps"
	"slices"
)

// Drops are packets that were lost where none should be: at a port without a limit, in a datapath, in
// a socket of the probe; or, where they are Expected, by what was asked for.
type Drops struct {
	Where    string `json:"where"`
	Packets  uint64 `json:"packets"`
	Of       uint64 `json:"of,omitempty"`       // packets that came there; 0: not known
	Expected bool   `json:"expected,omitempty"` // a link was to lose them, or its queue was full, or something happened to the lab
}

// DropCounter is how many packets something has dropped and passed on so far.
type DropCounter struct {
	Where    string
	Dropped  uint64
	Passed   uint64 // 0: not known
	Expected bool
}

// DropsBetween is what was dropped between two readings. What was not there at the first, or began anew since, cannot be told.
func DropsBetween(before, after []DropCounter) (out []Drops) {
	was := map[string]DropCounter{}
	for _, c := range before {
		was[c.Where] = c
	}
	now := map[string]DropCounter{}
	for _, c := range after {
		now[c.Where] = c
	}
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
