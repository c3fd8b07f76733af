package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// snapshot is everything on a machine that a lab may touch, a line each.
type snapshot []string

// snapshot looks at links, addresses, routes, queueing disciplines, firewall tables,
// processes, namespaces, mounts, files, cgroups and settings of the kernel.
func (m *machine) snapshot() (s snapshot) {
	m.t.Helper()
	looks := []func(*snapshot) error{lookAtProcesses, lookAtMounts, lookAtFiles, m.lookAtCgroups}
	if !m.shared {
		looks = append(looks, lookAtLinks, lookAtFirewall, lookAtSettings)
	}
	must(m.t, m.inside(func() error {
		for _, look := range looks {
			before := len(s)
			err := look(&s)
			for try := 0; errors.Is(err, netlink.ErrDumpInterrupted) && try < 100; try++ { // something changed meanwhile
				s = s[:before]
				err = look(&s)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	slices.Sort(s)
	return slices.Compact(s)
}

func (s *snapshot) add(format string, args ...any) { *s = append(*s, fmt.Sprintf(format, args...)) }

func lookAtLinks(s *snapshot) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		a := l.Attrs()
		s.add("link %d %s %s %s mtu %d master %d group %d %s", a.Index, a.Name, l.Type(), a.HardwareAddr, a.MTU, a.MasterIndex, a.Group, a.Flags&^net.FlagRunning) // a carrier comes late
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() { // the kernel's own come late
			s.add("address %d %s", a.LinkIndex, a.IPNet)
		}
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, r := range routes {
		s.add("route %s", r)
	}
	qdiscs, err := netlink.QdiscList(nil)
	for _, q := range qdiscs {
		s.add("qdisc %d %s", q.Attrs().LinkIndex, q.Type())
	}
	return err
}

func lookAtFirewall(s *snapshot) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTables()
	for _, t := range tables {
		s.add("firewall table %d %s", t.Family, t.Name)
	}
	return err
}

// lookAtProcesses lists the processes of the machine, and the namespaces that its threads are in.
func lookAtProcesses(s *snapshot) error {
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, p := range pids {
		stat, err := os.ReadFile(p + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			continue // it has ended; the first process is about to bury it
		}
		name, _ := os.ReadFile(p + "/cmdline")
		if len(name) == 0 {
			continue // it is ending
		}
		s.add("process %s", bytes.ReplaceAll(bytes.Trim(name, "\x00"), []byte{0}, []byte{' '}))
		spaces, _ := filepath.Glob(p + "/task/*/ns/*")
		for _, n := range spaces {
			if link, err := os.Readlink(n); err == nil {
				s.add("namespace %s", link)
			}
		}
	}
	return nil
}

func lookAtMounts(s *snapshot) error {
	b, err := os.ReadFile("/proc/1/mountinfo")
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		s.add("mount %s", strings.Join(strings.Fields(lines.Text())[3:], " "))
	}
	return err
}

func lookAtFiles(s *snapshot) error {
	return filepath.WalkDir("/run", func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			s.add("file %s %s", path, d.Type())
		}
		return nil
	})
}

// settings are those that labs may change on the machine; not all are seen from within a network
// namespace.
var settings = []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/core/netdev_max_backlog",
	"net/ipv4/neigh/default/gc_thresh1", "net/ipv4/neigh/default/gc_thresh2", "net/ipv4/neigh/default/gc_thresh3",
	"net/ipv6/neigh/default/gc_thresh1", "net/ipv6/neigh/default/gc_thresh2", "net/ipv6/neigh/default/gc_thresh3",
	"net/ipv4/ip_default_ttl", "net/ipv4/ping_group_range"}

func lookAtSettings(s *snapshot) error {
	for _, name := range settings {
		// Of the thread: /proc/sys/net is that of who opens it.
		if b, err := os.ReadFile("/proc/sys/" + name); err == nil {
			s.add("setting %s %s", name, bytes.TrimSpace(b))
		}
	}
	host, err := os.Hostname()
	s.add("hostname %s", host)
	return err
}

// lookAtCgroups lists the groups of this machine's labs in every hierarchy, and what runs in them.
func (m *machine) lookAtCgroups(s *snapshot) error {
	for _, g := range m.cgroups() {
		s.add("cgroup %s", g)
	}
	return nil
}

// cgroups are the groups of the machine's labs, in every hierarchy.
func (m *machine) cgroups() (out []string) {
	mounts, _ := os.ReadFile("/proc/1/mounts")
	for lines := bufio.NewScanner(bytes.NewReader(mounts)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 3 || !strings.HasPrefix(words[2], "cgroup") {
			continue
		}
		labs, _ := filepath.Glob(filepath.Join(words[1], "trivet", m.name+"*"))
		for _, top := range labs {
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					out = append(out, path)
				}
				return nil
			})
		}
	}
	return out
}

// cleanCgroups removes what a failed test left, once its processes have been killed: the only
// thing that does not end with the machine.
func (m *machine) cleanCgroups() {
	groups := m.cgroups()
	slices.Reverse(groups)
	for _, g := range groups {
		procs, _ := os.ReadFile(filepath.Join(g, "cgroup.procs"))
		for _, word := range strings.Fields(string(procs)) {
			var pid int
			if _, err := fmt.Sscan(word, &pid); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		for range 200 {
			if unix.Rmdir(g) == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if filepath.Base(filepath.Dir(g)) == "trivet" {
			_ = unix.Rmdir(filepath.Dir(g)) // stays where another lab is
		}
	}
}

// unchanged fails the test where the machine is not as it was.
func (m *machine) unchanged(before snapshot) {
	m.t.Helper()
	if d := m.snapshot().differs(before); d != "" {
		m.t.Fatalf("the machine is not as it was:\n%s", d)
	}
}

// differs lists what is new and what is missing.
func (s snapshot) differs(before snapshot) string {
	var b strings.Builder
	for _, line := range s {
		if !slices.Contains(before, line) {
			b.WriteString("+ " + line + "\n")
		}
	}
	for _, line := range before {
		if !slices.Contains(s, line) {
			b.WriteString("- " + line + "\n")
		}
	}
	return b.String()
}

// TestSnapshotSees proves that the comparison notices each kind of leftover: without
// this, "nothing is left" could be said of a machine that nobody has looked at.
func TestSnapshotSees(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	for kind, leave := range map[string]string{
		"link":      "ip link add left type veth peer name over",
		"address":   "ip addr add 192.0.2.1/32 dev lo",
		"process":   "sleep 987 >/dev/null 2>&1 &",
		"namespace": `unshare -n sleep 986 >/dev/null 2>&1 & while [ "$(readlink /proc/$!/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done`,
		"mount":     "ip netns add left",
		"file":      "touch /run/left",
		"setting":   "echo 1 > /proc/sys/net/ipv4/ip_forward",
		"cgroup":    "mkdir -p $(awk '$3 ~ /^cgroup/ {print $2; exit}' /proc/1/mounts)/trivet/" + m.name,
	} {
		m.sh(leave)
		if d := m.snapshot().differs(before); !strings.Contains(d, "+ "+kind) {
			t.Errorf("a leftover %s is not seen in:\n%s", kind, d)
		}
	}
}
