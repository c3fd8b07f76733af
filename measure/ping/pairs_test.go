package ping

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
)

// Where pings of many pairs are not paced all of them are under way at once, also those of one
// host; where they are, no more than a few. Each waits here, as it begins, for all the others.
func TestPace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a namespace")
	}
	for _, unpaced := range []bool{false, true} {
		err := inside.Namespace("", func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0); err != nil {
				return err
			}
			atOnce, err := allAtOnce(t.Context(), unpaced)
			if atOnce != unpaced {
				t.Errorf("unpaced %v: all were under way at once: %v", unpaced, atOnce)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// allAtOnce says whether many pings of one host are all under way while none can end. Those that
// are paced are given less time than until the next may begin.
func allAtOnce(ctx context.Context, unpaced bool) (bool, error) {
	const pairs = 3 * young
	wait := youth / 2
	if unpaced {
		wait = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var mu sync.Mutex
	begun, together := 0, make(chan struct{})
	o := Options{Count: 1, Timeout: time.Second, Unpaced: unpaced, Heard: func(h Heard) {
		mu.Lock()
		if begun++; begun == pairs {
			close(together)
		}
		mu.Unlock()
		select {
		case <-together:
		case <-ctx.Done():
		}
	}}
	var all []Pair
	for i := range pairs {
		all = append(all, Pair{From: "h1", To: fmt.Sprint("h", i+2), Address: netip.MustParseAddr("127.0.0.1")}) // loopback is down: nothing is answered
	}
	_, err := Pairs(ctx, all, func(string) (Sender, error) { return Open(false) }, o)
	return ctx.Err() == nil, err
}
