// Package netbatch tells the kernel about network devices in batches: a thousand links cost a few
// system calls instead of thousands.
package netbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// A Batch is a series of rtnetlink requests in one namespace, sent together. The requests are
// written by hand with package nl because the netlink library sends one at a time and looks each
// device up by name first.
type Batch struct {
	socket int
	buf    []byte
	queued int      // requests in buf
	what   []string // of each request, for errors
	errs   []error
	broken error // answers were lost, so that later answers cannot be matched to requests

	Running map[int32]bool // by index: results of GetLink
}

// A message of this size, or with this many requests, is sent; the kernel processes them in order.
// The answers to one message must fit into the socket's buffer, where each takes far more than its
// length; the description of a device (GetLink) is 1 to 2 kB.
const (
	batchSize  = 60_000
	batchCount = 256
)

// New opens a socket in the namespace of the calling thread.
func New() (*Batch, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	_ = unix.SetsockoptInt(s, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1) // reasons as text, if the kernel has them
	_ = unix.SetsockoptInt(s, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	within := unix.NsecToTimeval(patience.Kernel.Duration().Nanoseconds())
	_ = unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &within)
	if err := unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(s)
		return nil, fmt.Errorf("bind a netlink socket: %w", err)
	}
	return &Batch{socket: s}, nil
}

// In opens a socket in the namespace that a file refers to.
func In(ns *os.File) (b *Batch, err error) {
	err = inside.File(ns, func() error {
		b, err = New()
		return err
	})
	return b, err
}

func (b *Batch) Close() { unix.Close(b.socket) }

// add appends a request; errors name it by what.
func (b *Batch) add(what string, kind, flags int, parts ...nl.NetlinkRequestData) {
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	for _, p := range parts {
		req.AddData(p)
	}
	req.Seq = uint32(len(b.what))
	b.what = append(b.what, what)
	b.buf = append(b.buf, req.Serialize()...)
	if b.queued++; len(b.buf) > batchSize || b.queued >= batchCount {
		b.send()
	}
}

// Flush sends the remaining requests and returns all errors since the last flush.
func (b *Batch) Flush() error {
	b.send()
	err := errors.Join(b.errs...)
	b.errs, b.what = nil, nil
	return err
}

func (b *Batch) send() {
	if len(b.buf) == 0 {
		return
	}
	last := uint32(len(b.what) - 1)
	if b.broken == nil {
		if err := unix.Sendto(b.socket, b.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			b.broken = fmt.Errorf("send netlink requests: %w", err)
		}
	}
	b.buf, b.queued = b.buf[:0], 0
	if b.broken != nil {
		b.errs = append(b.errs, b.broken)
		return
	}
	for buf := make([]byte, 64<<10); ; {
		n, _, err := unix.Recvfrom(b.socket, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			b.broken = fmt.Errorf("read netlink answers: %w", err)
			b.errs = append(b.errs, b.broken)
			return
		}
		if b.answers(buf[:n], last) {
			return
		}
	}
}

// answers reads acknowledgements and says whether the last one was among them.
func (b *Batch) answers(buf []byte, last uint32) (done bool) {
	for len(buf) >= unix.NLMSG_HDRLEN {
		length := int(binary.NativeEndian.Uint32(buf))
		if length < unix.NLMSG_HDRLEN || length > len(buf) {
			return true
		}
		msg := buf[:length]
		buf = buf[min(len(buf), (length+3)&^3):]
		seq := binary.NativeEndian.Uint32(msg[8:])
		if binary.NativeEndian.Uint16(msg[4:]) == unix.RTM_NEWLINK && b.Running != nil &&
			len(msg) >= unix.NLMSG_HDRLEN+unix.SizeofIfInfomsg {
			info := msg[unix.NLMSG_HDRLEN:]
			index, flags := binary.NativeEndian.Uint32(info[4:]), binary.NativeEndian.Uint32(info[8:])
			b.Running[int32(index)] = flags&unix.IFF_RUNNING != 0
		}
		if binary.NativeEndian.Uint16(msg[4:]) != unix.NLMSG_ERROR || len(msg) < unix.NLMSG_HDRLEN+4 {
			continue
		}
		if code := int32(binary.NativeEndian.Uint32(msg[unix.NLMSG_HDRLEN:])); code != 0 {
			b.errs = append(b.errs, &netlinkError{b.what[seq], unix.Errno(-code), extAck(msg)})
		}
		done = done || seq == last
	}
	return done
}

// extAck returns the kernel's reason as text, if it gave one (NLMSGERR_ATTR_MSG).
func extAck(msg []byte) string {
	flags := binary.NativeEndian.Uint16(msg[6:])
	if flags&unix.NLM_F_ACK_TLVS == 0 {
		return ""
	}
	at := unix.NLMSG_HDRLEN + 4 + unix.NLMSG_HDRLEN
	if flags&unix.NLM_F_CAPPED == 0 && len(msg) >= at {
		at += (int(binary.NativeEndian.Uint32(msg[unix.NLMSG_HDRLEN+4:])) - unix.NLMSG_HDRLEN + 3) &^ 3
	}
	if at < 0 || at > len(msg) {
		return ""
	}
	attrs, err := nl.ParseRouteAttr(msg[at:])
	if err != nil {
		return ""
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.NLMSGERR_ATTR_MSG {
			return nl.BytesToString(a.Value)
		}
	}
	return ""
}

type netlinkError struct {
	what   string
	errno  unix.Errno
	reason string
}

func (e *netlinkError) Error() string {
	if e.reason != "" {
		return fmt.Sprintf("%s: %s (%s)", e.what, e.reason, e.errno)
	}
	return fmt.Sprintf("%s: %s", e.what, e.errno)
}

func (e *netlinkError) Unwrap() error { return e.errno }

// Device describes one end of a link for the kernel.
type Device struct {
	Name  string
	Index int      // chosen by us, so that no request has to look it up
	NS    *os.File // nil: the namespace of the batch's socket
	MAC   topology.MAC
	MTU   uint32
}

func (d Device) attrs() []*nl.RtAttr {
	out := []*nl.RtAttr{
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(d.Name)),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(Group)),
		nl.NewRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(1000)),
	}
	if d.MAC != (topology.MAC{}) {
		out = append(out, nl.NewRtAttr(unix.IFLA_ADDRESS, d.MAC[:]))
	}
	if d.NS != nil {
		out = append(out, nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(d.NS.Fd()))))
	}
	if d.MTU != 0 {
		out = append(out, nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(d.MTU)))
	}
	return out
}

// Group marks every device of a lab, so that they are deleted in one request.
const Group = 0x7472

const create = unix.NLM_F_CREATE | unix.NLM_F_EXCL

// AddVeth makes a veth pair. Its devices are down: they are set up once the rest of the lab exists.
func (b *Batch) AddVeth(a, z Device) {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	peer := data.AddRtAttr(nl.VETH_INFO_PEER, nil)
	peer.AddChild(&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(z.Index)}})
	for _, attr := range z.attrs() {
		peer.AddChild(attr)
	}
	parts := []nl.NetlinkRequestData{&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(a.Index)}}}
	for _, attr := range append(a.attrs(), info) {
		parts = append(parts, attr)
	}
	b.add("make link "+a.Name+" – "+z.Name, unix.RTM_NEWLINK, create, parts...)
}

// VXLANPort is the UDP port of tunnels (RFC 7348, section 5).
const VXLANPort = 4789

// inheritDF is VXLAN_DF_INHERIT of linux/if_link.h: packets of a tunnel forbid fragmentation if the
// packet inside does.
const inheritDF = 2

// AddVXLAN makes the end of a point-to-point VXLAN tunnel. Its packets enter and leave through the
// namespace of the batch's socket, whatever namespace the device is in. It is not tied to a device
// of that namespace, so it carries frames that exceed the path's MTU: these are fragmented, unless
// whole is set and the packet inside is IPv4 and forbids fragmentation.
func (b *Batch) AddVXLAN(d Device, c topology.Carrier, whole bool) {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("vxlan"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_VXLAN_ID, nl.Uint32Attr(c.VNI))
	local, remote := nl.IFLA_VXLAN_LOCAL, nl.IFLA_VXLAN_GROUP
	if c.Local.Is6() {
		local, remote = nl.IFLA_VXLAN_LOCAL6, nl.IFLA_VXLAN_GROUP6
	}
	data.AddRtAttr(local, c.Local.AsSlice())
	data.AddRtAttr(remote, c.Remote.AsSlice())
	data.AddRtAttr(nl.IFLA_VXLAN_PORT, binary.BigEndian.AppendUint16(nil, VXLANPort))
	data.AddRtAttr(nl.IFLA_VXLAN_LEARNING, nl.Uint8Attr(0)) // there is only one destination
	data.AddRtAttr(nl.IFLA_VXLAN_UDP_CSUM, nl.Uint8Attr(1))
	if whole {
		data.AddRtAttr(unix.IFLA_VXLAN_DF, nl.Uint8Attr(inheritDF))
	}
	parts := []nl.NetlinkRequestData{&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(d.Index)}}}
	for _, attr := range append(d.attrs(), info) {
		parts = append(parts, attr)
	}
	b.add(fmt.Sprintf("make the tunnel %s to %s with VNI %d", d.Name, c.Remote, c.VNI), unix.RTM_NEWLINK, create,
		parts...)
}

// AddVLAN makes a device that is a VLAN (IEEE 802.1Q) of another, which is in the namespace of the
// batch's socket, whatever namespace the device is in.
func (b *Batch) AddVLAN(d Device, of int, id uint16) {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("vlan"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(id))
	parts := []nl.NetlinkRequestData{&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(d.Index)}},
		nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(of)))}
	for _, attr := range append(d.attrs(), info) {
		parts = append(parts, attr)
	}
	b.add(fmt.Sprintf("make the device %s of VLAN %d", d.Name, id), unix.RTM_NEWLINK, create, parts...)
}

// AddPlain makes a device of a kind that takes no options.
func (b *Batch) AddPlain(kind string, d Device) {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	parts := []nl.NetlinkRequestData{&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(d.Index)}}}
	for _, attr := range append(d.attrs(), info) {
		parts = append(parts, attr)
	}
	b.add("make the device "+d.Name, unix.RTM_NEWLINK, create, parts...)
}

// AddBridge makes a Linux bridge that learns and, unless stp, runs no spanning tree protocol. It
// sets the operational state to up; otherwise the kernel would leave it unknown until the bridge
// first loses its carrier.
func (b *Batch) AddBridge(name string, index int, stp bool) {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	state := uint32(0)
	if stp {
		state = 1
		data.AddRtAttr(nl.IFLA_BR_FORWARD_DELAY, nl.Uint32Attr(200)) // hundredths of a second; the minimum
		data.AddRtAttr(nl.IFLA_BR_HELLO_TIME, nl.Uint32Attr(100))
	}
	data.AddRtAttr(nl.IFLA_BR_STP_STATE, nl.Uint32Attr(state))
	data.AddRtAttr(nl.IFLA_BR_MCAST_SNOOPING, nl.Uint8Attr(0)) // floods multicast, as OpenFlow switches do
	parts := []nl.NetlinkRequestData{&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(index)}}}
	up := nl.NewRtAttr(unix.IFLA_OPERSTATE, nl.Uint8Attr(netlink.OperUp))
	for _, attr := range append(Device{Name: name}.attrs(), up, info) {
		parts = append(parts, attr)
	}
	b.add("make bridge "+name, unix.RTM_NEWLINK, create, parts...)
}

// FilterVLANs turns a bridge's VLAN filtering on or off, and sets the VLAN of ports that join it;
// 0: none. The VLAN of ports can change only while filtering is off.
func (b *Batch) FilterVLANs(name string, index int, on bool, vlan uint16) {
	set := func(attribute int, value []byte) {
		info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
		info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
		info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(attribute, value)
		b.add("VLANs of bridge "+name, unix.RTM_NEWLINK, 0,
			&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(index)}}, info)
	}
	filtering := []byte{0}
	if on {
		filtering[0] = 1
	}
	set(nl.IFLA_BR_VLAN_FILTERING, []byte{0})
	set(nl.IFLA_BR_VLAN_DEFAULT_PVID, nl.Uint16Attr(vlan))
	set(nl.IFLA_BR_VLAN_FILTERING, filtering)
}

// FlushBridge makes a bridge forget its learned addresses.
func (b *Batch) FlushBridge(name string, index int) {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.IFLA_BR_FDB_FLUSH, nil)
	b.add("flush bridge "+name, unix.RTM_NEWLINK, 0, &nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(index)}},
		info)
}

func (b *Batch) SetMaster(name string, index, master int) {
	b.add("add "+name+" to its bridge", unix.RTM_SETLINK, 0,
		&nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(index)}},
		nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(master))))
}

func (b *Batch) SetUp(name string, index int, up bool) {
	msg := &nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(index), Change: unix.IFF_UP}}
	if up {
		msg.Flags = unix.IFF_UP
	}
	b.add("set "+name+" up", unix.RTM_NEWLINK, 0, msg)
}

// GetLink asks whether a device is running. Since Linux 6.8, this makes the kernel notice a new
// carrier, which otherwise happens some time later.
func (b *Batch) GetLink(name string, index int) {
	b.add("look at "+name, unix.RTM_GETLINK, 0, &nl.IfInfomsg{IfInfomsg: unix.IfInfomsg{Index: int32(index)}})
}

// DelGroup deletes all of the lab's devices in the namespace at once.
func (b *Batch) DelGroup() {
	b.add("delete all links", unix.RTM_DELLINK, 0, &nl.IfInfomsg{}, nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(Group)))
}

func (b *Batch) AddAddress(index int, p netip.Prefix) { b.addAddress(index, p, 0) }

// AddAddressOnly adds an address without a route to its subnet.
func (b *Batch) AddAddressOnly(index int, p netip.Prefix) {
	b.addAddress(index, p, unix.IFA_F_NOPREFIXROUTE)
}

func (b *Batch) addAddress(index int, p netip.Prefix, flags uint32) {
	msg := &nl.IfAddrmsg{IfAddrmsg: unix.IfAddrmsg{Family: unix.AF_INET, Prefixlen: uint8(p.Bits()),
		Index: uint32(index)}}
	parts := []nl.NetlinkRequestData{msg}
	bytes := p.Addr().AsSlice()
	if p.Addr().Is4() {
		parts = append(parts, nl.NewRtAttr(unix.IFA_LOCAL, bytes), nl.NewRtAttr(unix.IFA_ADDRESS, bytes))
		if p.Bits() < 31 {
			parts = append(parts, nl.NewRtAttr(unix.IFA_BROADCAST, broadcast(p)))
		}
	} else {
		msg.Family = unix.AF_INET6
		flags |= unix.IFA_F_NODAD
		parts = append(parts, nl.NewRtAttr(unix.IFA_ADDRESS, bytes))
	}
	if flags != 0 {
		msg.Flags = uint8(flags)
		parts = append(parts, nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(flags)))
	}
	b.add("add address "+p.String(), unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, parts...)
}

func (b *Batch) DelAddress(index int, p netip.Prefix) {
	msg := &nl.IfAddrmsg{IfAddrmsg: unix.IfAddrmsg{Family: unix.AF_INET, Prefixlen: uint8(p.Bits()),
		Index: uint32(index)}}
	if p.Addr().Is6() {
		msg.Family = unix.AF_INET6
	}
	bytes := p.Addr().AsSlice()
	b.add("delete address "+p.String(), unix.RTM_DELADDR, 0, msg, nl.NewRtAttr(unix.IFA_LOCAL, bytes),
		nl.NewRtAttr(unix.IFA_ADDRESS, bytes))
}

func broadcast(p netip.Prefix) []byte {
	a := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return a[:]
}

// AddRoute adds a static route; a prefix of length 0 is the default route. The device's index is 0
// if the route names none, the table 0 if it is the main one.
func (b *Batch) AddRoute(r topology.Route, device, table int) {
	b.route(unix.RTM_NEWROUTE, "add", unix.NLM_F_CREATE|unix.NLM_F_REPLACE, r, device, table)
}

func (b *Batch) DelRoute(r topology.Route, device, table int) {
	b.route(unix.RTM_DELROUTE, "delete", 0, r, device, table)
}

func (b *Batch) route(kind int, verb string, flags int, r topology.Route, device, table int) {
	msg := &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET, Dst_len: uint8(r.To.Bits()), Table: unix.RT_TABLE_MAIN,
		Protocol: unix.RTPROT_STATIC, Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST}}
	if r.To.Addr().Is6() {
		msg.Family = unix.AF_INET6
	}
	parts := []nl.NetlinkRequestData{msg}
	if table > 0 {
		msg.Table = unix.RT_TABLE_UNSPEC // it may be larger than a byte
		parts = append(parts, nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(uint32(table))))
	}
	switch {
	case r.Discard:
		msg.Type = unix.RTN_BLACKHOLE
	case r.Via.IsValid():
		parts = append(parts, nl.NewRtAttr(unix.RTA_GATEWAY, r.Via.AsSlice()))
		if r.OnLink {
			msg.Flags |= unix.RTNH_F_ONLINK
		}
	default:
		msg.Scope = unix.RT_SCOPE_LINK
	}
	if metric := r.KernelMetric(); metric > 0 {
		parts = append(parts, nl.NewRtAttr(unix.RTA_PRIORITY, nl.Uint32Attr(metric)))
	}
	if device > 0 {
		parts = append(parts, nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(device))))
	}
	if r.Source.IsValid() {
		parts = append(parts, nl.NewRtAttr(unix.RTA_PREFSRC, r.Source.AsSlice()))
	}
	if r.To.Bits() > 0 {
		parts = append(parts, nl.NewRtAttr(unix.RTA_DST, r.To.Masked().Addr().AsSlice()))
	}
	if labels := r.Labels.Labels(); len(labels) > 0 {
		encap := nl.NewRtAttr(unix.RTA_ENCAP|unix.NLA_F_NESTED, nil)
		encap.AddRtAttr(nl.MPLS_IPTUNNEL_DST, nl.EncodeMPLSStack(labels...))
		parts = append(parts, nl.NewRtAttr(unix.RTA_ENCAP_TYPE, nl.Uint16Attr(nl.LWTUNNEL_ENCAP_MPLS)), encap)
	}
	b.add(verb+" route "+r.String(), kind, flags, parts...)
}

// labelBits is the length of a label in the kernel's attribute for prefix lengths (RFC 3032,
// section 2.1).
const labelBits = 20

// AddLabelRoute adds or replaces the route of a label. device is the index of the device that the
// route names.
func (b *Batch) AddLabelRoute(l topology.LabelRoute, device int) {
	parts := []nl.NetlinkRequestData{nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(device)))}
	if l.Swap != "" {
		parts = append(parts, nl.NewRtAttr(unix.RTA_NEWDST, nl.EncodeMPLSStack(l.Swap.Labels()...)))
	}
	if l.Via.IsValid() { // struct rtvia
		family := uint16(unix.AF_INET)
		if l.Via.Is6() {
			family = unix.AF_INET6
		}
		parts = append(parts,
			nl.NewRtAttr(unix.RTA_VIA, append(binary.NativeEndian.AppendUint16(nil, family), l.Via.AsSlice()...)))
	}
	b.labelRoute(unix.RTM_NEWROUTE, "add", unix.NLM_F_CREATE|unix.NLM_F_REPLACE, l, parts...)
}

func (b *Batch) DelLabelRoute(l topology.LabelRoute) {
	b.labelRoute(unix.RTM_DELROUTE, "delete", 0, l)
}

func (b *Batch) labelRoute(kind int, verb string, flags int, l topology.LabelRoute, parts ...nl.NetlinkRequestData) {
	msg := &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_MPLS, Dst_len: labelBits, Table: unix.RT_TABLE_MAIN,
		Protocol: unix.RTPROT_STATIC, Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST}}
	parts = append([]nl.NetlinkRequestData{msg, nl.NewRtAttr(unix.RTA_DST, nl.EncodeMPLSStack(l.Label))}, parts...)
	b.add(verb+" label "+l.String(), kind, flags, parts...)
}

// AddNeighbor adds or replaces a permanent neighbour at a device.
func (b *Batch) AddNeighbor(n topology.Neighbor, device int) {
	b.neighbor(unix.RTM_NEWNEIGH, "add", unix.NLM_F_CREATE|unix.NLM_F_REPLACE, n, device)
}

func (b *Batch) DelNeighbor(n topology.Neighbor, device int) {
	b.neighbor(unix.RTM_DELNEIGH, "delete", 0, n, device)
}

func (b *Batch) neighbor(kind int, verb string, flags int, n topology.Neighbor, device int) {
	msg := &netlink.Ndmsg{Family: unix.AF_INET, Index: uint32(device), State: unix.NUD_PERMANENT}
	if n.Address.Is6() {
		msg.Family = unix.AF_INET6
	}
	b.add(verb+" neighbour "+n.String(), kind, flags, msg, nl.NewRtAttr(unix.NDA_DST, n.Address.AsSlice()),
		nl.NewRtAttr(unix.NDA_LLADDR, n.MAC[:]))
}

// AddRule adds a rule for a family of addresses, AF_INET or AF_INET6; if it exists already, the
// error is EEXIST.
func (b *Batch) AddRule(r topology.Rule, family byte) {
	b.rule(unix.RTM_NEWRULE, "add", create, r, family)
}

func (b *Batch) DelRule(r topology.Rule, family byte) {
	b.rule(unix.RTM_DELRULE, "delete", 0, r, family)
}

// ruleActions are those of linux/fib_rules.h, FR_ACT_….
var ruleActions = map[topology.RuleAction]byte{"": 1, "blackhole": 6, "unreachable": 7, "prohibit": 8}

// invertRule is FIB_RULE_INVERT of linux/fib_rules.h.
const invertRule = 2

func (b *Batch) rule(kind int, verb string, flags int, r topology.Rule, family byte) {
	// struct fib_rule_hdr is like struct rtmsg.
	msg := &nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Tos: r.TOS, Type: ruleActions[r.Action]}}
	if r.Not {
		msg.Flags = invertRule
	}
	parts := []nl.NetlinkRequestData{msg}
	prefix := func(p netip.Prefix, attribute int, length *uint8) {
		if p.IsValid() && p.Bits() > 0 {
			*length = uint8(p.Bits())
			parts = append(parts, nl.NewRtAttr(attribute, p.Masked().Addr().AsSlice()))
		}
	}
	prefix(r.From, nl.FRA_SRC, &msg.Src_len)
	prefix(r.To, nl.FRA_DST, &msg.Dst_len)
	number := func(attribute int, is bool, n uint32) {
		if is {
			parts = append(parts, nl.NewRtAttr(attribute, nl.Uint32Attr(n)))
		}
	}
	number(nl.FRA_PRIORITY, r.Priority > 0, r.Priority)
	number(nl.FRA_FWMARK, r.Mark > 0, r.Mark)
	number(nl.FRA_FWMASK, r.Mask > 0, r.Mask)
	number(nl.FRA_TABLE, r.Table > 0, r.Table)
	if r.Suppress != nil {
		number(nl.FRA_SUPPRESS_PREFIXLEN, true, uint32(*r.Suppress))
	}
	for attribute, name := range map[int]string{nl.FRA_IIFNAME: r.In, nl.FRA_OIFNAME: r.Out} {
		if name != "" {
			parts = append(parts, nl.NewRtAttr(attribute, nl.ZeroTerminated(name)))
		}
	}
	if r.Protocol != "" {
		parts = append(parts, nl.NewRtAttr(nl.FRA_IP_PROTO, nl.Uint8Attr(uint8(topology.RuleProtocols[r.Protocol]))))
	}
	for attribute, p := range map[int]topology.PortRange{nl.FRA_SPORT_RANGE: r.FromPort, nl.FRA_DPORT_RANGE: r.ToPort} {
		if p != (topology.PortRange{}) { // struct fib_rule_port_range
			parts = append(parts,
				nl.NewRtAttr(attribute,
					binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, p.First), p.Last)))
		}
	}
	parts = append(parts, nl.NewRtAttr(nl.FRA_PROTOCOL, nl.Uint8Attr(unix.RTPROT_STATIC)))
	b.add(verb+" rule "+r.String(), kind, flags, parts...)
}

// Delete deletes a device, which may be gone already, in the thread's namespace.
func Delete(name string) error {
	dev, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := quieten(dev); err != nil {
		return err
	}
	if err := netlink.LinkDel(dev); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// DeleteGroup deletes all of the lab's devices in the thread's namespace, in one request.
func DeleteGroup() error {
	for _, name := range vlans() {
		dev, err := netlink.LinkByName(name)
		if err == nil && dev.Attrs().Group == Group {
			err = quieten(dev)
		}
		if err != nil {
			return fmt.Errorf("the VLAN %s: %w", name, err)
		}
	}
	b, err := New()
	if err != nil {
		return err
	}
	defer b.Close()
	b.DelGroup()
	if err := b.Flush(); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

// quieten turns off promiscuous mode of a VLAN that is about to be deleted: otherwise the interface
// below it stays promiscuous for ever on kernels that do not reset it (Linux 6.1.176 does not).
func quieten(dev netlink.Link) error {
	if dev.Type() != "vlan" || dev.Attrs().RawFlags&unix.IFF_PROMISC == 0 {
		return nil
	}
	if err := netlink.SetPromiscOff(dev); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("make %s no longer promiscuous: %w", dev.Attrs().Name, err)
	}
	return nil
}

// vlans lists the VLAN devices of the thread's namespace. Listing all devices would take long in a
// large lab.
func vlans() (names []string) {
	text, _ := os.ReadFile("/proc/thread-self/net/vlan/config") // missing if the namespace has had no VLANs
	for _, line := range strings.Split(string(text), "\n") {
		if name, _, ok := strings.Cut(line, "|"); ok && !strings.HasPrefix(line, "VLAN Dev name") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}
