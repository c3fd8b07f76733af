package local

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

// A link to another site ends here in a device of its own: the end of a VXLAN tunnel, or a VLAN of
// an interface of the machine.

// AddCarried adds, in the caller's namespace, the device of a link to another site to a batch.
// whole makes a tunnel's packets forbid fragmentation where the packets inside do.
func AddCarried(b *netbatch.Batch, d netbatch.Device, c topology.Carrier, whole bool) error {
	if c.VLAN == 0 {
		b.AddVXLAN(d, c, whole)
		return nil
	}
	dev, err := nicOf(c)
	if err != nil {
		return err
	}
	switch a := dev.Attrs(); {
	case a.RawFlags&unix.IFF_UP == 0:
		return fmt.Errorf("interface %s, which is to carry VLAN %d, is down:  sudo ip link set %s up", a.Name, c.VLAN,
			a.Name)
	case a.MTU < int(d.MTU):
		return fmt.Errorf("interface %s has an MTU of %d; VLAN %d on it needs %d:  sudo ip link set %s mtu %d", a.Name,
			a.MTU, c.VLAN, d.MTU, a.Name, d.MTU)
	}
	b.AddVLAN(d, dev.Attrs().Index, c.VLAN)
	return nil
}

// nicOf finds the interface that carries a VLAN.
func nicOf(c topology.Carrier) (netlink.Link, error) {
	if c.NIC != "" {
		dev, err := netlink.LinkByName(c.NIC)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil, fmt.Errorf("there is no interface %s here; there are: %s", c.NIC,
				strings.Join(nicNames(), ", "))
		}
		return dev, err
	}
	return nicWith(c.Local)
}

// nicWith finds the interface that has an address of the machine.
func nicWith(address netip.Addr) (netlink.Link, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if a.IP.Equal(net.IP(address.AsSlice())) {
			return netlink.LinkByIndex(a.LinkIndex)
		}
	}
	return nil, fmt.Errorf("no interface here has the address %s: say which is meant (nic: in the list of machines)",
		address)
}

func nicNames() (out []string) {
	list, _ := netlink.LinkList()
	for _, dev := range list {
		if dev.Attrs().Name != "lo" {
			out = append(out, dev.Attrs().Name)
		}
	}
	return out
}

// mtuAt is the MTU at a node's end of a link that leads out of the lab.
func mtuAt(link *topology.Link, node string) uint32 {
	if link.Ends[1].Node == node {
		return uint32(link.MTUAt(1))
	}
	return uint32(link.MTUAt(0))
}

// makeCarried makes the end of a link to another site as the device of a node here. The kernel
// makes it in its namespace at once: unless the node is the machine itself, there is never anything
// in the machine's own namespace to clean up.
func (l *Lab) makeCarried(link *topology.Link, at topology.Endpoint, c topology.Carrier) error {
	ns, err := l.netnsOf(at.Node)
	if err != nil {
		return err
	}
	defer ns.Close()
	b, err := l.carrierBatch(c)
	if err != nil {
		return err
	}
	defer b.Close()
	d := netbatch.Device{Name: at.Interface, MAC: at.MAC, NS: ns, MTU: mtuAt(link, at.Node)}
	if !ownsNamespaces(l.node(at.Node)) {
		d.Index = l.newIndex(at.Interface)
	}
	if err := AddCarried(b, d, c, false); err != nil {
		return fmt.Errorf("link %s: %w", link.Name(), err)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("link %s: %w", link.Name(), CarriedTaken(c, err))
	}
	return l.setUp(link, at)
}

// setUp sets up a node's device of a link that leaves the lab.
func (l *Lab) setUp(link *topology.Link, at topology.Endpoint) error {
	n := l.node(at.Node)
	if link.Down || !ownsNamespaces(n) { // those of switches are set up together
		return nil
	}
	return l.inNet(at.Node, func() error {
		if n.Native {
			if err := l.settleNative(n, at.Interface); err != nil {
				return err
			}
		}
		dev, err := netlink.LinkByName(at.Interface)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(dev)
	})
}

// carrierBatch returns a batch for devices whose packets travel over a carrier: in the machine's
// own network, or in the encrypted one.
func (l *Lab) carrierBatch(c topology.Carrier) (*netbatch.Batch, error) {
	if !c.Encrypted {
		return netbatch.New()
	}
	ns, err := os.Open(l.securePath())
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return netbatch.In(ns)
}

// CarriedTaken explains why the device of a link to another site cannot be made.
func CarriedTaken(c topology.Carrier, err error) error {
	switch {
	case c.VLAN != 0 && errors.Is(err, unix.EOPNOTSUPP):
		return errors.New("this kernel has no VLANs (802.1Q):  modprobe 8021q")
	case c.VLAN != 0 && errors.Is(err, os.ErrExist):
		if other := vlanDevice(c); other != "" {
			return fmt.Errorf("VLAN %d is in use here (%s), set up on the machine; remove that, or choose another (vlan: or vlans: in the list of machines)", c.VLAN, other)
		}
		return fmt.Errorf("VLAN %d is in use here by another lab; take that down, or choose another", c.VLAN)
	case errors.Is(err, os.ErrExist):
		return fmt.Errorf("%w: another lab, or another program, has such a tunnel", err)
	}
	return err
}

// vlanDevice names the machine's device that is a VLAN, if there is one in its namespace.
func vlanDevice(c topology.Carrier) string {
	on, err := nicOf(c)
	list, wrong := netlink.LinkList()
	if err != nil || wrong != nil {
		return ""
	}
	for _, dev := range list {
		if v, ok := dev.(*netlink.Vlan); ok && v.VlanId == int(c.VLAN) && v.ParentIndex == on.Attrs().Index {
			return v.Name
		}
	}
	return ""
}
