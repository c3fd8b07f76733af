package mininet

import (
	"errors"
	"fmt"

	"trivet.dev/trivet/internal/jsoncount"
)

// Limits on what is decoded of a program's report.
const (
	maxEntries = 100_000   // nodes, links and warnings together
	maxValues  = 1_500_000 // in all of them
)

var errMany = errors.New("more than a lab can be")

// bounded says whether a report, as JSON, keeps to the limits.
func bounded(report []byte) error {
	var c jsoncount.Counter
	c.Add(report)
	switch {
	case c.Entries > maxEntries:
		return fmt.Errorf("%w: %d nodes and links, the maximum is %d", errMany, c.Entries, maxEntries)
	case c.Values > maxValues:
		return fmt.Errorf("%w: %d values, the maximum is %d", errMany, c.Values, maxValues)
	}
	return nil
}
