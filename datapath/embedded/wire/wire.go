//go:build linux

// Package wire reads and writes the frames of network devices for embedded switches: a packet
// socket per device. It is the slow path, for tests and for packets that the fast path does not
// take.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded/pipeline"
)

const (
	maxFrame  = 1<<16 + 256
	headerLen = 10      // of virtio_net_hdr
	roomFor   = 4 << 20 // bytes, of the socket
)

// Device is a network device of the namespace that Open was called in.
type Device struct {
	file   *os.File
	conn   syscall.RawConn
	name   string
	splits bool // TCP is segmented here; see isVLAN
	closed atomic.Bool
}

// Open opens a device, which must be up. It does not receive frames that the host itself sends
// there.
func Open(name string) (*Device, error) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(device.Index), Type: unix.PACKET_MR_PROMISC}),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device.Index}),
	)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, roomFor) // without the right to it, less
	d := &Device{file: os.NewFile(uintptr(fd), name), name: name, splits: isVLAN(name)}
	if d.conn, err = d.file.SyscallConn(); err != nil {
		d.file.Close()
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	return d, nil
}

// Close ends Receive.
func (d *Device) Close() error {
	d.closed.Store(true)
	return d.file.Close()
}

// Receive calls f for each frame until the device is closed (then the error is nil) or gone. The
// packet is f's until it returns.
func (d *Device) Receive(f func(*pipeline.Packet)) error {
	room := make([]byte, 4+maxFrame) // 4 bytes before a frame, for a tag
	aux := make([]byte, 256)
	for {
		var n, auxLen int
		var header [headerLen]byte
		var failed error
		err := d.conn.Read(func(fd uintptr) bool {
			n, auxLen, failed = receive(int(fd), header[:], room[4:], aux)
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case err != nil && d.closed.Load():
			return nil
		case err != nil:
			return fmt.Errorf("device %s: %w", d.name, err)
		case errors.Is(failed, unix.ENETDOWN), errors.Is(failed, unix.EINTR):
			continue // it may come up again
		case failed != nil:
			return fmt.Errorf("device %s: %w", d.name, failed)
		case n < headerLen+14:
			continue
		}
		frame, tag := restoreTag(room[:4+n-headerLen], aux[:auxLen])
		pkt := packet(header[:], frame, tag)
		f(&pkt)
	}
}

func receive(fd int, header, frame, aux []byte) (n, auxLen int, err error) {
	n, auxLen, _, _, err = unix.RecvmsgBuffers(fd, [][]byte{header, frame}, aux, 0)
	return n, auxLen, err
}

// restoreTag restores a VLAN tag that the kernel has removed from the frame, which starts at
// room[4:], and returns the frame and by how much it has grown.
func restoreTag(room, aux []byte) (frame []byte, grown int) {
	messages, err := unix.ParseSocketControlMessage(aux)
	if err != nil {
		return room[4:], 0
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < 20 {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data)
		if status&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		tag := binary.NativeEndian.Uint16(m.Data[16:])
		ethType := uint16(0x8100)
		if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			ethType = binary.NativeEndian.Uint16(m.Data[18:])
		}
		copy(room, room[4:16])
		binary.BigEndian.PutUint16(room[12:], ethType)
		binary.BigEndian.PutUint16(room[14:], tag)
		return room, 4
	}
	return room[4:], 0
}

// packet makes a Packet of a frame and its virtio_net_hdr, which does not know of a restored tag.
func packet(header, frame []byte, tag int) pipeline.Packet {
	word := func(at int) uint16 { return binary.NativeEndian.Uint16(header[at:]) }
	pkt := pipeline.Packet{Data: frame, Offload: pipeline.Offload{
		Partial: header[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0, Segment: header[1],
		HeaderLen: word(2), SegmentSize: word(4), ChecksumStart: word(6), ChecksumOffset: word(8),
	}}
	pkt.Offload = pkt.Offload.ForFrame(tag)
	if o := &pkt.Offload; o.Segment != 0 && o.SegmentSize > 0 {
		// Without the transport header's length, the one that the device has guessed will do.
		headers := uint64(o.HeaderLen)
		if o.Partial && int(o.ChecksumStart)+13 < len(frame) && o.ChecksumOffset == 16 {
			headers = uint64(o.ChecksumStart) + uint64(frame[o.ChecksumStart+12]>>4)*4
		}
		payload := uint64(len(frame)) - min(headers, uint64(len(frame)))
		pkt.Segments = max((payload+uint64(o.SegmentSize)-1)/uint64(o.SegmentSize), 1)
		pkt.WireBytes = payload + pkt.Segments*headers
	}
	return pkt
}

// Send sends a packet. in is the packet as it was received, before it was changed.
func (d *Device) Send(out *pipeline.Sent, in *pipeline.Packet) error {
	o := in.Offload.ForFrame(out.Grown)
	if d.splits && o.Segment != 0 {
		if parts := split(out.Data, o); parts != nil {
			o.Segment, o.SegmentSize = 0, 0
			for _, part := range parts {
				if err := d.send(part, o); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return d.send(out.Data, o)
}

func (d *Device) send(frame []byte, o pipeline.Offload) error {
	var header [headerLen]byte
	if o.Partial {
		header[0] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
		binary.NativeEndian.PutUint16(header[6:], o.ChecksumStart)
		binary.NativeEndian.PutUint16(header[8:], o.ChecksumOffset)
	}
	if o.Segment != 0 {
		header[1] = o.Segment
		binary.NativeEndian.PutUint16(header[2:], o.HeaderLen)
		binary.NativeEndian.PutUint16(header[4:], o.SegmentSize)
	}
	var failed error
	err := d.conn.Write(func(fd uintptr) bool {
		_, failed = unix.SendmsgBuffers(int(fd), [][]byte{header[:], frame}, nil, nil, 0)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err := errors.Join(err, failed); err != nil && !d.closed.Load() {
		return fmt.Errorf("device %s: %w", d.name, err)
	}
	return nil
}
