package local

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/vsctl"
	"trivet.dev/trivet/topology"
)

// A port of a node in a network of a provider is one of two things here. Where the machine is one
// of the provider's instances, it is an interface that this has got, known by its MAC: the node
// takes it, under the name of its own device. Where the machine has the provider's switch, it is
// the far end of the node's own device, plugged into that as a hypervisor plugs its guests: the
// agent there knows by the port's ID what to do with it. It finds the ID beside an interface of
// Open vSwitch; with Linux bridges, in the name of the device, which it puts into a bridge itself.

// ofLab is the key of what is written beside an interface that is plugged, and says of which lab it
// is.
const ofLab = "trivet-lab"

// plugDevice is the device that is plugged for a port. Neutron's agents and tools call theirs so.
func plugDevice(p *topology.NetworkPort) string { return "tap" + p.ID[:min(len(p.ID), 11)] }

// NoNetworks says which links lead into networks, and which routers are a provider's, where nobody
// has said whose.
func NoNetworks(t *topology.Topology) error {
	var p topology.Problems
	const hint = "say which cloud:  trivet up … --on FILE,  with  openstack: {cloud: NAME, instances: 0}  in it (docs/openstack.md)"
	for _, n := range t.Nodes {
		if n.Datapath.Provided() {
			p.Add(n.Pos, hint, "router %s: %s is a cloud's, and the lab is of this machine alone", n.Name,
				n.Datapath.Kind().Is)
		}
	}
	for _, link := range t.Links {
		for _, e := range link.Ends {
			if e.Network != "" {
				p.Add(link.Pos, hint, "link %s: %s is a network of a cloud, and the lab is of this machine alone",
					link.Name(), e.Network)
			}
		}
	}
	return p.Err()
}

// takePort makes a node's end of a link into a network.
func (l *Lab) takePort(link *topology.Link, within topology.Endpoint, p *topology.NetworkPort) error {
	make := l.takeAttached
	if p.Plugged() {
		make = l.plugPort
	}
	if err := make(link, within, p); err != nil {
		return fmt.Errorf("link %s: %w", link.Name(), err)
	}
	if p.Whole {
		if err := l.inNet(within.Node,
			func() error { return setOffloads(within.Interface, []uint32{unix.ETHTOOL_STXCSUM}, false) }); err != nil {
			return err
		}
	}
	return l.setUp(link, within)
}

// plugPort makes the node's device, and plugs its far end into the machine's switch.
func (l *Lab) plugPort(link *topology.Link, within topology.Endpoint, p *topology.NetworkPort) error {
	tap := plugDevice(p)
	if !p.ByName && !slices.Contains(l.Record.Plugged, tap) { // else nothing of it outlives the node's device
		l.Record.Plugged = append(l.Record.Plugged, tap)
		if err := l.saveRecord(); err != nil {
			return err
		}
	}
	ns, err := l.netnsOf(within.Node)
	if err != nil {
		return err
	}
	defer ns.Close()
	b, err := netbatch.New()
	if err != nil {
		return err
	}
	defer b.Close()
	own := netbatch.Device{Name: within.Interface, MAC: p.MAC, NS: ns, MTU: mtuAt(link, within.Node)}
	if !ownsNamespaces(l.node(within.Node)) {
		own.Index = l.newIndex(within.Interface)
	}
	b.AddVeth(own, netbatch.Device{Name: tap, MTU: own.MTU})
	if err := b.Flush(); err != nil {
		return err
	}
	dev, err := netlink.LinkByName(tap)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(dev); err != nil || p.ByName {
		return err
	}
	// Until the agent has given it the tag of its network it would be in one with all else that has
	// no tag; Neutron drops what has this one.
	_, err = vsctl.Run("--", "--may-exist", "add-port", p.Bridge, tap, "tag=4095", "--", "set", "Interface", tap,
		"external_ids:iface-id="+p.ID,
		"external_ids:attached-mac="+p.MAC.String(), "external_ids:iface-status=active",
		"external_ids:"+ofLab+"="+l.Name)
	return err
}

// takeAttached moves an interface that the machine has got for the port to the node. It may not be
// there yet.
func (l *Lab) takeAttached(link *topology.Link, within topology.Endpoint, p *topology.NetworkPort) error {
	dev, err := attached(p.MAC)
	if err != nil {
		return err
	}
	was, err := look(dev.Attrs().Name)
	if err != nil {
		return err
	}
	was.As = within.Interface
	l.Record.External = append(l.Record.External, was)
	if err := l.saveRecord(); err != nil {
		return err
	}
	ns, err := l.netnsOf(within.Node)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := netlink.LinkSetDown(dev); err != nil { // else it keeps its name
		return err
	}
	if err := netlink.LinkSetNsFd(dev, int(ns.Fd())); err != nil {
		return fmt.Errorf("move interface %s into the lab: %w", was.Name, err)
	}
	return inside.File(ns, func() error {
		dev, err := netlink.LinkByName(was.Name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetName(dev, was.As); err != nil {
			return fmt.Errorf("call interface %s %s: %w", was.Name, was.As, err)
		}
		if dev, err = netlink.LinkByName(was.As); err != nil {
			return err
		}
		l.note(within.Node, dev)
		return setMTU(was.As, int(mtuAt(link, within.Node)))
	})
}

// attached waits for the interface that has a MAC.
func attached(mac topology.MAC) (netlink.Link, error) {
	for wait := patience.Attached.Begin(); ; time.Sleep(100 * time.Millisecond) {
		list, err := netlink.LinkList()
		if err != nil {
			return nil, err
		}
		for _, dev := range list {
			if bytes.Equal(dev.Attrs().HardwareAddr, net.HardwareAddr(mac[:])) {
				return dev, nil
			}
		}
		if wait.Over() {
			return nil, fmt.Errorf("the machine has no interface %s, though the port was attached to it: %w", mac,
				wait.Err())
		}
	}
}

// releasePort ends what takePort did, but for the interface of an instance, which goes home as
// others do.
func (l *Lab) releasePort(within topology.Endpoint, p *topology.NetworkPort) error {
	if !p.Plugged() {
		return nil
	}
	if tap := plugDevice(p); !p.ByName {
		if err := unplug([]string{tap}); err != nil {
			return err
		}
		l.Record.Plugged = slices.DeleteFunc(l.Record.Plugged, func(s string) bool { return s == tap })
	}
	if err := inNamespaceFile(l.netPath(within.Node),
		func() error { return deleteOurs(within.Interface) }); err != nil {
		return err
	}
	l.forgetDevice(within.Interface)
	return nil
}

// unplug takes devices out of the machine's Open vSwitch. Those that are not there are no error.
func unplug(devices []string) error {
	var command []string
	for _, name := range devices {
		command = append(command, "--", "--if-exists", "del-port", name)
	}
	if len(command) == 0 {
		return nil
	}
	_, err := vsctl.Run(command...)
	return err
}

// Unplug takes out of the machine's Open vSwitch what has been plugged into it for a lab of which
// nothing else is known any more, as after the machine was restarted. A machine without that bridge
// has nothing of it.
func Unplug(bridge, lab string) error {
	if vsctl.Has(bridge) != nil {
		return nil
	}
	out, err := vsctl.Run("--bare", "--columns=name", "find", "Interface", "external_ids:"+ofLab+"="+lab)
	if err != nil {
		return err
	}
	return unplug(strings.Fields(out))
}
