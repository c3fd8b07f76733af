// Package segment sends and receives Ethernet frames on an interface, independently of the
// machine's addresses and VLANs there: it finds owners of addresses (ARP) and DHCP servers, and
// sends test frames to the other end, with or without a VLAN tag. It changes nothing on the
// machine.
package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Untagged stands for frames without a VLAN's tag.
const Untagged = 0

// tagType is the EtherType that announces a tag (IEEE 802.1Q-2022, clause 9.5).
const tagType = 0x8100

// shortest is a frame's least length, without its check sequence (IEEE 802.3-2022, clause 3.2.7).
const shortest = 60

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// A Segment is the Ethernet segment of an interface.
type Segment struct {
	file *os.File
	nic  *net.Interface
}

// frame is a received frame.
type frame struct {
	from net.HardwareAddr
	vlan uint16 // or Untagged
	kind uint16 // EtherType
	data []byte // behind the header
}

// Open receives frames of some EtherTypes on an interface of the thread's namespace, with all tags:
// without promiscuous mode, interfaces drop frames of VLANs that the machine does not have.
func Open(name string, kinds ...uint16) (*Segment, error) {
	nic, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // 0: nothing yet
	if err != nil {
		return nil, fmt.Errorf("send and hear frames on %s (needs root): %w", name, err)
	}
	err = errors.Join(
		filter(fd, kinds),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(nic.Index), Type: unix.PACKET_MR_PROMISC}),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: nic.Index}))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("hear frames on %s: %w", name, err)
	}
	return &Segment{os.NewFile(uintptr(fd), name), nic}, nil
}

// Close closes it.
func (s *Segment) Close() { s.file.Close() }

// MAC is the interface's own.
func (s *Segment) MAC() net.HardwareAddr { return s.nic.HardwareAddr }

// filter makes the kernel drop all other frames, of which there may be gigabits. No EtherTypes
// means all.
func filter(fd int, kinds []uint16) error {
	if len(kinds) == 0 {
		return nil
	}
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: 12, Size: 2}}
	for i, k := range kinds {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(k), SkipTrue: uint8(len(kinds) - i)})
	}
	return Filter(fd, append(program, bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: 1 << 16}))
}

// Filter makes the kernel pass to a socket only what a program accepts.
func Filter(fd int, program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	list := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		list[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]})
}

func bigEndian(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// Send sends a frame, with a tag unless vlan is Untagged.
func (s *Segment) Send(to net.HardwareAddr, vlan, kind uint16, data []byte) error {
	b := append(append([]byte{}, to...), s.nic.HardwareAddr...)
	if vlan != Untagged {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, tagType), vlan)
	}
	b = append(binary.BigEndian.AppendUint16(b, kind), data...)
	for len(b) < shortest { // not every driver pads short frames
		b = append(b, 0)
	}
	_, err := s.file.Write(b)
	return err
}

// hear calls each for all frames that arrive until ctx ends, including those still unread then.
func (s *Segment) hear(ctx context.Context, each func(frame)) error {
	conn, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	if err := s.file.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = s.file.SetReadDeadline(time.Unix(1, 0))
		close(ended)
	})
	defer func() {
		if !stop() {
			<-ended // otherwise it would end the next call's reading
		}
	}()
	buf, control := make([]byte, 1<<16), make([]byte, 256)
	var wrong error
	read := func(fd uintptr) (done bool) {
		n, controls, _, from, err := unix.Recvmsg(int(fd), buf, control, 0)
		if wrong = err; err != nil {
			return err != unix.EAGAIN && err != unix.EINTR
		}
		if where, _ := from.(*unix.SockaddrLinklayer); where == nil || where.Pkttype != unix.PACKET_OUTGOING {
			if f, ok := parse(buf[:n], tagOf(control[:controls])); ok {
				each(f)
			}
		}
		return true
	}
	for ctx.Err() == nil {
		err := conn.Read(read)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err := errors.Join(err, wrong); err != nil {
			return err
		}
	}
	return conn.Control(func(fd uintptr) {
		for range mostWaiting {
			if read(fd); wrong != nil {
				return
			}
		}
	})
}

// mostWaiting limits how long a flood of frames can delay us.
const mostWaiting = 1 << 12

// Watch calls each with the payload of all frames that arrive until ctx ends. The payload must not
// be kept.
func (s *Segment) Watch(ctx context.Context, each func(data []byte)) error {
	return s.hear(ctx, func(f frame) { each(f.data) })
}

// tagOf returns the VLAN of a frame whose tag the kernel or the interface has removed (packet(7),
// PACKET_AUXDATA).
func tagOf(control []byte) uint16 {
	messages, _ := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		const statusAt, tagAt = 0, 16 // of struct tpacket_auxdata
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < tagAt+2 {
			continue
		}
		if binary.NativeEndian.Uint32(m.Data[statusAt:])&unix.TP_STATUS_VLAN_VALID != 0 {
			return binary.NativeEndian.Uint16(m.Data[tagAt:]) & 0xfff
		}
	}
	return Untagged
}

// parse decodes a frame; tag is the VLAN of a removed tag.
func parse(b []byte, tag uint16) (f frame, ok bool) {
	if len(b) < 14 {
		return f, false
	}
	f = frame{from: append(net.HardwareAddr{}, b[6:12]...), vlan: tag, kind: binary.BigEndian.Uint16(b[12:]),
		data: b[14:]}
	if f.kind == tagType && tag == Untagged && len(f.data) >= 4 {
		f.vlan = binary.BigEndian.Uint16(f.data) & 0xfff
		f.kind, f.data = binary.BigEndian.Uint16(f.data[2:]), f.data[4:]
	}
	return f, true
}

// while receives frames while another function sends, and for some time afterwards.
func (s *Segment) while(ctx context.Context, wait time.Duration, send func(context.Context) error,
	each func(frame)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		err := send(ctx)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		cancel()
		sent <- err
	}()
	err := s.hear(ctx, each)
	cancel()
	return errors.Join(err, <-sent)
}
