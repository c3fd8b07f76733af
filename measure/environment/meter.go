package environment

import (
	"fmt"
	"time"
)

// Spent is what the processors of this machine did between two moments.
type Spent struct {
	Seconds    float64 `json:"seconds"` // of the clock
	Processors int     `json:"processors"`
	Busy       float64 `json:"busy"`   // seconds of all processors together in which they were not idle
	Stolen     float64 `json:"stolen"` // seconds that the host of a virtual machine says it took; not in Busy
}

// MeterStep is by how much Busy may be off at each end, in seconds: the kernel tells in steps of a
// hundredth of a second (proc_stat(5)), once of idle time and once of time in which it waited for
// disks.
const MeterStep = 0.01

// Share is how busy the machine was, from 0 to 1.
func (s Spent) Share() float64 {
	if s.Seconds <= 0 || s.Processors == 0 {
		return 0
	}
	return min(1, s.Busy/s.Seconds/float64(s.Processors))
}

// Meter is a moment from which processor time is counted.
type Meter struct {
	machine
	at   time.Time
	stat kernelStat
}

// StartMeter begins to count. It fails where /proc/stat cannot be read.
func StartMeter() (*Meter, error) { return startMeter("/") }

func startMeter(root string) (*Meter, error) {
	m := &Meter{machine: machine{root: root}}
	var err error
	if m.stat, err = m.machine.stat(); err != nil {
		return nil, fmt.Errorf("processor time: %w", err)
	}
	m.at = time.Now()
	return m, nil
}

// Spent is what the processors have done since the meter was started. Busy is what is left of the
// time of the clock without idle time, rather than the sum of what they did: the kernel measures
// how long a processor sleeps, but of what it does it only looks at each tick, by which short work
// that goes by the clock may be missed or counted many times.
func (m *Meter) Spent() (Spent, error) {
	now, err := m.machine.stat()
	at := time.Now()
	if err != nil {
		return Spent{}, fmt.Errorf("processor time: %w", err)
	}
	s := Spent{Seconds: at.Sub(m.at).Seconds(), Processors: len(now.cores)}
	if len(now.cores) != len(m.stat.cores) {
		return s, fmt.Errorf("processor time: the machine had %d processors and has %d: leave them as they are meanwhile",
			len(m.stat.cores), len(now.cores))
	}
	t := now.total.less(m.stat.total)
	s.Stolen = max(0, t.Steal)
	s.Busy = max(0, s.Seconds*float64(s.Processors)-t.Idle-t.Iowait-s.Stolen)
	return s, nil
}
