package vm

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/clsact"
	"trivet.dev/trivet/topology"
)

func tapName(i int) string { return fmt.Sprintf("vm%d", i) }

// guestName is what a guest calls its i-th device before it has the name of its interface.
func guestName(i int) string { return fmt.Sprintf("device%d", i) }

// ownNames are those that devices have here or in guests beside the names of interfaces.
var ownNames = regexp.MustCompile(`^(vm|device)[0-9]+$`)

// Reserved says whether an interface cannot have a name.
func Reserved(name string) bool { return ownNames.MatchString(name) }

// ReservedMAC says whether an interface cannot have an address.
func ReservedMAC(m topology.MAC) bool { return m.String() == agentMAC }

// Join makes a TAP device for each interface, in the namespace of the calling thread, and joins it
// to the device of that name: what comes in at one leaves by the other. Devices that an earlier
// machine had and this one has not are removed.
func Join(interfaces []Interface) error {
	for i, f := range interfaces {
		if err := join(i, f); err != nil {
			return fmt.Errorf("join %s to the virtual machine: %w", f.Name, err)
		}
	}
	for i := len(interfaces); ; i++ {
		dev, err := netlink.LinkByName(tapName(i))
		if err != nil {
			return nil
		}
		if err := netlink.LinkDel(dev); err != nil {
			return err
		}
	}
}

func join(i int, f Interface) error {
	tap, err := netlink.LinkByName(tapName(i))
	if err != nil {
		// QEMU asks for the header once more; it must be there from the start, so that segments
		// need not be cut.
		err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: tapName(i)}, Mode: netlink.TUNTAP_MODE_TAP,
			Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_ONE_QUEUE})
		if err != nil {
			return err
		}
		if tap, err = netlink.LinkByName(tapName(i)); err != nil {
			return err
		}
	}
	dev, err := netlink.LinkByName(f.Name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(tap, f.MTU); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(tap); err != nil {
		return err
	}
	a, b := dev.Attrs().Index, tap.Attrs().Index
	return errors.Join(clsact.Redirect(a, b), clsact.Redirect(b, a))
}

// Carriers says which of the interfaces' devices in the namespace of the calling thread have a
// carrier, and are up.
func Carriers(interfaces []Interface) ([]bool, error) {
	out := make([]bool, len(interfaces))
	for i, f := range interfaces {
		dev, err := netlink.LinkByName(f.Name)
		if err != nil {
			return nil, err
		}
		out[i] = dev.Attrs().RawFlags&unix.IFF_RUNNING != 0
	}
	return out, nil
}
