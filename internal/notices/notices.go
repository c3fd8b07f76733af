// Package notices listens to the kernel for changes of network devices.
package notices

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listener receives the kernel's notifications that a device of a namespace, or its queueing
// discipline, has changed. It only reports which device; its present state has to be queried.
type Listener struct {
	file *os.File
	raw  syscall.RawConn
	room []byte
}

// Open starts listening in the thread's namespace.
func Open() (*Listener, error) {
	n := &Listener{}
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	groups := uint32(1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_TC-1))
	if err := unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(s)
		return nil, fmt.Errorf("bind a netlink socket: %w", err)
	}
	n.file, n.room = os.NewFile(uintptr(s), "netlink"), make([]byte, 64<<10)
	if n.raw, err = n.file.SyscallConn(); err != nil {
		n.Close()
		return nil, err
	}
	_ = n.SetBuffer(4 << 20) // if this is not enough, see Take
	return n, nil
}

// Close ends listening.
func (n *Listener) Close() { n.file.Close() }

// SetBuffer sets how many bytes of notifications may wait to be taken.
func (n *Listener) SetBuffer(bytes int) error {
	var set error
	err := n.raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes)
	})
	return errors.Join(err, set)
}

// Wait waits until there is something to take; ok is false if the Listener is closed. For lost, see
// Take.
func (n *Listener) Wait() (lost, ok bool) {
	err := n.raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), nil, unix.MSG_PEEK)
		lost = errors.Is(err, unix.ENOBUFS)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return lost, err == nil
}

// Take returns what has been reported so far: the indexes of devices that may have changed. The
// kernel reports a change before the system call that makes it returns. lost says that
// notifications were lost, so any device may have changed. Take must not be called concurrently.
func (n *Listener) Take() (indexes map[int]bool, lost bool) {
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

// indexesIn adds the indexes of the devices that messages are about.
func indexesIn(b []byte, indexes map[int]bool) {
	for len(b) >= unix.NLMSG_HDRLEN+8 {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.NLMSG_HDRLEN+8 || length > len(b) {
			return
		}
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWQDISC, unix.RTM_DELQDISC:
			// The index is at the same place in all of these.
			indexes[int(int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN+4:])))] = true
		}
		b = b[min(len(b), (length+3)&^3):]
	}
}
