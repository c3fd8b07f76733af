package pipeline

import (
	"testing"

	"trivet.dev/trivet/datapath/embedded/random"
	"trivet.dev/trivet/openflow"
)

// The set of prefixes finds what a search of all finds, as prefixes come and go; and whoever agrees
// with a value on the bits that were looked at has the same prefixes.
func TestPrefixes(t *testing.T) {
	g := newGen(t, 1)
	type prefix struct {
		v openflow.Value
		n uint8
	}
	value := func() openflow.Value { // few bits, so that prefixes meet
		return openflow.Value{Hi: uint64(g.Intn(8))<<61 | uint64(g.Intn(4)), Lo: uint64(g.Intn(4)) << 62}
	}
	var tree prefixes
	var all []prefix
	for range 20000 {
		if g.Intn(2) == 0 || len(all) == 0 {
			n := random.Pick[uint8](g.Gen, 1, 2, 3, 8, 61, 62, 63, 64, 65, 66, 128)
			p := prefix{firstBits(value(), n), n}
			all = append(all, p)
			tree.add(p.v, p.n)
		} else {
			i := g.Intn(len(all))
			tree.remove(all[i].v, all[i].n)
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
		}
		if len(all) > 60 {
			all = all[:0]
			tree = prefixes{}
		}
		v := value()
		found, looked := tree.find(v)
		var want lengths
		for _, p := range all {
			if firstBits(v, p.n) == p.v {
				want[p.n>>6] |= 1 << (p.n & 63)
			}
		}
		if found != want {
			t.Fatalf("%x has prefixes of lengths %x, want %x: %v", v, found, want, all)
		}
		other := value()
		other = other.AndNot(firstBits(ones128, looked)).Or(firstBits(v, looked))
		if again, _ := tree.find(other); again != found {
			t.Fatalf("%x and %x agree on %d bits, and have prefixes %x and %x", v, other, looked, found, again)
		}
	}
	for _, p := range all {
		tree.remove(p.v, p.n)
	}
	if tree.root != nil {
		t.Error("an empty set has nodes")
	}
}

var ones128 = openflow.Value{Hi: ^uint64(0), Lo: ^uint64(0)}

// A table of routes looks at no more of an address than it takes to tell the routes apart, whatever
// long prefixes are elsewhere.
func TestShortMasks(t *testing.T) {
	b := newBench(t, "priority=108,ip,nw_dst=10.0.0.0/8,actions=output:2", "priority=132,ip,nw_dst=192.168.7.9/32,actions=output:3",
		"priority=124,ip,nw_dst=10.128.0.0/24,actions=output:4")
	var o Translation
	var k Key
	ParseKey(&k, plain(t), 1) // to 10.0.0.2
	NewTranslator(b.net).Translate(&o, b.Port(1), &k, 0)
	if got := o.Mask.Field(openflow.FieldIPv4Dst).Lo; got != 0xff800000 {
		t.Errorf("looked at %#x of the address, want its first 9 bits", got)
	}
}
