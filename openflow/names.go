package openflow

import (
	"fmt"
	"strings"
)

var portNames = map[uint32]string{
	PortInPort: "IN_PORT", PortTable: "TABLE", PortNormal: "NORMAL", PortFlood: "FLOOD", PortAll: "ALL",
	PortController: "CONTROLLER", PortLocal: "LOCAL", PortAny: "ANY",
}

// PortName returns the name of a reserved port as ovs-ofctl writes it (LOCAL, CONTROLLER), or else
// its number.
func PortName(port uint32) string {
	if name, ok := portNames[port]; ok {
		return name
	}
	return fmt.Sprint(port)
}

// flagNames lists the names of the bits in set, given in the order of bits, and bits without a name
// as a number; "0": none is set.
func flagNames(set uint32, names ...string) string {
	var list []string
	for bit, name := range names {
		if mask := uint32(1) << bit; name != "" && set&mask != 0 {
			list = append(list, name)
			set &^= mask
		}
	}
	if set != 0 || len(list) == 0 {
		list = append(list, fmt.Sprintf("%#x", set))
	}
	return strings.Join(list, " ")
}
