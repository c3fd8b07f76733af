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

// Without netem, a link to another site also goes through a delay line, which impairs what is sent
// from here. The node's end is a TAP device as on other lines. The line's other TAP device is in
// the switches' namespace, as is the tunnel, and a program passes frames between the two.

// carried returns the end of a link that is at another site, or -1.
func carried(link *topology.Link) int {
	return slices.IndexFunc(link.Ends[:],
		func(e topology.Endpoint) bool { return e.Carrier != nil && e.Carrier.Port == nil })
}

// egresses returns how a delay line impairs what either end sends. What the far end of a carried
// link sends has already been impaired there.
func egresses(link *topology.Link) (out [2]topology.Impairment) {
	far := carried(link)
	for i := range out {
		if i != far {
			out[i] = link.Egress(i)
		}
	}
	return out
}

// lineDevice and tunnelDevice name the two devices by the carrier's VNI or VLAN, which are unique
// in a lab.
func lineDevice(c topology.Carrier) string   { return fmt.Sprintf("vl%d", max(c.VNI, uint32(c.VLAN))) }
func tunnelDevice(c topology.Carrier) string { return fmt.Sprintf("vx%d", max(c.VNI, uint32(c.VLAN))) }

// openCarried makes the tunnel's device and a TAP device, and passes frames between them. Devices
// that a dead daemon has left are used again.
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

// passFrames passes the frames that arrive at either of two devices on to the other. It runs in
// their namespace.
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
		// Otherwise a network card filters out frames to the node's MAC address, which is not the
		// VLAN's.
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
