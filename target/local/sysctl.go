package local

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// Settings of namespaces, which disappear with them. Settings of the machine, which down restores,
// are in limits.go; those of interfaces that are moved into a lab, in nic.go.

// A sysctl is a setting below /proc/sys; an optional one is skipped if the kernel lacks it.
type sysctl struct {
	key, value string
	optional   bool
}

// writeSysctls writes settings in the network namespace of the calling thread.
func writeSysctls(list []sysctl) error { return writeBelow(unix.AT_FDCWD, "/proc/", list) }

// writeBelow is writeSysctls for another procfs: root is the path of its root from the open
// directory dir.
func writeBelow(dir int, root string, list []sysctl) error {
	var errs []error
	for _, s := range list {
		path := sysctlPath(s.key)
		if below, ok := strings.CutPrefix(path, "/proc/"); ok {
			path = root + below
		}
		err := writeFile(dir, path, s.value)
		if err != nil && !(s.optional && (errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission))) {
			errs = append(errs, fmt.Errorf("%s: %w", sysctlPath(s.key), err))
		}
	}
	return errors.Join(errs...)
}

func writeFile(dir int, path, value string) error {
	fd, err := unix.Openat(dir, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// sysctlPath turns net.ipv4.ip_forward into its file name; a path stays as it is.
func sysctlPath(key string) string {
	if filepath.IsAbs(key) {
		return key
	}
	return filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
}

// settings writes sysctls of many network namespaces, one after another. The kernel keeps the
// opened files of all namespaces in one list per name and procfs, and searches that list when one
// is opened. So every few namespaces share a procfs that is not mounted anywhere; it ends, with its
// lists, when the next is made.
type settings struct {
	proc  int // the procfs, or 0
	since int // namespaces that have used it
}

// perProcfs is how many namespaces share a procfs: few enough for short lists, and enough for the
// cost of a procfs not to matter.
const perProcfs = 64

// write writes settings in the network namespace of the calling thread.
func (s *settings) write(list []sysctl) error {
	if s.since%perProcfs == 0 {
		s.close()
		s.proc = newProcfs()
	}
	s.since++
	if s.proc > 0 {
		return writeBelow(s.proc, "", list)
	}
	return writeSysctls(list)
}

func (s *settings) close() {
	if s.proc > 0 {
		unix.Close(s.proc)
		s.proc = 0
	}
}

// newProcfs makes a procfs without mounting it, and returns its root; 0 if the kernel does not
// allow it, as in some containers, where the mounted one has to do.
func newProcfs() int {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return 0
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return 0
	}
	return root
}

func readSysctl(key string) (string, error) {
	b, err := os.ReadFile(sysctlPath(key))
	return strings.TrimSpace(string(b)), err
}

// fabricSysctls keep the switches' own devices silent: they have no addresses and must not solicit
// any, and no firewall of the machine may inspect bridged frames.
func fabricSysctls() []sysctl {
	return []sysctl{
		{"net.ipv6.conf.all.disable_ipv6", "1", true},
		{"net.ipv6.conf.default.disable_ipv6", "1", true},
		{"net.bridge.bridge-nf-call-iptables", "0", true},
		{"net.bridge.bridge-nf-call-ip6tables", "0", true},
		{"net.bridge.bridge-nf-call-arptables", "0", true},
	}
}

// longPath is the number of routers on a path beyond which the usual TTL of 64 becomes tight.
const longPath = 60

// LongPaths says whether hosts get TTL and hop limit 255: the longest routed path exceeds 60 hops.
func LongPaths(t *topology.Topology) bool { return t.RouterHops > longPath }

// pingers says which groups may send echo requests unprivileged.
const (
	pingers = "net.ipv4.ping_group_range"
	anybody = "0 2147483647"
)

// nodeSysctls are the settings of the namespaces of a host or router.
func (l *Lab) nodeSysctls(n *topology.Node) []sysctl {
	if n.Made().Guest {
		return fabricSysctls()
	}
	return l.ownSysctls(n)
}

// Settings returns a node's settings for a fabric in which the node may be a machine of its own.
func (s site) Settings(n *topology.Node) (out []datapath.Setting) {
	for _, x := range append(s.ownSysctls(n), askedSysctls(n)...) {
		out = append(out, datapath.Setting{Path: sysctlPath(x.key), Value: x.value, Optional: x.optional})
	}
	return out
}

func (l *Lab) ownSysctls(n *topology.Node) []sysctl {
	var s []sysctl
	off := "0"
	switch l.Topology().IPv6 {
	case topology.IPv6Auto, topology.IPv6LinkLocal:
	case topology.IPv6Assigned:
		for _, conf := range []string{"all", "default"} {
			s = append(s,
				sysctl{"net.ipv6.conf." + conf + ".accept_ra", "0", true},
				sysctl{"net.ipv6.conf." + conf + ".autoconf", "0", true},
				sysctl{"net.ipv6.conf." + conf + ".dad_transmits", "0", true},
				sysctl{"net.ipv6.conf." + conf + ".accept_dad", "0", true},
				sysctl{"net.ipv6.conf." + conf + ".router_solicitations", "0", true},
				sysctl{"net.ipv6.conf." + conf + ".keep_addr_on_down", "1", true})
		}
		if n.Kind != topology.Router { // routers solicit from link-local addresses
			s = append(s, sysctl{"net.ipv6.conf.default.addr_gen_mode", "1", true})
		}
	default:
		off = "1"
	}
	if off == "1" || n.Contained() { // Docker has it off in containers without a network
		s = append(s,
			sysctl{"net.ipv6.conf.all.disable_ipv6", off, true},
			sysctl{"net.ipv6.conf.default.disable_ipv6", off, true})
	}
	s = append(s, sysctl{pingers, anybody, true})
	if window := l.is.Load().window; window > defaultWindow {
		s = append(s,
			sysctl{"net.ipv4.tcp_rmem", fmt.Sprintf("4096 131072 %d", window), true},
			sysctl{"net.ipv4.tcp_wmem", fmt.Sprintf("4096 16384 %d", window), true})
	}
	if n.Kind == topology.Host { // new namespaces forward if the machine does, as Docker makes it
		s = append(s, sysctl{"net.ipv4.ip_forward", "0", true})
	}
	if n.Kind == topology.Router {
		s = append(s,
			sysctl{"net.ipv4.ip_forward", "1", false},
			sysctl{"net.ipv4.conf.all.rp_filter", "0", true},
			sysctl{"net.ipv4.conf.default.rp_filter", "0", true},
			sysctl{"net.ipv4.icmp_ratelimit", "0", true},
			sysctl{"net.ipv6.conf.all.forwarding", "1", true})
	}
	if LongPaths(l.Topology()) {
		s = append(s,
			sysctl{"net.ipv4.ip_default_ttl", "255", false},
			sysctl{"net.ipv6.conf.all.hop_limit", "255", true},
			sysctl{"net.ipv6.conf.default.hop_limit", "255", true})
	}
	return s
}

// askedSysctls returns the settings that the topology has for a node, some of which may be of its
// devices.
func askedSysctls(n *topology.Node) []sysctl {
	return lists.Map(n.Sysctls, func(x topology.Assignment) sysctl { return sysctl{x.Name, x.Value, false} })
}

// defaultWindow is the kernel's own limit for a TCP send buffer, in bytes.
const defaultWindow = 4 << 20

// windowFor is the buffer size that lets one TCP connection fill the fastest long link: 4 ×
// bandwidth × round-trip time, because the kernel counts its own overhead, too, and keeps twice
// what is in flight.
func windowFor(t *topology.Topology) int {
	window := 0
	for _, link := range t.Links {
		a, b := link.Egress(0), link.Egress(1)
		rate := cmp.Or(max(a.Bandwidth, b.Bandwidth), 1_000_000_000)
		roundTrip := time.Duration(a.Delay + b.Delay).Seconds()
		window = max(window, int(4*float64(rate)/8*roundTrip))
	}
	return min(window, 256<<20)
}
