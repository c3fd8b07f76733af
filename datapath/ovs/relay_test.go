package ovs

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"trivet.dev/trivet/internal/inside"
)

// TestRelayEnds proves that connections of switches to a controller outside end together with their
// lab, at both ends, even if neither end sends anything.
func TestRelayEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	fabric, err := inside.New()
	if err != nil {
		t.Fatal(err)
	}
	defer fabric.Close()
	controller, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer controller.Close()
	r := newRelays(fabric)
	address := controller.Addr().String()
	if err := errors.Join(inside.File(fabric, exec.Command("ip", "link", "set", "lo", "up").Run), r.follow([]string{"tcp:" + address})); err != nil {
		t.Fatal(err)
	}
	var sw net.Conn
	if err := inside.File(fabric, func() (err error) { sw, err = net.Dial("tcp", address); return err }); err != nil {
		t.Fatal(err)
	}
	defer sw.Close()
	accepted, err := controller.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	r.close()
	for _, end := range []net.Conn{sw, accepted} {
		_ = end.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := end.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection goes on after its lab: %v", err)
		} else if !errors.Is(err, io.EOF) {
			t.Log(err) // a reset is an end, too
		}
	}
}
