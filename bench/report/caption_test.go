package report

import "testing"

// TestAxisName proves that an axis says what is measured, in few words, however long the metric's
// name is.
func TestAxisName(t *testing.T) {
	for metric, want := range map[string]string{"rtt_max": "rtt max", "usage.busy": "processors busy", "usage.parts.daemon+ovs+r*.pss": "memory", "usage.processes.ovs-vswitchd.cpu": "processor time",
		"usage.perf.cache-misses": "cache-misses", "usage.context_switches": "context switches"} {
		if got := axisName(metric); got != want {
			t.Errorf("%s: %s", metric, got)
		}
	}
}
