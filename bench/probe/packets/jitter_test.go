package packets

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// aged is an output whose stamps are older than they should be, by times that are known.
type aged struct {
	*udpOutput
	age func(number int) time.Duration
}

func (a aged) send(first, n int, stamp int64) (refused int, err error) {
	for i := range n {
		r, e := a.udpOutput.send(first+i, 1, stamp-a.age(first+i).Nanoseconds())
		refused += r
		if e != nil {
			err = e
		}
	}
	return refused, err
}

// A generator of known delays and jitter (normal, 20 ms ± 2 ms) through real sockets is measured as
// what it is: each delay is its own and that of the wire, so their mean and deviation are, within
// six standard errors and what the wire itself takes, those of the generator; and so is the mean of
// |D|.
func TestKnownJitter(t *testing.T) {
	const n, mean, sigma = 4000, 20e-3, 2e-3
	w := newWire(t)
	w.introduce(t)
	var r *receiver
	must(t, w.at(1, func() (err error) {
		r, err = Receive{Stream: 5, Count: n, Sample: n, Record: true}.open()
		return err
	}))
	var end atomic.Pointer[ending]
	var stop atomic.Bool
	done := make(chan error, 1)
	var got *Received
	go func() {
		var err error
		got, err = r.run(&end, &stop)
		done <- err
	}()
	random := rand.New(rand.NewPCG(3, 4))
	ages := make([]time.Duration, n)
	for i := range ages {
		ages[i] = time.Duration((mean + sigma*random.NormFloat64()) * 1e9)
	}
	var sent Sent
	must(t, w.at(0, func() error {
		s := Send{To: netip.AddrPortFrom(addresses4[1], uint16(r.port)), Stream: 5, Size: 64, Rate: 4000, Count: n}
		p := &pace{rate: s.Rate, slots: n}
		out, err := openOutput(s, 1)
		if err != nil {
			return err
		}
		defer unix.Close(out.fd)
		sent, err = drive(p, monotonic{time.Now()}, aged{out, func(i int) time.Duration { return ages[i] }}, wall, &stop)
		return err
	}))
	end.Store(&ending{sent.Sent, time.Second})
	must(t, <-done)
	if got.Received+got.Dropped != sent.Sent || got.Received < 10 {
		t.Fatalf("%d of %d came, %d dropped, %d foreign, sent %+v", got.Received, sent.Sent, got.Dropped, got.Foreign, sent)
	}
	var known, wire Moments
	var before time.Duration
	difference := 0.0
	for i, came := range got.Record.Sent {
		if came == 0 {
			continue
		}
		own := float64(got.Record.Delay[i])/1e9 - ages[i].Seconds()
		if own < 0 {
			t.Fatalf("packet %d took %v s less than its stamp says", i, -own)
		}
		wire.add(own)
		if known.add(ages[i].Seconds()); known.N > 1 {
			difference += math.Abs((ages[i] - before).Seconds())
		}
		before = ages[i]
	}
	difference /= float64(known.N - 1)
	t.Logf("%d packets; the wire took %.2g s ± %.2g s; mean %.6f s, deviation %.6f s, mean |D| %.6f s, jitter %.6f s at the end", known.N, wire.Mean, wire.SD, got.Delay.Mean, got.Delay.SD,
		got.Difference, got.Jitter[len(got.Jitter)-1].Value)
	if off := got.Delay.Mean - known.Mean - wire.Mean; math.Abs(off) > 1e-9 {
		t.Errorf("the mean is off by %v s", off)
	}
	if off := math.Abs(got.Delay.SD - sigma); off > 6*sigma/math.Sqrt(2*float64(known.N))+wire.SD {
		t.Errorf("the deviation is %v s; the generator's is %v", got.Delay.SD, sigma)
	}
	if off := math.Abs(got.Difference - difference); off > 2*wire.SD {
		t.Errorf("the mean of |D| is %v s; the generator's is %v", got.Difference, difference)
	}
}
