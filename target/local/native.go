package local

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/target/local/guard"
	"trivet.dev/trivet/topology"
)

// A native host is this machine itself: its programs use the lab's network, with nothing of them
// changed. Nothing is written to the machine's disk, so a reboot undoes all of it:
//
//   - the lab's interfaces are in the machine's own network namespace: VLANs of its interfaces, or
//     interfaces that a provider has attached for the lab;
//   - rules (ip-rule(8)) make a routing table of the lab's come before the machine's, whose default
//     routes do not count;
//   - the names of the lab's nodes are in /etc/hosts, over which a file of the lab's is mounted;
//   - package guard keeps everything else from leaving by the machine's own interfaces.

// native records what a lab has changed on the machine to make it one of its hosts.
type native struct {
	Node    string   `json:"node"`
	Devices []string `json:"devices,omitempty"` // the lab's, in the machine's network namespace
	// The machine's interfaces; with whether filters could be attached before.
	Guarded map[string]bool `json:"guarded,omitempty"`
	// Who could send echo requests unprivileged before (net.ipv4.ping_group_range).
	Pingers string `json:"pingers,omitempty"`
}

// machineNet is the machine's network namespace: that of the process's first thread, which never
// leaves it.
const machineNet = "/proc/self/ns/net"

const (
	nativeTable    = 0x7472 // of routes
	nativeProtocol = 0x74   // origin of a rule (FRA_PROTOCOL)
)

// nativeOf returns the node that this machine is, or nil.
func nativeOf(t *topology.Topology) *topology.Node {
	if i := slices.IndexFunc(t.Nodes, func(n *topology.Node) bool { return n.Native }); i >= 0 {
		return t.Nodes[i]
	}
	return nil
}

// beNative makes the machine a host of the topology, if one of its nodes is the machine, or
// restores it otherwise. It may be called repeatedly.
func (l *Lab) beNative(t *topology.Topology) error {
	n := nativeOf(t)
	if n == nil {
		return l.endNative()
	}
	devices, vlans, ports := []string{}, []uint16{}, map[topology.MAC]bool{}
	for _, link := range t.Links {
		for i, e := range link.Ends {
			if e.Carrier != nil && e.Carrier.VLAN != 0 && !slices.Contains(vlans, e.Carrier.VLAN) {
				vlans = append(vlans, e.Carrier.VLAN)
			}
			if e.Carrier != nil && e.Carrier.Port != nil {
				ports[e.Carrier.Port.MAC] = true
			}
			if e.Node == n.Name {
				devices = append(devices, e.Interface)
			} else if e.External() && e.Carrier == nil && link.Ends[1-i].Node == n.Name {
				return fmt.Errorf("link %s: %s is the machine itself, which has its interfaces already", link.Name(),
					n.Name)
			}
		}
	}
	if l.Record.Native == nil || l.Record.Native.Node != n.Name {
		if err := l.checkNative(t, n, devices); err != nil {
			return err
		}
		if err := l.endNative(); err != nil {
			return err
		}
		pingers, err := readSysctl(pingers)
		if err != nil {
			return err
		}
		l.Record.Native = &native{Node: n.Name, Guarded: map[string]bool{}, Pingers: pingers}
	}
	was := l.Record.Native
	for _, d := range devices {
		if !slices.Contains(was.Devices, d) {
			was.Devices = append(was.Devices, d)
		}
	}
	if err := l.guardMachine(vlans, ports); err != nil {
		return err
	}
	if err := writeSysctls([]sysctl{{pingers, anybody, false}}); err != nil {
		return err
	}
	if err := l.ruleRoutes(); err != nil {
		return fmt.Errorf("make the lab's routes come first (ip rule): %w", err)
	}
	return l.binder.do(l.mountHosts)
}

// checkNative says why the machine cannot be a host with these devices.
func (l *Lab) checkNative(t *topology.Topology, n *topology.Node, devices []string) error {
	if !l.Management.IsValid() {
		return errors.New("the machine cannot be a host itself: it is not known which of its addresses SSH uses, which must stay reachable (SSH_CONNECTION is not set)")
	}
	for _, e := range topology.EndsOf(t)[n.Name] {
		if e.AcceptsRA() {
			return fmt.Errorf("%s: accept_ra: the machine is that host itself, and would send its own packets by the lab's routers: give it an address", n.Name)
		}
	}
	if err := NotNative(filepath.Dir(l.Dir), l.Name); err != nil {
		return err
	}
	for _, d := range devices {
		if _, err := netlink.LinkByName(d); err == nil {
			return fmt.Errorf("%s is to have an interface %s, and this machine has one already: give that of the lab another name", n.Name, d)
		}
	}
	names := map[netip.Addr]string{}
	for _, e := range t.Elsewhere {
		names[e.Address] = e.Name
	}
	for node, ends := range topology.EndsOf(t) {
		for _, e := range ends {
			for _, p := range e.Addresses {
				names[p.Addr()] = node
			}
		}
	}
	have, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for _, a := range have {
		ip, _ := netip.AddrFromSlice(a.IP)
		if name := names[ip.Unmap()]; name != "" && !ip.IsLoopback() {
			return fmt.Errorf("this machine, which is to be %s, has the address %s of %s in its own network (%s): give the lab's node another", n.Name, ip.Unmap(), name, a.Label)
		}
	}
	return err
}

// nativeLab returns the lab, other than the given one, of which this machine is a host; empty if
// there is none. labs is the directory of all labs.
func nativeLab(labs, other string) string {
	records, _ := filepath.Glob(filepath.Join(labs, "*", "local.json"))
	for _, file := range records {
		dir := filepath.Dir(file)
		if r, err := readRecord(dir); err == nil && r.Native != nil && filepath.Base(dir) != other {
			return filepath.Base(dir)
		}
	}
	return ""
}

// NotNative returns an error if this machine is the host of a lab other than the given one: it then
// takes no part in other labs' VLANs. labs is the directory of all labs.
func NotNative(labs, other string) error {
	if name := nativeLab(labs, other); name != "" {
		return fmt.Errorf("this machine is a host of lab %s already: take that down first", name)
	}
	return nil
}

// guardMachine lets only the lab's VLANs, and answers to the machine's management, leave through
// the machine's own interfaces. Those with the MAC addresses of ports are the lab's.
func (l *Lab) guardMachine(vlans []uint16, ports map[topology.MAC]bool) error {
	devices, management, err := l.waysOut(ports)
	if err != nil {
		return err
	}
	if err := l.unguard(ports); err != nil {
		return err
	}
	for _, dev := range devices {
		name := dev.Attrs().Name
		if _, has := l.Record.Native.Guarded[name]; has {
			continue
		}
		if l.Record.Native.Guarded[name], err = guard.Queued(dev); err != nil {
			return err
		}
	}
	if err := l.saveRecord(); err != nil {
		return err
	}
	g, err := guard.New(guard.Rules{VLANs: vlans, Port: l.Management.Port(), Management: management})
	if err != nil {
		return fmt.Errorf("keep what is not the lab's from leaving (eBPF): %w", err)
	}
	defer g.Close()
	for _, dev := range devices {
		if err := g.Attach(dev); err != nil {
			return err
		}
	}
	return nil
}

// unguard removes the guard from interfaces that are the lab's by now, as they have the MAC address
// of a port.
func (l *Lab) unguard(ports map[topology.MAC]bool) error {
	for name, queued := range l.Record.Native.Guarded {
		dev, err := netlink.LinkByName(name)
		if err != nil || !hasMAC(dev, ports) {
			continue
		}
		if err := guard.Detach(dev, queued); err != nil {
			return err
		}
		delete(l.Record.Native.Guarded, name)
	}
	return nil
}

// hasMAC says whether a device has one of these MAC addresses.
func hasMAC(dev netlink.Link, macs map[topology.MAC]bool) bool {
	mac := dev.Attrs().HardwareAddr
	return len(mac) == len(topology.MAC{}) && macs[topology.MAC(mac)]
}

// waysOut lists the interfaces through which packets leave the machine, except those with the MAC
// addresses of the lab's ports: its hardware, and the one with the management address, unless that
// is only a device on top of the others. If that is a VLAN, its number is returned.
func (l *Lab) waysOut(ports map[topology.MAC]bool) (out []netlink.Link, management uint16, err error) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, 0, err
	}
	with, err := nicWith(l.Management.Addr())
	if err != nil {
		return nil, 0, err
	}
	if v, ok := with.(*netlink.Vlan); ok {
		management = uint16(v.VlanId)
		if with, err = netlink.LinkByIndex(v.ParentIndex); err != nil {
			return nil, 0, err
		}
	}
	for _, dev := range list {
		if hasMAC(dev, ports) {
			continue
		}
		a := dev.Attrs()
		hardware := dev.Type() == "device" && a.RawFlags&unix.IFF_LOOPBACK == 0
		leads := slices.Contains([]string{"bridge", "bond", "team"}, dev.Type())
		if hardware || a.Index == with.Attrs().Index && !leads {
			out = append(out, dev)
		}
	}
	return out, management, nil
}

// ruleRoutes sets the order of routing tables: for packets from the management address, the
// machine's; for others the lab's, then the machine's for directly connected networks, such as
// those of containers; otherwise they are discarded.
func (l *Lab) ruleRoutes() error {
	const first = 10 // of the priorities; 0 is the kernel's for local addresses
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		management := l.Management.Addr().Unmap()
		var rules []*netlink.Rule
		add := func(set func(r *netlink.Rule)) {
			r := netlink.NewRule()
			r.Family, r.Protocol, r.Priority = family, nativeProtocol, first+len(rules)
			set(r)
			rules = append(rules, r)
		}
		if management.Is4() == (family == unix.AF_INET) {
			add(func(r *netlink.Rule) { from := host(management); r.Src, r.Table = &from, unix.RT_TABLE_MAIN })
		}
		add(func(r *netlink.Rule) { r.Table = nativeTable })
		add(func(r *netlink.Rule) { r.Table, r.SuppressPrefixlen = unix.RT_TABLE_MAIN, 0 })
		add(func(r *netlink.Rule) { r.Type = unix.RTN_UNREACHABLE })
		for _, r := range rules {
			err := netlink.RuleAdd(r)
			if errors.Is(err, unix.EAFNOSUPPORT) && family == unix.AF_INET6 {
				break // the machine has no IPv6
			}
			if err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("%s: %w", r, err)
			}
		}
	}
	return nil
}

// machine is a host that is this machine itself: like a switch, it need not be made.
type machine struct{ switched }

func (machine) Network(*topology.Node) string { return machineNet }
func (machine) Enter(*topology.Node) error    { return nil }

// Configure gives the machine its node's addresses, and puts the routes into the lab's table only.
func (k machine) Configure(n, old *topology.Node, ends []*topology.Endpoint) error {
	b, err := netbatch.New()
	if err != nil {
		return err
	}
	defer b.Close()
	_, static, err := k.address(b, b.AddAddressOnly, n, old, ends)
	if err != nil {
		return err
	}
	return explainRoute(routeNative(ends, static))
}

// routeNative replaces the routes in the lab's table by the node's: those to networks on interfaces
// that are up, and static ones.
func routeNative(ends []*topology.Endpoint, static []topology.Route) error {
	if err := clearNative(); err != nil {
		return err
	}
	for _, e := range ends {
		dev, err := netlink.LinkByName(e.Interface)
		if err != nil {
			return err
		}
		if dev.Attrs().RawFlags&unix.IFF_UP == 0 {
			continue
		}
		for _, p := range e.Addresses {
			connected := prefixNet(p.Masked())
			r := &netlink.Route{Table: nativeTable, LinkIndex: dev.Attrs().Index, Scope: netlink.SCOPE_LINK,
				Dst: &connected, Src: p.Addr().AsSlice()}
			if err := netlink.RouteReplace(r); err != nil {
				return fmt.Errorf("route %s: %w", p.Masked(), err)
			}
		}
	}
	for _, s := range static {
		to := prefixNet(s.To)
		r := &netlink.Route{Table: nativeTable, Dst: &to, Protocol: unix.RTPROT_STATIC, Priority: int(s.KernelMetric()),
			Src: senderTo(s, ends)}
		switch {
		case s.Discard:
			r.Type, r.Src = unix.RTN_BLACKHOLE, nil
		case s.Via.IsValid():
			r.Gw = s.Via.AsSlice()
		default:
			r.Scope = netlink.SCOPE_LINK
		}
		if s.Device != "" {
			index, err := indexOf(s.Device)
			if err != nil {
				return err
			}
			r.LinkIndex = index
		}
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("route %s: %w", s, err)
		}
	}
	return nil
}

// clearNative removes all routes of the lab's table. Blackhole routes have no device whose removal
// would remove them.
func clearNative() error {
	old, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: nativeTable},
		netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	for _, r := range old {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// senderTo returns the source address for a route that does not name one: the node's first of the
// family on that interface, as the kernel might choose the machine's; nil leaves it to the kernel.
func senderTo(s topology.Route, ends []*topology.Endpoint) net.IP {
	if s.Via.IsValid() || slices.ContainsFunc(ends, func(e *topology.Endpoint) bool {
		return e.Interface == s.Device && len(e.Addresses) > 0
	}) {
		return nil
	}
	for _, e := range ends {
		for _, p := range e.Addresses {
			if p.Addr().Is4() == s.To.Addr().Is4() {
				return p.Addr().AsSlice()
			}
		}
	}
	return nil
}

func prefixNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// settleNative gives an interface of a native host the settings that other hosts have for their
// whole namespace.
func (l *Lab) settleNative(n *topology.Node, device string) error {
	ownAddress := "0" // for any address of the machine: it has none of its own
	for _, e := range topology.EndsOf(l.Topology())[n.Name] {
		if e.Interface == device && len(e.Addresses) > 0 {
			ownAddress = "1"
		}
	}
	settings := []sysctl{
		// Answer ARP requests only for addresses of this interface.
		{"/proc/sys/net/ipv4/conf/" + device + "/arp_ignore", ownAddress, true},
		{"/proc/sys/net/ipv4/conf/" + device + "/arp_announce", "2", true},
	}
	for _, s := range l.nodeSysctls(n) {
		if name, ok := strings.CutPrefix(s.key, "net.ipv6.conf.default."); ok {
			settings = append(settings, sysctl{"/proc/sys/net/ipv6/conf/" + device + "/" + name, s.value, true})
		}
	}
	return writeSysctls(settings)
}

func (l *Lab) nativeHosts() string { return filepath.Join(l.Dir, "etc-hosts") }

const machineHosts = "/etc/hosts"

// writeNativeHosts writes the /etc/hosts of a native host: the machine's own lines and the lab's.
func (l *Lab) writeNativeHosts(lab []byte) error {
	kept := l.nativeHosts() + ".machine" // once the lab's is mounted, the machine's cannot be seen
	own, err := os.ReadFile(kept)
	if errors.Is(err, os.ErrNotExist) {
		if own, err = os.ReadFile(machineHosts); errors.Is(err, os.ErrNotExist) {
			return nil // there is nothing to mount over
		}
		if err == nil {
			err = os.WriteFile(kept, own, 0o600)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(l.nativeHosts(), slices.Concat(own, []byte("\n# Trivet lab "+l.Name+"\n"), lab), 0o644)
}

// mountHosts mounts the file over the machine's, unless it is there already.
func (l *Lab) mountHosts() error {
	is, err := hostsMounted(l.Dir)
	if err != nil || is {
		return err
	}
	if _, err := os.Stat(l.nativeHosts()); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return bindOver(l.nativeHosts(), machineHosts)
}

// hostsMounted says whether a lab's file is mounted over the machine's (proc_pid_mountinfo(5)).
func hostsMounted(dir string) (bool, error) {
	b, err := os.ReadFile("/proc/thread-self/mountinfo")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 4 && f[4] == machineHosts && strings.Contains(f[3], "/"+filepath.Base(dir)+"/etc-hosts") {
			return true, err
		}
	}
	return false, err
}

// endNative restores the machine.
func (l *Lab) endNative() error {
	if l.Record.Native == nil {
		return nil
	}
	if err := l.binder.do(func() error { return restoreMachine(*l.Record.Native, l.Dir) }); err != nil {
		return err
	}
	l.Record.Native = nil
	return l.saveRecord()
}

// restoreMachine undoes what made the machine a host, as far as that got. The guard ends last.
func restoreMachine(was native, dir string) error {
	errs := lists.Map(was.Devices, deleteOurs)
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := netlink.RuleList(family)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			errs = append(errs, err)
		}
		for _, r := range rules {
			if r.Protocol == nativeProtocol {
				r.Family = family
				errs = append(errs, netlink.RuleDel(&r))
			}
		}
	}
	errs = append(errs, clearNative())
	if is, err := hostsMounted(dir); err != nil || is {
		errs = append(errs, err, unix.Unmount(machineHosts, unix.MNT_DETACH))
	}
	if was.Pingers != "" {
		errs = append(errs, writeSysctls([]sysctl{{pingers, was.Pingers, true}}))
	}
	for name, queued := range was.Guarded {
		if dev, err := netlink.LinkByName(name); err == nil {
			errs = append(errs, guard.Detach(dev, queued))
		}
	}
	return errors.Join(errs...)
}

// deleteOurs deletes a device in the thread's namespace if a lab has made it: a machine's own may
// have the same name.
func deleteOurs(name string) error {
	if dev, err := netlink.LinkByName(name); err != nil || dev.Attrs().Group != netbatch.Group {
		return nil
	}
	return netbatch.Delete(name)
}

// removeNative is endNative for a lab that is going down.
func removeNative(_, dir string) error {
	r, err := readRecord(dir)
	if err != nil || r.Native == nil {
		return err
	}
	return restoreMachine(*r.Native, dir)
}
