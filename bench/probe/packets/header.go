package packets

import "encoding/binary"

// HeaderLen is the least payload of a packet: with Ethernet, IPv4 and UDP headers and the frame
// check sequence it makes a frame of 64 bytes, the smallest that Ethernet has.
const HeaderLen = 18

// MaxPayload is the most payload that UDP over IPv4 carries.
const MaxPayload = 65507

// header is what a packet begins with, big endian: the stream's number (2 bytes), the packet's own
// (6), and when it was sent, in nanoseconds since 1970 (8); 2 bytes are a mark.
type header struct {
	stream uint16
	number uint64 // below 1<<48
	sent   int64
}

const mark = 0x5456

// greeting is the number of packets that do not count: they make the way known to all on it.
const greeting = 1<<48 - 1

func (h header) put(b []byte) {
	_ = b[HeaderLen-1]
	binary.BigEndian.PutUint16(b, mark)
	binary.BigEndian.PutUint64(b[2:], uint64(h.stream)<<48|h.number&(1<<48-1))
	binary.BigEndian.PutUint64(b[10:], uint64(h.sent))
}

// parseHeader reads a header; ok is false where there is none.
func parseHeader(b []byte) (h header, ok bool) {
	if len(b) < HeaderLen || binary.BigEndian.Uint16(b) != mark {
		return h, false
	}
	both := binary.BigEndian.Uint64(b[2:])
	return header{uint16(both >> 48), both & (1<<48 - 1), int64(binary.BigEndian.Uint64(b[10:]))}, true
}
