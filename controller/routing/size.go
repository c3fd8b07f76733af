package routing

import (
	"slices"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/openflow"
)

// Limits, per router, on packets that the controller fragments: a rate per second and a burst. A
// real router's slow path has limits, too.
const cutRate, cutBurst = 1000, 200

// tooLargeBit is the metadata bit set if a packet exceeds the MTU of its way out.
const tooLargeBit = 0

// sizeFrame returns the entries of the table that acts on the result of the size check. A router
// whose interfaces all have the same MTU has none.
func (n *node) sizeFrame() []*openflow.FlowMod {
	if n.mtus[0] == n.mtus[1] {
		return nil
	}
	tooLarge := openflow.NewMatch(openflow.Metadata(1 << tooLargeBit).WithMask(openflow.Value{Lo: 1 << tooLargeBit}))
	return []*openflow.FlowMod{
		entry(sizeTable, 1, tooLarge, openflow.ClearActions(), toController()),
		// The actions have been applied already. Without an instruction the entry would look like a
		// drop.
		entry(sizeTable, 0, openflow.Match{}, openflow.WriteMetadata(0, 1<<tooLargeBit)),
	}
}

// ifItFits returns instructions that apply actions to packets that fit all of some hops. If larger
// packets may arrive, the size is checked first.
func (n *node) ifItFits(hops []Hop, do ...openflow.Action) []openflow.Instruction {
	mtu := n.leastMTU(hops)
	if mtu >= n.mtus[1] {
		return []openflow.Instruction{openflow.ApplyActions(do...)}
	}
	return []openflow.Instruction{openflow.ApplyActions(openflow.CheckPacketLarger(uint16(mtu+ethernet), tooLargeBit)),
		openflow.WriteActions(do...), openflow.GotoTable(sizeTable)}
}

const ethernet = 14 // bytes of the header

// leastMTU returns the smallest MTU of some hops.
func (n *node) leastMTU(hops []Hop) int {
	mtu := n.mtus[1]
	for _, h := range hops {
		if f := n.itf[h.Port]; f != nil {
			mtu = min(mtu, f.MTU)
		}
	}
	return mtu
}

// mtuOf returns the maximum size of packets that may follow a route.
func (n *node) mtuOf(r *Route) int { return n.leastMTU(r.Hops) }

// tooLarge handles a packet larger than the MTU of its route: it is fragmented or, if that is not
// allowed, its sender is informed (RFC 1812, section 5.2.6; RFC 8200, section 5).
func (n *node) tooLarge(f *Interface, p ipPacket, r *Route, mtu int) {
	if !p.v4 || header.IPv4(p.data).Flags()&header.IPv4FlagDontFragment != 0 {
		n.sendError(f, p, icmpError{3, 4, 2, 0, uint32(mtu)})
		return
	}
	if p.isCut() || !n.cuts.allow(cutRate, cutBurst) {
		return
	}
	for _, part := range fragments(p.decrement(), mtu) {
		n.send(r, waiting{part, p, f})
	}
}

// fragments splits an IPv4 packet, which may itself be a fragment (RFC 791, section 3.2).
func fragments(packet []byte, mtu int) (out [][]byte) {
	h := header.IPv4(packet)
	length, offset, more := int(h.HeaderLength()), h.FragmentOffset(), h.More()
	head, rest := slices.Clone(packet[:length]), packet[length:]
	for step := (mtu - length) &^ 7; len(rest) > 0; {
		size := min(step, len(rest))
		part := append(slices.Clone(head), rest[:size]...)
		rest = rest[size:]
		p := header.IPv4(part)
		p.SetTotalLength(uint16(len(part)))
		flags := h.Flags()
		if flags &^= header.IPv4FlagMoreFragments; more || len(rest) > 0 {
			flags |= header.IPv4FlagMoreFragments
		}
		p.SetFlagsFragmentOffset(flags, offset)
		p.SetChecksum(0)
		p.SetChecksum(^p.CalculateChecksum())
		out = append(out, part)
		offset += uint16(size)
		if len(out) == 1 {
			blankOptions(head[header.IPv4MinimumSize:])
		}
	}
	return out
}

// blankOptions overwrites options that only the first fragment has, those without the copied flag,
// with the no-operation option (RFC 791, section 3.1).
func blankOptions(b []byte) {
	const end, nothing, copied = 0, 1, 0x80
	for len(b) > 0 && b[0] != end {
		size := 1
		if b[0] != nothing {
			if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
				return
			}
			size = int(b[1])
		}
		if b[0]&copied == 0 {
			for i := range b[:size] {
				b[i] = nothing
			}
		}
		b = b[size:]
	}
}
