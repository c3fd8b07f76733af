package verify

import "github.com/prometheus/procfs"

// processors is how much time all processors have had, and have been idle, in seconds since the
// machine began.
type processors struct{ all, idle float64 }

func readProcessors() (p processors) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return p
	}
	stat, err := proc.Stat()
	if err != nil {
		return p
	}
	c := stat.CPUTotal
	p.idle = c.Idle + c.Iowait
	p.all = p.idle + c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
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
