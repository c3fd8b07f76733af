package accept

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNext proves that a process that has no file left for a connection accepts it once it has one,
// and that the listener only ends when it is closed.
func TestNext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	probe, err := os.Open(os.DevNull) // the next file would get this number
	if err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: uint64(probe.Fd()), Max: old.Max}
	probe.Close()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	waited := 0
	conn, err := Next(l, func(why error) {
		if waited++; !errors.Is(why, unix.EMFILE) {
			t.Error(why)
		}
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	})
	if err != nil || waited == 0 {
		t.Fatalf("after %d waits: %v", waited, err)
	}
	conn.Close()
	l.Close()
	if _, err := Next(l, nil); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
