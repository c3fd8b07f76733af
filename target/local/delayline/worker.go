package delayline

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/monotonic"
)

const (
	maxFrame = 128 << 10 // bytes; a super-packet is at most 64 KiB plus its headers
	batch    = 256       // frames read from one end, or written in all, before others get their turn
	maxEvent = 64
	forever  = -1 // for epoll_wait: until there is an event
)

// worker is a thread that moves the frames of its lines. It sleeps in epoll until a frame can be
// read, the next one is due (a timer file descriptor, as epoll's own timeout is in milliseconds),
// or a line has changed.
type worker struct {
	epoll, timer, wake int

	zero       time.Time     // origin of the timer's clock
	armed      time.Duration // when the timer expires, or never
	lead       lead
	moved      bool // frames were read or written in this round
	done       chan struct{}
	buffer     []byte
	eventSpace []unix.EpollEvent

	mu      sync.Mutex
	pool    *Pool
	ends    map[int32]*end // by the descriptor that they are read from
	due     dueHeap
	stopped bool
}

const (
	never   = time.Duration(1<<63 - 1) // the timer is stopped
	expired = time.Duration(-1)        // the timer has expired: setting it again also resets it
)

func newWorker(budget *atomic.Int64) (*worker, error) {
	w := &worker{zero: monotonic.Zero(), armed: never, lead: lead{time: firstLead}, done: make(chan struct{}),
		pool:   NewPool(budget),
		buffer: make([]byte, maxFrame), eventSpace: make([]unix.EpollEvent, maxEvent), ends: map[int32]*end{}}
	errs := make([]error, 3)
	w.epoll, errs[0] = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	w.timer, errs[1] = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	w.wake, errs[2] = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	err := errors.Join(errs...)
	if err == nil {
		err = errors.Join(w.watch(w.timer), w.watch(w.wake))
	}
	if err != nil {
		return nil, errors.Join(err, w.closeFiles())
	}
	go w.run()
	return w, nil
}

func (w *worker) watch(fd int) error {
	return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

func (w *worker) closeFiles() (err error) {
	for _, fd := range []int{w.epoll, w.timer, w.wake} {
		if fd > 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

func (w *worker) now() time.Duration { return time.Since(w.zero) }

// run is the thread. It never unlocks from its goroutine, so the thread ends with the goroutine and
// passes its priority on to no other.
func (w *worker) run() {
	runtime.LockOSThread()
	defer close(w.done)
	prioritise()
	wait := forever
	for {
		n, err := unix.EpollWait(w.epoll, w.eventSpace, wait)
		if err != nil && err != unix.EINTR {
			panic(fmt.Sprintf("delay line: epoll_wait: %v", err)) // the descriptor is our own: a bug
		}
		w.mu.Lock()
		if w.stopped {
			w.mu.Unlock()
			return
		}
		w.moved = false
		for i := range max(n, 0) {
			w.handle(int(w.eventSpace[i].Fd))
		}
		if wait = forever; w.deliver() {
			wait = 0
		} else {
			w.arm()
		}
		w.mu.Unlock()
	}
}

// prioritise lets the thread run before the hosts' programs, as a network card would: a late
// wake-up is delay that nobody asked for. It takes the lowest real-time priority, since a nice
// value only matters among processes of one session or control group (sched(7), "The autogroup
// feature"). If it may not, it takes the best nice value, or goes without.
func prioritise() {
	realTime := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK} // not inherited by what is started from here
	if unix.SchedSetAttr(0, realTime, 0) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
	}
}

func (w *worker) handle(fd int) {
	switch fd {
	case w.timer:
		w.lead.learn(w.now() - w.armed)
		w.armed = expired
	case w.wake:
		var count [8]byte
		_, _ = unix.Read(w.wake, count[:])
	default:
		if n := w.ends[int32(fd)]; n != nil { // otherwise it was removed meanwhile
			w.read(n)
		}
	}
}

// arm sets the timer for when the next frame is due, or stops it.
func (w *worker) arm() {
	next := never
	if len(w.due) > 0 {
		next = w.lead.before(w.due[0].next, w.now(), w.moved)
	}
	if next == w.armed {
		return
	}
	w.armed = next
	var spec unix.ItimerSpec // zero stops the timer
	if next != never {
		spec.Value = unix.NsecToTimespec(int64(next))
	}
	if err := unix.TimerfdSettime(w.timer, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		panic(fmt.Sprintf("delay line: timerfd_settime: %v", err)) // as for epoll_wait
	}
}

// read reads what an end has sent. A frame's delay counts from when it is read: when it was sent is
// unknown, and no frame may be early.
func (w *worker) read(n *end) {
	for range batch {
		length, err := unix.Read(n.fd, w.buffer)
		switch {
		case err == unix.EAGAIN:
			w.reschedule(n)
			return
		case err == unix.EINTR:
			continue
		case err != nil: // EBADFD: the device was deleted; epoll would report it for ever
			n.gone = true
			_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, n.fd, nil)
			w.reschedule(n)
			return
		}
		w.moved = true
		frame := w.buffer[:length]
		if size, ok := wireSize(frame); ok {
			n.push(w.now(), frame, size)
		} else {
			n.malformed++
		}
	}
	w.reschedule(n)
}

// deliver writes what is due, longest overdue first. It stops after a batch, and says whether more
// is due: what it writes makes senders send (they reply, or were acknowledged), and that must be
// read before the kernel's queue is full.
func (w *worker) deliver() (more bool) {
	left := batch
	for len(w.due) > 0 {
		now := w.now()
		n := w.due[0]
		if n.next > now {
			return false
		}
		for ; left > 0; left-- {
			bytes, size, arrived, ok := n.pop(now)
			if !ok {
				break
			}
			w.moved = true
			if bytes == nil {
				continue // it has gone on to a device
			}
			n.write(bytes, size)
			if late := now - arrived; late > lateAfter {
				n.late += size.Packets
				n.latest = max(n.latest, late)
			}
		}
		w.reschedule(n)
		if left == 0 {
			return true
		}
	}
	return false
}

// push accepts a frame that the end has sent: into its queue, or before that at its device.
func (n *end) push(now time.Duration, bytes []byte, size Traffic) {
	if n.before == nil || n.down {
		n.queue.Push(now, bytes, size)
		return
	}
	n.before.enter(now, bytes, size)
}

// pop returns the next frame that is to be written by now; a frame without bytes has only moved to
// the next stage.
func (n *end) pop(now time.Duration) (bytes []byte, size Traffic, arrived time.Duration, ok bool) {
	if !n.staged() {
		return n.queue.Pop(now)
	}
	if n.after != nil {
		if f, ok := n.after.leave(now); ok {
			return f.bytes, f.size, f.arrives, true
		}
	}
	if n.before != nil {
		if f, ok := n.before.leave(now); ok {
			n.queue.Push(now, f.bytes, f.size)
			return nil, f.size, now, true
		}
	}
	bytes, size, arrived, ok = n.queue.Pop(now)
	if ok && n.after != nil {
		n.after.enter(arrived, bytes, size)
		bytes = nil
	}
	return bytes, size, arrived, ok
}

// write writes a frame to the other end's device. A frame that is refused is counted: the device is
// down (EIO) or deleted (EBADFD), or the kernel lacks memory or rejects the frame's header.
func (n *end) write(bytes []byte, size Traffic) {
	for {
		_, err := unix.Write(n.other.fd, bytes)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			n.refused.Add(size)
		}
		return
	}
}

// change runs a function for both ends of a line between two rounds of the thread, and makes the
// thread look at their times again.
func (w *worker) change(ends [2]*end, do func(i int, now time.Duration)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for i, n := range ends {
		do(i, now)
		w.reschedule(n)
	}
	w.poke()
}

func (w *worker) poke() {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	_, _ = unix.Write(w.wake, one)
}

func (w *worker) add(ends [2]*end) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, n := range ends {
		w.ends[int32(n.fd)] = n
		if err := w.watch(n.fd); err != nil {
			w.forget(ends)
			return fmt.Errorf("delay line: watch end %d: %w", i, err)
		}
	}
	return nil
}

func (w *worker) remove(ends [2]*end) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(ends)
}

// forget stops watching the ends and returns the memory of their frames.
func (w *worker) forget(ends [2]*end) {
	for _, n := range ends {
		_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, n.fd, nil) // fails if the device is gone
		delete(w.ends, int32(n.fd))
		n.up(w.now(), false)
		w.reschedule(n)
	}
}

func (w *worker) load() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ends)
}

func (w *worker) stop() error {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.poke()
	<-w.done
	return w.closeFiles()
}

// reschedule moves the end to its place among those that have something to deliver.
func (w *worker) reschedule(n *end) {
	next, ok := n.queue.Next()
	if n.staged() {
		next, ok = n.nextDue()
	}
	n.next = next
	switch {
	case ok && n.index < 0:
		heap.Push(&w.due, n)
	case ok:
		heap.Fix(&w.due, n.index)
	case n.index >= 0:
		heap.Remove(&w.due, n.index)
	}
}
