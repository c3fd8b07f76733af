package delayline

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/topology"
)

// Line is an impaired link between two TAP devices.
type Line struct {
	engine *Engine
	worker *worker
	ends   [2]*end // ends[i] holds what end i sends
	plain  [2]bool

	devices [2]Device // at the ends

	mu     sync.Mutex // serialises changes; the worker's lock guards what its thread uses
	closed bool
	cut    bool    // see Up
	off    [2]bool // see Power
	last   Stats   // set when it is closed
}

// end is one end of a line, and the direction that leaves it.
type end struct {
	fd    int
	other *end
	queue *Queue

	before, after *stage // nil until a device there serves packets, before the queue or after it

	// position in the worker's heap; -1: not in it
	index int
	next  time.Duration

	down      bool
	offload   bool
	overrun   uint64 // the device's count from before the line existed
	gone      bool   // the device was deleted
	refused   Traffic
	malformed uint64
	late      uint64
	latest    time.Duration
}

// lateAfter is by how much a packet must be late to count as late.
const lateAfter = time.Millisecond

// A line's counters use the types of package counters.
type (
	Traffic   = counters.Traffic
	Counters  = counters.Counters
	Direction = counters.Direction
)

// Stats are a line's directions: 0 is what end a sends, 1 what end b sends.
type Stats [2]Direction

func newLine(e *Engine, w *worker, fds [2]int, imps [2]topology.Impairment, opts Options) (*Line, error) {
	l := &Line{engine: e, worker: w, plain: opts.Plain}
	for i := range l.ends {
		before, err := overrun(fds[i])
		if err != nil {
			return nil, fmt.Errorf("delay line: counters of end %d: %w", i, err)
		}
		l.ends[i] = &end{fd: fds[i], index: -1, overrun: before,
			queue: NewQueue(imps[i], w.pool, opts.Seed+uint64(i))}
	}
	l.ends[0].other, l.ends[1].other = l.ends[1], l.ends[0]
	l.setDevices(opts.Devices)
	if err := l.setOffload(imps, true); err != nil {
		return nil, err
	}
	return l, w.add(l.ends)
}

// setOffload allows super-packets if the impairment tolerates them and the receiving end accepts
// them.
func (l *Line) setOffload(imps [2]topology.Impairment, force bool) error {
	for i, n := range l.ends {
		on := Offload(imps[i]) && !l.plain[1-i] && !l.busyDevices()
		if on == n.offload && !force {
			continue
		}
		if err := setOffload(n.fd, on); err != nil && err != unix.EBADFD { // EBADFD: the device was deleted
			return fmt.Errorf("delay line: offload of end %d: %w", i, err)
		}
		n.offload = on
	}
	return nil
}

var errClosed = errors.New("delay line: the line is closed")

// Set changes the impairments, while packets are on their way; see Queue.Set.
func (l *Line) Set(ab, ba topology.Impairment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	imps := [2]topology.Impairment{ab, ba}
	l.worker.change(l.ends, func(i int, now time.Duration) { l.ends[i].queue.Set(now, imps[i]) })
	return l.setOffload(imps, false)
}

// Serve changes the devices at the ends. Packets that the old devices hold leave before those that
// the new ones take.
func (l *Line) Serve(devices [2]Device) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	if devices == l.devices {
		return nil
	}
	l.worker.change(l.ends, func(i int, _ time.Duration) {
		if i == 0 {
			l.setDevices(devices)
		}
	})
	return l.setOffload([2]topology.Impairment{l.ends[0].queue.impairment, l.ends[1].queue.impairment}, false)
}

// setDevices puts the devices' servers into the path of frames: the sending end's before the queue,
// if the device takes both directions, and the other end's after it.
func (l *Line) setDevices(devices [2]Device) {
	l.devices = devices
	for i, n := range l.ends {
		sends := devices[i].Server
		if !devices[i].Both {
			sends = nil
		}
		n.before = n.before.serve(sends, l.worker.pool)
		n.after = n.after.serve(devices[1-i].Server, l.worker.pool)
	}
}

// Up takes the line up or down. A line that is down drops what is on the way and what arrives, in
// both directions, and the devices lose their carrier, as if the cable were pulled.
func (l *Line) Up(up bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	l.cut = !up
	return l.plug()
}

// Power says whether the device of an end is set up. If it is not, the line is down and the other
// end has no carrier, as when a cable leads to a device that is switched off.
func (l *Line) Power(end int, on bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	l.off[end] = !on
	return l.plug()
}

// plug puts the line and the devices' carriers into the state they should have. mu must be held.
func (l *Line) plug() error {
	up := !l.cut && !l.off[0] && !l.off[1]
	l.worker.change(l.ends, func(i int, now time.Duration) { l.ends[i].up(now, up) })
	for i, n := range l.ends {
		if err := setCarrier(n.fd, !l.cut && !l.off[1-i]); err != nil && err != unix.EBADFD {
			return fmt.Errorf("delay line: carrier of end %d: %w", i, err)
		}
	}
	return nil
}

// up takes a direction up or down.
func (n *end) up(now time.Duration, up bool) {
	n.queue.Up(now, up)
	n.down = !up
	if !up {
		for _, s := range []*stage{n.before, n.after} {
			if s != nil {
				s.clear()
			}
		}
	}
}

// Stats returns the current counters; of a closed line, those at its end.
func (l *Line) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats()
}

func (l *Line) stats() Stats {
	if l.closed {
		return l.last
	}
	var s Stats
	l.worker.change(l.ends, func(i int, now time.Duration) { s[i] = l.ends[i].direction(now) })
	for i, n := range l.ends {
		// A deleted device has no counters any more: what was not read before is lost.
		if total, err := overrun(n.fd); err == nil {
			s[i].Overrun = total - n.overrun
		}
	}
	return s
}

func (n *end) direction(now time.Duration) Direction {
	d := Direction{Counters: n.queue.Counters(now), Refused: n.refused, Malformed: n.malformed,
		Late: n.late, Latest: n.latest, Offload: n.offload, Gone: n.gone}
	d.Out.Packets -= n.refused.Packets
	d.Out.Bytes -= n.refused.Bytes
	d.Waiting, d.Flying = n.queue.Len(now)
	n.stageCounts(&d)
	return d
}

// Close removes the line, closes its descriptors and returns its counters.
func (l *Line) Close() (Stats, error) {
	l.engine.mu.Lock()
	delete(l.engine.lines, l)
	l.engine.mu.Unlock()
	return l.close()
}

func (l *Line) close() (Stats, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.last, errClosed
	}
	l.last = l.stats()
	l.closed = true
	l.worker.remove(l.ends)
	return l.last, errors.Join(unix.Close(l.ends[0].fd), unix.Close(l.ends[1].fd))
}
