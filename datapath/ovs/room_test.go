package ovs

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/test/until"
)

// TestBusyMachine proves that no packet is lost while ovs-vswitchd does not run: more packets than
// the kernel's default has room for wait at the device until it runs again.
func TestBusyMachine(t *testing.T) {
	l := newLab(t)
	if l.Datapath() != Netdev {
		t.Skip("the kernel forwards without ovs-vswitchd")
	}
	const packets = 1000
	h1, h2 := l.host("p1", "10.0.0.1/24"), l.host("p2", "10.0.0.2/24")
	l.apply(Bridge{Name: "s1", DPID: 1, Ports: []Port{{Name: "p1", Number: 1}, {Name: "p2", Number: 2}}})
	if !reaches(h1, "10.0.0.2") {
		t.Fatal("h1 does not reach h2")
	}
	pid := l.vswitch.pid()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	before := received(t, h2)
	err := inside.Namespace("/run/netns/"+h1, func() error {
		conn, err := net.Dial("udp", "10.0.0.2:9")
		if err != nil {
			return err
		}
		defer conn.Close()
		for range packets {
			_, _ = conn.Write([]byte("x")) // the error that nobody listens may come at any time
		}
		return nil
	})
	_ = unix.Kill(pid, unix.SIGCONT)
	if err != nil {
		t.Fatal(err)
	}
	until.True(t, "all packets arrive", func() bool { return received(t, h2)-before >= packets })
}

// TestFullQueue proves that a device whose queue is full, because its link is slow, takes no room
// away from others: nothing is lost on the way to them.
func TestFullQueue(t *testing.T) {
	l := newLab(t)
	if l.Datapath() != Netdev {
		t.Skip("the kernel forwards without ovs-vswitchd")
	}
	h1, _, h3 := l.host("p1", "10.0.0.1/24"), l.host("p2", "10.0.0.2/24"), l.host("p3", "10.0.0.3/24")
	l.apply(Bridge{Name: "s1", DPID: 1, Ports: []Port{{Name: "p1", Number: 1}, {Name: "p2", Number: 2}, {Name: "p3", Number: 3}}})
	if !reaches(h1, "10.0.0.2") || !reaches(h1, "10.0.0.3") {
		t.Fatal("h1 does not reach h2 and h3")
	}
	until.True(t, "ovs-vswitchd has a socket to send by", func() bool { return l.vswitch.makeRoom() })
	run(t, "ip", "netns", "exec", l.ns, "tc", "qdisc", "add", "dev", "p2", "root", "tbf", "rate", "100kbit", "burst", "5000", "limit", "2000000")
	err := inside.Namespace("/run/netns/"+h1, func() error {
		conn, err := net.Dial("udp", "10.0.0.2:9")
		if err != nil {
			return err
		}
		defer conn.Close()
		for range 500 { // 700 kB, which take a minute at 100 kbit/s
			_, _ = conn.Write(make([]byte, 1400))
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	before := received(t, h3)
	run(t, "ip", "netns", "exec", h1, "ping", "-q", "-c", "50", "-i", "0.01", "-W", "30", "10.0.0.3")
	// ping does not wait for the last answers. 30 s are less than the queue to h2 stays full for.
	for end := time.Now().Add(30 * time.Second); received(t, h3)-before < 50; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of 50 packets to h3 arrived while the queue to h2 was full", received(t, h3)-before)
		}
	}
}

// received is the number of packets that a host has received.
func received(t *testing.T, ns string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(run(t, "ip", "netns", "exec", ns, "cat", "/sys/class/net/eth0/statistics/rx_packets")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
