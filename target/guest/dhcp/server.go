// Package dhcp tells a virtual machine, which knows no other way, the addresses of an interface: a
// DHCPv4 server (RFC 2131) with one client, behind a device, which is the machine's TAP device. It
// hears and answers at the device itself, so the device needs no address, and nobody else is asked:
// clsact.RedirectAnswered keeps the client's requests from the link.
//
// A server notes nothing. One that is opened again, by another process, goes on where the first has
// stopped.
package dhcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/segment"
)

// Server answers the client of a device.
type Server struct {
	file  *os.File
	own   net.HardwareAddr
	lease atomic.Pointer[Lease]
	ended chan struct{}
}

const (
	// pause is the time before an answer. It limits what a client that floods us costs, as the
	// kernel drops what we do not read. And udhcpc, which renews by a separate socket for sending,
	// misses an answer that comes before it has closed that.
	pause = 10 * time.Millisecond
	// waiting limits what the kernel buffers meanwhile, in bytes: 20 requests or so.
	waiting = 16 << 10
	// longest is the frame that is read, in bytes. Clients send hardly more than 600.
	longest = 4096
)

// Open answers the client of a device in the calling thread's namespace from now on. The device may
// be down; if it is removed, no requests arrive any more.
func Open(device string, l Lease) (*Server, error) {
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("answer DHCP at %s: %w", device, err)
	}
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("answer DHCP at %s: %w", device, err)
	}
	if len(dev.HardwareAddr) != 6 {
		return nil, fmt.Errorf("answer DHCP at %s: it is not a device of Ethernet", device)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // 0: nothing yet
	if err != nil {
		return nil, fmt.Errorf("answer DHCP at %s: open a packet socket (needs root): %w", device, err)
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	err = errors.Join(
		attach(fd),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, waiting),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("answer DHCP at %s: listen there: %w", device, err)
	}
	s := &Server{file: os.NewFile(uintptr(fd), device), own: dev.HardwareAddr, ended: make(chan struct{})}
	s.lease.Store(&l)
	go s.run()
	return s, nil
}

// Set changes the client's lease. The client learns of it when it renews: after some minutes, or
// when its own program chooses to.
func (s *Server) Set(l Lease) error {
	if err := l.Check(); err != nil {
		return fmt.Errorf("answer DHCP at %s: %w", s.file.Name(), err)
	}
	s.lease.Store(&l)
	return nil
}

// Close stops answering. The client keeps its address for up to an hour.
func (s *Server) Close() {
	s.file.Close()
	<-s.ended
}

func (s *Server) run() {
	defer close(s.ended)
	frame := make([]byte, longest)
	for {
		n, err := s.file.Read(frame)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		time.Sleep(pause)
		if err == nil { // otherwise the device has gone down, and may come up again
			if out := answer(frame[:n], s.lease.Load(), s.own); out != nil {
				_, _ = s.file.Write(out) // an error is like a lost packet: the client asks again
			}
		}
	}
}

// attach makes the kernel pass only requests to DHCP servers and ARP requests for the server, no
// fragments, and nothing with a VLAN tag: a guest's VLANs are other networks.
func attach(fd int) error {
	id := Identifier.As4()
	return segment.Filter(fd, []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 13},
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipTrue: 8},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 10},
		bpf.LoadAbsolute{Off: 14 + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 8},
		bpf.LoadAbsolute{Off: 14 + 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 6}, // more fragments, or not the first
		bpf.LoadMemShift{Off: 14},
		bpf.LoadIndirect{Off: 14 + 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: serverPort, SkipTrue: 2, SkipFalse: 3},
		bpf.LoadAbsolute{Off: 14 + 24, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(id[:]), SkipTrue: 1},
		bpf.RetConstant{Val: longest},
		bpf.RetConstant{Val: 0},
	})
}
