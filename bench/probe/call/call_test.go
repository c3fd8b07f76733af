package call

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// started starts a caller in this process, which listens on the loopback device with all others.
func started(t *testing.T, h Hello) *Caller {
	t.Helper()
	c, err := Start(t.Context(), func(_ context.Context, in io.Reader, out io.Writer) error { return Serve(in, out) }, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestCall proves, over the loopback device, that callers answer each other by TCP and UDP (by
// ICMP, where this may be tried) from several ports, and that it is told who answers in place of
// another, that nobody does, and that what answers is something else.
func TestCall(t *testing.T) {
	a, b := started(t, Hello{Name: "a", Token: "tokentok"}), started(t, Hello{Name: "b", Token: "tokentok"})
	strange := started(t, Hello{Name: "b", Token: "othertok"})
	loopback := netip.MustParseAddr("127.0.0.1")
	to := func(c *Caller, name string) Call {
		return Call{To: loopback, Name: name, TCP: c.TCP[0], UDP: c.UDP[0], Bytes: 100_000, Sends: 2, Sources: 3, Brief: true}
	}
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := to(b, "b")
	nobody.TCP, nobody.UDP = uint16(closed.Addr().(*net.TCPAddr).Port), 0
	closed.Close()
	got, err := a.Try(t.Context(), []Call{to(b, "b"), to(b, "c"), to(strange, "b"), nobody})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(got)
	if os.Geteuid() == 0 && !got[0].ICMP.OK {
		t.Errorf("ICMP: %s", text)
	}
	if !got[0].TCP.OK || !got[0].UDP.OK {
		t.Errorf("b is not reached: %s", text)
	}
	if got[1].TCP.By != "b" || got[1].UDP.By != "b" {
		t.Errorf("b answers in place of c, which is not told: %s", text)
	}
	if got[2].TCP.OK || got[2].UDP.OK {
		t.Errorf("one with another token answers: %s", text)
	}
	if got[3].TCP.OK || !strings.Contains(got[3].TCP.Why, "refused") {
		t.Errorf("nobody listens: %s", text)
	}
}

// TestQuoted proves that of errors that come back it is read what they are about, however short
// they are.
func TestQuoted(t *testing.T) {
	four := append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}, 1, 2, 3)
	if to, proto, rest, ok := quoted(false, four); !ok || to != netip.MustParseAddr("10.0.0.2") || proto != 17 || len(rest) != 3 {
		t.Error(to, proto, rest, ok)
	}
	six := make([]byte, 48)
	six[6], six[39] = 58, 2
	if to, proto, rest, ok := quoted(true, six); !ok || to != netip.MustParseAddr("::2") || proto != 1 || len(rest) != 8 {
		t.Error(to, proto, rest, ok)
	}
	for n := range four {
		if _, _, _, ok := quoted(false, four[:min(n, 19)]); ok {
			t.Errorf("%d bytes are taken for a header", n)
		}
	}
	long := append([]byte{0x4f}, four[1:]...)
	if _, _, _, ok := quoted(false, long); ok {
		t.Error("a header that is cut off")
	}
	for _, c := range []struct {
		v6         bool
		kind, code byte
		want       string
	}{{false, 3, 1, "host unreachable"}, {false, 11, 0, "a loop"}, {false, 8, 0, ""}, {true, 1, 0, "no route"}, {true, 3, 0, "a loop"}, {true, 135, 0, ""}, {false, 3, 99, "unreachable"}} {
		if got := errorText(c.v6, c.kind, c.code); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
