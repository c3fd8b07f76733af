package environment

import (
	"fmt"
	"time"
)

// Spent is the processor time of this machine between two moments.
type Spent struct {
	Seconds    float64 `json:"seconds"` // elapsed time
	Processors int     `json:"processors"`
	Busy       float64 `json:"busy"`   // non-idle time of all processors together, in seconds
	Stolen     float64 `json:"stolen"` // seconds stolen by the hypervisor; not in Busy
}

// MeterStep is the maximum error of Busy at each end, in seconds: the kernel reports idle time and
// I/O wait in steps of a hundredth of a second each (proc_stat(5)).
const MeterStep = 0.01

// Share returns the machine's utilisation, from 0 to 1.
func (s Spent) Share() float64 {
	if s.Seconds <= 0 || s.Processors == 0 {
		return 0
	}
	return min(1, s.Busy/s.Seconds/float64(s.Processors))
}

// Meter measures processor time from a starting moment.
type Meter struct {
	machine
	at   time.Time
	stat kernelStat
}

// StartMeter starts a meter. It fails if /proc/stat cannot be read.
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

// Spent returns the processor time since the meter was started. Busy is the elapsed time minus idle
// time, not the sum of the times accounted to tasks: the kernel measures how long a processor
// sleeps, but samples what it does only at ticks, so that short work in step with the clock may be
// missed or counted many times.
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
