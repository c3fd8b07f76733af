package packets

import "encoding/binary"

// HeaderLen is the least payload of a packet: with Ethernet, IPv4 and UDP headers and the frame
// check sequence it makes a frame of 64 bytes, the smallest that Ethernet has.
const HeaderLen = 18

// MaxPayload is the most payload that UDP over IPv4 carries.
const MaxPayload = 65507

// header is what a packet begins with, big endian: a mark (2 bytes), the stream's number (2), a
// checksum of all the others (2), the packet's own number (4), and when it was sent, in nanoseconds
// since 1970 (8).
type header struct {
	stream uint16
	number uint64 // below 1<<32
	sent   int64
}

const mark = 0x5456

// greeting is the number of packets that do not count: they make the way known to all on it.
const greeting = 1<<32 - 1

func (h header) put(b []byte) {
	_ = b[HeaderLen-1]
	binary.BigEndian.PutUint16(b, mark)
	binary.BigEndian.PutUint16(b[2:], h.stream)
	binary.BigEndian.PutUint16(b[4:], h.checksum())
	binary.BigEndian.PutUint32(b[6:], uint32(h.number))
	binary.BigEndian.PutUint64(b[10:], uint64(h.sent))
}

// checksum is the Internet's (RFC 1071) of a header: a bit of it that is inverted changes it. The
// one of UDP is not there in all packets, nor filled in at all places.
func (h header) checksum() uint16 {
	sum := uint64(mark) + uint64(h.stream) + h.number>>16 + h.number&0xffff
	for n := uint64(h.sent); n > 0; n >>= 16 {
		sum += n & 0xffff
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// parseHeader reads a header; ok is false where there is none, or one that is damaged.
func parseHeader(b []byte) (h header, ok bool) {
	h, ok = readHeader(b)
	return h, ok && binary.BigEndian.Uint16(b[4:]) == h.checksum()
}

// readHeader reads what begins as a header, damaged or not.
func readHeader(b []byte) (h header, ok bool) {
	if len(b) < HeaderLen || binary.BigEndian.Uint16(b) != mark {
		return h, false
	}
	return header{binary.BigEndian.Uint16(b[2:]), uint64(binary.BigEndian.Uint32(b[6:])),
		int64(binary.BigEndian.Uint64(b[10:]))}, true
}
