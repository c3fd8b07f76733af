package netfacts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/patience"
)

// kernel is a socket for requesting lists, one after another.
type kernel struct {
	socket int
	seq    uint32
	buf    []byte
}

func dial(protocol int) (*kernel, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	within := unix.NsecToTimeval(patience.Kernel.Duration().Nanoseconds())
	_ = unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &within)
	return &kernel{socket: s, buf: make([]byte, 32<<10)}, nil
}

func (k *kernel) close() { unix.Close(k.socket) }

// errMoved means that a list changed while it was read.
var errMoved = errors.New("the list changed while it was read")

// each calls f with each message of a list, without the header. The message is only valid in f.
func (k *kernel) each(kind int, ask []byte, f func(m []byte)) error {
	k.seq++
	head := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(ask))
	binary.NativeEndian.PutUint32(head, uint32(len(head)+len(ask)))
	binary.NativeEndian.PutUint16(head[4:], uint16(kind))
	binary.NativeEndian.PutUint16(head[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(head[8:], k.seq)
	if err := unix.Sendto(k.socket, append(head, ask...), 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask the kernel: %w", err)
	}
	moved := false
	for {
		n, _, err := unix.Recvfrom(k.socket, k.buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("read what the kernel lists: %w", err)
		}
		for b := k.buf[:n]; len(b) >= unix.NLMSG_HDRLEN; {
			length := int(binary.NativeEndian.Uint32(b))
			if length < unix.NLMSG_HDRLEN || length > len(b) {
				return errors.New("read what the kernel lists: cut short")
			}
			m, what := b[unix.NLMSG_HDRLEN:length], binary.NativeEndian.Uint16(b[4:])
			moved = moved || binary.NativeEndian.Uint16(b[6:])&unix.NLM_F_DUMP_INTR != 0
			old := binary.NativeEndian.Uint32(b[8:]) != k.seq
			b = b[min(len(b), (length+3)&^3):]
			switch {
			case old:
			case what == unix.NLMSG_DONE && moved:
				return errMoved
			case what == unix.NLMSG_DONE:
				return nil
			case what == unix.NLMSG_ERROR && len(m) >= 4:
				return fmt.Errorf("list: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(m))))
			default:
				f(m)
			}
		}
	}
}

// attributes returns the attributes after the first bytes of a message, by type.
func attributes(m []byte, head int) map[uint16][]byte {
	out := map[uint16][]byte{}
	eachAttribute(m, head, func(kind uint16, value []byte) { out[kind] = value })
	return out
}

func eachAttribute(m []byte, head int, f func(kind uint16, value []byte)) {
	for at := head; at >= 0 && at+4 <= len(m); {
		length := int(binary.NativeEndian.Uint16(m[at:]))
		if length < 4 || at+length > len(m) {
			return
		}
		f(binary.NativeEndian.Uint16(m[at+2:])&typeMask, m[at+4:at+length])
		at += (length + 3) &^ 3
	}
}

// u32 returns a number in a message; 0 if that is too short.
func u32(b []byte, at int) uint32 {
	if len(b) < at+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b[at:])
}

func text(b []byte) string { s, _, _ := strings.Cut(string(b), "\x00"); return s }

// typeMask leaves out the flags of an attribute (linux/netlink.h).
const typeMask = 0x3fff
