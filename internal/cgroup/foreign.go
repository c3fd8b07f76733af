package cgroup

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
)

// LimitForeign limits the groups of a process, made by somebody else, in processors (none: all),
// CPU time and bytes of memory (0: no limit).
func (c Hierarchies) LimitForeign(pid int, cores []int, cpu topology.CPU, memory topology.Bytes) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return err
	}
	quota, period := int64(-1), cpuPeriod.Microseconds()
	if cpu != (topology.CPU{}) {
		quota = quotaOf(cpu)
	}
	set := List(cores)
	for _, w := range []struct{ controller, v1, file1, value1, file2, value2 string }{
		{"cpu", c.CPU, "cpu.cfs_quota_us", fmt.Sprint(quota), "cpu.max", fmt.Sprint(orMax(quota), " ", period)},
		{"memory", c.Memory, "memory.limit_in_bytes", fmt.Sprint(cmp.Or(int64(memory), -1)), "memory.max",
			orMax(cmp.Or(int64(memory), -1))},
		{"cpuset", c.CPUSet, "cpuset.cpus", set, "cpuset.cpus", set},
	} {
		dir, file, value := "", w.file1, w.value1
		for line := range strings.Lines(string(text)) {
			words := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(words) < 3 {
				continue
			}
			if v2 := words[1] == "" && c.V2Has(w.controller); v2 {
				dir, file, value = filepath.Join(c.V2, words[2]), w.file2, w.value2
			} else if w.v1 != "" && slices.Contains(strings.Split(words[1], ","), w.controller) {
				dir = filepath.Join(w.v1, words[2])
			}
		}
		if dir == "" || dir == c.V2 || dir == w.v1 {
			return fmt.Errorf("process %d is in no group for %s", pid, w.controller)
		}
		if w.controller == "cpuset" && value == "" {
			if w.v1 == "" {
				continue
			}
			above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file)) // an empty set is not allowed
			if err != nil {
				return err
			}
			value = strings.TrimSpace(string(above))
		}
		swap := filepath.Join(dir, "memory.memsw.limit_in_bytes") // memory cannot be above it; it is lifted first
		_, err := os.Stat(swap)
		if swaps := err == nil && w.controller == "memory"; swaps {
			if err := writeFile(swap, "-1"); err != nil {
				return err
			}
		}
		if err := writeFile(filepath.Join(dir, file), value); err != nil {
			return err
		}
	}
	return nil
}

func orMax(n int64) string {
	if n < 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}
