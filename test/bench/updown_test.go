package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mininetUpDown runs LinearTopo(k) under the real Mininet and prints how long
// start and stop took. The user datapath of Open vSwitch because the kernel one
// needs a module; switches forward on their own, as Trivet's do without a controller.
const mininetUpDown = `
import json, sys, time
from functools import partial
from mininet.net import Mininet
from mininet.topo import LinearTopo
from mininet.node import OVSSwitch
from mininet.nodelib import LinuxBridge
k, datapath = int(sys.argv[1]), sys.argv[2]
switch = LinuxBridge if datapath == 'bridge' else partial(OVSSwitch, datapath='user', failMode='standalone')
t0 = time.time()
net = Mininet(LinearTopo(k=k), switch=switch, controller=None)
net.start()
t1 = time.time()
net.stop()
t2 = time.time()
print(json.dumps({'up': t1 - t0, 'down': t2 - t1}))
`

// privateOVS starts an Open vSwitch for Mininet in namespaces of its own, and
// ends with it: the process is the first of a PID namespace.
const privateOVS = `
set -e
mount -t tmpfs none /run && mkdir -p /run/openvswitch
mount -t tmpfs none /var/log && mkdir -p /var/log/openvswitch
ip link set lo up
ovsdb-tool create /run/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server /run/openvswitch/conf.db --remote=punix:/run/openvswitch/db.sock --detach --pidfile --log-file=/dev/null
ovs-vsctl --no-wait init
ovs-vswitchd --detach --pidfile --log-file=/dev/null
exec /usr/bin/python3 "$@"
`

// mininet runs a topology under Mininet once, in namespaces that end with it.
func mininet(t *testing.T, k int, datapath string) (up, down float64) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "updown.py")
	if err := os.WriteFile(script, []byte(mininetUpDown), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"bash", "-c", privateOVS, "bash", script, strconv.Itoa(k), datapath)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("Mininet: %v\n%s", err, stderr.String())
	}
	var result struct{ Up, Down float64 }
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err != nil {
		t.Fatalf("Mininet printed %q: %v", out, err)
	}
	return result.Up, result.Down
}

// TestUpDown compares bringing a line of 100 switches with a host each up and
// down with Mininet's LinearTopo(k=100), pair by pair.
func TestUpDown(t *testing.T) {
	load(t)
	for _, datapath := range []string{"bridge", "ovs"} {
		var ours, theirs [2][]float64
		for range *pairs {
			ours[0] = append(ours[0], timed(t, "up", "linear,100", "--datapath", datapath, "--name", "updown"))
			ours[1] = append(ours[1], timed(t, "down", "updown"))
			up, down := mininet(t, 100, datapath)
			theirs[0], theirs[1] = append(theirs[0], up), append(theirs[1], down)
		}
		for i, what := range []string{"up", "down"} {
			t.Logf("linear,100 %-6s %-4s  trivet %s   mininet %s   mininet/trivet %s", datapath, what,
				text(ours[i], "s"), text(theirs[i], "s"), text(ratios(theirs[i], ours[i]), "×"))
		}
	}
}

// TestSizes times the large labs, and the memory of their daemons.
func TestSizes(t *testing.T) {
	load(t)
	for _, size := range []struct{ spec, datapath string }{
		{"single,1000", "bridge"}, {"linear,500", "bridge"}, {"linear,500", "ovs"}, {"linear,1000", "bridge"},
	} {
		up := timed(t, "up", size.spec, "--datapath", size.datapath, "--name", "sizes")
		pss := labMemory(t)
		start := time.Now()
		trivet(t, nil, "ping", "h1", "h500", "--count", "1")
		ping := time.Since(start).Seconds()
		down := timed(t, "down", "sizes")
		t.Logf("%-12s %-6s  up %.2f s   down %.2f s   memory of all its processes %.0f MB   first ping across %.2f s", size.spec, size.datapath, up, down, pss, ping)
	}
}

// labMemory sums the proportional set sizes of the daemon and of Open vSwitch, in MB.
func labMemory(t *testing.T) (sum float64) {
	t.Helper()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		command, _ := os.ReadFile(dir + "/cmdline")
		if !strings.Contains(string(command), os.Getenv("TRIVET_RUN_DIR")) && !strings.Contains(string(command), "__daemon\x00sizes") {
			continue
		}
		rollup, _ := os.ReadFile(dir + "/smaps_rollup")
		for _, line := range strings.Split(string(rollup), "\n") {
			fields := strings.Fields(line)
			if len(fields) == 3 && fields[0] == "Pss:" {
				kb, _ := strconv.ParseFloat(fields[1], 64)
				sum += kb / 1024
			}
		}
	}
	return sum
}
