package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mininetLine brings up such a line under the real Mininet, and keeps it until its input ends.
const mininetLine = `
import json, os, resource, sys
out = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)
from functools import partial
from mininet.net import Mininet
from mininet.node import OVSSwitch
from mininet.nodelib import LinuxBridge
switches, datapath, ends, left, right, back, forward = int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:8])
Mininet.inited = True  # it would change the machine's own limits, and leave them so
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
kind = LinuxBridge if datapath == 'bridge' else partial(OVSSwitch, datapath=datapath, failMode='secure')
net = Mininet(topo=None, switch=kind, controller=None, build=False)
line = [net.addSwitch('s%d' % (i + 1), dpid='%016x' % (i + 1)) for i in range(switches)]
for i in range(ends):
    for name, switch, port in ('l', line[0], left), ('r', line[-1], right):
        net.addLink(net.addHost('%s%d' % (name, i + 1), ip=None), switch, port2=port + i)
for a, b in zip(line, line[1:]):
    net.addLink(a, b, port1=forward, port2=back)
net.start()
if datapath == 'user':  # else TCP stalls: nobody fills its checksums in
    for h in net.hosts:
        h.cmd('ethtool -K %s tx off' % h.defaultIntf())
out.write(json.dumps({h.name: h.pid for h in net.hosts}) + '\n')
out.flush()
sys.stdin.read()
`

// mininetWay is a line of switches that Mininet has made; datapath is user, kernel or bridge.
func mininetWay(t *testing.T, name string, switches int, datapath string) *way {
	t.Helper()
	script := filepath.Join(t.TempDir(), "line.py")
	if err := os.WriteFile(script, []byte(mininetLine), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", "mount --make-rprivate / && mount -t proc proc /proc && mount -t sysfs none /sys\n" + privateOVS, "bash", script, fmt.Sprint(switches), datapath}
	for _, n := range []int{endsOf, leftPort, rightPort, backPort, onPort} {
		args = append(args, fmt.Sprint(n))
	}
	cmd := exec.Command("bash", args...)
	// With the first process of a PID namespace all of it ends; and that one with this program.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var pids map[string]int
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err := errors.Join(err, json.Unmarshal(line, &pids)); err != nil {
		t.Fatalf("Mininet: %v\n%s", err, said.String())
	}
	root := fmt.Sprintf("/proc/%d/root", cmd.Process.Pid)
	w := &way{name: name}
	for i := range endsOf {
		file := func(node string) string { return fmt.Sprintf("%s/proc/%d/ns/net", root, pids[node]) }
		w.left[i] = hostOf(t, file(fmt.Sprint("l", i+1)), 1, i)
		w.right[i] = hostOf(t, file(fmt.Sprint("r", i+1)), 2, i)
	}
	w.introduce(t)
	for i := 0; i < switches && datapath != "bridge"; i++ {
		conn, err := net.DialTimeout("unix", fmt.Sprintf("%s/run/openvswitch/s%d.mgmt", root, i+1), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		s, err := meet(conn, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.switches = append(w.switches, s)
	}
	return w
}
