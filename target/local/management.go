package local

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/rundir"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// The management network (topology.Management) is a Linux bridge in a namespace of its own,
// ns/management. Its ports are named after the addresses of the nodes behind them and are isolated
// from each other, except for the one that leads to its only device on the machine. Firewalls keep
// it apart from other networks: on the machine (guardMachine) and in each node (guardNode).
type managementNet struct {
	Device  string       `json:"device"`  // in the machine's namespace
	Machine netip.Prefix `json:"machine"` // its address
}

const (
	managementBridge = "management" // in its namespace
	managementUplink = "machine"

	managementTable = "trivet-management" // of a node's firewall
	// The table of its routes, so that programs which read the main table see only the lab's.
	managementRoutes     = topology.ManagementTable
	managementPreference = 100 // of the rule for that table

	// These indexes are above those that the kernel or links give to other devices in the
	// namespaces.
	managementBridgeIndex = 1 << 28
	managementPortIndexes = 1 << 16 // plus the number of the address in its subnet
	managementIndex       = 1 << 28 // of the nodes' devices
)

func managementPath(dir string) string { return filepath.Join(dir, "ns", "management") }

// machineTable is the table of a lab's management network in the machine's firewall.
func machineTable(lab string) string { return "trivet-management-" + rundir.Named(lab) }

// roomForManagement returns the topology with a subnet for the management network that this machine
// does not use, if nobody has chosen one. If the lab is up already (now is not nil), it keeps its
// subnet.
func roomForManagement(t, now *topology.Topology) (*topology.Topology, error) {
	m := t.Management
	if !m.Subnet.IsValid() || now != nil && now.Management.Subnet == m.Subnet {
		return t, nil
	}
	used, err := networksOfMachine("")
	if err != nil {
		return nil, err
	}
	user, ok := used.user(m.Subnet)
	if !ok {
		return t, nil
	}
	if !m.Chosen {
		return nil, topology.Mistaken("choose another, or write  management: true",
			"management %s: this machine uses %s", m.Subnet, user)
	}
	for p := range t.ManagementSubnets() {
		if _, ok := used.user(p); !ok && p.Bits() == m.Subnet.Bits() {
			return t.WithManagement(p)
		}
	}
	return nil, topology.Mistaken("write one that is free: management: SUBNET",
		"management: this machine uses all networks from which one could be chosen (%s)", user)
}

// machineNetworks are the networks that the machine has addresses in or routes to, each with a
// description for messages.
type machineNetworks map[netip.Prefix]string

// networksOfMachine returns the machine's networks, except those of one device.
func networksOfMachine(but string) (machineNetworks, error) {
	out := machineNetworks{}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	add := func(n *net.IPNet, index int) {
		if p, ok := netbatch.Prefix(n); ok && p.Bits() > 0 && (but == "" || names[index] != but) {
			out[p.Masked()] = fmt.Sprintf("%s (%s)", p.Masked(), names[index])
		}
	}
	for _, a := range addresses {
		add(a.IPNet, a.LinkIndex)
	}
	for _, r := range routes {
		add(r.Dst, r.LinkIndex)
	}
	return out, nil
}

func (m machineNetworks) user(of netip.Prefix) (string, bool) {
	for p, what := range m {
		if p.Overlaps(of) {
			return what, true
		}
	}
	return "", false
}

// planManagement removes the management network if it differs from the topology's, and makes the
// topology's, if it has one. Nodes join it later: see joinManagement.
func (l *Lab) planManagement(t *topology.Topology) error {
	wanted := t.Management
	if is := l.Record.Managed; is != nil && (!wanted.Subnet.IsValid() || is.Machine != wanted.Machine()) {
		if err := errors.Join(removeManagement(l.Name, l.Record), l.inManagement(netbatch.DeleteGroup)); err != nil {
			return err
		}
		l.Record.Managed = nil
		if err := l.saveRecord(); err != nil {
			return err
		}
	}
	if !wanted.Subnet.IsValid() || l.Record.Managed != nil {
		return nil
	}
	const none = "" // no node has an empty name
	m := managementNet{Device: fmt.Sprintf("%s%08x", uplinkPrefix, l.numberFor(none)), Machine: wanted.Machine()}
	l.Record.Managed = &m
	if err := l.saveRecord(); err != nil {
		return err
	}
	if err := l.makeManagement(m); err != nil {
		return fmt.Errorf("make the management network: %w", err)
	}
	return nil
}

func (l *Lab) makeManagement(m managementNet) error {
	path := managementPath(l.Dir)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := l.makeBare(path); err != nil {
			return err
		}
	}
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	// Done before its device can carry anything, whatever the machine's own firewall accepts.
	if err := guardMachine(machineTable(l.Name), m.Device); err != nil {
		return err
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: m.Device}, PeerName: managementUplink,
		PeerNamespace: netlink.NsFd(ns.Fd())}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	if err := errors.Join(writeSysctls(withoutIPv6(m.Device)), addressAndUp(m.Device, m.Machine)); err != nil {
		return err
	}
	used, err := networksOfMachine(m.Device)
	if err != nil {
		return err
	}
	if user, ok := used.user(m.Machine.Masked()); ok { // another lab may have come up since roomForManagement
		return fmt.Errorf("this machine already uses %s; try again, or choose another:  management: SUBNET", user)
	}
	return inside.File(ns, func() error {
		b, err := netbatch.New()
		if err != nil {
			return err
		}
		defer b.Close()
		uplink, err := indexOf(managementUplink)
		if err != nil {
			return err
		}
		b.AddBridge(managementBridge, managementBridgeIndex, false)
		b.SetUp(managementBridge, managementBridgeIndex, true)
		b.SetMaster(managementUplink, uplink, managementBridgeIndex)
		b.SetUp(managementUplink, uplink, true)
		return b.Flush()
	})
}

// withoutIPv6 keeps the kernel from giving IPv6 addresses to a device in the calling thread's
// namespace.
func withoutIPv6(device string) []sysctl {
	return []sysctl{{"/proc/sys/net/ipv6/conf/" + device + "/disable_ipv6", "1", true}}
}

// inManagement runs f in the bridge's namespace, if there is one.
func (l *Lab) inManagement(f func() error) error { return inNamespaceFile(managementPath(l.Dir), f) }

// leaveManagement removes the given nodes from the management network.
func (l *Lab) leaveManagement(nodes []*topology.Node) error {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *topology.Node) bool { return !n.Management.IsValid() })
	if len(nodes) == 0 {
		return nil
	}
	return l.inManagement(func() error {
		for _, n := range nodes {
			if err := netbatch.Delete(n.Management.String()); err != nil {
				return err
			}
		}
		return nil
	})
}

// joinManagement gives the nodes that steps make or change their devices in the management network,
// and those that lack one.
func (l *Lab) joinManagement(s plan.Steps) error {
	var changed []*topology.Node
	for _, c := range s.SetNodes {
		if c.Old.Management != c.New.Management {
			changed = append(changed, c.Old)
		}
	}
	if err := l.leaveManagement(changed); err != nil {
		return err
	}
	if err := parallel.Each(changed, func(n *topology.Node) error {
		return l.inNet(n.Name,
			func() error { return errors.Join(deleteTable(managementTable), forgetManagementRule()) })
	}); err != nil {
		return err
	}
	m := l.Record.Managed
	if m == nil {
		return nil
	}
	var joined []*topology.Node
	if err := l.inManagement(func() (err error) {
		joined, err = l.addPorts(s.New, *m)
		return err
	}); err != nil {
		return fmt.Errorf("join nodes to the management network: %w", err)
	}
	return parallel.Each(joined, func(n *topology.Node) error {
		if err := l.inNet(n.Name, func() error { return beManaged(n, *m) }); err != nil {
			return fmt.Errorf("%s: the management network: %w", n.Name, err)
		}
		return nil
	})
}

// addPorts makes ports, in the thread's namespace, for the nodes that have none, and returns these
// nodes.
func (l *Lab) addPorts(t *topology.Topology, m managementNet) (joined []*topology.Node, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	have := lists.Set(links, func(link netlink.Link) string { return link.Attrs().Name })
	b, err := netbatch.New()
	if err != nil {
		return nil, err
	}
	defer b.Close()
	port := func(n *topology.Node) netbatch.Device {
		return netbatch.Device{Name: n.Management.String(),
			Index: managementPortIndexes + numberIn(m.Machine, n.Management)}
	}
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	for _, n := range t.Nodes {
		if !n.Management.IsValid() || have[n.Management.String()] {
			continue
		}
		ns, err := l.netnsOf(n.Name)
		if err != nil {
			return nil, err
		}
		open, joined = append(open, ns), append(joined, n)
		at := port(n)
		b.AddVeth(at,
			netbatch.Device{Name: topology.ManagementDevice, Index: managementIndex, NS: ns,
				MAC: topology.AddressMAC(n.Management)})
		b.SetMaster(at.Name, at.Index, managementBridgeIndex)
	}
	if err := b.Flush(); err != nil {
		return nil, err
	}
	for _, n := range joined { // before anything can pass
		at := port(n)
		if err := netlink.LinkSetIsolated(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: at.Name, Index: at.Index}},
			true); err != nil {
			return nil, fmt.Errorf("isolate %s: %w", n.Name, err)
		}
		b.SetUp(at.Name, at.Index, true)
	}
	return joined, b.Flush()
}

// numberIn is the number of an address in a subnet, counted from its first one.
func numberIn(p netip.Prefix, a netip.Addr) (n int) {
	base, at := p.Masked().Addr().As4(), a.As4()
	for i := range at {
		n = n<<8 + int(at[i]) - int(base[i])
	}
	return n
}

// beManaged sets up a node's device in the management network, in the node's namespace. Its route
// applies only to packets that the node itself sends, not to those that it forwards.
func beManaged(n *topology.Node, m managementNet) error {
	if err := guardNode(n.Management, m.Machine.Masked()); err != nil {
		return err
	}
	if err := writeSysctls(withoutIPv6(topology.ManagementDevice)); err != nil {
		return err
	}
	b, err := netbatch.New()
	if err != nil {
		return err
	}
	defer b.Close()
	b.AddAddressOnly(managementIndex, netip.PrefixFrom(n.Management, m.Machine.Bits()))
	b.SetUp(topology.ManagementDevice, managementIndex, true)
	if err := b.Flush(); err != nil {
		return err
	}
	subnet := &net.IPNet{IP: m.Machine.Masked().Addr().AsSlice(), Mask: net.CIDRMask(m.Machine.Bits(), 32)}
	route := &netlink.Route{LinkIndex: managementIndex, Dst: subnet, Src: n.Management.AsSlice(),
		Scope: netlink.SCOPE_LINK, Table: managementRoutes}
	if err := netlink.RouteReplace(route); err != nil {
		return err
	}
	if err := forgetManagementRule(); err != nil {
		return err
	}
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Table, rule.Dst, rule.IifName = netlink.FAMILY_V4, managementPreference,
		managementRoutes, subnet, "lo"
	return netlink.RuleAdd(rule)
}

func forgetManagementRule() error {
	rules, err := netlink.RuleListFiltered(netlink.FAMILY_V4, &netlink.Rule{Table: managementRoutes},
		netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	for _, r := range rules {
		if err := netlink.RuleDel(&r); err != nil && !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	return nil
}

// guardNode keeps, in the thread's namespace, the management network and a node's links apart:
// nothing is forwarded between them; over the management network the node accepts only packets to
// its management address, and over its links none to that address.
func guardNode(own netip.Addr, subnet netip.Prefix) error {
	if err := deleteTable(managementTable); err != nil {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: managementTable})
	c.AddRule(&nftables.Rule{Table: t, Chain: forwardChain(c, t),
		Exprs: slices.Concat(entering(expr.CmpOpEq, topology.ManagementDevice), verdict(expr.VerdictDrop))})
	c.AddRule(&nftables.Rule{Table: t, Chain: forwardChain(c, t),
		Exprs: slices.Concat(leaving(expr.CmpOpEq, topology.ManagementDevice), verdict(expr.VerdictDrop))})
	input := inputChain(c, t)
	for _, rule := range [][]expr.Any{
		slices.Concat(entering(expr.CmpOpEq, topology.ManagementDevice),
			ofSubnet(receiverAt, expr.CmpOpNeq, netip.PrefixFrom(own, 32))),
		slices.Concat(entering(expr.CmpOpNeq, topology.ManagementDevice), entering(expr.CmpOpNeq, "lo"),
			ofSubnet(receiverAt, expr.CmpOpEq, subnet)),
	} {
		c.AddRule(&nftables.Rule{Table: t, Chain: input, Exprs: append(rule, verdict(expr.VerdictDrop)...)})
	}
	return explainFirewall(c.Flush())
}

// guardMachine accepts from nodes only answers and pings over the management network: whoever may
// run programs in a lab could otherwise reach what listens on the machine. Nothing is forwarded to
// or from the network.
func guardMachine(table, device string) error {
	if err := deleteTable(table); err != nil {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: table})
	from := entering(expr.CmpOpEq, device)
	input, forward := inputChain(c, t), forwardChain(c, t)
	echo := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{8}}, // RFC 792
	}
	for _, rule := range []struct {
		chain *nftables.Chain
		exprs []expr.Any
	}{
		{input, slices.Concat(from, answers(expr.CmpOpNeq), verdict(expr.VerdictAccept))},
		{input, slices.Concat(from, echo, verdict(expr.VerdictAccept))},
		{input, slices.Concat(from, verdict(expr.VerdictDrop))},
		{forward, slices.Concat(from, verdict(expr.VerdictDrop))},
		{forward, slices.Concat(leaving(expr.CmpOpEq, device), verdict(expr.VerdictDrop))},
	} {
		c.AddRule(&nftables.Rule{Table: t, Chain: rule.chain, Exprs: rule.exprs})
	}
	return explainFirewall(c.Flush())
}

func explainFirewall(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		return errors.New("this kernel has no nftables (modprobe nf_tables), without which the management network would not be kept apart from the lab")
	}
	return err
}

// removeManagement removes from the machine all of a lab's management network.
func removeManagement(lab string, r Record) error {
	if r.Managed == nil {
		return nil
	}
	return errors.Join(netbatch.Delete(r.Managed.Device), deleteTable(machineTable(lab)))
}
