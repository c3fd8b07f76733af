package local

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/clsact"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// Without netem, a link to another site goes through a delay line, too, which impairs what is sent
// from here: the node's end is a TAP device as on other lines. The line's other TAP device is
// beside the switches, with the tunnel, and a program passes frames between these two.

// carried returns the end of a link that is at another site, or -1.
func carried(link *topology.Link) int {
	return slices.IndexFunc(link.Ends[:],
		func(e topology.Endpoint) bool { return e.Carrier != nil && e.Carrier.Port == nil })
}

// egresses is what a delay line does with what its ends send. What the far end of a carried link
// sends has been impaired there.
func egresses(link *topology.Link) (out [2]topology.Impairment) {
	far := carried(link)
	for i := range out {
		if i != far {
			out[i] = link.Egress(i)
		}
	}
	return out
}

// lineDevice and tunnelDevice name the two devices: a carrier has a VNI or a VLAN, and no two of a
// lab have the same.
func lineDevice(c topology.Carrier) string   { return fmt.Sprintf("vl%d", max(c.VNI, uint32(c.VLAN))) }
func tunnelDevice(c topology.Carrier) string { return fmt.Sprintf("vx%d", max(c.VNI, uint32(c.VLAN))) }

// openCarried makes the device of a link to another site, and a TAP device whose frames pass into
// it. There may be those of a daemon that has died.
func (l *Lab) openCarried(c topology.Carrier, mtu int) (fd int, err error) {
	if err := l.closeCarried(c); err != nil {
		return -1, err
	}
	b, err := l.carrierBatch(c)
	if err != nil {
		return -1, err
	}
	defer b.Close()
	if err := AddCarried(b, netbatch.Device{Name: tunnelDevice(c), NS: l.fabric, MTU: uint32(mtu)}, c,
		false); err != nil {
		return -1, err
	}
	if err := b.Flush(); err != nil {
		return -1, CarriedTaken(c, err)
	}
	err = inside.File(l.fabric, func() error {
		if fd, err = delayline.OpenTap(lineDevice(c), true); err != nil {
			return err
		}
		err := passFrames(lineDevice(c), tunnelDevice(c))
		if err != nil {
			unix.Close(fd)
		}
		return err
	})
	return fd, err
}

// closeCarried removes both devices, as far as they exist.
func (l *Lab) closeCarried(c topology.Carrier) error {
	return inside.File(l.fabric, func() error {
		return errors.Join(netbatch.Delete(lineDevice(c)), netbatch.Delete(tunnelDevice(c)))
	})
}

// passFrames makes what arrives at either of two devices leave by the other. It runs in their
// namespace.
func passFrames(names ...string) error {
	var devices []netlink.Link
	for _, name := range names {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := errors.Join(setOffloads(name, joining, false), netlink.LinkSetUp(dev)); err != nil {
			return err
		}
		// Else a network card keeps out what is for the node's address, which is not the VLAN's.
		if dev.Type() == "vlan" {
			if err := netlink.SetPromiscOn(dev); err != nil {
				return fmt.Errorf("make %s promiscuous: %w", name, err)
			}
		}
		devices = append(devices, dev)
	}
	for i, dev := range devices {
		if err := clsact.Redirect(dev.Attrs().Index, devices[1-i].Attrs().Index); err != nil {
			return fmt.Errorf("pass frames from %s to %s (eBPF): %w", names[i], names[1-i], err)
		}
	}
	return nil
}
