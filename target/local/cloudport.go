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

// A node's port in a provider's network is implemented in one of two ways. If the machine is an
// instance at the provider, the port is an interface of the instance, identified by its MAC
// address: the node takes it under the name of its own device, also if it is the instance itself,
// whose interfaces stay where they are. If the machine has the provider's
// switch, the port is the far end of the node's device, plugged into that switch as a hypervisor
// plugs its guests. The agent there knows the port by its ID: with Open vSwitch from the
// interface's external_ids, with Linux bridges, where the agent itself adds the device to a bridge,
// from the device's name.

// ofLab is the key, among the external_ids of a plugged interface, of the lab's name.
const ofLab = "trivet-lab"

// plugDevice names the device that is plugged for a port as Neutron's agents and tools do.
func plugDevice(p *topology.NetworkPort) string { return "tap" + p.ID[:min(len(p.ID), 11)] }

// NoNetworks reports links into networks, and routers, of a provider that nobody has named.
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

// takePort makes the node's end of a link into a provider's network.
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
	if !p.ByName && !slices.Contains(l.Record.Plugged, tap) { // else it goes with the node's device
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
	// Without a tag, it would be in one network with all other untagged ports until the agent has
	// set its tag; Neutron drops packets with this one.
	_, err = vsctl.Run("--", "--may-exist", "add-port", p.Bridge, tap, "tag=4095", "--", "set", "Interface", tap,
		"external_ids:iface-id="+p.ID,
		"external_ids:attached-mac="+p.MAC.String(), "external_ids:iface-status=active",
		"external_ids:"+ofLab+"="+l.Name)
	return err
}

// takeAttached moves the interface that the provider has attached for the port to the node. It may
// not exist yet.
func (l *Lab) takeAttached(link *topology.Link, within topology.Endpoint, p *topology.NetworkPort) error {
	dev, err := attached(p.MAC)
	if err != nil {
		return err
	}
	was, err := look(dev.Attrs().Name)
	if err != nil {
		return err
	}
	was.As, was.Stays = within.Interface, l.node(within.Node).Native
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
	move := func() error { return netlink.LinkSetNsFd(dev, int(ns.Fd())) }
	if was.Stays {
		move = func() error { return afresh(was.Name) }
	}
	if err := move(); err != nil {
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

// attached waits for the interface with a MAC address.
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

// releasePort undoes takePort, except for an instance's interface, which is returned to the machine
// as other interfaces are.
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

// unplug removes devices from the machine's Open vSwitch. Devices that do not exist are no error.
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

// Unplug removes from the machine's Open vSwitch what was plugged for a lab of which nothing else
// is known any more, as after a reboot. It does nothing if the machine does not have that bridge.
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
