//go:build linux

package cache

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/datapath/embedded"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// fixture is hosts in namespaces of their own, h1, h2, …, each joined by a veth pair to a device
// p1, p2, … of a fabric, and the switches that the test makes there.
type fixture struct {
	mirrored atomic.Uint64 // packets over virtual links that somebody looked at
	testing.TB
	*embedded.Datapath
	engine *Engine
	fabric string
	hosts  []string // namespaces
	macs   []openflow.MAC
	index  []int // of the fabric's devices
}

var beds atomic.Int32

func newFixture(t testing.TB, hosts int, o Options) *fixture {
	t.Helper()
	b := makeHosts(t, hosts)
	var engine atomic.Pointer[Engine]
	b.Datapath = embedded.New(embedded.Options{
		Output: func(out *pipeline.Sent, in *pipeline.Packet) {
			if e := engine.Load(); e != nil {
				e.Send(out, in)
			}
		},
		Mirror: func(out *pipeline.Sent) { b.mirrored.Add(1) },
		Barrier: func(s *pipeline.Switch) {
			if e := engine.Load(); e != nil {
				e.Barrier(s)
			}
		},
	})
	t.Cleanup(b.Datapath.Close)
	o.Namespace = "/run/netns/" + b.fabric
	if testing.Verbose() {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	var err error
	b.engine, err = New(b.Datapath, o)
	if err != nil {
		t.Fatal(err)
	}
	if why := b.engine.UserSpace(); why != "" && !o.UserSpace {
		t.Fatalf("packets do not go through the kernel: %s", why)
	}
	engine.Store(b.engine)
	t.Cleanup(func() {
		if err := b.engine.Close(false); err != nil {
			t.Error(err)
		}
	})
	return b
}

// makeHosts makes the namespaces and devices. Host i has the address 10.0.0.i/24.
func makeHosts(t testing.TB, hosts int) *fixture {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	b := &fixture{TB: t}
	prefix := fmt.Sprintf("trivet-cache-%d-%d", os.Getpid(), beds.Add(1))
	namespace := func(name string) string {
		name = prefix + name
		b.run("ip", "netns", "add", name)
		t.Cleanup(func() { b.run("ip", "netns", "del", name) })
		b.run("ip", "netns", "exec", name, "sh", "-c",
			"for d in default all; do f=/proc/sys/net/ipv6/conf/$d/disable_ipv6; [ ! -e $f ] || echo 1 >$f; done; ip link set lo up")
		return name
	}
	b.fabric = namespace("")
	for i := 1; i <= hosts; i++ {
		ns, dev := namespace(fmt.Sprintf("-h%d", i)), fmt.Sprintf("p%d", i)
		mac := openflow.MAC{2, 0, 0, 0, 0, byte(i)}
		b.run("ip", "-n", b.fabric, "link", "add", dev, "type", "veth", "peer", "name", "eth0", "address", mac.String(), "netns", ns)
		b.run("ip", "-n", b.fabric, "link", "set", dev, "up")
		b.run("ip", "-n", ns, "addr", "add", fmt.Sprintf("10.0.0.%d/24", i), "dev", "eth0")
		b.run("ip", "-n", ns, "link", "set", "eth0", "up")
		b.hosts, b.macs = append(b.hosts, ns), append(b.macs, mac)
		b.index = append(b.index, b.ifindex(dev))
	}
	return b
}

// ifindex returns the number of a device of the fabric.
func (b *fixture) ifindex(dev string) (index int) {
	b.Helper()
	b.inside(b.fabric, func() error {
		link, err := netlink.LinkByName(dev)
		if err == nil {
			index = link.Attrs().Index
		}
		return err
	})
	return index
}

// inside calls f on a thread in a namespace.
func (b *fixture) inside(name string, f func() error) {
	b.Helper()
	if err := inside.Namespace("/run/netns/"+name, f); err != nil {
		b.Fatalf("in the namespace %s: %v", name, err)
	}
}

func (b *fixture) run(command ...string) string {
	b.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		b.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// at runs a command in the namespace of host i.
func (b *fixture) at(i int, command ...string) string {
	b.Helper()
	return b.run(append([]string{"ip", "netns", "exec", b.hosts[i-1]}, command...)...)
}

// add adds a switch with that many ports.
func (b *fixture) add(dpid uint64, ports int) *pipeline.Switch {
	b.Helper()
	a, err := b.Datapath.Add(pipeline.Config{DatapathID: dpid, Name: fmt.Sprintf("s%d", dpid)}, agent.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range ports {
		if _, err := a.Switch().AddPort(openflow.Port{Number: uint32(i + 1)}, b.Now()); err != nil {
			b.Fatal(err)
		}
	}
	return a.Switch()
}

// plug makes the device of host i that of a port.
func (b *fixture) plug(s *pipeline.Switch, port uint32, i int, mode Mode) {
	b.Helper()
	if err := b.engine.Attach(s.Port(port), b.index[i-1], mode); err != nil {
		b.Fatal(err)
	}
}

func (b *fixture) flow(s *pipeline.Switch, text string) {
	b.Helper()
	m, err := openflow.ParseFlow(text)
	if err != nil {
		b.Fatalf("%s: %v", text, err)
	}
	m.Command = openflow.FlowAdd
	if err := s.FlowMod(m, b.Now()); err != nil {
		b.Fatalf("%s: %v", text, err)
	}
}

// listen opens a UDP socket of host i.
func (b *fixture) listen(i int, port int) *net.UDPConn {
	b.Helper()
	var c *net.UDPConn
	b.inside(b.hosts[i-1], func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 0, byte(i)), Port: port})
		return err
	})
	b.Cleanup(func() { c.Close() })
	return c
}

func addrOf(i, port int) *net.UDPAddr {
	return &net.UDPAddr{IP: net.IPv4(10, 0, 0, byte(i)), Port: port}
}

// eventually waits until f says nothing.
func (b *fixture) eventually(f func() string) {
	b.Helper()
	until.Silent(b, time.Minute, f)
}

func init() { runtime.LockOSThread() } // the first thread is not to be left in a namespace
