//go:build linux

package cache

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/clsact"
	"trivet.dev/trivet/internal/notices"
)

// Mode is how packets leave through a port's device.
type Mode int

const (
	// Auto means Peer where possible while no queueing discipline shapes what leaves the device,
	// otherwise Egress. It follows the device: nobody need announce that a queueing discipline was
	// added or removed.
	Auto Mode = iota
	// Egress sends packets through the device and its queueing discipline.
	Egress
	// Peer injects packets at the other end of a veth pair, which must be in another namespace. The
	// device's queueing discipline does not see them, nor do captures at this end.
	Peer
)

// devices queries and configures the devices of one namespace.
type devices struct {
	*netlink.Handle
	socket  *nl.NetlinkSocket
	notices *notices.Listener
}

func openDevices() (*devices, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		return nil, err
	}
	n, err := notices.Open()
	if err != nil {
		h.Close()
		s.Close()
		return nil, err
	}
	return &devices{h, s, n}, nil
}

func (d *devices) close() {
	d.Handle.Close()
	d.socket.Close()
	d.notices.Close()
}

// device is the state of a port's device.
type device struct {
	index int
	name  string
	mtu   uint32
	on    bool    // it is up and has a carrier
	mode  Mode    // Egress or Peer
	peer  [6]byte // the address of the other end, where mode is Peer
	queue bool    // a queueing discipline is at a veth, in which packets may wait
	deaf  bool    // it may not receive packets for other addresses: it may be backed by a network card that filters
}

func (d *devices) examine(index int, mode Mode) (device, error) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	answers, err := d.ask(unix.RTM_GETLINK, 0, msg)
	if err != nil || len(answers) != 1 {
		return device{}, fmt.Errorf("device %d: %w", index, cmp.Or(err, error(unix.ENODEV)))
	}
	link, err := netlink.LinkDeserialize(nil, answers[0])
	if err != nil {
		return device{}, fmt.Errorf("device %d: %w", index, err)
	}
	attrs, err := nl.ParseRouteAttr(answers[0][unix.SizeofIfInfomsg:])
	if err != nil {
		return device{}, fmt.Errorf("device %d: %w", index, err)
	}
	a := link.Attrs()
	const on = unix.IFF_UP | unix.IFF_LOWER_UP
	dev := device{index: index, name: a.Name, mtu: uint32(a.MTU), on: a.RawFlags&on == on, mode: Egress,
		queue: link.Type() == "veth" && shaped(attrs),
		deaf:  link.Type() != "veth" && link.Type() != "tuntap"}
	if mode == Egress {
		return dev, nil
	}
	if link.Type() != "veth" || a.NetNsID < 0 {
		if mode == Peer {
			return dev, fmt.Errorf("device %s: it is not a veth whose other end is in another namespace", a.Name)
		}
		return dev, nil
	}
	if mode == Auto && shaped(attrs) {
		return dev, nil
	}
	dev.mode = Peer
	dev.peer, err = d.address(a.NetNsID, a.ParentIndex)
	if err != nil {
		return dev, fmt.Errorf("the other end of device %s: %w", a.Name, err)
	}
	return dev, nil
}

// shaped reports whether the device has a queueing discipline in which packets may wait. A device
// that has never been up has noop, and gets noqueue when it comes up.
func shaped(attrs []syscall.NetlinkRouteAttr) bool {
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_QDISC {
			kind := nl.BytesToString(a.Value)
			return kind != "noqueue" && kind != "noop"
		}
	}
	return false
}

// ask sends a request and returns the answers.
func (d *devices) ask(kind, flags int, parts ...nl.NetlinkRequestData) ([][]byte, error) {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: d.socket}}
	for _, p := range parts {
		req.AddData(p)
	}
	return req.Execute(unix.NETLINK_ROUTE, 0)
}

// address returns the address of a device in another namespace, by this namespace's id for that
// one.
func (d *devices) address(namespace, index int) (mac [6]byte, err error) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	answers, err := d.ask(unix.RTM_GETLINK, 0, msg,
		nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(namespace))))
	if err != nil {
		return mac, err
	}
	for _, b := range answers {
		attrs, err := nl.ParseRouteAttr(b[unix.SizeofIfInfomsg:])
		if err != nil {
			return mac, err
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.IFLA_ADDRESS && len(a.Value) == 6 {
				return [6]byte(a.Value), nil
			}
		}
	}
	return mac, errors.New("it has no Ethernet address")
}

// power sets a device up or down.
func (d *devices) power(index int, on bool) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Change = int32(index), unix.IFF_UP
	if on {
		msg.Flags = unix.IFF_UP
	}
	_, err := d.ask(unix.RTM_NEWLINK, unix.NLM_F_ACK, msg)
	return err
}

// hear makes a device receive packets for any address (promiscuous mode), which lasts beyond this
// process. It ends with the device, or when its owner restores it: everything that forwards there
// needs it.
func (d *devices) hear(dev device) error {
	if !dev.deaf {
		return nil
	}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Flags, msg.Change = int32(dev.index), unix.IFF_PROMISC, unix.IFF_PROMISC
	if _, err := d.ask(unix.RTM_NEWLINK, unix.NLM_F_ACK, msg); err != nil {
		return fmt.Errorf("device %s: make it promiscuous: %w", dev.name, err)
	}
	return nil
}

// attach attaches a program to the ingress of a device, where it stays beyond this process.
func (d *devices) attach(index, program int, name string) error {
	if err := d.QdiscReplace(clsact.Qdisc(index)); err != nil {
		return fmt.Errorf("device %d: add clsact: %w", index, err)
	}
	if err := d.FilterReplace(clsact.Ingress(index, program, name)); err != nil {
		return fmt.Errorf("device %d: add the program: %w", index, err)
	}
	return nil
}

// detach removes the program; a device that is gone has none.
func (d *devices) detach(index int) error {
	err := d.FilterDel(clsact.Ingress(index, 0, ""))
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}
