package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/datapath/embedded/bpf"
	"trivet.dev/trivet/internal/clsact"
	"trivet.dev/trivet/internal/inside"
)

// endsOf is how many hosts are at each end of a way: pairs that can talk at once.
const endsOf = 5

// host is a network namespace with one device.
type host struct {
	file    string // of the namespace
	address netip.Addr
	mac     net.HardwareAddr
}

// way is something that joins hosts, left[i] with right[i].
type way struct {
	name        string
	left, right [endsOf]*host
	switches    []*session // what its switches are told by; none: it has no flow tables
	routes      bool       // the switches are routing nodes
}

// hostOf gives the device in a namespace its address, side 1 or 2, number 0 to endsOf-1.
func hostOf(t *testing.T, file string, side, number int) *host {
	t.Helper()
	h := &host{file: file, address: netip.AddrFrom4([4]byte{10, 99, byte(side), byte(number + 1)})}
	h.inside(t, func() error {
		_ = os.WriteFile("/proc/sys/net/ipv4/ip_default_ttl", []byte("255"), 0) // 100 routers take 100 of it
		link, err := h.device()
		if err != nil {
			return err
		}
		h.mac = link.Attrs().HardwareAddr
		old, err := netlink.AddrList(link, netlink.FAMILY_V4)
		for _, a := range old {
			err = errors.Join(err, netlink.AddrDel(link, &a))
		}
		address := &netlink.Addr{IPNet: &net.IPNet{IP: h.address.AsSlice(), Mask: net.CIDRMask(16, 32)}}
		return errors.Join(err, netlink.AddrAdd(link, address), netlink.LinkSetUp(link))
	})
	return h
}

// device is that of the calling thread's namespace which is not the loopback.
func (h *host) device() (netlink.Link, error) {
	links, err := netlink.LinkList()
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback == 0 && l.Type() == "veth" {
			return l, err
		}
	}
	return nil, errors.Join(fmt.Errorf("%s has no device", h.file), err)
}

// introduce tells the hosts each other's hardware addresses, so that nothing is asked for while
// time is taken.
func (w *way) introduce(t *testing.T) {
	t.Helper()
	for i := range endsOf {
		for _, pair := range [][2]*host{{w.left[i], w.right[i]}, {w.right[i], w.left[i]}} {
			pair[0].inside(t, func() error {
				link, err := pair[0].device()
				if err != nil {
					return err
				}
				return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: pair[1].address.AsSlice(), HardwareAddr: pair[1].mac})
			})
		}
	}
}

// inside calls f on a thread in the host's namespace.
func (h *host) inside(t *testing.T, f func() error) {
	t.Helper()
	if err := inside.Namespace(h.file, f); err != nil {
		t.Fatalf("in %s: %v", h.file, err)
	}
}

// command is one in the host's namespace.
func (h *host) command(argv ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + h.file, "--"}, argv...)...)
}

var namespaces atomic.Int32

// namespace makes one that goes with the test.
func namespace(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("trivet-bench-%d-%d", os.Getpid(), namespaces.Add(1))
	sh(t, "ip", "netns", "add", name)
	t.Cleanup(func() { sh(t, "ip", "netns", "del", name) })
	file := "/run/netns/" + name
	if err := inside.Namespace(file, func() error {
		for _, which := range []string{"default", "all"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return file
}

func sh(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

// vethWay is pairs of hosts at the two ends of a veth pair each.
func vethWay(t *testing.T) *way {
	w := &way{name: "veth pair"}
	for i := range endsOf {
		a, b := namespace(t), namespace(t)
		sh(t, "ip", "-n", filepath.Base(a), "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", filepath.Base(b))
		w.left[i], w.right[i] = hostOf(t, a, 1, i), hostOf(t, b, 2, i)
	}
	w.introduce(t)
	return w
}

// nullWay is pairs of hosts whose devices in a third namespace a program joins that does nothing
// else than to redirect: the least that a switch between two hosts can cost.
func nullWay(t *testing.T) *way {
	w := &way{name: "null program"}
	_ = rlimit.RemoveMemlock()
	var objects struct {
		Null    *ebpf.Program `ebpf:"null"`
		Devices *ebpf.Map     `ebpf:"devices"`
	}
	spec, err := bpf.LoadForward()
	if err == nil {
		spec.Maps[bpf.ForwardMapDevices].MaxEntries = 2 * endsOf
		err = spec.LoadAndAssign(&objects, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { objects.Null.Close(); objects.Devices.Close() })
	fabric := namespace(t)
	for i := range endsOf {
		var index [2]int
		for side := range 2 {
			file, name := namespace(t), fmt.Sprintf("p%d-%d", i, side)
			sh(t, "ip", "-n", filepath.Base(fabric), "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", filepath.Base(file))
			sh(t, "ip", "-n", filepath.Base(fabric), "link", "set", name, "up")
			if side == 0 {
				w.left[i] = hostOf(t, file, 1, i)
			} else {
				w.right[i] = hostOf(t, file, 2, i)
			}
			if err := inside.Namespace(fabric, func() error {
				link, err := netlink.LinkByName(name)
				if err == nil {
					index[side] = link.Attrs().Index
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		for side := range 2 {
			if err := errors.Join(objects.Devices.Put(uint32(index[side]), uint32(index[1-side])),
				inside.Namespace(fabric, func() error { return attach(index[side], objects.Null.FD()) })); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.introduce(t)
	return w
}

// attach puts a program at the ingress of a device.
func attach(index, program int) error {
	return errors.Join(clsact.Add(index), netlink.FilterReplace(clsact.Ingress(index, program, "null")))
}

// Ports of a switch in a line.
const (
	leftPort, rightPort = 1, 11 // of the first hosts at both ends
	backPort, onPort    = 21, 22
)

// lineFile writes the topology of a line of switches with hosts l1, l2, … and r1, r2, … at its
// ends.
func lineFile(t *testing.T, name string, switches int, datapath, controller string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nnodes:\n  l[1-%d]: host\n  r[1-%d]: host\n  s[1-%d]:\n    switch: {datapath: %s, controller: \"%s\", fail_mode: secure}\nlinks:\n",
		name, endsOf, endsOf, switches, datapath, controller)
	for i := range endsOf {
		fmt.Fprintf(&b, "  - l%d -- s1:%d\n  - r%d -- s%d:%d\n", i+1, leftPort+i, i+1, switches, rightPort+i)
	}
	for i := 1; i < switches; i++ {
		fmt.Fprintf(&b, "  - s%d:%d -- s%d:%d\n", i, onPort, i+1, backPort)
	}
	file := filepath.Join(t.TempDir(), name+".yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// labWay is a line of switches in a lab of Trivet's, here or at a site.
func labWay(t *testing.T, name string, switches int, datapath string, o *office, at *site) *way {
	t.Helper()
	up := []string{"up", lineFile(t, name, switches, datapath, o.address), "--wait", "60s"}
	dir := filepath.Join(os.Getenv("TRIVET_RUN_DIR"), name)
	if at != nil {
		up, dir = append(up, "--on", at.list), at.dir(name)
	}
	trivet(t, nil, up...)
	t.Cleanup(func() { trivet(t, nil, "down", name) })
	w := &way{name: name, switches: o.wait(t, switches)}
	for i := range endsOf {
		file := func(node string) string { return filepath.Join(dir, "ns", "net", node) }
		w.left[i] = hostOf(t, file(fmt.Sprint("l", i+1)), 1, i)
		w.right[i] = hostOf(t, file(fmt.Sprint("r", i+1)), 2, i)
	}
	w.introduce(t)
	return w
}

// listen opens a UDP socket of a host.
func (h *host) listen(t *testing.T, port int) (c *net.UDPConn) {
	t.Helper()
	h.inside(t, func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: h.address.AsSlice(), Port: port})
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func addrPort(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }
