package openflow

import (
	"fmt"
	"strings"
)

var portNames = map[uint32]string{
	PortInPort: "IN_PORT", PortTable: "TABLE", PortNormal: "NORMAL", PortFlood: "FLOOD", PortAll: "ALL",
	PortController: "CONTROLLER", PortLocal: "LOCAL", PortAny: "ANY",
}

// PortName returns the name of a port number that has a meaning of its own, as ovs-ofctl writes
// it (LOCAL, CONTROLLER), and the number of another.
func PortName(port uint32) string {
	if name, ok := portNames[port]; ok {
		return name
	}
	return fmt.Sprint(port)
}

// flagNames lists the names of the bits of a set, which stand in the order of the bits, and the
// rest as a number; "0" where none is set.
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
