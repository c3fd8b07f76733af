package ospf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// ID is a 32-bit number that is written like an IPv4 address: a Router ID, an Area ID, a Link State
// ID, and inside the engine also an address or a mask.
type ID uint32

// Backbone is the area 0.0.0.0 (section 3.1).
const Backbone ID = 0

// String returns the dotted form.
func (id ID) String() string { return id.Addr().String() }

// MarshalText writes the dotted form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the dotted form.
func (id *ID) UnmarshalText(b []byte) (err error) { *id, err = ParseID(string(b)); return }

// Addr returns the number as an IPv4 address.
func (id ID) Addr() netip.Addr {
	return netip.AddrFrom4([4]byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)})
}

// IDOf returns the number of an IPv4 address, and 0 for any other address.
func IDOf(a netip.Addr) ID {
	if a = a.Unmap(); !a.Is4() {
		return 0
	}
	b := a.As4()
	return ID(binary.BigEndian.Uint32(b[:]))
}

// ParseID reads a dotted number such as 10.0.0.1.
func ParseID(s string) (ID, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return 0, fmt.Errorf("%q is not a router or area ID; write it like 10.0.0.1", s)
	}
	return IDOf(a), nil
}

// maskOf returns the mask with that many leading ones.
func maskOf(bits int) ID { return ID(^uint64(0) << (32 - bits)) }

// prefixOf returns the prefix of an address and a mask; ok is false if the mask is not contiguous.
func prefixOf(addr, mask ID) (p netip.Prefix, ok bool) {
	bits := 0
	for mask<<bits&(1<<31) != 0 {
		bits++
	}
	return netip.PrefixFrom((addr & mask).Addr(), bits), maskOf(bits) == mask
}
