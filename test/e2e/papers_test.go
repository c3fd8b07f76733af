package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// experimentFile is a file of experiments/.
func experimentFile(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs("../../experiments/" + name)
	must(t, err)
	return file
}

// TestCable proves that paper 1's emulation network, on one machine, is what the paper has: what a
// Pi sends another goes up the gateway's cable and down again, each time in the VLAN of the Pi
// there, and s1 decides where to; without the cable no Pi reaches another, nor the gateway.
func TestCable(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ovs-ofctl"); err != nil {
		t.Skip("ovs-ofctl is not installed (Debian: openvswitch-switch)")
	}
	m := newMachine(t)
	m.up(experimentFile(t, "1-c3-edge/emulated.yaml"))
	m.pingAll(7 * 6)
	packets := func(way string) int {
		t.Helper()
		found := regexp.MustCompile(`(?s)` + way + ` pkts=(\d+)`).FindStringSubmatch(m.exec("nic", "ovs-ofctl dump-ports nic 7"))
		if found == nil {
			t.Fatalf("no counters of the cable: %s", m.exec("nic", "ovs-ofctl dump-ports nic 7"))
		}
		n, err := strconv.Atoi(found[1])
		must(t, err)
		return n
	}
	in, out := packets("rx"), packets("tx")
	m.exec("p1", "ping -c 50 -i 0.01 -W 2 p2")
	for way, more := range map[string]int{"up": packets("rx") - in, "down": packets("tx") - out} {
		if more < 100 || more > 130 { // ARP and what the controller sends besides
			t.Errorf("50 echoes and 50 replies went %s the cable as %d packets", way, more)
		}
	}
	for pi := 1; pi <= 2; pi++ {
		m.exec("s1", fmt.Sprintf("ovs-ofctl dump-flows s1 table=1 | grep output:%d", pi))
	}
	m.ok("link", "set", "hw-nic", "down")
	for _, to := range []string{"p2", "gateway"} {
		if r := m.run("exec", "p1", "--", "ping", "-c", "1", "-W", "1", to); r.code == 0 {
			t.Errorf("p1 reaches %s without the cable: %s", to, r)
		}
	}
}

// TestSlowSwitch proves that cpu at a switch of Open vSwitch limits the process which forwards for
// it, also when that changes while the lab is up and when another daemon has taken over; and that
// where it cannot (several switches, which are one process; a datapath without a process), a
// warning says so.
func TestSlowSwitch(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ovs-vswitchd"); err != nil {
		t.Skip("Open vSwitch is not installed")
	}
	m := newMachine(t)
	file := func(cpu, more string) string {
		return m.file(m.name+".yaml", "nodes: {s1: {switch: {datapath: ovs, controller: none"+cpu+"}}, "+more+"\"h[1-2]\": host}\nlinks: [\"s1 -- h[1-2]\"]\n")
	}
	limits := func() (out string) {
		for _, g := range m.cgroups() {
			if filepath.Base(g) == ".ovs" {
				out += m.sh("cat " + g + "/cpu.max " + g + "/cpu.cfs_quota_us 2>/dev/null || true")
			}
		}
		return out
	}
	if strings.Contains(m.want(0, "up", "--name", m.name, file(", cpu: 0.25", "")).String(), "forwards in the kernel") {
		t.Skip("Open vSwitch forwards in the kernel here")
	}
	if got := limits(); !strings.HasPrefix(got, "25000") {
		t.Errorf("a quarter of a processor: %q", got)
	}
	m.killDaemon()
	m.ok("resume")
	m.ok("apply", file("", ""))
	if got := limits(); !strings.HasPrefix(got, "max") && !strings.HasPrefix(got, "-1") {
		t.Errorf("without a limit: %q", got)
	}
	m.ok("apply", file(", cpu: 0.5", ""))
	if got := limits(); !strings.HasPrefix(got, "50000") {
		t.Errorf("half a processor: %q", got)
	}
	m.pingAll(2)
	m.ok("down")
	two := file(", cpu: 0.5", "s2: {switch: {datapath: ovs, controller: none}}, ")
	contains(t, m.want(0, "up", "--name", m.name, two).String(), "cpu of s1 limits the programs that run there, not its forwarding: the 2 switches")
	if got := limits(); strings.HasPrefix(got, "50000") {
		t.Errorf("one switch of two slows both down: %q", got)
	}
	m.ok("down")
	contains(t, m.run("validate", m.file("b.yaml", "nodes: {s1: {switch: {cpu: 0.5}}, h1: host}\nlinks: [s1 -- h1]\n")).String(), "switch s1: cpu limits the programs that run there, not its forwarding")
}

// TestFigures20And21 proves that the experiment of a cluster's time runs, with one client and with
// 64: one controller, three, and one with three times the processor answer, and the samples have
// what the scheduling centre had heard from each controller and whom it would give a node.
func TestFigures20And21(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withServers()
	before := m.snapshot()
	out := filepath.Join(m.dir, "x.jsonl")
	text, err := os.ReadFile(experimentFile(t, "2-routing-emulation/figures-20-21.yaml"))
	must(t, err)
	file := m.file("x.yaml", strings.Replace(string(text), "controllers: three, ", "", 1)) // quick, but all of them
	m.ok("bench", "run", file, "--quick", "--out", out)
	members := map[any]int{"one": 1, "three": 3, "one with three times the processor": 1}
	samples := m.samples(out).Samples
	if len(samples) != 2*len(members) {
		t.Fatalf("%d samples", len(samples))
	}
	for _, s := range samples {
		if s.Failure != "" {
			t.Fatalf("%s: %s", s.Cell, s.Failure)
		}
		if mean := s.Values("controller_time_mean"); len(mean) != 1 || mean[0] <= 0 || float64(len(s.Values("controller_time"))) > s.Factors["clients"].(float64) {
			t.Errorf("%s: the mean is %v, of %d clients", s.Cell, mean, len(s.Values("controller_time")))
		}
		var details struct {
			Cluster struct {
				Centre, Error string
				Members       struct {
					Members []struct {
						Name  string
						Nodes int
					}
				}
				Idlest struct{ Member string }
			}
		}
		must(t, json.Unmarshal(s.Details, &details))
		c, nodes := details.Cluster, 0
		for _, member := range c.Members.Members {
			nodes += member.Nodes
		}
		if len(c.Members.Members) != members[s.Factors["controllers"]] || nodes != 9 || c.Centre == "" || c.Idlest.Member == "" || c.Error != "" {
			t.Errorf("%s: %s", s.Cell, s.Details)
		}
	}
	contains(t, m.ok("bench", "report", out, "--out", filepath.Join(m.dir, "report")), "report")
	m.unchanged(before)
}
