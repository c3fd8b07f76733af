package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// dropInScript is what both are given: a topology goes up and down, and in between what the second
// argument says is done in it. Times are in seconds; memory is that of all processes, in MB.
const dropInScript = `
import glob, json, os, sys, time
from functools import partial
from mininet.net import Mininet
from mininet.topo import LinearTopo, SingleSwitchTopo
from mininet.topolib import TreeTopo
from mininet.node import OVSSwitch
from mininet.nodelib import LinuxBridge
topo, what, switch = sys.argv[1:]
make, *args = topo.split(',')
make = {'linear': LinearTopo, 'tree': TreeTopo, 'single': SingleSwitchTopo}[make]
kind = LinuxBridge if switch == 'bridge' else partial(OVSSwitch, datapath='user', failMode='standalone')

def memory():
    total = 0
    for rollup in glob.glob('/proc/[0-9]*/smaps_rollup'):
        try:
            total += sum(int(line.split()[1]) for line in open(rollup) if line.startswith('Pss:'))
        except OSError:
            pass  # it has just ended
    return total / 1024

t0 = time.time()
net = Mininet(make(*map(int, args)), switch=kind, controller=None)
net.start()
out = {'up': time.time() - t0, 'memory': memory()}
if what == 'cmd':
    net.hosts[0].cmd('true')  # with the drop-in it starts the shell
t0 = time.time()
if what == 'pingall':
    out['lost'] = net.pingAll()
elif what == 'cmd':
    for i in range(5000):
        net.hosts[0].cmd('true')
out['did'] = time.time() - t0
t0 = time.time()
net.stop()
out['down'] = time.time() - t0
print(json.dumps(out))
`

type dropInRun struct{ Up, Down, Memory, Did, Lost float64 }

// dropIn runs the script with Mininet, or with Trivet's drop-in, in namespaces that end with it.
func dropIn(t *testing.T, ours bool, args ...string) (run dropInRun) {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "script.py")
	if err := os.WriteFile(script, []byte(dropInScript), 0o644); err != nil {
		t.Fatal(err)
	}
	shell, env := privateOVS, os.Environ()
	if ours || args[2] == "bridge" {
		shell = "mount -t tmpfs none /run && ip link set lo up && exec /usr/bin/python3 \"$@\""
	}
	if ours {
		packages, err := filepath.Abs("../../python")
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, "PYTHONPATH="+packages, "TRIVET="+binary, "TRIVET_RUN_DIR=/run/trivet", "TRIVET_DATAPATH=embedded")
	}
	cmd := exec.Command("unshare", append([]string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", shell, "bash", script}, args...)...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &run); err != nil {
		t.Fatalf("%v printed %q: %v", args, out, err)
	}
	return run
}

// TestDropIn runs the same Mininet scripts with Mininet and with the drop-in, in turn: large
// topologies up and down, pings between all hosts, and many commands in a host. It fails where the
// two do not come to the same.
func TestDropIn(t *testing.T) {
	load(t)
	rows := []string{"| script | | drop-in | Mininet 2.3 | Mininet ÷ drop-in |", "| --- | --- | --- | --- | --- |"}
	for _, c := range []struct{ topo, what, switches string }{
		{"linear,2", "cmd", "bridge"},
		{"linear,10", "", "bridge"}, {"linear,50", "", "bridge"}, {"linear,100", "", "bridge"}, {"linear,200", "", "bridge"}, {"tree,6,2", "", "bridge"},
		{"linear,10", "", "ovs"}, {"linear,50", "", "ovs"}, {"linear,100", "", "ovs"}, {"linear,200", "", "ovs"}, {"tree,6,2", "", "ovs"},
		{"single,100", "pingall", "bridge"},
	} {
		t.Run(strings.Trim(c.topo+"-"+c.switches+"-"+c.what, "-"), func(t *testing.T) {
			var ours, theirs [4][]float64
			for range *pairs {
				a, b := dropIn(t, true, c.topo, c.what, c.switches), dropIn(t, false, c.topo, c.what, c.switches)
				if a.Lost != b.Lost {
					t.Errorf("%s: %v %% of the pings are lost, and with Mininet %v %%", c.topo, a.Lost, b.Lost)
				}
				for i, v := range [][2]float64{{a.Up, b.Up}, {a.Down, b.Down}, {a.Memory, b.Memory}, {a.Did, b.Did}} {
					ours[i], theirs[i] = append(ours[i], v[0]), append(theirs[i], v[1])
				}
			}
			for i, what := range []string{"start, s", "stop, s", "memory, MB", c.what + ", s"} {
				if i == 3 && c.what == "" || i < 3 && c.what != "" {
					continue
				}
				rows = append(rows, fmt.Sprintf("| `%s`, %s | %s | %s | %s | %s |", c.topo, c.switches, what,
					text(ours[i], ""), text(theirs[i], ""), text(ratios(theirs[i], ours[i]), "")))
				t.Log(rows[len(rows)-1])
			}
		})
	}
	t.Log("\n" + strings.Join(rows, "\n"))
}
