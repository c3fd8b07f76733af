package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Traces describes everything on this machine that a lab could change, in lines that stay the same
// as long as nothing changes: interfaces, addresses, rules, routes, queues and filters, names,
// settings, and files that labs leave behind, also in labs, their directory.
func Traces(labs string) []string {
	t := &traces{}
	devices, err := netlink.LinkList()
	t.fail("interfaces", err)
	names := map[int]string{}
	for _, d := range devices {
		names[d.Attrs().Index] = d.Attrs().Name
	}
	for _, d := range devices {
		t.device(d, names)
	}
	t.routing(names)
	t.file("/etc/hosts")
	if name, err := os.Hostname(); err == nil {
		t.add("hostname %s", name)
	}
	for _, pattern := range []string{filepath.Join(labs, "*"), "/run/netns/*", "/sys/fs/cgroup/trivet*"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			t.add("file %s", f)
		}
	}
	t.settings("/proc/sys/net/ipv4", "/proc/sys/net/ipv6/conf")
	slices.Sort(t.lines)
	return t.lines
}

type traces struct{ lines []string }

func (t *traces) add(format string, a ...any) { t.lines = append(t.lines, fmt.Sprintf(format, a...)) }

// fail adds a line for what cannot be read.
func (t *traces) fail(what string, err error) {
	if err != nil {
		t.add("%s: %v", what, err)
	}
}

func (t *traces) device(d netlink.Link, names map[int]string) {
	a := d.Attrs()
	line := fmt.Sprintf("interface %s %s %s mtu %d flags %x", a.Name, d.Type(), a.HardwareAddr, a.MTU,
		a.RawFlags&^unix.IFF_RUNNING&^unix.IFF_LOWER_UP)
	if v, ok := d.(*netlink.Vlan); ok {
		line += fmt.Sprintf(" vlan %d on %s", v.VlanId, names[a.ParentIndex])
	}
	t.add("%s master %s", line, names[a.MasterIndex])
	addresses, err := netlink.AddrList(d, netlink.FAMILY_ALL)
	t.fail("addresses of "+a.Name, err)
	for _, x := range addresses {
		t.add("address %s on %s", x.IPNet, a.Name)
	}
	queues, err := netlink.QdiscList(d)
	t.fail("queues of "+a.Name, err)
	for _, q := range queues {
		if q.Attrs().LinkIndex == a.Index {
			t.add("queue %s %x on %s", q.Type(), q.Attrs().Parent, a.Name)
		}
	}
	for side, parent := range map[string]uint32{"ingress": netlink.HANDLE_MIN_INGRESS,
		"egress": netlink.HANDLE_MIN_EGRESS} {
		filters, _ := netlink.FilterList(d, parent)
		for _, f := range filters {
			t.add("filter %s %d %s on %s", f.Type(), f.Attrs().Priority, side, a.Name)
		}
	}
}

func (t *traces) routing(names map[int]string) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, _ := netlink.RuleList(family) // a family that the kernel lacks has none
		for _, r := range rules {
			t.add("rule %d: %s protocol %d", r.Priority, r, r.Protocol)
		}
		routes, _ := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		for _, r := range routes {
			if r.Flags&unix.RTM_F_CLONED == 0 {
				t.add("route %v via %v from %v on %s table %d type %d", r.Dst, r.Gw, r.Src, names[r.LinkIndex], r.Table,
					r.Type)
			}
		}
	}
}

func (t *traces) file(name string) {
	b, err := os.ReadFile(name)
	t.fail(name, err)
	for line := range strings.Lines(string(b)) {
		t.add("%s: %s", name, strings.TrimRight(line, "\n"))
	}
}

// settings adds the kernel's network settings, except for keys and what changes by itself.
func (t *traces) settings(dirs ...string) {
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			name := filepath.Base(path)
			if err != nil || d.IsDir() || strings.Contains(name, "key") || strings.Contains(name, "secret") ||
				strings.Contains(name, "fib_") || name == "flush" {
				return nil
			}
			if b, err := os.ReadFile(path); err == nil {
				t.add("%s = %s", path, strings.TrimSpace(string(b)))
			}
			return nil
		})
	}
}

// Differing lists the lines of two descriptions that only one has.
func Differing(was, is []string) (out []string) {
	for _, line := range was {
		if !slices.Contains(is, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			out = append(out, "+ "+line)
		}
	}
	return out
}
