package packets

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/test/until"
)

// Streams of small and large packets, over IPv4 and IPv6, come over a wire without loss or
// reordering, each number once, with delays that are greater than nothing and less than the whole
// measurement.
func TestMeasure(t *testing.T) {
	w := newWire(t)
	w.pinned = true // packets of a sender that changes its processor may overtake each other in a veth pair
	for _, test := range []struct {
		name string
		to   netip.Addr
		size int
		rate float64
		n    int
	}{
		{"64-byte frames", addresses4[1], HeaderLen, 1000, 500},
		{"full frames", addresses4[1], 1472, 1000, 200},
		{"IPv6", addresses6[1], 64, 1000, 200},
		{"many at a time", addresses4[1], HeaderLen, 50_000, 20_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			s := Send{To: netip.AddrPortFrom(test.to, 0), Stream: 7, Size: test.size, Rate: test.rate, Count: test.n}
			sent, got, err := Measure(ctx, w.node(0), w.node(1), s, Receive{Sample: 1000}, time.Second)
			must(t, err)
			t.Logf("sent %+v", *sent)
			t.Logf("received %d, delay %+v, mean |D| %.2g s, dropped %d", got.Received, got.Delay, got.Difference, got.Dropped)
			if sent.Sent+sent.GivenUp != test.n || sent.Refused != 0 {
				t.Errorf("sent %d packets, gave up %d, of %d; %d were refused", sent.Sent, sent.GivenUp, test.n, sent.Refused)
			}
			if got.Received+got.Dropped != sent.Sent || got.Duplicates != 0 || got.Reordered != 0 || got.Foreign != 0 {
				t.Errorf("of %d packets came %d, %d of them late, %d twice; %d were dropped, and %d others came", sent.Sent, got.Received, got.Reordered, got.Duplicates, got.Dropped, got.Foreign)
			}
			if got.Late != 0 {
				t.Errorf("the kernel did not stamp %d packets", got.Late)
			}
			if got.Bytes != got.Received*test.size || got.TTL[64] != got.Received {
				t.Errorf("%d packets had %d bytes and TTLs %v", got.Received, got.Bytes, got.TTL)
			}
			if got.Delay.Min <= 0 || got.Delay.Max > time.Since(began).Seconds() || got.Delay.N != got.Received {
				t.Errorf("delays are %+v", got.Delay)
			}
			if n := len(got.Delays); n == 0 || n > 1300 || test.n <= 1000 && n != got.Received {
				t.Errorf("%d of %d delays were kept", n, got.Received)
			}
		})
	}
}

// Instruments stay for the next stream, and one that has ended meanwhile is replaced; streams that
// begin together do so once each has come through, however long the last one takes.
func TestInstruments(t *testing.T) {
	w := newWire(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var began atomic.Int32
	var kill atomic.Pointer[context.CancelFunc]
	all := &Instruments{In: func(node string) Node {
		return func(ctx context.Context, in io.Reader, out io.Writer) error {
			began.Add(1)
			if node == "far" {
				ctx, cancel := context.WithCancel(ctx)
				kill.Store(&cancel)
				return w.node(1)(ctx, in, out)
			}
			return w.node(0)(ctx, in, out)
		}
	}}
	defer all.Close()
	send := func(stream uint16, with *Start) *Sent {
		t.Helper()
		s := Send{To: netip.AddrPortFrom(addresses4[1], 0), Stream: stream, Size: 64, Rate: 1000, Count: 50, Whole: true, With: with}
		sent, got, err := all.Measure(ctx, "near", "far", s, Receive{Record: true}, time.Second)
		if err != nil || sent.Sent != 50 || got.Received+got.Dropped != 50 || got.Foreign != 0 {
			t.Errorf("stream %d: sent %+v, got %+v, %v", stream, sent, got, err)
		}
		return sent
	}
	for stream := range uint16(5) {
		send(stream, nil)
	}
	if n := began.Load(); n != 2 {
		t.Errorf("for 5 streams, one after the other, %d instruments began", n)
	}
	(*kill.Load())()
	until.True(t, "the killed instrument has ended", func() bool {
		return slices.ContainsFunc(all.idle, func(i *instrument) bool { return !i.runs() })
	})
	send(5, nil)
	if n := began.Load(); n != 3 {
		t.Errorf("%d instruments began, where one of two had ended", n)
	}

	with := NewStart(2)
	first := make(chan *Sent)
	go func() { first <- send(6, with) }()
	until.True(t, "the first of two streams waits", func() bool { return with.left.Load() == 1 })
	asked := time.Now().UnixNano()
	send(7, with)
	if one := <-first; one.Began < asked {
		t.Errorf("a stream began %d ns before that with which it was to begin was asked for", asked-one.Began)
	}
}

// A measurement that is told to end early gives what there is by then, and says that it is not all.
func TestMeasureEarly(t *testing.T) {
	w := newWire(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	come := func() (n uint64, err error) {
		err = w.at(1, func() error {
			link, err := netlink.LinkByName(w.devices[1])
			if err == nil {
				n = link.Attrs().Statistics.RxPackets
			}
			return err
		})
		return n, err
	}
	go func() {
		defer cancel()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if n, err := come(); err != nil || n > 200 {
				return
			}
		}
	}()
	s := Send{To: netip.AddrPortFrom(addresses4[1], 0), Stream: 7, Size: 64, Rate: 1000, Count: 10_000_000}
	sent, got, err := Measure(ctx, w.node(0), w.node(1), s, Receive{Sample: 1000}, time.Second)
	if !errors.Is(err, context.Canceled) || sent == nil || got == nil {
		t.Fatalf("%+v, %+v, %v", sent, got, err)
	}
	if sent.Sent == s.Count || sent.Sent < got.Received {
		t.Errorf("%d of %d were sent, and %d received", sent.Sent, s.Count, got.Received)
	}
}

// Nothing that comes is a measurement as well: all is lost, and the time that is waited for more
// ends. A place that cannot run an instrument is an error that says so, at once.
func TestMeasureNothing(t *testing.T) {
	w := newWire(t)
	must(t, w.at(1, func() error {
		link, err := netlink.LinkByName(w.devices[1])
		if err != nil {
			return err
		}
		return netlink.LinkSetARPOff(link)
	}))
	s := Send{To: netip.AddrPortFrom(addresses4[1], 0), Stream: 7, Size: 64, Rate: 1000, Count: 50}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sent, got, err := Measure(ctx, w.node(0), w.node(1), s, Receive{}, 100*time.Millisecond)
	if err != nil || sent.Sent == 0 || got.Received != 0 {
		t.Errorf("%+v, %+v, %v", sent, got, err)
	}
	broken := func(context.Context, io.Reader, io.Writer) error { return errors.New("no such node") }
	for _, nodes := range [][2]Node{{w.node(0), broken}, {broken, w.node(1)}} {
		if _, _, err := Measure(ctx, nodes[0], nodes[1], s, Receive{}, time.Second); err == nil || !strings.Contains(err.Error(), "no such node") {
			t.Errorf("a place that is none: %v", err)
		}
	}
}
