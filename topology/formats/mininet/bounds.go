package mininet

import (
	"errors"
	"fmt"
)

// Limits on what is decoded of a program's report. A value of two bytes can become a thousand in
// memory: the report's size alone bounds nothing.
const (
	maxEntries = 300_000   // nodes, links and warnings together
	maxValues  = 5_000_000 // in all of them
)

var errMany = errors.New("more than a lab can be")

// bounded says whether a report, as JSON, keeps to the limits. Whether it is JSON at all is for
// who decodes it.
func bounded(report []byte) error {
	depth, entries, values := 0, 0, 0
	for i, inText := 0, false; i < len(report); i++ {
		switch c := report[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
			values++
		case c == '}' || c == ']':
			depth--
		case c == ',':
			values++
			if depth == 2 { // between elements of a list of the report
				entries++
			}
		}
	}
	switch {
	case entries > maxEntries:
		return fmt.Errorf("%w: %d nodes and links, the maximum is %d", errMany, entries, maxEntries)
	case values > maxValues:
		return fmt.Errorf("%w: %d values, the maximum is %d", errMany, values, maxValues)
	}
	return nil
}
