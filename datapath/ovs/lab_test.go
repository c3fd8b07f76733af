package ovs

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/topology"
)

// testLab is a private Open vSwitch in a namespace of its own, with hosts beside it.
type testLab struct {
	*Switches
	t   *testing.T
	ctx context.Context
	ns  string // of the switches
}

var labs atomic.Int32

// newNamespace makes a network namespace that is removed at the end of the test.
func newNamespace(t *testing.T, name string) string {
	t.Helper()
	name = fmt.Sprintf("trivet-ovs-%d-%d-%s", os.Getpid(), labs.Add(1), name)
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	if err := silenceIPv6(name); err != nil {
		t.Fatal(err)
	}
	return name
}

// silenceIPv6 keeps the devices of a namespace from sending anything by themselves.
func silenceIPv6(ns string) error {
	return inside.Namespace("/run/netns/"+ns, func() error {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
		if os.IsNotExist(err) { // a kernel without IPv6
			return nil
		}
		return err
	})
}

// shortDir makes a temporary directory whose path is short enough for sockets; T.TempDir's may not
// be.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func requireOVS(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := findPrograms(); err != nil {
		t.Skip(err)
	}
}

// newLab starts Open vSwitch, with the kernel's datapath if there is one.
func newLab(t *testing.T) *testLab {
	t.Helper()
	requireOVS(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	l := &testLab{t: t, ctx: ctx, ns: newNamespace(t, "sw")}
	s, err := Start(ctx, Config{Dir: shortDir(t), NetNS: "/run/netns/" + l.ns})
	if err != nil {
		t.Fatal(err)
	}
	l.Switches = s
	t.Cleanup(func() {
		if err := l.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(tail(l.vswitch.file(".log"), 3000))
		}
	})
	return l
}

// host makes a namespace with a device eth0, whose other end is a device of the switches.
func (l *testLab) host(port, address string) string {
	l.t.Helper()
	ns := newNamespace(l.t, port)
	run(l.t, "ip", "-n", ns, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", l.ns)
	run(l.t, "ip", "-n", l.ns, "link", "set", port, "up")
	run(l.t, "ip", "-n", ns, "link", "set", "eth0", "up")
	run(l.t, "ip", "-n", ns, "link", "set", "lo", "up")
	run(l.t, "ip", "-n", ns, "address", "add", address, "dev", "eth0")
	if l.NeedsChecksums() {
		run(l.t, "ip", "netns", "exec", ns, "ethtool", "-K", "eth0", "tx", "off")
	}
	return ns
}

func (l *testLab) apply(bridges ...Bridge) {
	l.t.Helper()
	if err := l.Apply(l.ctx, bridges); err != nil {
		l.t.Fatal(err)
	}
}

// counter returns a counter of a port.
func (l *testLab) counter(port, name string) uint64 {
	l.t.Helper()
	status, err := l.Status(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, b := range status {
		for _, p := range b.Ports {
			if p.Name == port {
				return p.Counters[name]
			}
		}
	}
	l.t.Fatalf("there is no port %s", port)
	return 0
}

func run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// reaches says whether a ping from a host is answered within half a minute.
func reaches(ns, address string) bool {
	return exec.Command("ip", "netns", "exec", ns, "ping", "-c1", "-W30", address).Run() == nil
}

// broadcast sends n frames of an experimental EtherType from a host's eth0 to everybody.
func broadcast(t *testing.T, ns string, n int) {
	t.Helper()
	err := inside.Namespace("/run/netns/"+ns, func() error {
		device, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := make([]byte, 60)
		copy(frame, "\xff\xff\xff\xff\xff\xff")
		copy(frame[6:], device.HardwareAddr)
		copy(frame[12:], "\x88\xb5") // IEEE 802 local experimental
		for range n {
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: device.Index}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// broadcasts returns a function that counts the frames of broadcast that have arrived at a host's
// eth0 since the last call; it waits until as many as expected have, and no more arrive.
func broadcasts(t *testing.T, ns string) (count func(want int) int) {
	t.Helper()
	var fd int
	err := inside.Namespace("/run/netns/"+ns, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0xb588) // in network byte order
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return func(want int) (n int) {
		for {
			timeout := 500
			if n < want {
				timeout = 10_000
			}
			ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, timeout)
			if err == unix.EINTR {
				continue
			}
			if ready == 0 {
				return n
			}
			if _, _, err := unix.Recvfrom(fd, make([]byte, 100), 0); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
}

// pair is two bridges joined by a patch, each with a port for a host.
func pair() []Bridge {
	return []Bridge{
		{Name: "s1", DPID: 1, Ports: []Port{{Name: "s1-eth1", Number: 1}, {Name: "s1-eth2", Number: 2, Patch: "s2-eth2"}}},
		{Name: "s2", DPID: 2, Ports: []Port{{Name: "s2-eth1", Number: 1}, {Name: "s2-eth2", Number: 2, Patch: "s1-eth2"}}},
	}
}

// ring is n bridges in a ring of patches, each with a port for a host.
func ring(n int) []Bridge {
	var out []Bridge
	for i := range n {
		here, next, last := i+1, (i+1)%n+1, (i+n-1)%n+1
		out = append(out, Bridge{
			Name: fmt.Sprintf("s%d", here), DPID: topology.DPID(here), Ports: []Port{
				{Name: fmt.Sprintf("s%d-eth1", here), Number: 1},
				{Name: fmt.Sprintf("s%d-eth2", here), Number: 2, Patch: fmt.Sprintf("s%d-eth3", next)},
				{Name: fmt.Sprintf("s%d-eth3", here), Number: 3, Patch: fmt.Sprintf("s%d-eth2", last)},
			},
		})
	}
	return out
}
