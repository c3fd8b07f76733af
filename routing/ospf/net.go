package ospf

import (
	"maps"
	"math/bits"
	"net/netip"
	"slices"
)

// netKey is a network as a number: the address in the upper half, the length of the mask in the
// lower. In sorted order, a network precedes those within it.
type netKey uint64

func keyOf(addr, mask ID) netKey {
	return netKey(addr&mask)<<8 | netKey(bits.LeadingZeros32(^uint32(mask)))
}

func keyOfPrefix(p netip.Prefix) netKey { return netKey(IDOf(p.Addr()))<<8 | netKey(p.Bits()) }

func (k netKey) addr() ID { return ID(k >> 8) }

func (k netKey) bits() int { return int(k & 0xff) }

func (k netKey) mask() ID { return maskOf(k.bits()) }

func (k netKey) prefix() netip.Prefix { return netip.PrefixFrom(k.addr().Addr(), k.bits()) }

// contains reports whether o equals k or is within it.
func (k netKey) contains(o netKey) bool { return o.bits() >= k.bits() && o.addr()&k.mask() == k.addr() }

func sortedNets[V any](m map[netKey]V) []netKey { return slices.Sorted(maps.Keys(m)) }

// assignIDs chooses a Link State ID for each network that one router announces in LSAs of one type
// (appendix E): the network's address; if networks differ only in the mask, the more specific ones
// get it with the host bits set. A host route has no host bits, so there it keeps the address. A
// network for which no ID is left (10.1.0.0/31 besides host routes to both of its addresses) is
// left out: two LSAs with one ID would replace each other for ever.
func assignIDs[V any](nets map[netKey]V) map[netKey]ID {
	ids, taken := make(map[netKey]ID, len(nets)), make(map[ID]bool, len(nets))
	sorted := sortedNets(nets)
	for _, net := range sorted {
		if net.bits() == 32 {
			ids[net], taken[net.addr()] = net.addr(), true
		}
	}
	for _, net := range sorted {
		id := net.addr()
		if taken[id] {
			id |= ^net.mask()
		}
		if net.bits() < 32 && !taken[id] {
			ids[net], taken[id] = id, true
		}
	}
	return ids
}
