package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestTake proves that a record of this machine holds what the machine says elsewhere, says what it
// misses, and survives JSON.
func TestTake(t *testing.T) {
	r := Take(context.Background(), Options{Tools: []string{"sh-that-is-not-there", "bash"}, Sysctls: []string{"kernel.osrelease", "no.such.thing", "../../etc/passwd"},
		Devices: []Device{{Name: "lo"}, {Name: "none-such"}}, Settle: 100 * time.Millisecond})
	uname, err := exec.Command("uname", "-r", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Kernel + " " + r.Machine; got != strings.TrimSpace(string(uname)) {
		t.Errorf("%q, uname says %q", got, uname)
	}
	if r.Sysctls["kernel.osrelease"] != r.Kernel || len(r.Sysctls) < 5 {
		t.Errorf("sysctls: %v", r.Sysctls)
	}
	if r.CPU.Online < runtime.NumCPU() || r.CPU.Cores < 1 || r.CPU.Cores > r.CPU.Online || r.Memory.Total < r.Memory.Available || r.Memory.Available == 0 {
		t.Errorf("hardware: %+v, %+v", r.CPU, r.Memory)
	}
	if !strings.Contains(r.Tools["bash"], "bash") || len(r.Offload["lo"]) < 3 {
		t.Errorf("tools %v, offloads %v", r.Tools, r.Offload)
	}
	if !(r.Load.Busy >= 0 && r.Load.Busy <= 1) || r.Load.Running < 1 || r.Load.Seconds < 0.1 {
		t.Errorf("load: %+v", r.Load)
	}
	for _, want := range []string{"sh-that-is-not-there: it is not installed", "no.such.thing", "etc/passwd", "none-such: there is no such device"} {
		if !strings.Contains(strings.Join(r.Missing, "\n"), want) {
			t.Errorf("nothing says that %q is missing: %v", want, r.Missing)
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Record
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(r, back) {
		t.Errorf("after JSON:\n%+v\nbefore:\n%+v\n%v", back, r, err)
	}
}

// TestHostName proves that a host's name shows only where it is asked for, and that a hash is the
// same each time.
func TestHostName(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	root := tree(t, map[string]string{"etc/machine-id": "0123456789abcdef0123456789abcdef\n"})
	m, other := &machine{root: root}, &machine{root: tree(t, map[string]string{"etc/machine-id": "ffffffffffffffffffffffffffffffff\n"})}
	hash := m.host(Hashed)
	if len(hash) != 16 || strings.Contains(hash, name) || hash != m.host(Hashed) || hash == other.host(Hashed) {
		t.Errorf("hash %q", hash)
	}
	if m.host(Omitted) != "" || m.host(Plain) != name {
		t.Errorf("%q, %q", m.host(Omitted), m.host(Plain))
	}
	if empty := (&machine{root: t.TempDir()}); empty.host(Hashed) != "" || len(empty.missing) != 1 {
		t.Errorf("without an id: %v", empty.missing)
	}
}

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestOtherMachines proves that machines unlike the one that runs the tests are understood: a
// Raspberry Pi, whose processor has no name, and a server with hyper-threads of which one is off
// line.
func TestOtherMachines(t *testing.T) {
	pi := &machine{root: tree(t, map[string]string{
		"proc/cpuinfo":                            "processor\t: 0\nBogoMIPS\t: 108.00\nCPU implementer\t: 0x41\n\nprocessor\t: 1\nBogoMIPS\t: 108.00\n\nRevision\t: c03111\n",
		"proc/device-tree/model":                  "Raspberry Pi 4 Model B Rev 1.1\x00",
		cpuDir + "/smt/control":                   "notimplemented\n",
		cpuDir + "/cpu0/cpufreq/scaling_governor": "ondemand\n",
		cpuDir + "/cpu0/cpufreq/cpuinfo_max_freq": "1500000\n",
		cpuDir + "/cpu1/cpufreq/scaling_governor": "ondemand\n",
		cpuDir + "/vulnerabilities/spectre_v2":    "Vulnerable\n",
		cpuDir + "/vulnerabilities/meltdown":      "Not affected\n",
	})}
	c := pi.cpu()
	if c.Model != "Raspberry Pi 4 Model B Rev 1.1" || c.Online != 2 || c.Cores != 2 || !reflect.DeepEqual(c.Governors, []string{"ondemand"}) || c.MaxKHz != 1500000 ||
		!reflect.DeepEqual(c.Mitigations, map[string]string{"spectre_v2": "Vulnerable"}) || pi.missing != nil || pi.virtualisation() != "" {
		t.Errorf("a Pi: %+v, %v", c, pi.missing)
	}
	server := &machine{root: tree(t, map[string]string{
		"proc/cpuinfo":                                 "processor\t: 0\nmodel\t\t: 42\nmodel name\t: Intel(R) Xeon(R) CPU E31230 @ 3.20GHz\nmicrocode\t: 0x2f\nflags\t\t: fpu hypervisor\n",
		"sys/class/dmi/id/sys_vendor":                  "QEMU\n",
		"run/systemd/container":                        "lxc\n",
		cpuDir + "/smt/control":                        "on\n",
		cpuDir + "/intel_pstate/no_turbo":              "1\n",
		cpuDir + "/cpu0/cpufreq/scaling_driver":        "intel_pstate\n",
		cpuDir + "/cpuidle/current_driver":             "intel_idle\n",
		cpuDir + "/cpuidle/current_governor_ro":        "menu\n",
		cpuDir + "/cpu0/topology/thread_siblings_list": "0,4\n",
		cpuDir + "/cpu4/topology/thread_siblings_list": "0,4\n",
		cpuDir + "/cpu4/online":                        "1\n",
		cpuDir + "/cpu5/online":                        "0\n",
	})}
	c = server.cpu()
	if c.Model != "Intel(R) Xeon(R) CPU E31230 @ 3.20GHz" || c.Online != 2 || c.Cores != 1 || c.SMT != "on" || c.Turbo != "off" || c.Microcode != "0x2f" || c.Driver != "intel_pstate" || c.Idle != "intel_idle, menu" || server.virtualisation() != "qemu, lxc" {
		t.Errorf("a server: %+v, %q", c, server.virtualisation())
	}
	if missing := strings.Join(server.missing, "\n"); !strings.Contains(missing, "governor") || !strings.Contains(missing, "mitigations") {
		t.Errorf("missing: %v", missing)
	}
}

// TestCommandLine proves that of a kernel's command line only what concerns figures is kept.
func TestCommandLine(t *testing.T) {
	got := cpuWords("BOOT_IMAGE=/vmlinuz root=UUID=1234 ro quiet isolcpus=2-3 nohz_full=2-3 mitigations=off cryptkey=abc intel_pstate=passive")
	if want := "isolcpus=2-3 nohz_full=2-3 mitigations=off intel_pstate=passive"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOffloads proves, in a namespace of its own, that offloads are read as ethtool reads them,
// before and after one is switched off.
func TestOffloads(t *testing.T) {
	for _, tool := range []string{"ip", "ethtool"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			t.Skip("needs root, ip and ethtool")
		}
	}
	ns := fmt.Sprint("trivet-environment-", os.Getpid())
	run := func(words ...string) string {
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", words, err, out)
		}
		return string(out)
	}
	run("ip", "netns", "add", ns)
	t.Cleanup(func() { run("ip", "netns", "del", ns) })
	run("ip", "-n", ns, "link", "add", "trivet-a", "type", "veth", "peer", "name", "trivet-b")
	device := Device{Name: "trivet-a", Namespace: "/var/run/netns/" + ns}
	for range 2 {
		got, err := Offloads(device)
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for line := range strings.Lines(run("ip", "netns", "exec", ns, "ethtool", "-k", "trivet-a")) {
			name, value, _ := strings.Cut(line, ":")
			if name == "tcp-segmentation-offload" {
				continue // ethtool's sum counts kinds of which the kernel's does not know
			}
			if strings.TrimSpace(name) == "tx-tcp-segmentation" {
				name = "tcp-segmentation-offload"
			}
			if on, ok := got[name]; ok {
				compared++
				if on != strings.HasPrefix(strings.TrimSpace(value), "on") {
					t.Errorf("%s: %v, ethtool says %s", name, on, value)
				}
			}
		}
		if compared != len(offloadCommands) {
			t.Errorf("%d compared: %v", compared, got)
		}
		run("ip", "netns", "exec", ns, "ethtool", "-K", "trivet-a", "tx", "off", "gro", "off")
	}
	if _, err := Offloads(Device{Name: "trivet-a"}); err == nil {
		t.Error("the device is seen outside of its namespace")
	}
	if _, err := Offloads(Device{Name: "lo", Namespace: "/var/run/netns/none-such"}); err == nil {
		t.Error("a namespace that there is not was entered")
	}
}
