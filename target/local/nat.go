package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/rundir"
	"trivet.dev/trivet/topology"
)

// An uplink joins a NAT router to the machine: a veth pair with a subnet of two addresses.
// Addresses are translated twice: in the router and on the machine.
type uplink struct {
	Device  string       `json:"device"`  // in the machine's namespace
	Machine netip.Prefix `json:"machine"` // the machine's address
	Router  netip.Prefix `json:"router"`
}

// uplinkPrefix starts the names of uplinks' devices in the machine's namespace.
const uplinkPrefix = "tv-"

// uplinkPool is shared address space (RFC 6598), which neither labs nor offices use.
var uplinkPool = netip.MustParsePrefix("100.127.0.0/16")

const uplinkDevice = topology.UplinkDevice

// natTable is a node's table in the machine's firewall; neither name can contain a slash.
func natTable(lab, node string) string { return "trivet-" + rundir.Named(lab) + "/" + node }

// numberFor returns the number in the names of the machine's devices for a node.
func (l *Lab) numberFor(node string) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s\x00%s", rundir.Named(l.Name), node)
	return h.Sum32()
}

// planUplink chooses a device name and a subnet that the machine does not use.
func (l *Lab) planUplink(node string) (uplink, error) {
	used := map[netip.Addr]bool{}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return uplink{}, err
	}
	for _, a := range addresses {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok {
			used[ip] = true
		}
	}
	number := l.numberFor(node)
	sum := number
	for range 1 << 14 {
		base := uplinkPool.Addr().As4()
		base[2], base[3] = byte(sum>>6), byte(sum<<2)
		machine := netip.AddrFrom4(base).Next()
		if !used[machine] {
			return uplink{Device: fmt.Sprintf("%s%08x", uplinkPrefix, number), Machine: netip.PrefixFrom(machine, 30),
				Router: netip.PrefixFrom(machine.Next(), 30)}, nil
		}
		sum++
	}
	return uplink{}, errors.New("all addresses for uplinks (100.127.0.0/16) are in use")
}

// addUplink makes a NAT router's uplink.
func (l *Lab) addUplink(n *topology.Node) error {
	u, err := l.planUplink(n.Name)
	if err != nil {
		return err
	}
	if l.Record.Uplinks == nil {
		l.Record.Uplinks = map[string]uplink{}
	}
	l.Record.Uplinks[n.Name] = u
	if err := l.saveRecord(); err != nil {
		return err
	}
	ns, err := os.Open(l.nsPath("net", n.Name))
	if err != nil {
		return err
	}
	defer ns.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: u.Device, Flags: net.FlagUp}, PeerName: uplinkDevice,
		PeerNamespace: netlink.NsFd(ns.Fd())}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("make the uplink: %w", err)
	}
	if err := addressAndUp(u.Device, u.Machine); err != nil {
		return err
	}
	if err := masquerade(natTable(l.Name, n.Name), &u,
		append(ofSubnet(senderAt, expr.CmpOpEq, u.Machine), leaving(expr.CmpOpNeq, u.Device)...)); err != nil {
		return fmt.Errorf("translate addresses on the machine: %w", err)
	}
	return inside.File(ns, func() error {
		if err := addressAndUp(uplinkDevice, u.Router); err != nil {
			return err
		}
		up, err := netlink.LinkByName(uplinkDevice)
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: up.Attrs().Index, Gw: u.Machine.Addr().AsSlice(),
			Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}
		if err := netlink.RouteReplace(route); err != nil {
			return err
		}
		return masquerade("trivet", nil, leaving(expr.CmpOpEq, uplinkDevice))
	})
}

func addressAndUp(device string, p netip.Prefix) error {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(p.String())
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrReplace(dev, addr), netlink.LinkSetUp(dev))
}

// masquerade translates, in the thread's namespace, the source address of packets that match any of
// the rules. Into an uplink it lets only answers pass.
func masquerade(table string, into *uplink, rules ...[]expr.Any) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: table})
	chain := c.AddChain(&nftables.Chain{Name: "postrouting", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	for _, matches := range rules {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(matches, &expr.Masq{})})
	}
	if into != nil {
		forward := forwardChain(c, t)
		c.AddRule(&nftables.Rule{Table: t, Chain: forward,
			Exprs: slices.Concat(leaving(expr.CmpOpEq, into.Device), answers(expr.CmpOpEq), verdict(expr.VerdictDrop))})
	}
	return c.Flush()
}

// answers matches packets of connections that the other side has begun (CmpOpNeq), or that it has
// not (CmpOpEq).
func answers(op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Xor: make([]byte, 4),
			Mask: binary.NativeEndian.AppendUint32(nil, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED)},
		&expr.Cmp{Op: op, Register: 1, Data: make([]byte, 4)},
	}
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

// forwardChain adds a chain that accepts what the machine forwards by default.
func forwardChain(c *nftables.Conn, t *nftables.Table) *nftables.Chain {
	return c.AddChain(&nftables.Chain{Name: "forward", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
}

// inputChain adds a chain that accepts packets to the machine itself by default.
func inputChain(c *nftables.Conn, t *nftables.Table) *nftables.Chain {
	return c.AddChain(&nftables.Chain{Name: "input", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
}

// forwardTable is the table of the machine's firewall that exists while it forwards for labs only.
const forwardTable = "trivet-forward"

// forwardForLabs lets a machine that does not forward yet do so for the labs' uplinks only:
// otherwise its neighbours could use it as a router into whatever networks it has.
func forwardForLabs() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	if t, err := findTable(c, forwardTable); t != nil || err != nil {
		return err
	}
	t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: forwardTable})
	chain := forwardChain(c, t)
	for _, device := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
		begins := []expr.Any{&expr.Meta{Key: device, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(uplinkPrefix)}}
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(begins, verdict(expr.VerdictAccept)...)})
	}
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: verdict(expr.VerdictDrop)})
	return c.Flush()
}

// Offsets of the addresses in an IPv4 header (RFC 791, section 3.1).
const (
	senderAt   = 12
	receiverAt = 16
)

// ofSubnet matches packets whose sender or receiver is (or is not) in a subnet.
func ofSubnet(offset uint32, op expr.CmpOp, p netip.Prefix) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: net.CIDRMask(p.Bits(), 32),
			Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

// leaving matches packets that leave through a device, or not through it; entering those that
// arrive there.
func leaving(op expr.CmpOp, device string) []expr.Any {
	return through(expr.MetaKeyOIFNAME, op, device)
}
func entering(op expr.CmpOp, device string) []expr.Any {
	return through(expr.MetaKeyIIFNAME, op, device)
}

func through(way expr.MetaKey, op expr.CmpOp, device string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, device)
	return []expr.Any{&expr.Meta{Key: way, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: name}}
}

const insideTable = "trivet-masquerade"

// setMasquerade translates, in the thread's namespace, the source of packets that a router forwards
// to its own address.
func setMasquerade(n, old *topology.Node) error {
	if old != nil && slices.Equal(old.Masquerade, n.Masquerade) {
		return nil
	}
	// The table may exist: a node is configured again when one of its links comes up.
	if len(n.Masquerade) > 0 || old != nil && len(old.Masquerade) > 0 {
		if err := deleteTable(insideTable); err != nil {
			return err
		}
	}
	if len(n.Masquerade) == 0 {
		return nil
	}
	var rules [][]expr.Any
	for _, m := range n.Masquerade {
		var rule []expr.Any
		if m.From.IsValid() {
			rule = ofSubnet(senderAt, expr.CmpOpEq, m.From)
		}
		if m.Device != "" {
			rule = append(rule, leaving(expr.CmpOpEq, m.Device)...)
		} else {
			rule = append(rule, ofSubnet(receiverAt, expr.CmpOpNeq, m.From)...)
		}
		rules = append(rules, rule)
	}
	if err := masquerade(insideTable, nil, rules...); err != nil {
		return fmt.Errorf("translate addresses: %w", err)
	}
	return nil
}

// dropUplink removes what addUplink made on the machine.
func (l *Lab) dropUplink(node string) error {
	u, ok := l.Record.Uplinks[node]
	if !ok {
		return nil
	}
	if err := errors.Join(netbatch.Delete(u.Device), deleteTable(natTable(l.Name, node))); err != nil {
		return err
	}
	delete(l.Record.Uplinks, node)
	return l.saveRecord()
}

func deleteTable(name string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t, err := findTable(c, name)
	if t == nil || err != nil {
		return err
	}
	c.DelTable(t)
	return c.Flush()
}

// findTable returns a table, or nil.
func findTable(c *nftables.Conn, name string) (*nftables.Table, error) {
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyINet} {
		tables, err := c.ListTablesOfFamily(family)
		if err != nil {
			return nil, fmt.Errorf("list firewall tables: %w", err)
		}
		for _, t := range tables {
			if t.Name == name {
				return t, nil
			}
		}
	}
	return nil, nil
}
