//go:build linux

package wire

import (
	"encoding/binary"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"trivet.dev/trivet/datapath/embedded/pipeline"
)

// isVLAN reports whether a device is a VLAN of another one. If that one's hardware inserts no tags,
// the network header of frames from packet sockets is at the wrong offset (the kernel assumes that
// the room for a tag is used), so that the kernel cannot segment them, and drops them.
func isVLAN(name string) bool {
	link, err := netlink.LinkByName(name)
	return err == nil && link.Type() == "vlan"
}

// split cuts a frame into the TCP segments that a device would make of it (RFC 9293); nil if it is
// not TCP. Their checksums are as partial as the frame's.
func split(frame []byte, o pipeline.Offload) (out [][]byte) {
	tcp, size := int(o.ChecksumStart), int(o.SegmentSize)
	kind := o.Segment &^ unix.VIRTIO_NET_HDR_GSO_ECN
	if !o.Partial || size == 0 || tcp+20 > len(frame) ||
		kind != unix.VIRTIO_NET_HDR_GSO_TCPV4 && kind != unix.VIRTIO_NET_HDR_GSO_TCPV6 {
		return nil
	}
	ip, headers := NetworkHeader(frame), tcp+int(frame[tcp+12]>>4)*4
	if ip+20 > tcp || headers > len(frame) || headers < tcp+20 {
		return nil
	}
	payload := frame[headers:]
	for n := 0; n*size < len(payload); n++ {
		first, last := n == 0, (n+1)*size >= len(payload)
		part := payload[n*size : min((n+1)*size, len(payload))]
		s := append(append(make([]byte, 0, headers+len(part)), frame[:headers]...), part...)
		add(s[tcp+4:], uint32(n*size))
		if !last {
			s[tcp+13] &^= tcpFIN | tcpPSH
		}
		if !first {
			s[tcp+13] &^= tcpCWR
		}
		exchange(s[tcp+16:], uint16(len(frame)-tcp), uint16(len(s)-tcp))
		if kind == unix.VIRTIO_NET_HDR_GSO_TCPV6 {
			binary.BigEndian.PutUint16(s[ip+4:], uint16(len(s)-ip-40))
		} else {
			binary.BigEndian.PutUint16(s[ip+2:], uint16(len(s)-ip))
			binary.BigEndian.PutUint16(s[ip+4:], binary.BigEndian.Uint16(s[ip+4:])+uint16(n))
			binary.BigEndian.PutUint16(s[ip+10:], 0)
			binary.BigEndian.PutUint16(s[ip+10:], ^checksum.Checksum(s[ip:ip+int(s[ip]&15)*4], 0))
		}
		out = append(out, s)
	}
	return out
}

const tcpFIN, tcpPSH, tcpCWR = 0x01, 0x08, 0x80

// NetworkHeader returns the offset of a frame's network header, behind its VLAN tags.
func NetworkHeader(frame []byte) int {
	at := 14
	for at+4 <= len(frame) {
		if t := binary.BigEndian.Uint16(frame[at-2:]); t != 0x8100 && t != 0x88a8 {
			break
		}
		at += 4
	}
	return at
}

func add(field []byte, n uint32) {
	binary.BigEndian.PutUint32(field, binary.BigEndian.Uint32(field)+n)
}

// exchange replaces a word covered by a sum that is not complemented (RFC 1624).
func exchange(field []byte, was, is uint16) {
	binary.BigEndian.PutUint16(field, checksum.Combine(checksum.Combine(binary.BigEndian.Uint16(field), ^was), is))
}
