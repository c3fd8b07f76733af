package definition

import (
	"maps"
	"slices"
	"strings"
)

// unit is how many of a base unit it is.
type unit struct {
	base   string
	factor float64
}

// units by their names, and by other ways to write them. A byte is 8 bit only in rates.
var units = map[string]unit{
	"s": {"s", 1}, "ms": {"s", 1e-3}, "us": {"s", 1e-6}, "µs": {"s", 1e-6}, "ns": {"s", 1e-9}, "min": {"s", 60},
	"bit/s": {"bit/s", 1}, "kbit/s": {"bit/s", 1e3}, "Mbit/s": {"bit/s", 1e6}, "Gbit/s": {"bit/s", 1e9},
	"bps": {"bit/s", 1}, "kbps": {"bit/s", 1e3}, "Mbps": {"bit/s", 1e6}, "Gbps": {"bit/s", 1e9},
	"B/s": {"bit/s", 8}, "kB/s": {"bit/s", 8e3}, "KiB/s": {"bit/s", 8192}, "MB/s": {"bit/s", 8e6}, "MiB/s": {"bit/s",
		8 << 20},
	"B": {"B", 1}, "byte": {"B", 1}, "bytes": {"B", 1}, "kB": {"B", 1e3}, "MB": {"B", 1e6}, "GB": {"B",
		1e9}, "KiB": {"B", 1 << 10}, "MiB": {"B", 1 << 20}, "GiB": {"B", 1 << 30},
	"1": {"1", 1}, "%": {"1", 0.01},
	"packets/s": {"packets/s", 1}, "pps": {"packets/s", 1}, "kpps": {"packets/s", 1e3}, "Mpps": {"packets/s", 1e6},
}

// Convert returns the factor from one unit to another; false: they measure different things, or a
// name is unknown.
func Convert(from, to string) (float64, bool) {
	if from == to {
		return 1, true
	}
	a, ok := units[from]
	b, also := units[to]
	if !ok || !also || a.base != b.base {
		return 0, false
	}
	return a.factor / b.factor, true
}

// ladders are the units that Suitable chooses from, small to large.
var ladders = [][]string{
	{"ns", "us", "ms", "s"},
	{"bit/s", "kbit/s", "Mbit/s", "Gbit/s"},
	{"B", "KiB", "MiB", "GiB"},
}

// Suitable returns the unit in which a typical value is easiest to read.
func Suitable(of string, typical float64) string {
	if of == "1" {
		return "%"
	}
	base, ok := units[of]
	if !ok || typical == 0 {
		return of
	}
	for _, ladder := range ladders {
		if units[ladder[0]].base != base.base {
			continue
		}
		best := ladder[0]
		for _, name := range ladder {
			if max(typical, -typical)*base.factor >= 0.9999*units[name].factor {
				best = name
			}
		}
		return best
	}
	return of
}

// unitNames for a hint.
func unitNames() string {
	names := slices.Sorted(maps.Keys(units))
	return strings.Join(names, ", ")
}
