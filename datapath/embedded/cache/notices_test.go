//go:build linux

package cache

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// becomes waits until a port has a carrier or none.
func (b *fixture) becomes(p *pipeline.Port, on bool, why string) {
	b.Helper()
	b.eventually(func() string {
		if d := p.Desc(); (d.State&openflow.PortStateLinkDown == 0) != on || (d.State&openflow.PortStateLive != 0) != (on && d.Config&openflow.PortConfigDown == 0) {
			return fmt.Sprintf("%s: the state of port %d is %v", why, p.Number(), d.State)
		}
		return ""
	})
}

// A port's state is that of its device, whoever makes it that: either end is set down, or deleted.
// The controller is told once of each change. In user space as in the kernel.
func TestPortFollowsDevice(t *testing.T) {
	for _, user := range []bool{false, true} {
		t.Run(fmt.Sprint("user space ", user), func(t *testing.T) {
			b := newFixture(t, 2, Options{UserSpace: user})
			s := b.chain(1, false)[0]
			told := make(chan openflow.PortState, 100)
			s.SetNotify(func(m openflow.Message) {
				if m, ok := m.(*openflow.PortStatus); ok && m.Reason == openflow.PortModify && m.Port.Number == s.Ports()[0].Number() {
					told <- m.Port.State
				}
			})
			p := s.Ports()[0]
			b.becomes(p, true, "at first")
			b.at(1, "ip", "link", "set", "eth0", "down")
			b.becomes(p, false, "the host has set its device down")
			b.at(1, "ip", "link", "set", "eth0", "up")
			b.becomes(p, true, "and up")
			b.run("ip", "-n", b.fabric, "link", "set", "p1", "down")
			b.becomes(p, false, "the switch's device is down")
			b.run("ip", "-n", b.fabric, "link", "set", "p1", "up")
			b.becomes(p, true, "and up again")
			b.at(1, "ip", "link", "del", "eth0")
			b.becomes(p, false, "the host has deleted its device")
			for i := range 5 {
				down := <-told&openflow.PortStateLinkDown != 0
				if down != (i%2 == 0) {
					t.Errorf("the controller is told of state %d: down %v", i, down)
				}
			}
			if len(told) > 0 {
				t.Errorf("the controller is told %d more times", len(told))
			}
		})
	}
}

// A port hears what is for others: a network card, on which the port's device may be, would keep it
// out, as its filter lets in what is for the addresses that it knows. In user space as in the
// kernel. Behind a veth or a TAP device there is none.
func TestPortHearsAll(t *testing.T) {
	for _, user := range []bool{false, true} {
		t.Run(fmt.Sprint("user space ", user), func(t *testing.T) {
			b := newFixture(t, 1, Options{UserSpace: user})
			s := b.add(1, 3)
			b.plug(s, 1, 1, Auto)
			b.run("ip", "-n", b.fabric, "link", "add", "card", "type", "ifb")
			b.run("ip", "netns", "exec", b.fabric, "ip", "tuntap", "add", "tap", "mode", "tap")
			for i, device := range []string{"card", "tap"} {
				b.run("ip", "-n", b.fabric, "link", "set", device, "up")
				if err := b.engine.Attach(s.Port(uint32(i+2)), b.ifindex(device), Auto); err != nil {
					t.Fatal(err)
				}
			}
			for device, hears := range map[string]bool{"p1": user, "tap": user, "card": true} {
				b.inside(b.fabric, func() error {
					link, err := netlink.LinkByName(device)
					if err == nil && (link.Attrs().Promisc > 0) != hears {
						t.Errorf("%s is promiscuous %d times", device, link.Attrs().Promisc)
					}
					return err
				})
			}
		})
	}
}

// What cannot leave by a port goes nowhere, also where the kernel put packets into the host's
// device directly; a fast failover group takes the next bucket.
func TestFailoverFollowsDevice(t *testing.T) {
	b := newFixture(t, 3, Options{})
	s := b.add(1, 3)
	for i := 1; i <= 3; i++ {
		b.plug(s, uint32(i), i, Auto)
	}
	var buckets []openflow.Bucket
	for _, port := range []uint32{2, 3} {
		buckets = append(buckets, openflow.Bucket{WatchPort: port, WatchGroup: openflow.GroupAny, Actions: []openflow.Action{openflow.Output(port)}})
	}
	group := &openflow.GroupMod{Command: openflow.GroupAdd, GroupDesc: openflow.GroupDesc{Kind: openflow.GroupTypeFF, Group: 1, Buckets: buckets}}
	if err := s.GroupMod(group, b.Now()); err != nil {
		t.Fatal(err)
	}
	b.flow(s, "priority=1,in_port=1,actions=group:1")
	c := b.listen(1, 9000)
	b.at(1, "ip", "neigh", "replace", "10.0.0.2", "lladdr", b.macs[1].String(), "dev", "eth0")
	arrive := func(host int, why string) {
		t.Helper()
		before := b.received(host)
		b.eventually(func() string {
			_, _ = c.WriteToUDP([]byte("x"), addrOf(2, 9000))
			if b.received(host) < before+3 {
				return fmt.Sprintf("%s, packets do not come to host %d", why, host)
			}
			return ""
		})
	}
	arrive(2, "at first")
	b.run("ip", "-n", b.fabric, "link", "set", "p2", "down")
	arrive(3, "after the switch's device was set down")
	before := b.received(2)
	arrive(3, "then")
	if n := b.received(2) - before; n > 0 {
		t.Errorf("%d packets have come to host 2 by a port whose device is down", n)
	}
	b.run("ip", "-n", b.fabric, "link", "set", "p2", "up")
	arrive(2, "after it was set up")
}

// A port that a controller takes down takes the carrier of the device's other end, and the link of
// the switch that a virtual link leads to; when it is up again, both are there again.
func TestPortModTakesCarrier(t *testing.T) {
	b := newFixture(t, 2, Options{})
	s1, s2 := b.add(1, 2), b.add(2, 2)
	b.plug(s1, 1, 1, Auto)
	b.plug(s2, 1, 2, Auto)
	if err := b.Network().Join(s1, 2, s2, 2); err != nil {
		t.Fatal(err)
	}
	set := func(port uint32, config openflow.PortConfig) {
		t.Helper()
		if err := s1.PortMod(&openflow.PortMod{Port: port, Config: config, Mask: openflow.PortConfigDown}); err != nil {
			t.Fatal(err)
		}
	}
	carrier := func() bool { return strings.Contains(b.at(1, "ip", "link", "show", "eth0"), "LOWER_UP") }
	set(1, openflow.PortConfigDown)
	if carrier() {
		t.Error("port 1 is down, and the host has a carrier")
	}
	b.becomes(s1.Port(1), false, "taken down by the controller")
	set(1, 0)
	b.eventually(func() string {
		if !carrier() {
			return "port 1 is up again, and the host has no carrier"
		}
		return ""
	})
	b.becomes(s1.Port(1), true, "up again")
	set(2, openflow.PortConfigDown)
	b.becomes(s2.Port(2), false, "at the other end of a virtual link")
	set(2, 0)
	b.becomes(s2.Port(2), true, "at the other end of a virtual link, which is up")
	set(1, openflow.PortConfigDown)
	if err := b.engine.Detach(s1.Port(1)); err != nil {
		t.Fatal(err)
	}
	b.run("ip", "-n", b.fabric, "link", "set", "p1", "up")
	b.plug(s1, 1, 1, Auto)
	if carrier() {
		t.Error("port 1, which is down, was given a device, whose other end has a carrier")
	}
}

// Notices that the kernel could not keep are made up for by looking at all devices.
func TestLostNotices(t *testing.T) {
	b := newFixture(t, 2, Options{})
	s := b.chain(1, false)[0]
	if err := b.engine.dev.notices.SetBuffer(1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		func() {
			b.engine.mu.Lock() // nobody takes notices
			defer b.engine.mu.Unlock()
			b.run("ip", "-n", b.fabric, "link", "add", "other", "type", "veth", "peer", "name", "another")
			for i := range 50 {
				b.run("ip", "-n", b.fabric, "link", "set", "other", []string{"up", "down"}[i%2])
			}
			b.at(1, "ip", "link", "set", "eth0", "down")
		}()
		b.becomes(s.Ports()[0], false, "the notice was lost")
		b.run("ip", "-n", b.fabric, "link", "del", "other")
		b.at(1, "ip", "link", "set", "eth0", "up")
		b.becomes(s.Ports()[0], true, "afterwards")
	}
}

// Packets go by a device's queueing discipline while it has one, whoever gives it that and
// whenever, and around it again.
func TestModeFollowsQueueingDiscipline(t *testing.T) {
	b := newFixture(t, 2, Options{})
	s := b.chain(1, false)[0]
	p := s.Ports()[1]
	mode := func() Mode {
		b.engine.mu.Lock()
		defer b.engine.mu.Unlock()
		return b.engine.attached[p].device.mode
	}
	is := func(want Mode, when string) {
		t.Helper()
		b.eventually(func() string {
			if got := mode(); got != want {
				return fmt.Sprintf("%s the mode is %d, not %d", when, got, want)
			}
			return ""
		})
	}
	is(Peer, "at first")
	b.run("tc", "-n", b.fabric, "qdisc", "add", "dev", "p2", "root", "tbf", "rate", "10mbit", "burst", "10kb", "limit", "100kb")
	b.engine.Barrier(nil)
	if mode() != Egress {
		t.Error("the device has a queueing discipline, and packets go around it after a barrier")
	}
	b.at(1, "ping", "-c", "3", "-i", "0.01", "10.0.0.2")
	if out := b.run("tc", "-n", b.fabric, "-s", "qdisc", "show", "dev", "p2"); strings.Contains(out, "Sent 0 bytes") {
		t.Error("nothing went by the queueing discipline: ", out)
	}
	b.run("tc", "-n", b.fabric, "qdisc", "del", "dev", "p2", "root")
	is(Peer, "without the queueing discipline")
	b.run("tc", "-n", b.fabric, "qdisc", "add", "dev", "p2", "root", "pfifo")
	is(Egress, "with another one")
	if err := b.engine.Look(p, true); err != nil {
		t.Fatal(err)
	}
	b.run("tc", "-n", b.fabric, "qdisc", "del", "dev", "p2", "root")
	b.engine.Barrier(nil)
	is(Egress, "while somebody looks")
	if err := b.engine.Look(p, false); err != nil {
		t.Fatal(err)
	}
	is(Peer, "when nobody looks any more")
}

// Large packets pass once the devices take them.
func TestMTUFollowsDevice(t *testing.T) {
	b := newFixture(t, 2, Options{})
	b.chain(1, false)
	b.at(1, "ping", "-c", "3", "-i", "0.01", "10.0.0.2")
	for i := 1; i <= 2; i++ {
		b.run("ip", "-n", b.fabric, "link", "set", fmt.Sprintf("p%d", i), "mtu", "9000")
		b.at(i, "ip", "link", "set", "eth0", "mtu", "9000")
	}
	b.eventually(func() string { // the engine has been told, but may not have listened yet
		out, err := exec.Command("ip", "netns", "exec", b.hosts[0], "ping", "-c", "3", "-i", "0.01", "-W", "1", "-M", "do", "-s", "8000", "10.0.0.2").CombinedOutput()
		if err != nil { // none was answered
			return string(out)
		}
		return ""
	})
}

// TestQueueIsNotTheSenders proves that a program does not wait for the queue of a switch: what it
// sends faster than the switch's port can send is lost there, as behind a real cable.
func TestQueueIsNotTheSenders(t *testing.T) {
	b := newFixture(t, 2, Options{})
	b.chain(1, false)
	b.run("tc", "-n", b.fabric, "qdisc", "add", "dev", "p2", "root", "tbf", "rate", "64kbit", "burst", "2kb", "limit", "1mb")
	b.engine.Barrier(nil)
	b.at(1, "ping", "-c", "3", "-i", "0.01", "10.0.0.2")
	c := b.listen(1, 1000)
	if err := c.SetWriteBuffer(4096); err != nil {
		t.Fatal(err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrInet4{Addr: [4]byte{10, 0, 0, 2}, Port: 2000}
	const packets = 100 // 12 s at the port's rate, and 20 times the socket's buffer
	refused := 0
	if err := raw.Control(func(fd uintptr) {
		for range packets {
			if err := unix.Sendto(int(fd), make([]byte, 1000), unix.MSG_DONTWAIT, to); err != nil {
				refused++
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if refused > packets/10 { // until the flow has its entry, packets wait for user space
		t.Errorf("%d of %d packets were refused to the sender, as its socket was to wait for the queue of the switch", refused, packets)
	}
}
