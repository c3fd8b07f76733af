package draw

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var digitGroups = regexp.MustCompile(`[0-9]+|[^0-9]+`)

// ranges abbreviates names: h1 h2 h3 h7 as h[1-3], h7. Names keep their order; a range consists of
// consecutive numbers at one position of the name, without leading zeros.
func ranges(names []string) []string {
	var out []string
	for len(names) > 0 {
		n, text := longestRange(names)
		if n < 2 {
			n, text = 1, names[0]
		}
		out = append(out, text)
		names = names[n:]
	}
	return out
}

// longestRange is how many of the first names count up at one position, and how they are written.
func longestRange(names []string) (int, string) {
	if len(names) < 2 {
		return 0, ""
	}
	first := digitGroups.FindAllString(names[0], -1)
	place := countingPlace(first, digitGroups.FindAllString(names[1], -1))
	if place < 0 {
		return 0, ""
	}
	from, _ := strconv.Atoi(first[place])
	n, next := 1, slices.Clone(first)
	for n < len(names) {
		next[place] = strconv.Itoa(from + n)
		if strings.Join(next, "") != names[n] {
			break
		}
		n++
	}
	first[place] = "[" + strconv.Itoa(from) + "-" + strconv.Itoa(from+n-1) + "]"
	return n, strings.Join(first, "")
}

// countingPlace is the position at which b has a number one higher than a, all else being equal, or
// -1.
func countingPlace(a, b []string) int {
	if len(a) != len(b) {
		return -1
	}
	place := -1
	for i := range a {
		if a[i] == b[i] {
			continue
		}
		x, err := strconv.Atoi(a[i])
		if place >= 0 || err != nil || strconv.Itoa(x) != a[i] || b[i] != strconv.Itoa(x+1) {
			return -1
		}
		place = i
	}
	return place
}
