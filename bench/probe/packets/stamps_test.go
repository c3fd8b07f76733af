package packets

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// kernelStamps asks a socket to say when each packet was about to be queued, and when it went to
// the device (SO_TIMESTAMPING).
func kernelStamps(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_TX_SCHED|unix.SOF_TIMESTAMPING_TX_SOFTWARE|
		unix.SOF_TIMESTAMPING_SOFTWARE|unix.SOF_TIMESTAMPING_OPT_ID|unix.SOF_TIMESTAMPING_OPT_TSONLY)
}

// readStamps reads what it has said: by packet, in the order of sending, nanoseconds since 1970.
func readStamps(fd int, queued, sent map[int]int64) error {
	control := make([]byte, 512)
	for {
		_, n, _, _, err := unix.Recvmsg(fd, nil, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil {
			return err
		}
		var at int64
		var id, kind uint32
		for _, m := range messages {
			switch {
			case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPING:
				at = int64(binary.NativeEndian.Uint64(m.Data))*1e9 + int64(binary.NativeEndian.Uint64(m.Data[8:]))
			case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR: // struct sock_extended_err: ee_info at 8, ee_data at 12
				kind, id = binary.NativeEndian.Uint32(m.Data[8:]), binary.NativeEndian.Uint32(m.Data[12:])
			}
		}
		if kind == unix.SCM_TSTAMP_SCHED {
			queued[int(id)] = at
		} else {
			sent[int(id)] = at
		}
	}
}

// The stamps of a packet are what the documentation says: the sender's own is before the kernel's
// of the queue, that is before the one of the device, and that before the receiver's; so a delay is
// never measured too short. By how much it is too long (the time to the queue) is logged.
func TestStamps(t *testing.T) {
	const n = 300
	w := newWire(t)
	w.introduce(t)
	var r *receiver
	must(t, w.at(1, func() (err error) {
		r, err = Receive{Stream: 6, Count: n, Record: true}.open()
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
	queued, sent := map[int]int64{}, map[int]int64{}
	must(t, w.at(0, func() error {
		out, err := openOutput(Send{To: netip.AddrPortFrom(addresses4[1], uint16(r.port)), Stream: 6, Size: 64}, 1)
		if err != nil {
			return err
		}
		defer unix.Close(out.fd)
		if err := kernelStamps(out.fd); err != nil {
			return err
		}
		for i := range n {
			if refused, err := out.send(i, 1, wall()); refused > 0 {
				return err
			}
			time.Sleep(time.Millisecond)
			if err := readStamps(out.fd, queued, sent); err != nil {
				return err
			}
		}
		return nil
	}))
	end.Store(&ending{n, time.Second})
	must(t, <-done)
	var before, inKernel, onWire []float64
	for i := range n {
		stamp := got.Record.Sent[i]
		if stamp == 0 || queued[i] == 0 || sent[i] == 0 {
			continue
		}
		arrived := stamp + got.Record.Delay[i]
		if stamp > queued[i] || queued[i] > sent[i] || sent[i] > arrived {
			t.Errorf("packet %d: the sender's stamp, then %+d ns the queue's, %+d the device's, %+d the receiver's", i, queued[i]-stamp, sent[i]-stamp, arrived-stamp)
		}
		before, inKernel, onWire = append(before, float64(queued[i]-stamp)), append(inKernel, float64(sent[i]-queued[i])), append(onWire, float64(arrived-sent[i]))
	}
	if len(before) < n/2 {
		t.Fatalf("%d of %d packets have all stamps; %d were queued, %d sent, %d received", len(before), n, len(queued), len(sent), got.Received)
	}
	t.Logf("medians of %d packets: %.0f ns from the sender's stamp to the queue's, %.0f ns to the device's, %.0f ns to the receiver's", len(before), middle(before), middle(inKernel), middle(onWire))
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkSend is what a packet of 64 bytes costs the sender, receiving by the kernel included:
// processor time of its thread, in batches of 32.
func BenchmarkSend(b *testing.B) {
	w := newWire(b)
	w.introduce(b)
	var r *receiver
	if err := w.at(1, func() (err error) {
		r, err = Receive{Stream: 6, Count: MaxCount}.open()
		return err
	}); err != nil {
		b.Fatal(err)
	}
	defer unix.Close(r.fd) // nobody reads: what does not fit is dropped
	var used time.Duration
	if err := w.at(0, func() error {
		out, err := openOutput(Send{To: netip.AddrPortFrom(addresses4[1], uint16(r.port)), Stream: 6, Size: HeaderLen}, maxBatch)
		if err != nil {
			return err
		}
		defer unix.Close(out.fd)
		var before, after unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &before); err != nil {
			return err
		}
		b.ResetTimer()
		for i := 0; i < b.N; i += maxBatch {
			if _, err := out.send(i, min(maxBatch, b.N-i), wall()); err != nil {
				return err
			}
		}
		b.StopTimer()
		err = unix.Getrusage(unix.RUSAGE_THREAD, &after)
		used = time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
		return err
	}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
}
