// Package environment describes the conditions of a measurement: a Record of the machine, a Watch
// over it while a probe runs, and a Verdict on whether the results are the network's or those of an
// overloaded machine.
package environment

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/measure/stats"
)

// Record describes the measuring machine before the start. What could not be read is in Missing,
// with the reason.
type Record struct {
	Time     time.Time `json:"time"`
	TimeZone string    `json:"time_zone"`
	Host     string    `json:"host,omitempty"` // hash (see HostName), or name, or nothing
	Trivet   string    `json:"trivet"`         // version
	Go       string    `json:"go"`

	System      string `json:"system"` // the distribution
	Kernel      string `json:"kernel"` // release
	KernelBuild string `json:"kernel_build"`
	Machine     string `json:"machine"`      // x86_64, aarch64
	CommandLine string `json:"command_line"` // parameters of the kernel that affect processors; see cpuWords
	// Of the machine and of the container: "kvm", "docker"; empty: none detected.
	Virtualisation string `json:"virtualisation,omitempty"`
	ClockSource    string `json:"clock_source"`

	// Of the labs; nil: it varies within the experiment, or the result is an old one.
	Place   *Place                     `json:"place,omitempty"`
	Places  map[string]*Place          `json:"places,omitempty"` // if it varies within the experiment: all of them, by name
	CPU     CPU                        `json:"cpu"`
	Memory  Memory                     `json:"memory"`
	Load    Load                       `json:"load"`
	Tools   map[string]string          `json:"tools,omitempty"`    // first line of each program's version output
	Sysctls map[string]string          `json:"sysctls,omitempty"`  // requested ones that the kernel has
	Offload map[string]map[string]bool `json:"offloads,omitempty"` // by device
	Missing []string                   `json:"missing,omitempty"`
}

// CPU describes the processors. Model is "" if the machine does not report one.
type CPU struct {
	Model     string   `json:"model"`
	Online    int      `json:"online"`
	Cores     int      `json:"cores"` // physical ones that are online
	Usable    int      `json:"usable"`
	SMT       string   `json:"smt"` // on, off, notsupported, …: the kernel's words
	Microcode string   `json:"microcode,omitempty"`
	Governors []string `json:"governors,omitempty"`
	Driver    string   `json:"driver,omitempty"` // of the frequency: intel_pstate
	// Driver and governor of idle states, from which waking up takes time: "intel_idle, menu".
	Idle        string            `json:"idle,omitempty"`
	Turbo       string            `json:"turbo,omitempty"` // on, off
	MaxKHz      int               `json:"max_khz,omitempty"`
	Isolated    string            `json:"isolated,omitempty"`    // processors kept from the scheduler
	Mitigations map[string]string `json:"mitigations,omitempty"` // by vulnerability, of those that affect this machine
}

// Memory is in bytes.
type Memory struct {
	Total     uint64 `json:"total"`
	Available uint64 `json:"available"`
	SwapUsed  uint64 `json:"swap_used"`
}

// Load is the machine's load before the start.
type Load struct {
	Average [3]float64  `json:"average"` // over 1, 5 and 15 minutes
	Running int         `json:"running"` // runnable tasks, including this one
	Busy    stats.Float `json:"busy"`    // share of all processors' time, over Seconds
	Seconds float64     `json:"seconds"`
}

// HostName selects how a record identifies its machine.
type HostName string

// A hash is the same in all records of one machine, and does not reveal its name.
const (
	Hashed  HostName = ""
	Omitted HostName = "omit"
	Plain   HostName = "plain"
)

// Options select what a record includes besides the machine itself.
type Options struct {
	Tools   []string       // programs in use: "iperf3", "ovs-vswitchd"
	Ask     map[string]Ask // how to get the version of programs that --version does not suffice for
	Sysctls []string       // beyond DefaultSysctls
	Devices []Device       // network devices whose offloads matter
	Host    HostName       // default: hashed
	Settle  time.Duration  // how long to measure the load; 0: 200 ms
}

// OVSForwards is the key in Record.Tools for where Open vSwitch forwards. InUserSpace is the
// beginning of its value if that is not the kernel; forwarding is then about ten times slower.
const (
	OVSForwards = "where Open vSwitch forwards"
	InUserSpace = "in user space"
)

// Ask returns the version that a program reports.
type Ask = func(context.Context) (string, error)

// Device is a network device in a namespace, which is given by its path; empty: the caller's.
type Device struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"` // /var/run/netns/x, /proc/7/ns/net
}

// DefaultSysctls are in every record, if the kernel has them.
var DefaultSysctls = []string{
	"kernel.numa_balancing", "kernel.nmi_watchdog", "kernel.perf_event_paranoid", "kernel.sched_rt_runtime_us",
	"kernel.timer_migration", "net.core.bpf_jit_enable", "net.core.busy_poll", "net.core.default_qdisc",
	"net.core.dev_weight", "net.core.netdev_budget", "net.core.netdev_budget_usecs", "net.core.netdev_max_backlog",
	"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables", "net.core.gro_normal_batch",
	"net.core.rps_sock_flow_entries", "net.core.rmem_default", "net.core.rmem_max", "net.core.wmem_default",
	"net.core.wmem_max", "net.ipv4.ip_forward", "net.ipv4.neigh.default.gc_thresh3", "net.ipv4.tcp_congestion_control",
	"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_no_metrics_save", "net.ipv4.tcp_sack",
	"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_timestamps", "net.ipv6.conf.all.disable_ipv6",
	"net.ipv6.conf.all.forwarding",
}

// Take records the machine. It always returns a record, which lists what is missing from it.
func Take(ctx context.Context, o Options) Record {
	m := &machine{root: "/"}
	now := time.Now()
	r := Record{Time: now.UTC().Round(0), TimeZone: zone(now), Trivet: version.Version, Go: runtime.Version(),
		Host: m.host(o.Host)}
	m.system(&r)
	r.CPU, r.Memory = m.cpu(), m.memory()
	r.Sysctls = m.sysctls(slices.Concat(DefaultSysctls, o.Sysctls))
	r.Tools = m.tools(ctx, o.Tools)
	for name, ask := range o.Ask {
		said, err := ask(ctx)
		if err != nil {
			m.lack(name, err)
			continue
		}
		r.Tools[name] = said
	}
	r.Offload = m.offloads(o.Devices)
	settle := cmp.Or(o.Settle, 200*time.Millisecond)
	r.Load = m.load(ctx, settle)
	r.Missing = m.missing
	return r
}

func zone(t time.Time) string {
	name, offset := t.Zone()
	return fmt.Sprintf("%s %+03d:%02d", name, offset/3600, offset%3600/60)
}

// machine reads files below root, and collects what is missing.
type machine struct {
	root    string
	missing []string
}

func (m *machine) lack(what string, err error) {
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		err = fmt.Errorf("%s: %w", pathError.Path, pathError.Err)
	}
	m.missing = append(m.missing, fmt.Sprintf("%s: %v", what, err))
}

func (m *machine) read(path string) (string, error) {
	b, err := os.ReadFile(filepath.Join(m.root, path))
	return strings.TrimSpace(strings.TrimRight(string(b), "\x00")), err
}

// get reads a file; if that fails, it is recorded as missing.
func (m *machine) get(what, path string) string {
	text, err := m.read(path)
	if err != nil {
		m.lack(what, err)
	}
	return text
}

// maybe reads an optional file.
func (m *machine) maybe(path string) string {
	text, _ := m.read(path)
	return text
}

// host returns an HMAC of the hostname, keyed with the secret machine id, so that the name cannot
// be found by guessing.
func (m *machine) host(how HostName) string {
	name, err := os.Hostname()
	if err != nil || how == Omitted {
		return ""
	}
	if how == Plain {
		return name
	}
	id := m.maybe("etc/machine-id")
	if id == "" {
		m.missing = append(m.missing, "host: there is no /etc/machine-id to hash the name with")
		return ""
	}
	h := hmac.New(sha256.New, []byte(id))
	h.Write([]byte("trivet bench " + name))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func (m *machine) system(r *Record) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		m.lack("kernel", err)
	}
	r.Kernel, r.KernelBuild, r.Machine = unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]),
		unix.ByteSliceToString(u.Machine[:])
	for line := range strings.Lines(m.maybe("etc/os-release")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			r.System = strings.Trim(name, `"'`)
		}
	}
	r.CommandLine = cpuWords(m.get("command_line", "proc/cmdline"))
	r.ClockSource = m.get("clock_source", "sys/devices/system/clocksource/clocksource0/current_clocksource")
	r.Virtualisation = m.virtualisation()
}

// cpuWords returns the parameters of a kernel command line that affect results: the others may name
// disks and keys.
func cpuWords(line string) string {
	var kept []string
	for _, word := range strings.Fields(line) {
		key, _, _ := strings.Cut(word, "=")
		for _, prefix := range []string{"isolcpus", "nohz", "rcu_nocb", "mitigations", "nosmt", "maxcpus", "nr_cpus",
			"idle", "processor.",
			"intel_", "amd_", "cpufreq.", "cpuidle.", "spec", "spectre", "no", "l1tf", "mds", "tsx", "retbleed", "pti",
			"kpti", "clocksource", "tsc", "preempt", "irqaffinity", "threadirqs", "transparent_hugepage", "hugepages",
			"skew_tick", "workqueue."} {
			if strings.HasPrefix(key, prefix) {
				kept = append(kept, word)
				break
			}
		}
	}
	return strings.Join(kept, " ")
}

func (m *machine) memory() (out Memory) {
	values := m.kilobytes("memory", "proc/meminfo")
	return Memory{Total: values["MemTotal"], Available: values["MemAvailable"],
		SwapUsed: values["SwapTotal"] - values["SwapFree"]}
}

// kilobytes converts lines such as "MemTotal:  16 kB" to bytes.
func (m *machine) kilobytes(what, path string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(m.get(what, path)) {
		key, rest, ok := strings.Cut(line, ":")
		if words := strings.Fields(rest); ok && len(words) > 0 {
			if n, err := strconv.ParseUint(words[0], 10, 64); err == nil {
				out[key] = n << 10
			}
		}
	}
	return out
}

func (m *machine) sysctls(names []string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		// As in sysctl(8), slashes in names stand for dots within names of devices.
		path := strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, name)
		if !filepath.IsLocal(path) {
			m.lack("sysctl", fmt.Errorf("%q is not the name of a sysctl; write net.core.rmem_max", name))
			continue
		}
		if value, err := m.read(filepath.Join("proc/sys", path)); err == nil {
			out[name] = strings.Join(strings.Fields(value), " ")
		} else if !slices.Contains(DefaultSysctls, name) {
			m.lack("sysctl "+name, err)
		}
	}
	return out
}

func (m *machine) load(ctx context.Context, settle time.Duration) Load {
	var l Load
	l.Busy = stats.None
	text := m.get("load", "proc/loadavg")
	if n, err := fmt.Sscanf(text, "%f %f %f %d/", &l.Average[0], &l.Average[1], &l.Average[2], &l.Running); n < 4 &&
		text != "" {
		m.lack("load", fmt.Errorf("/proc/loadavg reads %q: %w", text, err))
	}
	before, begin, err := kernelStat{}, time.Now(), error(nil)
	if before, err = m.stat(); err != nil {
		m.lack("load", err)
		return l
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
	}
	after, err := m.stat()
	if err != nil {
		m.lack("load", err)
		return l
	}
	l.Seconds = time.Since(begin).Seconds()
	l.Busy = after.total.less(before.total).busy()
	return l
}
