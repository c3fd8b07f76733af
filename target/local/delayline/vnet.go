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
	ethernetLen    = 14
	udpLen         = 8
	tcpMinLen      = 20
	tcpOffsetField = 12 // the byte of the TCP header whose upper half is its length in 32-bit words
	superPackets   = 450
)

// Offload says whether a direction may carry super-packets: single frames that stand for up to 64
// KiB of segments, which the receiver segments and checksums. They cost a fraction of the CPU time,
// but are delayed as a whole. So they are not used if packets are lost or jittered one by one, if
// one super-packet would occupy the link for more than about 5 ms, or if a queue holds fewer than
// ten.
func Offload(i topology.Impairment) bool {
	return i.Loss == 0 && i.Jitter == 0 &&
		(i.Bandwidth == 0 || i.Bandwidth >= 100e6) &&
		(i.Queue == 0 || i.Queue >= superPackets)
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
