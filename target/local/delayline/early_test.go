package delayline

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// TestNeverEarly proves that no frame is on its way for less than its delay, not even by the time
// it takes to wake a thread: time is taken before the frame is sent, and by the kernel as it leaves
// the line. The line's thread sleeps between frames, so each frame wakes it.
func TestNeverEarly(t *testing.T) {
	const delay = time.Millisecond
	w := newWire(t, topology.Impairment{Delay: topology.Duration(delay)}, Options{})
	in, out := stamped(t, w)
	for range 20 { // the line learns how late it wakes up; the first packets resolve the neighbour's address
		oneWay(t, in, out)
	}
	first := delay * 1000
	for range 400 {
		first = min(first, oneWay(t, in, out))
	}
	t.Logf("the fastest of 400 frames took %v", first)
	const slewed = time.Microsecond // per millisecond, if the clock is being adjusted (adjtimex(2): 500 ppm)
	if first < delay-slewed {
		t.Errorf("a frame came after %v; the delay is %v", first, delay)
	}
}

// stamped returns a socket at a and the one at b that it sends to; the kernel timestamps what
// arrives at b.
func stamped(t *testing.T, w *wire) (net.Conn, *net.UDPConn) {
	t.Helper()
	var out net.PacketConn
	var in net.Conn
	var err error
	w.b.within(func() { out, err = net.ListenPacket("udp", netip.AddrPortFrom(w.b.ip4, 9).String()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	w.a.within(func() { in, err = net.Dial("udp", out.LocalAddr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	raw, err := out.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) }); err != nil || set != nil {
		t.Fatal(err, set)
	}
	return in, out.(*net.UDPConn)
}

// oneWay sends a packet and returns how long it was on its way. If somebody set the clock
// meanwhile, it sends another.
func oneWay(t *testing.T, in net.Conn, out *net.UDPConn) time.Duration {
	t.Helper()
	data, control := make([]byte, 64), make([]byte, 128)
	for range 100 {
		clock, sent := clockOffset(), time.Now()
		if _, err := in.Write(data); err != nil {
			t.Fatal(err)
		}
		_ = out.SetReadDeadline(time.Now().Add(reply))
		_, n, _, _, err := out.ReadMsgUDP(data, control)
		if err != nil {
			t.Fatal(err)
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil || len(messages) != 1 {
			t.Fatalf("no time of arrival: %v, %d messages", err, len(messages))
		}
		stamp := messages[0].Data // a timespec
		came := time.Unix(int64(binary.NativeEndian.Uint64(stamp)), int64(binary.NativeEndian.Uint64(stamp[8:])))
		if moved := clockOffset() - clock; moved.Abs() < time.Millisecond {
			return time.Duration(came.UnixNano() - sent.UnixNano())
		}
	}
	t.Fatal("the machine's clock is set all the time")
	return 0
}

// clockOffset is the difference between the wall clock and one that is never set.
func clockOffset() time.Duration {
	var wall, mono unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono)
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &wall)
	return time.Duration(wall.Nano() - mono.Nano())
}
