package tune

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// CPUs are processors by number, in ascending order.
type CPUs []int

// none means no processors, so that it can be a level of a factor.
const none = "none"

// ParseCPUs parses a list in the kernel's notation: "1-3,5". Empty text, and none, mean no
// processors.
func ParseCPUs(s string) (CPUs, error) {
	var out CPUs
	if s = strings.TrimSpace(s); s == "" || s == none {
		return nil, nil
	}
	for word := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(word), "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 12)
		to, err2 := strconv.ParseUint(high, 10, 12)
		if err1 != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("%q is not a list of processors; write 1-3 or 0,2", s)
		}
		for n := from; n <= to; n++ {
			out = append(out, int(n))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// String formats the list in the kernel's notation.
func (c CPUs) String() string {
	var words []string
	for i := 0; i < len(c); {
		j := i
		for j+1 < len(c) && c[j+1] == c[j]+1 {
			j++
		}
		word := strconv.Itoa(c[i])
		if j > i {
			word += "-" + strconv.Itoa(c[j])
		}
		words = append(words, word)
		i = j + 1
	}
	return strings.Join(words, ",")
}

// without returns those that are not in other.
func (c CPUs) without(other CPUs) CPUs {
	return slices.DeleteFunc(slices.Clone(c), func(n int) bool { return slices.Contains(other, n) })
}

func (c CPUs) with(other CPUs) CPUs {
	both := slices.Concat(c, other)
	slices.Sort(both)
	return slices.Compact(both)
}

// online returns the processors of this machine that are online.
func online() (CPUs, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("which processors there are cannot be read: %w", err)
	}
	return ParseCPUs(string(b))
}
