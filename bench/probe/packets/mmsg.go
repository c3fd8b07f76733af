package packets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is the kernel's struct mmsghdr: a message, and how many bytes of it were sent or
// received.
type mmsghdr struct {
	unix.Msghdr
	n uint32
}

// messages are buffers for system calls of several messages.
type messages struct {
	headers  []mmsghdr
	vectors  []unix.Iovec
	payloads [][]byte
	controls [][]byte
}

func newMessages(n, payload, control int) *messages {
	m := &messages{headers: make([]mmsghdr, n), vectors: make([]unix.Iovec, n), payloads: make([][]byte, n),
		controls: make([][]byte, n)}
	for i := range n {
		m.payloads[i] = make([]byte, payload)
		m.vectors[i].Base = &m.payloads[i][0]
		m.vectors[i].SetLen(payload)
		m.headers[i].Iov = &m.vectors[i]
		m.headers[i].SetIovlen(1)
		if control > 0 {
			m.controls[i] = make([]byte, control)
			m.headers[i].Control = &m.controls[i][0]
		}
	}
	return m
}

// send sends the messages from first to n, and returns how many of them the kernel took; the error
// is of the one after those.
func (m *messages) send(fd, first, n int) (int, error) {
	for {
		took, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.headers[first])),
			uintptr(n-first), 0, 0, 0)
		runtime.KeepAlive(m)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return 0, errno
		default:
			return int(took), nil
		}
	}
}

// receive waits for a message, as long as the socket's timeout, and takes what else is there. Of
// each only what fits into its payload is kept; size says how long it was. No message at all is no
// error.
func (m *messages) receive(fd int) (int, error) {
	for i := range m.headers {
		if m.controls[i] != nil {
			m.headers[i].SetControllen(len(m.controls[i]))
		}
	}
	got, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.headers[0])),
		uintptr(len(m.headers)),
		unix.MSG_WAITFORONE|unix.MSG_TRUNC, 0, 0)
	runtime.KeepAlive(m)
	switch errno {
	case 0:
		return int(got), nil
	case unix.EAGAIN, unix.EINTR, unix.ECONNREFUSED:
		return 0, nil
	}
	return 0, errno
}

func (m *messages) size(i int) int { return int(m.headers[i].n) }

// payload is what was kept of a message.
func (m *messages) payload(i int) []byte {
	return m.payloads[i][:min(m.size(i), len(m.payloads[i]))]
}

// ancillary is what the kernel says of a message that was received.
type ancillary struct {
	received int64 // when, in nanoseconds since 1970; 0: not said
	ttl      int   // or hop limit
	unsummed bool  // its checksum is yet to be filled in (packet sockets)
	length   int   // of the frame, as it came to a packet socket; 0: not said
	missed   int   // packets that did not fit into the socket so far
}

// ancillary reads control messages (cmsg(3)): a header of the host's byte order (length in 8 bytes,
// level, type), then data, aligned to 8 bytes.
func (m *messages) ancillary(i int) ancillary {
	b := m.controls[i]
	return parseAncillary(b[:min(uint64(len(b)), uint64(m.headers[i].Controllen))])
}

func parseAncillary(b []byte) (a ancillary) {
	const head = unix.SizeofCmsghdr
	for len(b) >= head {
		length := binary.NativeEndian.Uint64(b)
		level, kind := int32(binary.NativeEndian.Uint32(b[8:])), int32(binary.NativeEndian.Uint32(b[12:]))
		if length < head || length > uint64(len(b)) {
			return a
		}
		data := b[head:length]
		switch {
		case level == unix.SOL_SOCKET && kind == unix.SO_TIMESTAMPNS && len(data) >= 16:
			a.received = int64(binary.NativeEndian.Uint64(data))*1e9 + int64(binary.NativeEndian.Uint64(data[8:]))
		case (level == unix.IPPROTO_IP && kind == unix.IP_TTL ||
			level == unix.IPPROTO_IPV6 && kind == unix.IPV6_HOPLIMIT) && len(data) >= 4:
			a.ttl = int(binary.NativeEndian.Uint32(data))
		case level == unix.SOL_SOCKET && kind == unix.SO_RXQ_OVFL && len(data) >= 4:
			a.missed = int(binary.NativeEndian.Uint32(data))
		case level == unix.SOL_PACKET && kind == unix.PACKET_AUXDATA && len(data) >= 8:
			// Struct tpacket_auxdata: the status, then tp_len.
			a.unsummed = binary.NativeEndian.Uint32(data)&unix.TP_STATUS_CSUMNOTREADY != 0
			a.length = int(binary.NativeEndian.Uint32(data[4:]))
		}
		b = b[min(uint64(len(b)), (length+7)&^7):]
	}
	return a
}

// socketRoom is how much of what was sent or has come a socket may hold: queues are to be the
// network's, not the instrument's.
const socketRoom = 64 << 20

// openUDP opens a UDP socket in the namespace of the calling thread.
func openUDP(v6 bool) (fd int, err error) {
	family := unix.AF_INET
	if v6 {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a UDP socket: %w", err)
	}
	for _, option := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		// Without the right to it, what everybody may have.
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, socketRoom) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET,
				map[int]int{unix.SO_RCVBUFFORCE: unix.SO_RCVBUF, unix.SO_SNDBUFFORCE: unix.SO_SNDBUF}[option],
				socketRoom)
		}
	}
	return fd, nil
}

// socketDrops is how many packets for a socket did not fit into it (SO_MEMINFO: the ninth number).
func socketDrops(fd int) int {
	var info [9]uint32
	length := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return 0
	}
	return int(info[8])
}

// openReceiver opens one that listens on a port of its own, or the one that is wanted if nobody has
// it, and tells when packets come and how far
// they have gone.
func openReceiver(v6 bool, wanted uint16) (fd, port int, err error) {
	fd, err = openUDP(v6)
	if err != nil {
		return -1, 0, err
	}
	var any unix.Sockaddr = &unix.SockaddrInet4{Port: int(wanted)}
	level, ttl := unix.IPPROTO_IP, unix.IP_RECVTTL
	if v6 {
		any, level, ttl = &unix.SockaddrInet6{Port: int(wanted)}, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT
	}
	look := unix.NsecToTimeval(looks.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, level, ttl, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &look),
		unix.Bind(fd, any),
	)
	if err == nil {
		port, err = portOf(fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, 0, fmt.Errorf("a UDP socket to receive by: %w", err)
	}
	return fd, port, nil
}

// portOf is the port that a socket has.
func portOf(fd int) (int, error) {
	name, err := unix.Getsockname(fd)
	switch n := name.(type) {
	case *unix.SockaddrInet4:
		return n.Port, err
	case *unix.SockaddrInet6:
		return n.Port, err
	}
	return 0, err
}

func sockaddr(to netip.AddrPort) unix.Sockaddr {
	if to.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
}
