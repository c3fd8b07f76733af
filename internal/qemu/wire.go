package qemu

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/clsact"
	"trivet.dev/trivet/topology"
)

// NIC is an interface of a guest, with its devices in the network namespace of the guest's node.
type NIC struct {
	ID     string // of the device, in QEMU
	Tap    string // QEMU's TAP device: vm and a number, or the digits of a MAC address
	Device string // of the link
	MAC    topology.MAC
	MTU    int
	// The DHCP server, which receives the guest's requests at the TAP device
	// (clsact.RedirectAnswered); invalid: none.
	Server netip.Addr
}

// Join makes a TAP device for each interface, in the calling thread's namespace, and joins it to
// the device of the link: what arrives at one leaves through the other.
func Join(nics []NIC) error {
	for _, n := range nics {
		if err := n.join(); err != nil {
			return fmt.Errorf("join %s to the virtual machine: %w", n.Device, err)
		}
	}
	return nil
}

// Leave removes, in the calling thread's namespace, the TAP devices of interfaces other than these.
func Leave(nics []NIC) error {
	list, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, dev := range list {
		name := dev.Attrs().Name
		if dev.Type() != "tuntap" || !topology.OfMachine(name) ||
			slices.ContainsFunc(nics, func(n NIC) bool { return n.Tap == name }) {
			continue
		}
		if err := netlink.LinkDel(dev); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

func (n NIC) join() error {
	tap, err := netlink.LinkByName(n.Tap)
	if err != nil {
		// QEMU sets the header again; it must be there from the start, so that segments need not be
		// cut.
		err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: n.Tap}, Mode: netlink.TUNTAP_MODE_TAP,
			Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_ONE_QUEUE})
		if err != nil {
			return err
		}
		if tap, err = netlink.LinkByName(n.Tap); err != nil {
			return err
		}
	}
	dev, err := netlink.LinkByName(n.Device)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(tap, n.MTU); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(tap); err != nil {
		return err
	}
	a, b := dev.Attrs().Index, tap.Attrs().Index
	if n.Server.IsValid() {
		return errors.Join(clsact.Redirect(a, b), clsact.RedirectAnswered(b, a, n.MAC, n.Server))
	}
	return errors.Join(clsact.Redirect(a, b), clsact.Redirect(b, a))
}

// Carriers says which of the interfaces' devices, in the calling thread's namespace, are up and
// have a carrier.
func Carriers(nics []NIC) ([]bool, error) {
	out := make([]bool, len(nics))
	for i, n := range nics {
		dev, err := netlink.LinkByName(n.Device)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", n.Device, err)
		}
		out[i] = dev.Attrs().RawFlags&unix.IFF_RUNNING != 0
	}
	return out, nil
}

// Open opens the interface's TAP device, in the calling thread's namespace, for a running machine.
func (n NIC) Open() (*os.File, error) {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(n.Tap)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_ONE_QUEUE)
		err = unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, request)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open %s: %w", n.Tap, err)
	}
	return f, nil
}
