package dhcp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/clsact"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
	"trivet.dev/trivet/internal/segment"
	"trivet.dev/trivet/topology"
)

// guest is a client of a server, as a virtual machine would be.
type guest struct {
	ns, host, far *os.File
	mac           topology.MAC
	server        *Server
	events        chan string // what udhcpc says: lines of its script
	client        *exec.Cmd
}

// bring makes a guest, whose device is eth0 with its peer tap in the host's namespace, joined to a
// link as real ones are. At the link's far end is the gateway, with a DHCP server of its own.
func bring(t *testing.T, change func(*Lease)) *guest {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	g := &guest{ns: insidetest.New(t), host: insidetest.New(t), far: insidetest.New(t), events: make(chan string, 100)}
	insidetest.Join(t, g.ns, "eth0", g.host, "tap")
	insidetest.Join(t, g.far, "eth0", g.host, "link")
	insidetest.Do(t, g.ns, func() error {
		dev, err := net.InterfaceByName("eth0")
		if err == nil {
			g.mac = topology.MAC(dev.HardwareAddr)
		}
		return err
	})
	l := g.lease(change)
	insidetest.Do(t, g.host, func() error {
		tap, err := netlink.LinkByName("tap")
		if err != nil {
			return err
		}
		link, err := netlink.LinkByName("link")
		if err != nil {
			return err
		}
		return errors.Join(clsact.RedirectAnswered(tap.Attrs().Index, link.Attrs().Index, l.MAC, Identifier),
			clsact.Redirect(link.Attrs().Index, tap.Attrs().Index))
	})
	insidetest.Do(t, g.far, func() error {
		dev, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("10.1.0.1/20")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(dev, address)
	})
	g.serveFar(t)
	insidetest.Do(t, g.host, func() (err error) {
		g.server, err = Open("tap", l)
		return err
	})
	t.Cleanup(g.server.Close)
	return g
}

func (g *guest) lease(change func(*Lease)) Lease {
	l := sample
	l.MAC = g.mac
	if change != nil {
		change(&l)
	}
	return l
}

// start runs a program in a namespace until the test ends; it gets the lines that it prints.
func start(t *testing.T, ns *os.File, each func(string), args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	insidetest.Do(t, ns, cmd.Start)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			each(lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	return cmd
}

// serveFar runs another DHCP server at the far end of the link.
func (g *guest) serveFar(t *testing.T) {
	file := filepath.Join(t.TempDir(), "udhcpd.conf")
	config := fmt.Sprintf("start 10.1.9.1\nend 10.1.9.9\ninterface eth0\nlease_file %s.leases\npidfile %s.pid\n",
		file, file)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".leases", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, g.far, func(string) {}, "busybox", "udhcpd", "-f", file)
}

// listen counts the requests to DHCP servers that come to the far end of the link.
func (g *guest) listen(t *testing.T) (count func() int) {
	var s *segment.Segment
	insidetest.Do(t, g.far, func() (err error) {
		s, err = segment.Open("eth0", segment.IPv4)
		return err
	})
	t.Cleanup(s.Close)
	ctx, cancel := context.WithCancel(t.Context())
	n, done := 0, make(chan error, 1)
	go func() {
		done <- s.Watch(ctx, func(data []byte) {
			if len(data) > 24 && data[9] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(data[22:]) == serverPort {
				n++
			}
		})
	}()
	return func() int {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return n
	}
}

// script is what udhcpc runs: it does what it is told, and tells the test.
const script = `#!/bin/sh
case $1 in
deconfig) ip link set eth0 up; ip addr flush dev eth0 ;;
bound|renew)
	ip addr replace $ip/$mask broadcast $broadcast dev eth0
	for r in $router; do ip route replace default via $r; done ;;
esac
said="$1 $ip/$mask router $router routes $staticroutes mtu $mtu"
echo "$said name $hostname dns $dns from $serverid"
`

func (g *guest) run(t *testing.T, options ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"busybox", "udhcpc", "-f", "-i", "eth0", "-s", file, "-A", "1", "-t", "20", "-T", "1",
		"-O", "staticroutes", "-O", "mtu"}, options...)
	g.client = start(t, g.ns, func(line string) { g.events <- line }, args...)
}

// expect waits until udhcpc says something that begins so, and says what else it must contain.
func (g *guest) expect(t *testing.T, begins string, contains ...string) {
	t.Helper()
	end := time.After(30 * time.Second)
	for {
		select {
		case line := <-g.events:
			if !strings.HasPrefix(line, begins) {
				continue
			}
			for _, c := range contains {
				if !strings.Contains(line, c) {
					t.Errorf("%q, want %q in it", line, c)
				}
			}
			return
		case <-end:
			t.Fatalf("the client does not say %q", begins)
		}
	}
}

// TestClient proves that a real client is told all of a lease by this server, though another one is
// on the link, whom no request reaches; that it renews, where its default route leads through the
// gateway, and learns what has changed; that it comes to have another address; and that another
// server takes over.
func TestClient(t *testing.T) {
	g := bring(t, nil)
	requests := g.listen(t)
	g.run(t)
	g.expect(t, "bound 10.1.2.3/20 ", "router 10.1.0.1 ",
		"routes 10.9.0.0/17 10.1.0.2 192.0.2.1/32 0.0.0.0 0.0.0.0/0 10.1.0.1 ",
		"mtu 1400 ", "name h1 ", "dns 10.1.0.53 10.1.0.54 ", "from 169.254.255.67")

	renew := func() {
		if err := g.client.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.server.Set(g.lease(func(l *Lease) { l.Hostname = "h2" })); err != nil {
		t.Fatal(err)
	}
	renew()
	g.expect(t, "renew 10.1.2.3/20 ", "name h2 ")

	if err := g.server.Set(g.lease(func(l *Lease) { l.Address = netip.MustParsePrefix("10.1.2.4/20") })); err != nil {
		t.Fatal(err)
	}
	renew()
	g.expect(t, "nak ")
	g.expect(t, "bound 10.1.2.4/20 ")

	g.server.Close()
	insidetest.Do(t, g.host, func() (err error) {
		g.server, err = Open("tap", g.lease(func(l *Lease) {
			l.Address, l.Hostname = netip.MustParsePrefix("10.1.2.4/20"), "h3"
		}))
		return err
	})
	defer g.server.Close()
	renew()
	g.expect(t, "renew 10.1.2.4/20 ", "name h3 ")

	if n := requests(); n != 0 {
		t.Errorf("%d requests came to the link", n)
	}
	if g.server.Set(Lease{}) == nil {
		t.Error("an empty lease was taken")
	}
}

// TestOnLink proves that a client without a gateway renews at the server itself, which it finds by
// ARP: udhcpc takes its server to be on the link where it has no route to it.
func TestOnLink(t *testing.T) {
	g := bring(t, func(l *Lease) { l.Gateway = netip.Addr{} })
	g.run(t)
	g.expect(t, "bound 10.1.2.3/20 ")
	if err := g.client.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	g.expect(t, "renew 10.1.2.3/20 ")
	insidetest.Do(t, g.ns, func() error {
		out, err := exec.Command("ip", "neigh", "show", Identifier.String()).CombinedOutput()
		if err == nil && !strings.Contains(string(out), g.server.own.String()) {
			err = fmt.Errorf("the server is %q, want %s", out, g.server.own)
		}
		return err
	})
}

// TestOthers proves that another client behind the device is not answered but by the server on the
// link.
func TestOthers(t *testing.T) {
	g := bring(t, func(l *Lease) { l.MAC[5]++ })
	requests := g.listen(t)
	g.run(t)
	g.expect(t, "bound 10.1.9.", "from 10.1.0.1")
	if requests() == 0 {
		t.Error("no request came to the link")
	}
}

// TestTAP proves that a TAP device like those of virtual machines is served, with headers for
// offloads; that neither a device that goes down and comes up again nor frames that are not whole
// end the server, and that a flood makes nothing grow.
func TestTAP(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	host := insidetest.New(t)
	var tap *os.File
	insidetest.Do(t, host, func() error {
		link := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tap"}, Mode: netlink.TUNTAP_MODE_TAP,
			Queues: 1, NonPersist: true, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		tap = link.Fds[0]
		return netlink.LinkSetUp(link)
	})
	defer tap.Close()
	raw := int(tap.Fd())
	var s *Server
	insidetest.Do(t, host, func() (err error) {
		s, err = Open("tap", sample)
		return err
	})
	defer s.Close()

	const header = 10 // struct virtio_net_hdr
	send := func(frame []byte) error {
		_, err := unix.Write(raw, append(make([]byte, header), frame...))
		return err
	}
	discover := asks(layers.DHCPMsgTypeDiscover, nil, nil)
	number := uint32(0)
	answered := func(what string) {
		t.Helper()
		number++ // answers to what was asked before may still wait
		discover := asks(layers.DHCPMsgTypeDiscover, nil, func(_ *layers.IPv4, _ *layers.UDP, d *layers.DHCPv4) {
			d.Xid = number
		})
		room := make([]byte, 4096)
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(raw), Events: unix.POLLIN}}, 200); n < 1 {
				_ = send(discover) // once the server is idle, and again: a device that has come up may drop some
				continue
			}
			n, err := unix.Read(raw, room)
			if err != nil {
				t.Fatal(err)
			}
			frame := room[header:n]
			if len(frame) > 14 && frame[12] == 8 && frame[13] == 0 { // the kernel itself says something of IPv6
				if got := hear(t, frame, s.own); got.kind != layers.DHCPMsgTypeOffer {
					t.Errorf("%s: %v", what, got.kind)
				} else if got.Xid == number {
					return
				}
			}
		}
		t.Fatalf("%s: no answer", what)
	}
	answered("at first")
	for i := range len(discover) {
		_ = send(discover[:i]) // the shortest are no frames, which the device says
	}
	answered("after what was not whole")

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 100000 {
		if err := send(discover); err != nil {
			t.Fatal(err)
		}
	}
	answered("after a flood")
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("grown by %d bytes", grown)
	}

	for _, up := range []bool{false, true} {
		insidetest.Do(t, host, func() error {
			dev, err := netlink.LinkByName("tap")
			if err != nil {
				return err
			}
			if up {
				return netlink.LinkSetUp(dev)
			}
			return netlink.LinkSetDown(dev)
		})
	}
	answered("up again")
}

// TestOpen proves that what cannot be served is refused, by its name.
func TestOpen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	ns := insidetest.New(t)
	for device, l := range map[string]Lease{"tap9": sample, "lo": sample, "tap8": {}} {
		err := inside.File(ns, func() error {
			s, err := Open(device, l)
			if err == nil {
				s.Close()
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), device) {
			t.Errorf("%s: %v", device, err)
		}
	}
}
