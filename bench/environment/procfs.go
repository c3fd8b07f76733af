package environment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"trivet.dev/trivet/bench/stats"
)

// cpuTimes are a line of /proc/stat, in ticks of 10 ms (proc_stat(5)).
type cpuTimes struct{ user, nice, system, idle, iowait, irq, softirq, steal float64 }

func (c cpuTimes) less(o cpuTimes) cpuTimes {
	return cpuTimes{c.user - o.user, c.nice - o.nice, c.system - o.system, c.idle - o.idle, c.iowait - o.iowait, c.irq - o.irq, c.softirq - o.softirq, c.steal - o.steal}
}

func (c cpuTimes) working() float64 { return c.user + c.nice + c.system + c.irq + c.softirq }

func (c cpuTimes) all() float64 { return c.working() + c.idle + c.iowait + c.steal }

// share of the time; none where no tick has passed.
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
	cores    map[string]cpuTimes // by the kernel's name: cpu0
	switches uint64
	running  float64 // tasks that run or want to
}

func (m *machine) stat() (kernelStat, error) {
	text, err := m.read("proc/stat")
	if err != nil {
		return kernelStat{}, err
	}
	return parseStat(text)
}

func parseStat(text string) (kernelStat, error) {
	s := kernelStat{cores: map[string]cpuTimes{}}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch name := words[0]; {
		case strings.HasPrefix(name, "cpu"):
			var t [8]float64 // a kernel that lacks the later ones has zeros
			for i, w := range words[1:min(len(words), 9)] {
				t[i], _ = strconv.ParseFloat(w, 64)
			}
			times := cpuTimes{t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7]}
			if name == "cpu" {
				s.total = times
			} else {
				s.cores[name] = times
			}
		case name == "ctxt":
			s.switches, _ = strconv.ParseUint(words[1], 10, 64)
		case name == "procs_running":
			s.running, _ = strconv.ParseFloat(words[1], 64)
		}
	}
	if s.total.all() == 0 {
		return s, errors.New("/proc/stat has no line cpu")
	}
	return s, nil
}

// Softnet is what the kernel's packet reception did (/proc/net/softnet_stat), of all
// processors and all namespaces.
type Softnet struct {
	Processed uint64 `json:"processed"` // packets
	Dropped   uint64 `json:"dropped"`   // packets that found the backlog full
	Squeezed  uint64 `json:"squeezed"`  // times that work was left when the budget was used up
}

func (s Softnet) less(o Softnet) Softnet {
	// The kernel counts in 32 bits.
	return Softnet{uint64(uint32(s.Processed - o.Processed)), uint64(uint32(s.Dropped - o.Dropped)), uint64(uint32(s.Squeezed - o.Squeezed))}
}

func (m *machine) softnet() (Softnet, error) {
	text, err := m.read("proc/net/softnet_stat")
	if err != nil {
		return Softnet{}, err
	}
	return parseSoftnet(text)
}

func parseSoftnet(text string) (s Softnet, err error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 3 {
			return s, fmt.Errorf("/proc/net/softnet_stat has a line %q", line)
		}
		for i, into := range []*uint64{&s.Processed, &s.Dropped, &s.Squeezed} {
			n, err := strconv.ParseUint(words[i], 16, 32)
			if err != nil {
				return s, fmt.Errorf("/proc/net/softnet_stat: %w", err)
			}
			*into += n
		}
	}
	return s, nil
}

// pressure is for how many microseconds since boot some task waited for a processor.
func (m *machine) pressure() (float64, error) {
	text, err := m.read("proc/pressure/cpu")
	if err != nil {
		return 0, err
	}
	for word := range strings.FieldsSeq(text) {
		if total, ok := strings.CutPrefix(word, "total="); ok {
			return strconv.ParseFloat(total, 64) // the first line is that of "some"
		}
	}
	return 0, fmt.Errorf("/proc/pressure/cpu reads %q", text)
}

// processTimes is what a process has used since it began.
type processTimes struct {
	user, system float64 // seconds, in steps of 10 ms
	started      string  // ticks since boot: tells a process from a later one of the same id
}

func (m *machine) process(pid int) (processTimes, error) {
	text, err := m.read(fmt.Sprintf("proc/%d/stat", pid))
	if err != nil {
		return processTimes{}, err
	}
	// The name, in parentheses, may hold anything: what counts begins after the last of them.
	words := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(words) < 20 {
		return processTimes{}, fmt.Errorf("/proc/%d/stat reads %q", pid, text)
	}
	user, _ := strconv.ParseFloat(words[11], 64)
	system, _ := strconv.ParseFloat(words[12], 64)
	return processTimes{user / 100, system / 100, words[19]}, nil
}

// switches of the threads that a process has now.
func (m *machine) switches(pid int) (voluntary, involuntary uint64) {
	files, _ := filepath.Glob(filepath.Join(m.root, "proc", strconv.Itoa(pid), "task", "*", "status"))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			key, value, _ := strings.Cut(line, ":")
			n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			switch key {
			case "voluntary_ctxt_switches":
				voluntary += n
			case "nonvoluntary_ctxt_switches":
				involuntary += n
			}
		}
	}
	return voluntary, involuntary
}

// pss is the memory of a process in bytes, with what it shares divided among the sharers.
func (m *machine) pss(pid int) (uint64, error) {
	text, err := m.read(fmt.Sprintf("proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "Pss:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/smaps_rollup has no Pss", pid)
}

// groupTimes is what a cgroup, with those below it, has used.
type groupTimes struct{ cpu, throttled float64 } // seconds

// group reads a cgroup of version 2, or of version 1's cpuacct or cpu.
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

// members of a cgroup and of those below it.
func (m *machine) members(path string) (pids []int) {
	_ = filepath.WalkDir(filepath.Join(m.root, path), func(at string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // a group may go while it is read
		}
		b, _ := os.ReadFile(filepath.Join(at, "cgroup.procs"))
		for word := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}
