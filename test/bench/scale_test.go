package bench

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	side   = flag.Int("side", 100, "routers in a row, and in a column, of TestTorus")
	areas  = flag.String("areas", "1000,10000", "routers in the areas of TestBigArea and TestSPF")
	steady = flag.Duration("steady", 30*time.Second, "for how long the load of a lab that does nothing is measured")
)

// scaled is a lab that is measured.
type scaled struct {
	t    *testing.T
	name string
	pid  int
}

// bring brings a lab up and says how long that took.
func bring(t *testing.T, name string, args ...string) (*scaled, float64) {
	t.Helper()
	up := timed(t, append([]string{"up", "--name", name}, args...)...)
	var state struct{ PID int }
	b, err := os.ReadFile(filepath.Join(os.Getenv("TRIVET_RUN_DIR"), name, "state.json"))
	if err == nil {
		err = json.Unmarshal(b, &state)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &scaled{t, name, state.PID}, up
}

// down takes the lab down and says how long that took.
func (s *scaled) down() float64 { return timed(s.t, "down", s.name) }

// memory is the resident memory of the lab's daemon, in kB, as it is and as it was at most.
func (s *scaled) memory() (now, most float64) {
	return statusOf(s.pid, "VmRSS:"), statusOf(s.pid, "VmHWM:")
}

func statusOf(pid int, field string) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == field {
			v, _ := strconv.ParseFloat(words[1], 64)
			return v
		}
	}
	return 0
}

// processor is how long a process has had a processor, in seconds; of a tick of 10 ms.
func processor(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	words := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(words) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(words[11], 64)
	system, _ := strconv.ParseFloat(words[12], 64)
	return (user + system) / 100
}

// idle is the share of a processor that the daemon takes while nothing happens.
func (s *scaled) idle() float64 {
	before, start := processor(s.pid), time.Now()
	time.Sleep(*steady)
	return (processor(s.pid) - before) / time.Since(start).Seconds()
}

// exec runs a shell command in a node.
func (s *scaled) exec(node, command string) string {
	s.t.Helper()
	out, err := exec.Command(binary, "exec", "--lab", s.name, node, "--", "sh", "-c", command).CombinedOutput()
	if err != nil {
		s.t.Logf("%s: %s: %v", node, command, err)
	}
	return string(out)
}

// pause pings at one a millisecond while something happens, and returns for how long nothing came
// back, in ms, and how many were lost.
func (s *scaled) pause(from, to string, happens func()) (longest float64, lost int) {
	s.t.Helper()
	s.exec(from, "ping -n -c 3 -i 0.2 -W 10 "+to) // who is asked, and on which way, is known
	result := make(chan string)
	go func() { result <- s.exec(from, "ping -n -D -i 0.001 -w 10 "+to) }()
	time.Sleep(time.Second)
	happens()
	last, came, highest := 0.0, 0, 0
	for line := range strings.Lines(<-result) {
		var at float64
		var number int
		if n, _ := fmt.Sscanf(line, "[%f]", &at); n == 0 {
			continue
		}
		if i := strings.Index(line, "icmp_seq="); i >= 0 {
			_, _ = fmt.Sscanf(line[i:], "icmp_seq=%d", &number)
		}
		if came++; last > 0 {
			longest = max(longest, 1000*(at-last))
		}
		last, highest = at, max(highest, number)
	}
	return longest, highest - came
}

// fail cuts links one after the other and mends them, and returns the longest pauses: at a failure,
// and when the link is back. Which of them carries the pings is for the routers to choose.
func (s *scaled) fail(from, to string, links ...string) (cut, mended float64, lost int) {
	s.t.Helper()
	for _, l := range links {
		for _, state := range []string{"down", "up"} {
			pause, n := s.pause(from, to, func() {
				if out, err := exec.Command(binary, "link", "set", "--lab", s.name, l, state).CombinedOutput(); err != nil {
					s.t.Logf("link %s %s: %s", l, state, out) // the change is made, and what comes of it is measured
				}
			})
			if lost += n; state == "down" {
				cut = max(cut, pause)
			} else {
				mended = max(mended, pause)
			}
		}
	}
	return cut, mended, lost
}

// ping is the first ping between two nodes and the median of the next ones, in ms.
func (s *scaled) ping(from, to string) (first, later float64) {
	s.t.Helper()
	var times []float64
	for line := range strings.Lines(s.exec(from, "ping -n -c 11 -i 0.2 -W 30 "+to)) {
		var ms float64
		if _, after, ok := strings.Cut(line, "time="); ok {
			_, _ = fmt.Sscanf(after, "%f", &ms)
			times = append(times, ms)
		}
	}
	if len(times) < 2 {
		s.t.Errorf("%s does not reach %s", from, to)
		return 0, 0
	}
	later, _, _ = spread(times[1:])
	return times[0], later
}

// TestTorus measures side × side routing nodes with a host at each of a diagonal: up, memory, the
// load while nothing happens, the first ping across, what a failure costs, down.
func TestTorus(t *testing.T) {
	load(t)
	nodes := *side * *side
	for range *pairs {
		s, up := bring(t, "torus", fmt.Sprintf("torus,%d,%d,1,%d", *side, *side, *side+1), "--nodes", "router")
		work := processor(s.pid)
		time.Sleep(5 * time.Second)
		start, _ := s.memory()
		middle := fmt.Sprintf("h%dx%d", *side/2+1, *side/2+1)
		first, later := s.ping("h1x1", middle)
		share := s.idle()
		cut, mended, lost := s.fail("h1x1", "h2x2", "r1x1-r1x2", "r1x1-r2x1")
		now, most := s.memory()
		down := s.down()
		t.Logf("%d routing nodes: up %.1f s (%.1f s of a processor), RSS %.0f MB once up (%.0f kB a node), %.0f MB at the end, %.0f MB at most; "+
			"%.1f %% of a core when idle; ping over %d routers %.0f ms first, %.2f ms then; silence %.0f ms when a link fails, %.0f ms when it is back (%d lost); down %.1f s",
			nodes, up, work, start/1024, start/float64(nodes), now/1024, most/1024, 100*share, *side+1, first, later, cut, mended, lost, down)
	}
}

// bigArea is examples/big-area.yaml with another number of routers.
func bigArea(t *testing.T, routers int) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/big-area.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "area.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "1000", strconv.Itoa(routers))), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestBigArea measures an area of many routing nodes as FRR and BIRD see it: how long until both
// kernels have all routes, memory, the load while nothing happens and while five links a second
// flap.
func TestBigArea(t *testing.T) {
	load(t)
	for _, word := range strings.Split(*areas, ",") {
		routers, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		s, up := bring(t, "area", bigArea(t, routers), "--wait", "5m")
		work := processor(s.pid)
		all := 2*routers + 5 // the ring's networks, the chords', and five
		for _, r := range []string{"frr", "bird"} {
			for s.routes(r) < all && time.Since(start) < 10*time.Minute {
				time.Sleep(100 * time.Millisecond)
			}
		}
		learned := time.Since(start).Seconds()
		counts := fmt.Sprintf("%d and %d", s.routes("frr"), s.routes("bird"))
		share := s.idle()
		now, most := s.memory()
		before, beforeFRR, begin := processor(s.pid), s.nodeCPU("frr"), time.Now()
		var flaps struct{ Flaps int }
		trivet(t, &flaps, "link", "flap", "--lab", s.name, "--rate", "20", "--for", "30s")
		took := time.Since(begin).Seconds()
		churn, churnFRR := (processor(s.pid)-before)/took, (s.nodeCPU("frr")-beforeFRR)/took
		t.Logf("%d OSPF routing nodes: up %.1f s (%.1f s of a processor), all %d routes in FRR's and BIRD's kernels (%s) after %.1f s, RSS %.0f MB (%.0f kB a node), %.0f MB at most; "+
			"%.1f %% of a core when idle; with %.1f flaps a second the daemon takes %.0f %% of a core and FRR %.0f %%; memory of FRR %.0f MB; down %.1f s",
			routers, up, work, all, counts, learned, now/1024, now/float64(routers), most/1024, 100*share, float64(flaps.Flaps)/took, 100*churn, 100*churnFRR,
			s.nodeMemory("frr")/1024, s.down())
	}
}

// routes is how many a node's kernel has.
func (s *scaled) routes(node string) int { return strings.Count(s.exec(node, "ip -4 route"), "\n") }
