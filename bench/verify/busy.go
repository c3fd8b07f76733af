package verify

import (
	"os"
	"strconv"
	"strings"
)

// processors is how much time all processors have had, and have been idle, in ticks since the
// machine began.
type processors struct{ all, idle float64 }

// readProcessors reads proc(5), /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
func readProcessors() (p processors) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, word := range strings.Fields(strings.TrimPrefix(line, "cpu")) {
		ticks, err := strconv.ParseFloat(word, 64)
		if err != nil || i > 7 {
			break
		}
		p.all += ticks
		if i == 3 || i == 4 {
			p.idle += ticks
		}
	}
	return p
}

// leastIdle is the share of the processors' time that must be left for what comes late, or too
// little, to be the lab's doing.
const leastIdle = 0.1

// busySince says whether the machine had hardly any time left.
func (p processors) busySince() bool {
	now := readProcessors()
	return now.idle-p.idle < leastIdle*(now.all-p.all)
}
