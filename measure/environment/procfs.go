package environment

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"trivet.dev/trivet/measure/stats"
)

// cpuTimes is the processor time since boot, in seconds (proc_stat(5)).
type cpuTimes procfs.CPUStat

func (c cpuTimes) less(o cpuTimes) cpuTimes {
	return cpuTimes{User: c.User - o.User, Nice: c.Nice - o.Nice, System: c.System - o.System, Idle: c.Idle - o.Idle,
		Iowait: c.Iowait - o.Iowait, IRQ: c.IRQ - o.IRQ, SoftIRQ: c.SoftIRQ - o.SoftIRQ, Steal: c.Steal - o.Steal}
}

// withoutNice counts the time of nice programs as idle.
func (c cpuTimes) withoutNice() cpuTimes {
	c.Idle, c.Nice = c.Idle+c.Nice, 0
	return c
}

func (c cpuTimes) working() float64 { return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ }

func (c cpuTimes) all() float64 { return c.working() + c.Idle + c.Iowait + c.Steal }

// share returns a part as a share of the total; none if no tick has passed.
func (c cpuTimes) share(part float64) stats.Float {
	if all := c.all(); all > 0 {
		return stats.Float(max(0, part/all))
	}
	return stats.None
}

func (c cpuTimes) busy() stats.Float { return c.share(c.working()) }

// kernelStat is /proc/stat.
type kernelStat struct {
	total    cpuTimes
	cores    map[int]cpuTimes
	switches uint64
	running  float64 // runnable tasks
}

func (m *machine) proc() (procfs.FS, error) { return procfs.NewFS(filepath.Join(m.root, "proc")) }

func (m *machine) processOf(pid int) (procfs.Proc, error) {
	proc, err := m.proc()
	if err != nil {
		return procfs.Proc{}, err
	}
	return proc.Proc(pid)
}

func (m *machine) stat() (s kernelStat, err error) {
	proc, err := m.proc()
	if err != nil {
		return s, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return s, err
	}
	s = kernelStat{cpuTimes(stat.CPUTotal), map[int]cpuTimes{}, stat.ContextSwitches, float64(stat.ProcessesRunning)}
	for n, c := range stat.CPU {
		s.cores[int(n)] = cpuTimes(c)
	}
	if s.total.all() == 0 {
		return s, errors.New("/proc/stat has no line cpu")
	}
	return s, nil
}

// Softnet counts the kernel's packet reception (/proc/net/softnet_stat), over all processors and
// namespaces.
type Softnet struct {
	Processed uint64 `json:"processed"` // packets
	Dropped   uint64 `json:"dropped"`   // packets that found the backlog full
	Squeezed  uint64 `json:"squeezed"`  // times that the budget was used up before the work was done
}

func (s Softnet) less(o Softnet) Softnet {
	// The kernel counts in 32 bits.
	return Softnet{uint64(uint32(s.Processed - o.Processed)), uint64(uint32(s.Dropped - o.Dropped)),
		uint64(uint32(s.Squeezed - o.Squeezed))}
}

func (m *machine) softnet() (s Softnet, err error) {
	proc, err := m.proc()
	if err != nil {
		return s, err
	}
	processors, err := proc.NetSoftnetStat()
	for _, p := range processors {
		s.Processed, s.Dropped, s.Squeezed = s.Processed+uint64(p.Processed), s.Dropped+uint64(p.Dropped),
			s.Squeezed+uint64(p.TimeSqueezed)
	}
	return s, err
}

// pressure returns for how many microseconds since boot some task has waited for a processor.
func (m *machine) pressure() (float64, error) {
	proc, err := m.proc()
	if err != nil {
		return 0, err
	}
	waits, err := proc.PSIStatsForResource("cpu")
	if err != nil {
		return 0, err
	}
	if waits.Some == nil {
		return 0, errors.New("/proc/pressure/cpu does not say how long some task waited")
	}
	return float64(waits.Some.Total), nil
}

// processTimes is the processor time of a process since its start.
type processTimes struct {
	user, system float64 // seconds, in steps of 10 ms
	started      uint64  // ticks since boot: distinguishes a process from a later one with the same id
}

func (m *machine) process(pid int) (processTimes, error) {
	p, err := m.processOf(pid)
	if err != nil {
		return processTimes{}, err
	}
	stat, err := p.Stat()
	return processTimes{float64(stat.UTime) / 100, float64(stat.STime) / 100, stat.Starttime}, err
}

// switches returns the context switches of a process's current threads.
func (m *machine) switches(pid int) (voluntary, involuntary uint64) {
	proc, err := m.proc()
	if err != nil {
		return 0, 0
	}
	threads, _ := proc.AllThreads(pid)
	for _, t := range threads {
		if status, err := t.NewStatus(); err == nil { // otherwise the thread has just ended
			voluntary, involuntary = voluntary+status.VoluntaryCtxtSwitches, involuntary+status.NonVoluntaryCtxtSwitches
		}
	}
	return voluntary, involuntary
}

// pss returns a process's memory in bytes, with shared pages divided among those that share them.
func (m *machine) pss(pid int) (uint64, error) {
	p, err := m.processOf(pid)
	if err != nil {
		return 0, err
	}
	memory, err := p.ProcSMapsRollup()
	return memory.Pss, err
}

// groupTimes is the processor time used by a cgroup and those below it.
type groupTimes struct{ cpu, throttled float64 } // seconds

// group reads a cgroup of version 2, or of version 1's cpuacct or cpu controller.
func (m *machine) group(path string) (groupTimes, error) {
	var g groupTimes
	known := false
	text, err := m.read(filepath.Join(path, "cpu.stat"))
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseFloat(value, 64)
		switch key {
		case "usage_usec":
			g.cpu, known = n/1e6, true
		case "throttled_usec":
			g.throttled = n / 1e6
		case "throttled_time": // version 1, in ns
			g.throttled = n / 1e9
		}
	}
	if !known {
		var usage string
		if usage, err = m.read(filepath.Join(path, "cpuacct.usage")); err == nil {
			g.cpu, err = strconv.ParseFloat(usage, 64)
			g.cpu /= 1e9
		}
	}
	return g, err
}
