package local

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/segment"
)

// Around describes how to bypass a lab: by sending from a machine that is its host through the
// machine's own interface.
type Around struct {
	NIC    string     `json:"nic"`
	From   netip.Addr `json:"from"` // the machine's own address there
	To     netip.Addr `json:"to"`   // the gateway's
	MAC    string     `json:"mac"`  // the gateway's
	Number uint64     `json:"number"`
}

// Mark is the content of a packet sent in some way, by which it is recognized wherever it arrives.
func (a Around) Mark(way string) string { return fmt.Sprintf("trivet-around-%016x-%s;", a.Number, way) }

// Way is an attempt to bypass the lab.
type Way struct {
	Name string `json:"name"`
	Err  string `json:"err,omitempty"` // it was refused at once
}

// discard is the discard service's port (RFC 863), which sends no answers.
const discard = 9

// Try tries all ways to bypass the lab. The packets are harmless to whoever receives them.
func (a Around) Try() (out []Way) {
	to4 := &net.UDPAddr{IP: a.To.AsSlice(), Port: discard}
	all := &net.UDPAddr{IP: net.IPv4bcast, Port: discard}
	group := &net.UDPAddr{IP: net.ParseIP("ff02::1"), Port: discard, Zone: a.NIC}
	for _, w := range []struct {
		name string
		try  func(mark []byte) error
	}{
		{"udp", func(b []byte) error { return sendUDP("udp4", to4, b, nil) }},
		{"interface", func(b []byte) error { return sendUDP("udp4", to4, b, a.bind) }},
		{"broadcast", func(b []byte) error { return sendUDP("udp4", all, b, a.bind) }},
		{"ipv6", func(b []byte) error { return sendUDP("udp6", group, b, nil) }},
		{"raw", a.raw},
		{"packet", func(b []byte) error { return a.frame(segment.Untagged, b) }},
		{"tagged", func(b []byte) error { return a.frame(strangeVLAN, b) }},
	} {
		way := Way{Name: w.name}
		if err := w.try([]byte(a.Mark(w.name))); err != nil {
			way.Err = err.Error()
		}
		out = append(out, way)
	}
	return out
}

// strangeVLAN is a VLAN that no lab uses: the last one is reserved for such tests.
const strangeVLAN = 4094

func (a Around) bind(fd int) error {
	return unix.BindToDevice(fd, a.NIC)
}

func sendUDP(network string, to *net.UDPAddr, b []byte, prepare func(fd int) error) error {
	config := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		wrong := c.Control(func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err == nil && prepare != nil {
				err = prepare(int(fd))
			}
		})
		return errors.Join(wrong, err)
	}}
	conn, err := config.Dial(network, to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(b)
	return err
}

// datagram returns a packet with headers built here rather than by the kernel.
func (a Around) datagram(data []byte) ([]byte, error) {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: a.From.AsSlice(),
		DstIP: a.To.AsSlice()}
	udp := &layers.UDP{SrcPort: discard, DstPort: discard}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, udp,
		gopacket.Payload(data))
	return b.Bytes(), err
}

func (a Around) raw(data []byte) error {
	p, err := a.datagram(data)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, p, 0, &unix.SockaddrInet4{Addr: a.To.As4()})
}

func (a Around) frame(vlan uint16, data []byte) error {
	to, err := net.ParseMAC(a.MAC)
	if err != nil {
		return err
	}
	p, err := a.datagram(data)
	if err != nil {
		return err
	}
	s, err := segment.Open(a.NIC, segment.Calling)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Send(to, vlan, segment.IPv4, p)
}
