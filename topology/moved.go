package topology

import (
	"net/netip"
	"slices"
)

// OwnedAddress is an address of an interface.
type OwnedAddress struct {
	Node      string     `json:"node"`
	Interface string     `json:"interface"`
	Address   netip.Addr `json:"address"`
}

// Moved lists the addresses that are at another interface or another MAC address in a later
// topology than before: neighbours still remember the earlier one.
func Moved(old, now *Topology) (out []OwnedAddress) {
	type owner struct {
		node string
		mac  MAC
	}
	before := map[netip.Addr][]owner{}
	each := func(t *Topology, f func(e *Endpoint, a netip.Addr)) {
		for _, l := range t.Links {
			for i := range l.Ends {
				for _, p := range l.Ends[i].Addresses {
					f(&l.Ends[i], p.Addr())
				}
			}
		}
	}
	each(old, func(e *Endpoint, a netip.Addr) { before[a] = append(before[a], owner{e.Node, e.MAC}) })
	each(now, func(e *Endpoint, a netip.Addr) {
		if was := before[a]; len(was) > 0 && !e.External() && !slices.Contains(was, owner{e.Node, e.MAC}) {
			out = append(out, OwnedAddress{e.Node, e.Interface, a})
		}
	})
	return out
}
