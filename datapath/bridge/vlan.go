package bridge

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

// lacks returns an error if this kernel's bridges have no VLAN filtering
// (CONFIG_BRIDGE_VLAN_FILTERING) and a bridge of the topology needs it.
func lacks(t *topology.Topology) error {
	name := toldApart(t)
	if name == "" || os.Geteuid() != 0 {
		return nil
	}
	ns, err := inside.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	err = inside.File(ns, makeFiltering)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return lack.New(fmt.Sprintf("switch %s: bridges of this kernel do not tell VLANs apart (it is without CONFIG_BRIDGE_VLAN_FILTERING)", name),
			"; use  ", "datapath: embedded")
	}
	if err != nil {
		return fmt.Errorf("switch %s: a bridge that tells VLANs apart: %w", name, err)
	}
	return nil
}

// toldApart returns the name of a bridge that needs VLAN filtering; "" if there is none.
func toldApart(t *topology.Topology) string {
	nodes, ports := t.NodesByName(), topology.VLANPorts(t)
	for _, l := range t.Links {
		for i, e := range l.Ends {
			if ports[l][i] != (topology.PortVLANs{}) && is(nodes[e.Node]) {
				return e.Node
			}
		}
	}
	return ""
}

func makeFiltering() error {
	on := true
	return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "trivet-try"}, VlanFiltering: &on})
}

// device returns a link with this name and index, without asking the kernel.
func device(name string, index int) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: name, Index: index}}
}

// tellApart turns VLAN filtering of bridges on or off. A device that joins a bridge with filtering
// has no VLAN, until setVLANs sets some.
func (f *fabric) tellApart() error {
	want := map[string]int{}
	for _, p := range f.ports() {
		if p.vlans != (topology.PortVLANs{}) {
			want[p.of] = p.bridge
		}
	}
	if len(want) == 0 && len(f.apart) == 0 {
		return nil
	}
	return f.tell(func(b *netbatch.Batch) {
		for name, index := range want {
			if f.apart[name] != index {
				b.FilterVLANs(name, index, true, 0)
				f.apart[name] = index
			}
		}
		for name, index := range f.apart {
			if want[name] == 0 {
				b.FilterVLANs(name, index, false, topology.DefaultVLAN)
				delete(f.apart, name)
			}
		}
	})
}

// setVLANs sets the VLANs of ports of bridges with VLAN filtering.
func (f *fabric) setVLANs() error {
	if len(f.apart) == 0 {
		return nil
	}
	return inside.File(f.site.Namespace(), func() error {
		have, err := netlink.BridgeVlanList()
		if err != nil {
			return fmt.Errorf("VLANs of bridges: %w", err)
		}
		for _, p := range f.ports() {
			if p.vlans == (topology.PortVLANs{}) || f.member[p.name] != p.index {
				continue
			}
			if err := p.setVLANs(have); err != nil {
				return fmt.Errorf("VLANs of %s: %w", p.name, err)
			}
		}
		return nil
	})
}

func (p port) setVLANs(all map[int32][]*nl.BridgeVlanInfo) error {
	dev, untagged, want := device(p.name, p.index), p.vlans.Untagged, p.vlans.Trunk.Set()
	if untagged != 0 {
		want.Add(untagged)
	}
	var have, extra, missing topology.VLANSet
	isUntagged := false
	for _, v := range all[int32(p.index)] {
		vlan, asWanted := int(v.Vid), v.PortVID() && v.EngressUntag()
		switch {
		case !want.Has(vlan):
			extra.Add(vlan)
		case vlan == untagged:
			isUntagged = asWanted
		case v.PortVID() || v.EngressUntag(): // is given again, without these
		default:
			have.Add(vlan)
		}
	}
	for _, vlan := range want.List() {
		if vlan != untagged && !have.Has(vlan) {
			missing.Add(vlan)
		}
	}
	var errs []error
	type change func(link netlink.Link, vlan, end uint16, pvid, untagged, self, master bool) error
	set := func(first, last int, do change) {
		if first == last { // the kernel does not take that as a range
			last = 0
		}
		errs = append(errs, do(dev, uint16(first), uint16(last), false, false, false, true))
	}
	extra.Ranges(func(first, last int) { set(first, last, netlink.BridgeVlanDelRange) })
	missing.Ranges(func(first, last int) { set(first, last, netlink.BridgeVlanAddRange) })
	if untagged != 0 && !isUntagged {
		errs = append(errs, netlink.BridgeVlanAdd(dev, uint16(untagged), true, true, false, true))
	}
	return errors.Join(errs...)
}
