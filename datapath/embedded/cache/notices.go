//go:build linux

package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// notices is what the kernel says of the devices of a namespace, unasked: one of them has changed, or its queueing
// discipline has. What is said is only which; what the device is like by now is asked for.
type notices struct {
	file *os.File
	raw  syscall.RawConn
	room []byte // of who holds the engine's mu
}

// openNotices listens in the namespace of the thread.
func openNotices() (n notices, err error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return n, fmt.Errorf("open a netlink socket: %w", err)
	}
	_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20) // where it does not suffice: see take
	groups := uint32(1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_TC-1))
	if err := unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(s)
		return n, fmt.Errorf("bind a netlink socket: %w", err)
	}
	n.file, n.room = os.NewFile(uintptr(s), "netlink"), make([]byte, 64<<10)
	n.raw, err = n.file.SyscallConn()
	return n, err
}

func (n *notices) close() { n.file.Close() }

// wait waits until there is something to take; false: it is closed.
func (n *notices) wait() (lost, ok bool) {
	err := n.raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), nil, unix.MSG_PEEK)
		lost = errors.Is(err, unix.ENOBUFS)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return lost, err == nil
}

// take takes what has been said so far: the indexes of devices that may have changed. lost: some notices have been lost, and
// any may have.
func (n *notices) take() (indexes map[int]bool, lost bool) {
	_ = n.raw.Control(func(fd uintptr) {
		for {
			size, _, err := unix.Recvfrom(int(fd), n.room, 0)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.ENOBUFS):
				lost = true
				continue
			case err != nil:
				return
			}
			if indexes == nil {
				indexes = map[int]bool{}
			}
			indexesIn(n.room[:size], indexes)
		}
	})
	return indexes, lost
}

// indexesIn adds those of the devices that messages are about.
func indexesIn(b []byte, indexes map[int]bool) {
	for len(b) >= unix.NLMSG_HDRLEN+8 {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.NLMSG_HDRLEN+8 || length > len(b) {
			return
		}
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWQDISC, unix.RTM_DELQDISC: // the index is at the same place in all
			indexes[int(int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN+4:])))] = true
		}
		b = b[min(len(b), (length+3)&^3):]
	}
}

// listen keeps up with devices that change.
func (e *Engine) listen() {
	for {
		lost, ok := e.dev.wait()
		if !ok {
			return
		}
		e.keepUp(lost)
	}
}

// keepUp makes ports what their devices are by now: the kernel has told of a change before who made it goes on.
func (e *Engine) keepUp(lost bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	indexes, more := e.dev.take()
	if lost = lost || more; !lost && len(indexes) == 0 {
		return
	}
	for _, q := range e.attached {
		if lost || indexes[q.device.index] {
			e.refresh(q, false)
		}
	}
}

// power makes the device of a port up or down as the controller has configured the port: down, the other end loses its carrier.
func (e *Engine) power(p *pipeline.Port) {
	e.mu.Lock()
	if q := e.attached[p]; q != nil && !e.closed {
		if err := e.dev.power(q.device.index, !shut(p)); err != nil {
			e.opt.Log.Warn("a port's device does not follow its configuration", "device", q.device.name, "error", err)
		}
	}
	e.mu.Unlock()
	e.keepUp(false)
}

func shut(p *pipeline.Port) bool { return p.Desc().Config&openflow.PortConfigDown != 0 }

// refresh looks at the device of a port again: whether it runs, how packets leave by it, and how large they may be. Packets leave by the
// device from now on where they have to; they go around it only once none is on its way there, which is when it has settled. It is
// called with mu held.
func (e *Engine) refresh(q *port, settled bool) {
	d, err := e.dev.examine(q.device.index, q.asked)
	if err != nil { // it is gone
		q.device.on = false
		q.port.SetCarrier(false)
		return
	}
	if d.on != q.device.on {
		q.port.SetCarrier(d.on)
	}
	if d.mtu != q.device.mtu {
		e.staleAll()
		e.changes.poke()
	}
	switch {
	case d.mode == Egress || settled:
		q.settling = 0
	case q.settling == 0 && q.device.mode == Egress:
		q.settling = q.port.Sent().Packets() + 1
	}
	if q.settling != 0 {
		d.mode = Egress
	}
	q.device = d
	if q.wire == nil {
		q.publish(&e.ports[q.id])
	}
}
