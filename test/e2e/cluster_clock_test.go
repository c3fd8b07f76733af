package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestClusterClock proves that a cluster does not mind when the machine's clock is set: no switch
// gets another master, nothing is lost, and what is started again afterwards is let in, though its
// certificates are from before. It sets the clock, and so runs in a virtual machine of vmrun only.
func TestClusterClock(t *testing.T) {
	if first, err := os.ReadFile("/proc/1/cmdline"); err != nil || !strings.HasPrefix(string(first), "/run/vmrun/") {
		t.Skip("it sets the machine's clock: scripts/vm uml ./test/e2e TestClusterClock --mem=2048")
	}
	f := &sharedLab{machine: newMachine(t)}
	f.withServers()
	before := f.snapshot()
	// RabbitMQ needs minutes to start there, and nothing waits for a broker.
	f.up(f.file("big.yaml", "cluster: {members: [a, b, c], broker: \"amqp://127.0.0.1:5672\"}\n"+sharedNetwork), "--datapath", "embedded", "--wait", "1m")
	f.begin("embedded")
	set := func(by time.Duration) { f.sh(fmt.Sprintf("date -s @%d", time.Now().Add(by).Unix())) }
	jump := func(by time.Duration) func(*sharedLab) {
		return func(f *sharedLab) {
			were := f.masters("a", "b", "c")
			beats := f.beats()
			set(by)
			eventually(t, "all members have given signs of life since", func() bool {
				now := f.beats()
				return now["a"] > beats["a"]+20 && now["b"] > beats["b"]+20 && now["c"] > beats["c"]+20
			})
			f.agreed()
			for dpid, now := range f.masters("a", "b", "c") {
				if was := were[dpid]; now.Master != was.Master || now.Generation != was.Generation {
					t.Errorf("with the clock set by %v the master of %s is %s (%d), and was %s (%d)", by, dpid, now.Master, now.Generation, was.Master, was.Generation)
				}
			}
		}
	}
	again := func(programs ...string) func(*sharedLab) {
		return func(f *sharedLab) {
			f.signal("KILL", programs...)
			f.programs = f.clusterRuns(f.programs, programs...)
			f.agreed()
		}
	}
	f.endure(
		clusterFault{"the clock is as it was", jump(0)}, // else the machine is too busy to tell
		clusterFault{"the clock goes on by an hour", jump(time.Hour)},
		clusterFault{"a member is killed then", again("member b")},
		clusterFault{"the clock goes back by two hours", jump(-2 * time.Hour)},
		clusterFault{"two members are killed then", again("member b", "member c")},
		clusterFault{"the clock goes back by a year", jump(-365 * 24 * time.Hour)},
		clusterFault{"a member and etcd are killed then", again("member a", "etcd")},
		clusterFault{"the clock goes on by eleven years", jump(11 * 365 * 24 * time.Hour)},
		clusterFault{"all are killed then", again("member a", "member b", "member c", "etcd")},
	)
	f.ok("down")
	f.unchanged(before)
}

// beats are the members' signs of life, as a member counts them.
func (f *sharedLab) beats() map[string]int64 {
	f.t.Helper()
	out := map[string]int64{}
	s, _ := f.memberStatus("a")
	for _, m := range s.Members {
		out[m.Name] = m.Beat
	}
	return out
}
