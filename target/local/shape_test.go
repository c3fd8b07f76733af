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

// TestBucketChanges proves that what waits is kept when a link's bandwidth changes, unless the
// bucket becomes smaller: then a super-packet that waits may be larger than that, and would wait
// for ever.
func TestBucketChanges(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread, and with it the namespace, ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		lo, err := netlink.LinkByIndex(1)
		if err == nil {
			err = netlink.LinkSetMTU(lo, 1500)
		}
		if err == nil {
			lo, err = netlink.LinkByIndex(1)
		}
		if err == nil {
			err = shape(1, topology.Impairment{Bandwidth: 20e6})
		}
		if err != nil {
			t.Error(err)
			return
		}
		for _, c := range []struct {
			bandwidth topology.Rate
			keeps     bool
		}{{20e6, true}, {30e6, true}, {10e6, false}, {10e6, true}, {100e9, true}, {100e9, true}, {50e9, false}, {1e6, false}, {1e6, true}} {
			i := topology.Impairment{Bandwidth: c.bandwidth}
			if got := changeInPlace(lo, disciplines(1, lo.Attrs().MTU, i)); got != c.keeps {
				t.Errorf("to %v: what waits is kept: %v, want %v", c.bandwidth, got, c.keeps)
			}
			if err := shape(1, i); err != nil {
				t.Error(err)
			}
		}
	}()
	<-done
}
