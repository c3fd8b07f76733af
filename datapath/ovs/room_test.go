package ovs

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
)

// TestBusyMachine proves that no packet is lost while ovs-vswitchd does not run: more than fit into the kernel's own room wait at
// the device until it goes on.
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
			_, _ = conn.Write([]byte("x")) // that nobody listens may be said at any time
		}
		return nil
	})
	_ = unix.Kill(pid, unix.SIGCONT)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); received(t, h2)-before < packets; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d packets arrived", received(t, h2)-before, packets)
		}
	}
}

// received are the packets that a host has received.
func received(t *testing.T, ns string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(run(t, "ip", "netns", "exec", ns, "cat", "/sys/class/net/eth0/statistics/rx_packets")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
