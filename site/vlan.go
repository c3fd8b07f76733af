package site

import (
	"cmp"
	"fmt"

	"trivet.dev/trivet/topology"
)

// vlans carries each link in a VLAN of its own, on a layer-2 network that the machines share (IEEE
// 802.1Q).
var vlans = &Carrier{Word: "vlan", Title: "VLAN", MTU: "1,504", Tagged: true,
	Numbers: func(l *List) Range { return Range{uint32(l.VLANs[0]), uint32(l.VLANs[1]), "vlans:"} },
	Own:     func(m *Machine) uint32 { return uint32(m.VLAN) },
	End: func(l *List, near string, number uint32) topology.Carrier {
		return topology.Carrier{VLAN: uint16(number), NIC: l.NICOf(near)}
	},
	Deaf: func(names [2]string, ends [2]topology.Carrier) error {
		at := func(i int) string {
			return fmt.Sprintf("%s (%s)", names[i], cmp.Or(ends[i].NIC, ends[i].Local.String()))
		}
		return fmt.Errorf("VLAN %d does not get through between %s and %s: let it through, tagged, at both ports of the switch between them (a trunk that allows it)",
			ends[0].VLAN, at(0), at(1))
	},
}
