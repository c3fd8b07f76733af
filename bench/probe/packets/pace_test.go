package packets

import (
	"errors"
	"math"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// fakeClock is a clock that stands still but for those who sleep and send.
type fakeClock struct {
	at    time.Duration
	wakes func(until time.Duration) time.Duration // when a sleep ends
}

func (f *fakeClock) now() time.Duration { return f.at }

func (f *fakeClock) sleep(until time.Duration) {
	if f.wakes != nil {
		until = f.wakes(until)
	}
	f.at = max(f.at, until)
}

// taken is an output that notes when each packet left, and takes a time for each.
type taken struct {
	clock   *fakeClock
	cost    time.Duration // of a packet
	at      []time.Duration
	batches []int
	refuse  func(number int) error
}

func (o *taken) send(first, n int, _ int64) (refused int, err error) {
	o.batches = append(o.batches, n)
	for i := range n {
		o.at = append(o.at, o.clock.at)
		if o.refuse != nil {
			if e := o.refuse(first + i); e != nil {
				refused, err = refused+1, e
			}
		}
	}
	o.clock.at += time.Duration(n) * o.cost
	return refused, err
}

func paced(p *pace, c *fakeClock, o *taken) (Sent, error) {
	o.clock = c
	return drive(p, c, o, func() int64 { return 1 + int64(c.at) }, &atomic.Bool{})
}

// A sender that wakes up on time sends each packet of any rate exactly when it is due, one at a
// time where the rate is low, and no error adds up over a stream.
func TestPaceExact(t *testing.T) {
	for _, rate := range []float64{0.5, 3, 1000, 7777.7, 20_000} {
		c, o := &fakeClock{}, &taken{}
		s, err := paced(&pace{rate: rate, slots: 5000}, c, o)
		must(t, err)
		for k, at := range o.at {
			if want := time.Duration(math.Round(float64(k) / rate * 1e9)); at != want {
				t.Fatalf("%v packets/s: packet %d left at %v, not %v", rate, k, at, want)
			}
		}
		if len(o.batches) != 5000 || s.Sent != 5000 || s.GivenUp != 0 || math.Abs(s.Rate()/rate-1) > 1e-6 {
			t.Errorf("%v packets/s: %d sent in %d batches, %d given up, at %v packets/s", rate, s.Sent, len(o.batches), s.GivenUp, s.Rate())
		}
	}
}

// One that wakes up late catches up, in batches that hold no more than 50 µs of the stream, and
// keeps the rate.
func TestPaceLate(t *testing.T) {
	for _, test := range []struct {
		rate  float64
		batch int
	}{{1000, 1}, {100_000, 5}, {1_000_000, 32}} {
		c, o := &fakeClock{}, &taken{cost: 100 * time.Nanosecond}
		c.wakes = func(until time.Duration) time.Duration { return until + 80*time.Microsecond }
		s, err := paced(&pace{rate: test.rate, slots: 100_000}, c, o)
		must(t, err)
		most := 0
		for _, n := range o.batches {
			most = max(most, n)
		}
		if most != test.batch || s.Sent != 100_000 || math.Abs(s.Rate()/test.rate-1) > 0.001 {
			t.Errorf("%v packets/s: %d sent, at %v packets/s, in batches of up to %d", test.rate, s.Sent, s.Rate(), most)
		}
		if s.Lag.P50 < 1e-6 || s.Lag.Max > 0.001 {
			t.Errorf("%v packets/s: lag %+v of a sender that wakes up 80 µs late", test.rate, s.Lag)
		}
	}
}

// One that was stalled does not send all that it owes at once: it gives up what is older than 5 ms
// and says so, and goes on in time.
func TestPaceStalled(t *testing.T) {
	c, o := &fakeClock{}, &taken{}
	c.wakes = func(until time.Duration) time.Duration {
		if until == 50*time.Millisecond {
			return until + 100*time.Millisecond
		}
		return until
	}
	s, err := paced(&pace{rate: 1000, slots: 1000}, c, o)
	must(t, err)
	if s.GivenUp != 95 || s.Sent != 905 { // due at 50 to 144 ms
		t.Errorf("%d sent, %d given up; it should be 905 and 95", s.Sent, s.GivenUp)
	}
	if last := o.at[len(o.at)-1]; last != 999*time.Millisecond {
		t.Errorf("the last packet left at %v, not 999ms", last)
	}
	if s.Rate() > 906 || s.Rate() < 904 {
		t.Errorf("it says that it sent %v packets/s", s.Rate())
	}
}

// One that cannot send so fast sends as fast as it can, to the end of its time, and says what the
// rate was.
func TestPaceTooFast(t *testing.T) {
	c, o := &fakeClock{}, &taken{cost: 2 * time.Microsecond}
	s, err := paced(&pace{rate: 1_000_000, slots: 1_000_000}, c, o)
	must(t, err)
	if math.Abs(s.Rate()/500_000-1) > 0.02 || s.Sent+s.GivenUp != 1_000_000 || c.at > 1100*time.Millisecond {
		t.Errorf("%d sent, %d given up, %v packets/s, until %v", s.Sent, s.GivenUp, s.Rate(), c.at)
	}
}

// Whatever a clock does, each slot is sent or given up, and none before its time.
func TestPaceAnyClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.1, MaxRate).Draw(t, "rate")
		p := &pace{rate: rate, slots: rapid.IntRange(1, 500).Draw(t, "slots")}
		c, o := &fakeClock{}, &taken{cost: time.Duration(rapid.IntRange(0, 20_000).Draw(t, "cost"))}
		late := rapid.SliceOfN(rapid.Int64Range(0, int64(20*time.Millisecond)), 1, 20).Draw(t, "late")
		i := 0
		c.wakes = func(until time.Duration) time.Duration {
			i++
			return until + time.Duration(late[i%len(late)])
		}
		slots := p.slots
		s, err := paced(p, c, o)
		if err != nil {
			t.Fatal(err)
		}
		if s.Sent+s.GivenUp != slots || s.Sent != len(o.at) || s.Sent == 0 {
			t.Fatalf("of %d slots %d are sent and %d given up", slots, s.Sent, s.GivenUp)
		}
		for k, at := range o.at { // with what was given up before, a packet can only be later
			if at < time.Duration(math.Round(float64(k)/rate*1e9)) {
				t.Fatalf("packet %d left at %v: too early", k, at)
			}
		}
	})
}

// What a real socket refuses, here since its device is down, is counted, packet by packet.
func TestRefusedByKernel(t *testing.T) {
	w := newWire(t)
	must(t, w.at(0, func() error {
		out, err := openOutput(Send{To: netip.AddrPortFrom(addresses4[1], 9), Size: 64}, 4)
		if err != nil {
			return err
		}
		defer unix.Close(out.fd)
		link, err := netlink.LinkByName(w.devices[0])
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		if refused, err := out.send(0, 4, wall()); refused != 4 || err == nil {
			t.Errorf("%d of 4 packets were refused: %v", refused, err)
		}
		return nil
	}))
}

// Packets that the kernel refuses are counted, and the stream goes on; a stream of which all are
// refused is an error.
func TestRefused(t *testing.T) {
	down := errors.New("the network is down")
	c, o := &fakeClock{}, &taken{refuse: func(number int) error {
		if number >= 100 && number < 150 {
			return down
		}
		return nil
	}}
	s, err := paced(&pace{rate: 1000, slots: 1000}, c, o)
	if err != nil || s.Sent != 1000 || s.Refused != 50 || s.Error != down.Error() {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := paced(&pace{rate: 1000, slots: 10}, &fakeClock{}, &taken{refuse: func(int) error { return down }}); err == nil {
		t.Error("nothing could be sent, and there is no error")
	}
}

// TestUneven proves that packets of two streams of one rate that begin together meet, within a
// fiftieth of the interval, as seldom as chance has it where they are sent unevenly, and with each
// packet else; and that each packet is sent within half an interval after its time.
func TestUneven(t *testing.T) {
	const rate, count = 50.0, 2000
	meet := func(uneven bool) (met int) {
		var of [2][]time.Duration
		for i := range of {
			of[i] = Send{Stream: uint16(i + 1), Rate: rate, Count: count, Whole: true, Uneven: uneven}.
				times(&pace{rate: rate, slots: count}).at
			for k, at := range of[i] {
				if late := at - time.Duration(k)*20*time.Millisecond; late < 0 || late > 10*time.Millisecond {
					t.Fatalf("packet %d is sent %v after its time", k, late)
				}
			}
		}
		for k := range count {
			if (of[0][k] - of[1][k]).Abs() < 400*time.Microsecond {
				met++
			}
		}
		return met
	}
	if met := meet(false); met != count {
		t.Errorf("sent evenly, %d of %d packets meet", met, count)
	}
	if met := meet(true); met < count/25 || met > count/8 { // 7.8 % of those that are within half an interval of each other
		t.Errorf("sent unevenly, %d of %d packets meet", met, count)
	}
}
