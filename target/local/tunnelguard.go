package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/rundir"
	"trivet.dev/trivet/topology"
)

// guardTable is the firewall table of a lab with tunnels to other sites.
func guardTable(lab string) string { return "trivet-tunnels-" + rundir.Named(lab) }

// vniBlock is the part of a VNI that all links of a lab have in common.
const vniBlock = 0xfff000

// guardTunnels drops packets to the lab's tunnels that do not come from its sites: the kernel
// checks the VNI of a frame in a tunnel, but not its sender.
func (l *Lab) guardTunnels(t *topology.Topology) error {
	var from []netip.Addr
	var block uint32
	for _, link := range t.Links {
		for _, e := range link.Ends {
			// Others cannot send to these.
			if e.Carrier == nil || e.Carrier.Port != nil || e.Carrier.Encrypted || e.Carrier.VLAN != 0 {
				continue
			}
			block = e.Carrier.VNI & vniBlock
			if !slices.Contains(from, e.Carrier.Remote) {
				from = append(from, e.Carrier.Remote)
			}
		}
	}
	if len(from) == 0 && !l.Record.Guarded {
		return nil
	}
	l.Record.Guarded = true
	if err := l.saveRecord(); err != nil {
		return err
	}
	if err := deleteTable(guardTable(l.Name)); err != nil || len(from) == 0 {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: guardTable(l.Name)})
	chain := c.AddChain(&nftables.Chain{Name: "input", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	toLab := toTunnels(block)
	for _, address := range from {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain,
			Exprs: slices.Concat(toLab, sentBy(address), verdict(expr.VerdictReturn))})
	}
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: slices.Concat(toLab, verdict(expr.VerdictDrop))})
	if err := c.Flush(); errors.Is(err, unix.EOPNOTSUPP) {
		return errors.New("this kernel has no nftables (modprobe nf_tables), without which anybody could send to the lab's tunnels; " +
			"carrier: wireguard in the list of machines does without")
	} else if err != nil {
		return fmt.Errorf("let only the lab's sites send to its tunnels (nftables): %w", err)
	}
	return nil
}

// toTunnels matches packets to tunnels with a VNI of a block (RFC 7348, section 5: the VNI follows
// four bytes of flags).
func toTunnels(block uint32) []expr.Any {
	vni := binary.BigEndian.AppendUint32(nil, block)[1:]
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, netbatch.VXLANPort)},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 12, Len: 3},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 3,
			Mask: binary.BigEndian.AppendUint32(nil, vniBlock)[1:], Xor: make([]byte, 3)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: vni},
	}
}

// sentBy matches packets from an address.
func sentBy(a netip.Addr) []expr.Any {
	family, offset := byte(unix.NFPROTO_IPV4), uint32(senderAt)
	if a.Is6() {
		family, offset = unix.NFPROTO_IPV6, 8 // RFC 8200, section 3
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset,
			Len: uint32(len(a.AsSlice()))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.AsSlice()},
	}
}
