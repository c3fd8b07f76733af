package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/internal/cgroup"
)

// processes are those of a lab's node, by its cgroup.
func (s *scaled) processes(node string) (out []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		groups, _ := os.ReadFile(dir + "/cgroup")
		for line := range strings.Lines(string(groups)) {
			if strings.HasSuffix(strings.TrimSpace(line), "/trivet/"+cgroup.Group(s.name, node)) {
				pid, _ := strconv.Atoi(filepath.Base(dir))
				out = append(out, pid)
				break
			}
		}
	}
	return out
}

// nodeMemory is the proportional memory of a node's processes, in kB.
func (s *scaled) nodeMemory(node string) (sum float64) {
	for _, pid := range s.processes(node) {
		sum += pss(pid)
	}
	return sum
}

// nodeCPU is how long a node's processes have had a processor, in seconds.
func (s *scaled) nodeCPU(node string) (sum float64) {
	for _, pid := range s.processes(node) {
		sum += processor(pid)
	}
	return sum
}

// pss is a process's proportional memory, in kB.
func pss(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "Pss:" {
			kb, _ := strconv.ParseFloat(words[1], 64)
			return kb
		}
	}
	return 0
}

// line is routers in a line that speak OSPF, with a host at either end.
func line(t *testing.T, routers int, router string) string {
	t.Helper()
	text := fmt.Sprintf(`
defaults: {link: {ospf: {hello: 1s, dead: 4s}}}
nodes: {"r[1-%d]": {router: {%s}}, "h[1-2]": host}
links: ["r[1-%d] -- r[2-%d]", h1 -- r1, h2 -- r%d]
`, routers, router, routers-1, routers, routers)
	if routers == 0 {
		text = "nodes: {\"h[1-2]\": host, s1: {switch: {datapath: embedded}}}\nlinks: [s1 -- h1, s1 -- h2]\n"
	}
	file := filepath.Join(t.TempDir(), "line.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestVirtualRouters compares ten routing nodes that speak OSPF with ten FRR routers in namespaces
// (the "virtual routers" of paper 2, tables 3 and 4), in a line with a host at either end, while
// 200 Mbit/s flow: memory (PSS) of what makes them routers, and the processors' time for it. The
// memory of routing nodes is what the lab's daemon has more than that of a lab with the same hosts
// and one switch.
func TestVirtualRouters(t *testing.T) {
	load(t)
	const routers = 10
	var memory, work [2][]float64
	for range *pairs {
		bare, _ := bring(t, "bare", line(t, 0, ""))
		time.Sleep(5 * time.Second)
		base := pss(bare.pid)
		bare.down()
		for i, kind := range []string{"ospf: area 0", "ospf: area 0, datapath: frr"} {
			s, _ := bring(t, "routers", line(t, routers, kind), "--wait", "60s")
			for s.exec("h1", "ping -n -c 1 -W 1 h2 >/dev/null && echo there") != "there\n" {
				time.Sleep(200 * time.Millisecond)
			}
			time.Sleep(5 * time.Second)
			before := busyTime(t)
			s.exec("h2", "iperf3 -s -1 >/dev/null 2>&1 & sleep 1")
			s.exec("h1", "iperf3 -c h2 -b 200M -t 10 >/dev/null")
			work[i] = append(work[i], (busyTime(t) - before).Seconds())
			kb := pss(s.pid) - base
			if i == 1 {
				kb = 0
				for n := range routers {
					kb += s.nodeMemory(fmt.Sprintf("r%d", n+1))
				}
			}
			memory[i] = append(memory[i], kb/1024)
			s.down()
		}
	}
	t.Logf("memory: ten routing nodes %s, ten FRR routers %s, share %s", text(memory[0], "MB"), text(memory[1], "MB"), text(ratios(memory[0], memory[1]), ""))
	t.Logf("processors' time of the whole machine while 200 Mbit/s flow for 10 s: routing nodes %s, FRR routers %s, share %s",
		text(work[0], "s"), text(work[1], "s"), text(ratios(work[0], work[1]), ""))
}

// joined is a network of OSPF routers with a host at each of the first two ends.
func joined(t *testing.T, routers int, links []string) string {
	t.Helper()
	b := fmt.Sprintf("nodes: {\"r[1-%d]\": {router: {ospf: area 0}}, \"h[1-2]\": host}\nlinks:\n", routers)
	for _, l := range append(links, "h1 -- r1", "h2 -- r2") {
		b += "  - " + l + "\n"
	}
	file := filepath.Join(t.TempDir(), "net.yaml")
	if err := os.WriteFile(file, []byte(b), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestConvergence measures how long traffic between neighbours stands when the link between them
// fails, and when it is back, in a ring of 20 and a full mesh of 100 routing nodes that speak OSPF.
func TestConvergence(t *testing.T) {
	load(t)
	var mesh []string
	for i := 1; i < 100; i++ {
		mesh = append(mesh, fmt.Sprintf("r%d -- r[%d-100]", i, i+1))
	}
	for _, c := range []struct {
		name    string
		routers int
		links   []string
	}{{"ring of 20", 20, []string{`"r[1-20] -- r[2-20,1]"`}}, {"mesh of 100", 100, mesh}} {
		var cuts, backs []float64
		lost := 0
		s, up := bring(t, "convergence", joined(t, c.routers, c.links))
		for range *pairs {
			cut, back, n := s.fail("h1", "h2", "r1-r2")
			cuts, backs, lost = append(cuts, cut), append(backs, back), lost+n
		}
		t.Logf("%s: up %.1f s; silence when the link fails %s, when it is back %s; %d pings lost in all", c.name, up, text(cuts, "ms"), text(backs, "ms"), lost)
		s.down()
	}
}
