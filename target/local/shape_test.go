package local

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// TestBucket proves that the kernel accepts the token bucket of every kind of link: a slow one, a
// fast one, one with large packets, and one without a bandwidth, whose bucket is there so that
// packets are lost or delayed one by one.
func TestBucket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	add := func(mtu int, i topology.Impairment) error {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread, and with it the namespace, ends with the goroutine
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				done <- err
				return
			}
			q := bucket(mtu, i)
			q.index, q.parent = 1, netlink.HANDLE_ROOT
			done <- q.put(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
		}()
		return <-done
	}
	for _, i := range []topology.Impairment{{Bandwidth: 8000}, {Bandwidth: 10_000_000}, {Bandwidth: 100_000_000_000}, {Loss: 0.2}, {Jitter: 1_000_000}} {
		for _, mtu := range []int{1500, 9000, 65536} {
			if err := add(mtu, i); errors.Is(err, unix.ENOENT) {
				t.Skip("this kernel has no tbf")
			} else if err != nil {
				t.Errorf("%+v, MTU %d: %v", i, mtu, err)
			}
		}
	}
}
