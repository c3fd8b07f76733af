package trivet

import (
	"fmt"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// Expand returns the names that a range expression stands for: h[1-3] is h1, h2, h3; s[1-3,7] has
// single numbers; n[01-12] has leading zeros; of several brackets, the last counts fastest. A name
// without brackets stands for itself. It refuses more than limit names.
func Expand(expression string, limit int) ([]string, error) {
	before, rest, found := strings.Cut(expression, "[")
	if strings.ContainsRune(before, ']') {
		return nil, topology.Mistaken("write h[1-8]", "%q is not a name: it has a ] without a [",
			formats.Clip(expression))
	}
	if !found {
		return []string{expression}, nil
	}
	inside, after, found := strings.Cut(rest, "]")
	if !found {
		return nil, topology.Mistaken("write h[1-8]", "%q is not a range: its [ is not closed",
			formats.Clip(expression))
	}
	numbers, err := expandNumbers(inside, limit)
	if err != nil {
		return nil, fmt.Errorf("%q is not a range: %w", formats.Clip(expression), err)
	}
	tails, err := Expand(after, limit/len(numbers))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(numbers)*len(tails))
	for _, n := range numbers {
		for _, tail := range tails {
			names = append(names, before+n+tail)
		}
	}
	return names, nil
}

// expandNumbers reads what is in the brackets: 1-3,7 or 01-12.
func expandNumbers(s string, limit int) (numbers []string, err error) {
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.ParseUint(low, 10, 63)
		to, errTo := strconv.ParseUint(high, 10, 63)
		switch {
		case errFrom != nil || errTo != nil:
			return nil, topology.Mistaken("write h[1-8] or s[1-3,7]", "%q is not a list of numbers", formats.Clip(part))
		case to < from:
			return nil, topology.Mistaken(fmt.Sprintf("write [%d-%d]", to, from), "it runs backwards")
		case to-from >= uint64(max(0, limit-len(numbers))):
			return nil, topology.Mistaken(fmt.Sprintf("at most %d nodes and as many links are allowed", atMost.items),
				"it makes too many names")
		}
		width := 0
		if low[0] == '0' {
			width = len(low)
		}
		for n := from; n <= to; n++ {
			digits := strconv.FormatUint(n, 10)
			if len(digits) < width {
				digits = strings.Repeat("0", width-len(digits)) + digits
			}
			numbers = append(numbers, digits)
		}
	}
	return numbers, nil
}

// splitNumber splits a name before its last digits; ok is false if ranges cannot count them.
func splitNumber(name string) (prefix, digits string, ok bool) {
	prefix = strings.TrimRight(name, "0123456789")
	digits = name[len(prefix):]
	return prefix, digits, digits != "" && len(digits) < 10
}

// follows says whether b is the name that comes after a in a range.
func follows(a, b string) bool {
	prefix, digits, ok := splitNumber(a)
	rest, sameprefix := strings.CutPrefix(b, prefix)
	if !ok || !sameprefix {
		return false
	}
	n, _ := strconv.Atoi(digits)
	return fmt.Sprintf("%0*d", len(digits), n+1) == rest
}

// compressed writes consecutive names: a single name, or a range.
func compressed(first, last string) string {
	if first == last {
		return first
	}
	prefix, low, _ := splitNumber(first)
	_, high, _ := splitNumber(last)
	return prefix + "[" + low + "-" + high + "]"
}
