package ospf

import "encoding/binary"

// fletcher returns the LS checksum of an LSA (section 12.1.7; RFC 905 annex B): over everything
// except the age, with the two octets of the checksum as zero.
func fletcher(lsa []byte) uint16 {
	const at = 16 - 2 // of the checksum, in what is summed
	b := lsa[2:]
	c0, c1 := 0, 0
	for i := range b {
		if i != at && i != at+1 {
			c0 += int(b[i])
		}
		if c1 += c0; i&0xfff == 0xfff {
			c0, c1 = c0%255, c1%255 // before a 32-bit int could overflow
		}
	}
	c0, c1 = c0%255, c1%255
	x := ((len(b)-at-1)*c0 - c1) % 255
	if x <= 0 {
		x += 255
	}
	y := 510 - c0 - x
	if y > 255 {
		y -= 255
	}
	return uint16(x)<<8 | uint16(y)
}

// onesComplement returns the checksum of an OSPF packet without authentication (section D.4): the
// one's complement sum over the packet except its 64 bits of authentication.
func onesComplement(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		if i < 16 || i >= 24 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
