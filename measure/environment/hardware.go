package environment

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const cpuDir = "sys/devices/system/cpu"

func (m *machine) cpu() CPU {
	c := CPU{Usable: runtime.NumCPU(), SMT: m.get("smt", cpuDir+"/smt/control"),
		Isolated: m.maybe(cpuDir + "/isolated")}
	info := m.get("cpu", "proc/cpuinfo")
	c.Microcode = cpuInfo(info)["microcode"]
	c.Model = cmp.Or(cpuModel(info), m.maybe("proc/device-tree/model"))
	if c.Model == "" {
		m.lack("cpu model", errors.New("/proc/cpuinfo does not say"))
	}
	dirs, _ := filepath.Glob(filepath.Join(m.root, cpuDir, "cpu[0-9]*"))
	cores := map[string]bool{}
	for _, dir := range dirs {
		at := func(name string) string { return m.maybe(filepath.Join(cpuDir, filepath.Base(dir), name)) }
		if at("online") == "0" {
			continue
		}
		c.Online++
		cores[cmp.Or(at("topology/thread_siblings_list"), filepath.Base(dir))] = true
		if g := at("cpufreq/scaling_governor"); g != "" && !slices.Contains(c.Governors, g) {
			c.Governors = append(c.Governors, g)
		}
		c.Driver = cmp.Or(c.Driver, at("cpufreq/scaling_driver"))
		if khz, _ := strconv.Atoi(at("cpufreq/cpuinfo_max_freq")); khz > c.MaxKHz {
			c.MaxKHz = khz
		}
	}
	c.Cores = len(cores)
	if c.Governors == nil {
		m.lack("governor", errors.New("this machine does not let its frequency be governed from here (no cpufreq)"))
	}
	c.Turbo, c.Idle = m.turbo(), m.idle()
	c.Mitigations = m.mitigations()
	return c
}

// cpuModel returns the processor's name; its key in /proc/cpuinfo depends on the architecture.
func cpuModel(info string) string {
	values := cpuInfo(info)
	return cmp.Or(values["model name"], values["cpu model"], values["hardware"])
}

// cpuInfo parses /proc/cpuinfo: the first value of each field.
func cpuInfo(info string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			if key = strings.ToLower(strings.TrimSpace(key)); values[key] == "" {
				values[key] = strings.TrimSpace(value)
			}
		}
	}
	return values
}

// idle returns the driver and the governor of idle states.
func (m *machine) idle() string {
	driver := m.maybe(cpuDir + "/cpuidle/current_driver")
	governor := cmp.Or(m.maybe(cpuDir+"/cpuidle/current_governor"),
		m.maybe(cpuDir+"/cpuidle/current_governor_ro"))
	if driver == "" || driver == "none" {
		return ""
	}
	return strings.TrimSuffix(driver+", "+governor, ", ")
}

func (m *machine) turbo() string {
	switch {
	case m.maybe(cpuDir+"/intel_pstate/no_turbo") == "1", m.maybe(cpuDir+"/cpufreq/boost") == "0":
		return "off"
	case m.maybe(cpuDir+"/intel_pstate/no_turbo") == "0", m.maybe(cpuDir+"/cpufreq/boost") == "1":
		return "on"
	}
	return ""
}

// mitigations lists the vulnerabilities known to the kernel, with their mitigations.
func (m *machine) mitigations() map[string]string {
	dir := filepath.Join(m.root, cpuDir, "vulnerabilities")
	entries, err := os.ReadDir(dir)
	if err != nil {
		m.lack("mitigations", err)
		return nil
	}
	out := map[string]string{}
	for _, e := range entries {
		if text := m.maybe(filepath.Join(cpuDir, "vulnerabilities", e.Name())); text != "" && text != "Not affected" {
			out[e.Name()] = text
		}
	}
	return out
}

// virtualisation says which virtual machine and which container this process runs in: the former
// from the firmware or the processor, the latter from traces of its manager.
func (m *machine) virtualisation() string {
	var out []string
	info := m.maybe("proc/cpuinfo")
	vendor := m.maybe("sys/class/dmi/id/sys_vendor") + " " + m.maybe("sys/class/dmi/id/product_name") + " " +
		m.maybe("sys/hypervisor/type")
	machine := ""
	for _, known := range [][2]string{{"QEMU", "qemu"}, {"KVM", "kvm"}, {"VMware", "vmware"},
		{"VirtualBox", "virtualbox"}, {"Xen", "xen"}, {"xen", "xen"},
		{"Microsoft Corporation Virtual", "hyper-v"}, {"Amazon EC2", "amazon"}, {"Google Compute", "google"},
		{"OpenStack", "openstack"}, {"Parallels", "parallels"}} {
		if machine == "" && strings.Contains(vendor, known[0]) {
			machine = known[1]
		}
	}
	switch {
	case strings.Contains(info, "User Mode Linux"):
		out = append(out, "uml")
	case machine != "":
		out = append(out, machine)
	case slices.Contains(strings.Fields(info), "hypervisor"):
		out = append(out, "a virtual machine")
	}
	container := m.maybe("run/systemd/container")
	if container == "" {
		for file, name := range map[string]string{".dockerenv": "docker", "run/.containerenv": "podman"} {
			if _, err := os.Stat(filepath.Join(m.root, file)); err == nil {
				container = name
			}
		}
	}
	if container != "" {
		out = append(out, container)
	}
	return strings.Join(out, ", ")
}
