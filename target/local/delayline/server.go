package delayline

import (
	"math"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/topology"
)

// Server is a device that serves packets one after another, whichever lines they come over, each
// for the time that its model says; packets that find its queue full are dropped (see
// topology.Model). Several lines, of different threads, may share one. It has no clock: callers
// pass the arrival time of a frame, which may be a little earlier than a time that another line has
// passed before.
type Server struct {
	mu               sync.Mutex
	perPacket        float64 // ns
	perByte          float64
	limit            uint64
	free             time.Duration // when it will have finished all that it has accepted
	fraction         float64       // of a nanosecond, by which free is too early
	leaving          ring[leave]   // what it has accepted and not finished, in order
	inside           Traffic
	served, overflow Traffic
	busy             float64 // ns, for all that it has accepted
}

// leave is when a server finishes a frame.
type leave struct {
	at   time.Duration
	size Traffic
}

// NewServer returns an idle server; the model must have a service time (topology.Model.Serves).
func NewServer(m *topology.Model) *Server {
	s := &Server{}
	s.Set(m)
	return s
}

// Set changes the service time of packets that arrive from now on.
func (s *Server) Set(m *topology.Model) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.perPacket, s.perByte = m.Costs()
	s.limit = uint64(m.QueueLimit())
}

// take has the server serve a frame that arrives at a given time, and returns when it is finished;
// false if its queue is full. A frame of several segments costs as much as they do, and is accepted
// into an empty queue whatever the limit is: otherwise it could never pass.
func (s *Server) take(at time.Duration, size Traffic) (done time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(at)
	if s.inside.Packets > 0 && s.inside.Packets+size.Packets > s.limit {
		s.overflow.Add(size)
		return 0, false
	}
	if at > s.free {
		s.free, s.fraction = at, 0
	}
	cost := s.perPacket*float64(size.Packets) + s.perByte*float64(size.Bytes)
	s.busy += cost
	whole, fraction := math.Modf(cost + s.fraction)
	s.free, s.fraction = s.free+time.Duration(whole), fraction
	s.inside.Add(size)
	s.leaving.push(leave{s.free, size})
	return s.free, true
}

// settle removes what the server has finished by a given time.
func (s *Server) settle(now time.Duration) {
	for s.leaving.len > 0 && s.leaving.head().at <= now {
		size := s.leaving.pop().size
		s.inside.Sub(size)
		s.served.Add(size)
	}
}

// Stats returns what the server has done up to now.
func (s *Server) Stats(now time.Duration) counters.Served {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(now)
	busy := time.Duration(max(0, s.busy-max(0, float64(s.free-now)+s.fraction)))
	return counters.Served{Served: s.served, Overflowed: s.overflow, Waiting: s.inside, Busy: busy}
}

// stage holds the frames of one direction of a line that are at a server: before the line's queue,
// if the sending end's device takes what it sends, or after it, at the device of the receiving end.
// Its frames leave in order, also when another server, or none, takes over.
type stage struct {
	server  *Server // nil: frames pass
	store   store
	items   ring[frame]
	last    time.Duration // when the last frame in it leaves
	inside  Traffic
	dropped Traffic // because the server's queue was full
	cleared Traffic
	noMem   Traffic
}

// enter accepts a frame that arrives at a given time. It copies the frame, or drops and counts it;
// a frame for which there is no memory does not reach the server. A frame that only waits for
// earlier ones of another server is not limited by a server's queue, but by
// topology.DefaultModelQueue packets in the stage; it still uses time of the new server.
func (s *stage) enter(at time.Duration, bytes []byte, size Traffic) {
	kept, in, ok := s.store.keep(bytes)
	if !ok {
		s.noMem.Add(size)
		return
	}
	done := at
	if s.server != nil {
		done, ok = s.server.take(at, size)
	}
	if done < s.last {
		done = s.last
		ok = ok && (s.inside.Packets == 0 || s.inside.Packets+size.Packets <= topology.DefaultModelQueue)
	}
	if !ok {
		s.store.undo(kept, in)
		s.dropped.Add(size)
		return
	}
	s.last = done
	s.inside.Add(size)
	s.items.push(frame{bytes: kept, in: in, size: size, arrives: done})
}

// leave removes the next frame that the server has finished by now. Its bytes stay valid as those
// of Queue.Pop do.
func (s *stage) leave(now time.Duration) (f frame, ok bool) {
	if s.items.len == 0 || s.items.head().arrives > now {
		return f, false
	}
	f = s.items.pop()
	s.inside.Sub(f.size)
	s.store.release(f.in)
	return f, true
}

// clear drops what is in it, as the line is down. The server's time for that is spent all the same.
func (s *stage) clear() {
	s.last = 0
	for s.items.len > 0 {
		f := s.items.pop()
		s.cleared.Add(f.size)
		s.inside.Sub(f.size)
		s.store.release(f.in)
	}
}

// serve makes a server serve what passes the stage from now on; it may be nil. The stage may be
// nil, too: one is then made if there is a server.
func (s *stage) serve(by *Server, pool *Pool) *stage {
	if s == nil {
		if by == nil {
			return nil
		}
		s = &stage{store: store{pool: pool}}
	}
	s.server = by
	return s
}

// Device is the modelled device at an end of a line.
type Device struct {
	Server *Server // nil: it takes no time
	// Both says that the device also takes what the end sends.
	Both bool
}

// stageCounts adds what its stages hold and have dropped to the counters of a direction.
func (n *end) stageCounts(d *Direction) {
	if s := n.before; s != nil { // not in the queue's counters yet
		d.In.Add(s.inside)
		for _, lost := range []Traffic{s.dropped, s.cleared, s.noMem} {
			d.In.Add(lost)
		}
	}
	if s := n.after; s != nil { // the queue counts it as delivered
		d.Out.Sub(s.inside)
		for _, lost := range []Traffic{s.dropped, s.cleared, s.noMem} {
			d.Out.Sub(lost)
		}
	}
	for _, s := range []*stage{n.before, n.after} {
		if s != nil {
			d.Held.Add(s.inside)
			d.Unserved.Add(s.dropped)
			d.Cleared.Add(s.cleared)
			d.NoMemory.Add(s.noMem)
		}
	}
}

// nextDue is when the end next has something to deliver or to move on.
func (n *end) nextDue() (at time.Duration, ok bool) {
	at, ok = n.queue.Next()
	for _, s := range []*stage{n.before, n.after} {
		if s == nil || s.items.len == 0 {
			continue
		}
		if next := s.items.head().arrives; !ok || next < at {
			at, ok = next, true
		}
	}
	return at, ok
}

// staged says whether the direction has ever passed a device.
func (n *end) staged() bool { return n.before != nil || n.after != nil }

// busyDevices says whether any packet of the line waits for a device, as a super-packet must not.
func (l *Line) busyDevices() bool {
	return slices.ContainsFunc(l.devices[:], func(d Device) bool { return d.Server != nil })
}
