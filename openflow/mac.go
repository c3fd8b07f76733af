package openflow

import (
	"fmt"
	"net"
)

// MAC is an Ethernet address.
type MAC [6]byte

// ParseMAC reads an Ethernet address in one of the forms of net.ParseMAC.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != 6 {
		return MAC{}, fmt.Errorf("%q is not an Ethernet address; write it as 02:00:00:00:00:01", s)
	}
	return MAC(hw), nil
}

// String returns the address as 02:00:00:00:00:01.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

func (m MAC) value() Value {
	return Value{Lo: uint64(get16(m[:], 0))<<32 | uint64(get32(m[:], 2))}
}

func macOf(v Value) (m MAC) {
	put16(m[:], 0, uint16(v.Lo>>32))
	put32(m[:], 2, uint32(v.Lo))
	return m
}
