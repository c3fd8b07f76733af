package flowload

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// loop is the goroutine that runs all switches: it waits for messages of controllers (epoll(7)) and
// lets the switch concerned handle them. It needs no locks except for requests from other
// goroutines, and one read and one write per burst of messages, where the runtime's poller would
// need twice as many system calls.
type loop struct {
	run   *run
	epoll int
	bell  int     // an eventfd that wakes the loop
	dirty []*node // switches for which others have queued something
	done  chan struct{}

	mu    sync.Mutex
	taken []connection // new connections
	over  bool
	mute  bool // the bell is closed
}

// connection is a switch's non-blocking connection.
type connection struct {
	n  *node
	fd int
}

// tick is the interval at which the loop looks for timeouts: scanning many switches takes a while.
func (l *loop) tick() time.Duration {
	return 20*time.Millisecond + time.Duration(len(l.run.nodes))*100*time.Microsecond
}

const bellIndex = -1

func newLoop(r *run) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("eventfd: %w", err), unix.Close(epoll))
	}
	l := &loop{run: r, epoll: epoll, bell: bell, done: make(chan struct{})}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, bell,
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: bellIndex}); err != nil {
		return nil, errors.Join(fmt.Errorf("epoll_ctl: %w", err), unix.Close(epoll), unix.Close(bell))
	}
	return l, nil
}

// take passes a switch its connection.
func (l *loop) take(n *node, conn net.Conn) error {
	defer conn.Close() // the switch uses a duplicate descriptor, unknown to the runtime's poller
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	fd := -1
	if e := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); e != nil ||
		err != nil {
		return errors.Join(e, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return unix.Close(fd)
	}
	l.taken = append(l.taken, connection{n, fd})
	l.ring()
	return nil
}

// wake wakes the loop.
func (l *loop) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring()
}

// ring writes the bell. mu must be held.
func (l *loop) ring() {
	if !l.mute {
		_, _ = unix.Write(l.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// end ends the loop and all connections, and waits for it. It may be called again.
func (l *loop) end() {
	l.mu.Lock()
	l.over = true
	l.ring()
	l.mu.Unlock()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mute {
		l.mute = true
		unix.Close(l.bell)
	}
}

// touch records that there is something to send for a switch other than the current one.
func (l *loop) touch(n *node) {
	if !n.dirty {
		n.dirty = true
		l.dirty = append(l.dirty, n)
	}
}

func (l *loop) serve() {
	defer l.close()
	events := make([]unix.EpollEvent, 256)
	next := time.Now().Add(l.tick())
	for !l.finished() {
		got, err := unix.EpollWait(l.epoll, events, int(max(0, time.Until(next)).Milliseconds())+1)
		if err != nil && err != unix.EINTR {
			l.fail(nil, fmt.Errorf("epoll_wait: %w", err))
			return
		}
		look := !time.Now().Before(next)
		for _, e := range events[:max(got, 0)] {
			if e.Fd == bellIndex {
				look = true
				continue
			}
			l.handle(l.run.nodes[e.Fd], e.Events)
		}
		for _, n := range l.dirty {
			n.dirty = false
			n.flush()
		}
		l.dirty = l.dirty[:0]
		if look {
			next = time.Now().Add(l.tick())
			l.look()
		}
	}
}

func (l *loop) handle(n *node, events uint32) {
	if n.fd < 0 {
		return
	}
	if events&unix.EPOLLOUT != 0 {
		n.writable()
	}
	if events&^unix.EPOLLOUT != 0 && n.fd >= 0 {
		if err := n.read(); err != nil {
			l.fail(n, err)
		}
	}
}

// fail records a connection that has ended unexpectedly.
func (l *loop) fail(n *node, err error) {
	if n != nil {
		err = fmt.Errorf("switch %s: %w", dpidText(n.dpid()), err)
		unix.Close(n.fd)
		n.fd = -1
	}
	l.run.first.CompareAndSwap(nil, &err)
	l.run.dropped.Add(1)
}

// look accepts new connections, and lets every switch check timeouts and the phase.
func (l *loop) look() {
	var bell [8]byte
	_, _ = unix.Read(l.bell, bell[:])
	l.mu.Lock()
	taken := l.taken
	l.taken = nil
	l.mu.Unlock()
	for _, c := range taken {
		n := c.n
		n.fd = c.fd
		if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, n.fd,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(n.index)}); err != nil {
			l.fail(n, fmt.Errorf("epoll_ctl: %w", err))
			continue
		}
		n.queue(hello(l.run.Version))
		n.flush()
	}
	for _, n := range l.run.nodes {
		if n.load != nil && n.fd >= 0 {
			n.now = l.run.clock()
			n.load.late()
			n.ask()
		}
	}
}

// watch sets the events that the loop waits for on a connection.
func (l *loop) watch(n *node, events uint32) {
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, n.fd,
		&unix.EpollEvent{Events: events, Fd: int32(n.index)}); err != nil {
		l.fail(n, fmt.Errorf("epoll_ctl: %w", err))
	}
}

// finished reports whether nothing is left to do: the run is over, or all awaited answers have
// arrived.
func (l *loop) finished() bool {
	l.mu.Lock()
	over := l.over
	l.mu.Unlock()
	if over || l.run.phase.Load() != phaseEnd {
		return over
	}
	for _, n := range l.run.nodes {
		if n.fd >= 0 && n.load != nil && n.load.waiting > 0 {
			return false
		}
	}
	return true
}

func (l *loop) close() {
	l.mu.Lock()
	l.over = true
	for _, c := range l.taken {
		unix.Close(c.fd)
	}
	l.mu.Unlock()
	for _, n := range l.run.nodes {
		if n.fd >= 0 {
			unix.Close(n.fd)
			n.fd = -1
		}
	}
	unix.Close(l.epoll)
	close(l.done)
}
