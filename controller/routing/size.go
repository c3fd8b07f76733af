package routing

import (
	"slices"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/openflow"
)

// The controller cuts packets of a router into fragments that many times a second, and at once; a
// real router's processor does so slowly, too.
const cutRate, cutBurst = 1000, 200

// tooLargeBit is the bit of the metadata which says that a packet does not fit where it is to go.
const tooLargeBit = 0

// sizeFrame is the entries of the table that looks at what the check of a packet's size has found.
// A router whose interfaces have one MTU has none.
func (n *node) sizeFrame() []*openflow.FlowMod {
	if n.mtus[0] == n.mtus[1] {
		return nil
	}
	tooLarge := openflow.NewMatch(openflow.Metadata(1 << tooLargeBit).WithMask(openflow.Value{Lo: 1 << tooLargeBit}))
	return []*openflow.FlowMod{
		entry(sizeTable, 1, tooLarge, openflow.ClearActions(), toController()),
		// What is to be done is done. Without an instruction the entry would look like one that
		// drops.
		entry(sizeTable, 0, openflow.Match{}, openflow.WriteMetadata(0, 1<<tooLargeBit)),
	}
}

// ifItFits is the instructions to do something with packets that can leave by all of some hops. If
// a packet may come in that cannot, its size is looked at first.
func (n *node) ifItFits(hops []Hop, do ...openflow.Action) []openflow.Instruction {
	mtu := n.leastMTU(hops)
	if mtu >= n.mtus[1] {
		return []openflow.Instruction{openflow.ApplyActions(do...)}
	}
	return []openflow.Instruction{openflow.ApplyActions(openflow.CheckPacketLarger(uint16(mtu+ethernet), tooLargeBit)),
		openflow.WriteActions(do...), openflow.GotoTable(sizeTable)}
}

const ethernet = 14 // bytes of a header

// leastMTU is what all of some hops take.
func (n *node) leastMTU(hops []Hop) int {
	mtu := n.mtus[1]
	for _, h := range hops {
		if f := n.itf[h.Port]; f != nil {
			mtu = min(mtu, f.MTU)
		}
	}
	return mtu
}

// mtuOf is the length of packets that may follow a route.
func (n *node) mtuOf(r *Route) int { return n.leastMTU(r.Hops) }

// tooLarge handles a packet that is larger than what may follow its route: it becomes fragments
// or, where it must not, its sender is told (RFC 1812, section 5.2.6; RFC 8200, section 5).
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

// fragments cuts an IPv4 packet, which may be a fragment itself (RFC 791, section 3.2).
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

// blankOptions replaces the options that only the first fragment has, those without the copied
// flag, by the option that does nothing (RFC 791, section 3.1).
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
