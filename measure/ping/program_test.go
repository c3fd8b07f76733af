package ping

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestProgram proves that what the ping of iputils and of Busybox prints is understood:
// replies, duplicates, and numbers that begin at 0 or 1; that loss is none of an error; and that
// what a program says that cannot ping is the error.
func TestProgram(t *testing.T) {
	for _, c := range []struct {
		name, prints string
		exit         error
		received     int
		rtt          []float64
		error        string
	}{
		{"iputils", "PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.042 ms\n" +
			"64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.060 ms (DUP!)\n64 bytes from 10.0.0.2: icmp_seq=3 ttl=64 time=12.1 ms\n\n" +
			"--- 10.0.0.2 ping statistics ---\n3 packets transmitted, 2 received, +1 duplicates, 33% packet loss, time 2003ms\n", nil, 2, []float64{0.042, 12.1}, ""},
		{"busybox", "PING 10.0.0.2 (10.0.0.2): 56 data bytes\n64 bytes from 10.0.0.2: seq=0 ttl=64 time=1.925 ms\n64 bytes from 10.0.0.2: seq=1 ttl=64 time=1.148 ms\n" +
			"64 bytes from 10.0.0.2: seq=2 ttl=64 time=2.000 ms\n\n--- 10.0.0.2 ping statistics ---\n3 packets transmitted, 3 packets received, 0% packet loss\n", nil, 3, []float64{1.925, 1.148, 2}, ""},
		{"all lost", "PING 10.0.0.2 (10.0.0.2): 56 data bytes\n\n--- 10.0.0.2 ping statistics ---\n3 packets transmitted, 0 packets received, 100% packet loss\n",
			errors.New("exit status 1"), 0, nil, ""},
		{"none there", "sh: ping: not found\n", errors.New("exit status 127"), 0, nil, "sh: ping: not found"},
		{"silent", "", errors.New("the virtual machine has ended"), 0, nil, "the virtual machine has ended"},
		{"hostile", "64 bytes from x: seq=99999999999 time=1 ms\n64 bytes: seq=2000000 time=1 ms\n" + strings.Repeat("seq=1 time=", 10000) + "\n", nil, 0, nil, ""},
	} {
		var asked []string
		run := Program(func(_ context.Context, out io.Writer, command ...string) error {
			asked = command
			for half := range slices.Chunk([]byte(c.prints), 7) { // as it comes
				_, _ = out.Write(half)
			}
			return c.exit
		})
		sent, got := 0, 0
		r := run.PingPair(t.Context(), netip.MustParseAddr("10.0.0.2"), Options{Count: 3, Size: 56, Interval: 200 * time.Millisecond, Timeout: 1500 * time.Millisecond, Heard: func(h Heard) {
			if h.Reply {
				got++
			} else {
				sent++
			}
		}})
		if r.Sent != 3 || r.Received != c.received || !slices.Equal(r.RTT, c.rtt) || r.Error != c.error {
			t.Errorf("%s: %+v", c.name, r)
		}
		if sent != 3 || got != c.received {
			t.Errorf("%s: %d requests and %d replies were told", c.name, sent, got)
		}
		if want := "ping -n -c 3 -s 56 -W 2 -i 0.2 10.0.0.2"; strings.Join(asked, " ") != want {
			t.Errorf("%s: %q was run, not %q", c.name, asked, want)
		}
	}
}
