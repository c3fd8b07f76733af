//go:build linux

package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded/pipeline"
)

const (
	tapName   = "trivet-miss"
	vnetLen   = 10 // of virtio_net_hdr
	missedLen = 12 // of struct missed in bpf/forward.h
	missMagic = 0x7417
	maxFrame  = 1<<16 + 512

	missFlow  = 0
	missOdd   = 1
	missGuard = 2
)

// tap is the miss channel: a device to which the program redirects packets, prefixed with their
// origin, and through which user space sends packets, with the output port as a VLAN tag.
type tap struct {
	fd    int
	wake  int // an eventfd that ends a wait
	index int
}

// openTap makes the device in the thread's namespace.
func openTap() (*tap, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	t := &tap{fd: fd, wake: -1}
	if err := t.set(); err != nil {
		t.close()
		return nil, fmt.Errorf("device %s: %w", tapName, err)
	}
	return t, nil
}

func (t *tap) set() error {
	req, err := unix.NewIfreq(tapName)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(t.fd, unix.TUNSETIFF, req); err != nil {
		return err
	}
	const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	const udp = 0x20 | 0x40 // TUN_F_USO4 and 6, since Linux 6.2
	if unix.IoctlSetInt(t.fd, unix.TUNSETOFFLOAD, offloads|udp) != nil {
		if err := unix.IoctlSetInt(t.fd, unix.TUNSETOFFLOAD, offloads); err != nil {
			return err
		}
	}
	// The kernel must not send packets of its own through it.
	err = os.WriteFile("/proc/sys/net/ipv6/conf/"+tapName+"/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	t.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return err
}

func (t *tap) close() {
	unix.Close(t.fd)
	if t.wake >= 0 {
		unix.Close(t.wake)
	}
}

// interrupt ends a wait.
func (t *tap) interrupt() { _, _ = unix.Write(t.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// wait waits until there is something to read, for at most so many ms.
func (t *tap) wait(ms int) {
	fds := []unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}, {Fd: int32(t.wake), Events: unix.POLLIN}}
	_, _ = unix.Poll(fds, ms)
	if fds[1].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(t.wake, b[:])
	}
}

// missed is a packet from the miss channel.
type missed struct {
	port   uint16
	reason uint8
	entry  uint32
	parts  uint16 // number of parts of the whole packet; 0, 1: this is all of it
	pkt    pipeline.Packet
}

// read reads a packet into room; false: there is none.
func (t *tap) read(room []byte) (m missed, ok bool) {
	for {
		n, err := unix.Read(t.fd, room)
		if err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return m, false
		}
		if m, ok := parseMissed(room[:n]); ok {
			return m, true
		}
	}
}

// parseMissed splits a message: virtio_net_hdr, struct missed, possibly a VLAN tag, the frame.
func parseMissed(b []byte) (m missed, ok bool) {
	if len(b) < vnetLen+missedLen+14 {
		return m, false
	}
	vnet, head := b[:vnetLen], b[vnetLen:]
	if binary.NativeEndian.Uint16(head) != missMagic {
		return m, false
	}
	m.port, m.entry = binary.NativeEndian.Uint16(head[2:]), binary.NativeEndian.Uint32(head[4:])
	m.reason = head[8]
	frame := head[missedLen:]
	if head[9] != 0 { // the tag is between the prefix and the frame
		if len(frame) < 4+14 {
			return m, false
		}
		tag := [4]byte(frame)
		copy(frame, frame[4:16])
		copy(frame[12:], tag[:])
	}
	if vnet[1] == unix.VIRTIO_NET_HDR_GSO_NONE {
		m.parts = binary.NativeEndian.Uint16(head[10:])
	}
	m.pkt = packetOf(vnet, frame)
	return m, true
}

// packetOf makes a Packet of a frame and the virtio_net_hdr of the frame with its prefix.
func packetOf(vnet, frame []byte) pipeline.Packet {
	word := func(at int) uint16 { return binary.NativeEndian.Uint16(vnet[at:]) }
	o := pipeline.Offload{
		Partial: vnet[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0, Segment: vnet[1],
		HeaderLen: word(2), SegmentSize: word(4), ChecksumStart: word(6), ChecksumOffset: word(8),
	}.ForFrame(-missedLen)
	pkt := pipeline.Packet{Data: frame, Offload: o}
	if o.Segment != 0 && o.SegmentSize > 0 {
		headers := uint64(o.HeaderLen)
		if start := int(o.ChecksumStart); o.Partial && start+13 < len(frame) {
			headers = uint64(start) + 8 // of UDP
			if o.ChecksumOffset == 16 {
				headers = uint64(start) + uint64(frame[start+12]>>4)*4
			}
		}
		payload := uint64(len(frame)) - min(headers, uint64(len(frame)))
		pkt.Segments = max((payload+uint64(o.SegmentSize)-1)/uint64(o.SegmentSize), 1)
		pkt.WireBytes = payload + pkt.Segments*headers
	}
	return pkt
}

// write sends a frame through a port. With activate, the entry announced to the program may become
// active.
func (t *tap) write(port uint16, frame []byte, o pipeline.Offload, activate bool) error {
	if len(frame) < 14 {
		return errors.New("a frame without addresses")
	}
	o = o.ForFrame(4)
	var head [vnetLen + 16]byte
	if o.Partial {
		head[0] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
		binary.NativeEndian.PutUint16(head[6:], o.ChecksumStart)
		binary.NativeEndian.PutUint16(head[8:], o.ChecksumOffset)
	}
	if o.Segment != 0 {
		head[1] = o.Segment
		binary.NativeEndian.PutUint16(head[2:], o.HeaderLen)
		binary.NativeEndian.PutUint16(head[4:], o.SegmentSize)
	}
	copy(head[vnetLen:], frame[:12])
	binary.BigEndian.PutUint16(head[vnetLen+12:], 0x8100)
	if activate {
		binary.BigEndian.PutUint16(head[vnetLen+12:], 0x88a8)
	}
	binary.BigEndian.PutUint16(head[vnetLen+14:], port)
	iov := [2]unix.Iovec{{Base: &head[0]}, {Base: &frame[12]}}
	iov[0].SetLen(len(head))
	iov[1].SetLen(len(frame) - 12)
	for {
		_, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(t.fd), uintptr(unsafe.Pointer(&iov)), 2)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return fmt.Errorf("device %s: %w", tapName, errno)
	}
}
