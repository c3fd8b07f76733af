package local

import (
	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/target/local/guard"
)

// kernelWays are the results of the attempts.
type kernelWays struct{ vlan, htb, filter error }

func tryKernel() (ways kernelWays, err error) {
	ns, err := inside.New()
	if err != nil {
		return ways, err
	}
	defer ns.Close()
	err = inside.File(ns, func() error {
		const name = "try"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name},
			PeerName: "far"}); err != nil {
			return err
		}
		dev, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		on := dev.Attrs().Index
		ways.vlan = netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "vlan", ParentIndex: on},
			VlanId: 2})
		ways.htb = netlink.QdiscAdd(netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: on, Handle: netlink.MakeHandle(1, 0),
			Parent: netlink.HANDLE_ROOT}))
		ways.filter = tryGuard(dev)
		return nil
	})
	return ways, err
}

func tryGuard(dev netlink.Link) error {
	g, err := guard.New(guard.Rules{VLANs: []uint16{2}, Port: 22})
	if err != nil {
		return err
	}
	defer g.Close()
	if err := g.Attach(dev); err != nil {
		return err
	}
	return guard.Detach(dev, false)
}
