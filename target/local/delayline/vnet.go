package delayline

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
	"trivet.dev/trivet/topology"
)

// The header that the kernel puts in front of each frame: struct virtio_net_hdr (Virtual I/O Device
// 1.2, section 5.1.6), in the machine's byte order.
const (
	vnetLen        = 10
	vnetFlags      = 0 // byte: NEEDS_CSUM, …
	vnetGSOType    = 1 // byte
	vnetGSOSize    = 4 // uint16: bytes of payload per segment
	vnetCsumStart  = 6 // uint16: where the transport header starts, in a frame with NEEDS_CSUM
	vnetCsumOffset = 8 // uint16: where in it the checksum is
	ethernetLen    = 14
	udpLen         = 8
	tcpMinLen      = 20
	tcpOffsetField = 12 // the byte of the TCP header whose upper half is its length in 32-bit words
	superPackets   = 450
)

// Offload says whether a direction may carry super-packets: single frames that stand for up to 64
// KiB of segments, which the receiver segments and checksums. They cost a fraction of the CPU time,
// but are delayed as a whole. So they are not used if something happens to packets one by one, if
// one super-packet would occupy the link for more than about 5 ms, or if a queue holds fewer than
// ten.
func Offload(i topology.Impairment) bool {
	return !i.PerPacket() &&
		(i.Bandwidth == 0 || i.Bandwidth >= 100e6) &&
		(i.Queue.Limit == 0 || i.Queue.Limit >= superPackets)
}

// wireSize returns what a frame with its header, as read from a TAP device, amounts to on the wire:
// one packet, or as many as a super-packet has segments, each with all the headers. ok is false if
// it is not a valid frame: neither senders nor any field of the header are trusted.
func wireSize(b []byte) (size Traffic, ok bool) {
	if len(b) < vnetLen+ethernetLen {
		return Traffic{}, false
	}
	header, frame := b[:vnetLen], b[vnetLen:]
	size = Traffic{Packets: 1, Bytes: uint64(len(frame))}
	kind := header[vnetGSOType] &^ unix.VIRTIO_NET_HDR_GSO_ECN
	if kind == unix.VIRTIO_NET_HDR_GSO_NONE {
		return size, true
	}
	perSegment := int(binary.NativeEndian.Uint16(header[vnetGSOSize:]))
	headers, ok := headersLen(header, frame, kind)
	if !ok || perSegment == 0 {
		return Traffic{}, false
	}
	if payload := len(frame) - headers; payload > perSegment {
		segments := (payload + perSegment - 1) / perSegment
		size.Packets = uint64(segments)
		size.Bytes += uint64((segments - 1) * headers)
	}
	return size, true
}

// headersLen returns how many bytes each segment of a super-packet repeats: everything before the
// payload of its transport header. A super-packet's checksum is always left to be filled in, so
// csum_start says where that header begins, after tags and tunnels. (hdr_len does not help: Linux
// sets it to whatever is in the first part of the buffer.)
func headersLen(header, frame []byte, kind byte) (n int, ok bool) {
	if header[vnetFlags]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM == 0 {
		return 0, false
	}
	start := int(binary.NativeEndian.Uint16(header[vnetCsumStart:]))
	switch kind {
	case unix.VIRTIO_NET_HDR_GSO_TCPV4, unix.VIRTIO_NET_HDR_GSO_TCPV6:
		if start+tcpMinLen > len(frame) {
			return 0, false
		}
		n = start + int(frame[start+tcpOffsetField]>>4)*4
		return n, n >= start+tcpMinLen && n <= len(frame)
	case unix.VIRTIO_NET_HDR_GSO_UDP_L4:
		return start + udpLen, start+udpLen <= len(frame)
	}
	return 0, false
}

// complete fills in the checksum of a frame if the sender left that to the device, and makes the
// receiver verify it.
func complete(b []byte) {
	if b[vnetFlags]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0 {
		frame := b[vnetLen:]
		start := int(binary.NativeEndian.Uint16(b[vnetCsumStart:]))
		at := start + int(binary.NativeEndian.Uint16(b[vnetCsumOffset:]))
		if start <= len(frame) && at+2 <= len(frame) {
			// The field holds the sum of the pseudo header so far.
			sum := checksum(frame[start:])
			if sum == 0 {
				sum = 0xffff // RFC 768: 0 means that there is none; of TCP the two are equal
			}
			binary.BigEndian.PutUint16(frame[at:], sum)
		}
	}
	b[vnetFlags] = 0
}

// checksum is the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint64
	for ; len(b) >= 2; b = b[2:] {
		sum += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) > 0 {
		sum += uint64(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
