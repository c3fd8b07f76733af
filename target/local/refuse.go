package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/rundir"
)

// refusalTable is the firewall table for a lab whose devices must not reach other networks through
// this machine.
func refusalTable(lab string) string { return "trivet-rack-" + rundir.Named(lab) }

// RefuseForwarding makes this machine drop forwarded packets of connections that the given hosts
// have begun; these are recognized by their addresses, and by the MAC addresses that those have
// now. Their answers to connections from beyond this machine pass. It replaces what was refused for
// the lab before.
func RefuseForwarding(lab string, from []netip.Addr) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: refusalTable(lab)}
	c.AddTable(table)
	c.DelTable(table) // with its rules; the kernel applies all of this at once
	c.AddTable(table)
	chain := &nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		// Before other chains, whatever those accept.
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityFilter - 1)}
	c.AddChain(chain)
	for _, a := range from {
		for _, sender := range append(macsOf(a), sentBy(a.Unmap())) {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain,
				Exprs: slices.Concat(sender, unasked(), verdict(expr.VerdictDrop))})
		}
	}
	if err := c.Flush(); errors.Is(err, unix.EOPNOTSUPP) {
		if !forwards() {
			return nil
		}
		return errors.New("this kernel has no nftables (modprobe nf_tables), without which the lab's devices could get out through this machine")
	} else if err != nil {
		return fmt.Errorf("keep the lab's devices from getting out through this machine (nftables): %w", err)
	}
	return nil
}

// forwards says whether this machine is a router.
func forwards() bool {
	return slices.ContainsFunc([]string{forwarding, "net.ipv6.conf.all.forwarding"}, func(key string) bool {
		is, err := readSysctl(key)
		return err == nil && is != "0"
	})
}

// unasked matches packets of connections that their sender has begun.
func unasked() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0}}, // IP_CT_DIR_ORIGINAL
	}
}

// macsOf returns matches for frames from the MAC addresses that the neighbour table has for an
// address.
func macsOf(a netip.Addr) (out [][]expr.Any) {
	list, _ := netlink.NeighList(0, netlink.FAMILY_ALL)
	for _, n := range list {
		if len(n.HardwareAddr) != 6 || !n.IP.Equal(net.IP(a.AsSlice())) {
			continue
		}
		out = append(out, []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_ETHER)},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: 6, Len: 6},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: n.HardwareAddr},
		})
	}
	return out
}

// ForwardAgain ends what RefuseForwarding did.
func ForwardAgain(lab string) error {
	if err := deleteTable(refusalTable(lab)); !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	return nil
}
