package sites

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// Links between sites are distinguished by a number each: the VNI of a tunnel, or that of their
// carrier.

// blockSize is the maximum number of a lab's tunnels: their VNIs are of one block.
const blockSize = 4096

// allocate gives each link between sites a number, which it keeps while it exists. Numbers that
// labs share are kept only while the link joins the same machines, as the switch between them may
// pass only those assigned to these machines.
func (l *Lab) allocate(t *topology.Topology) error {
	if l.record.VNIs == nil {
		var b [4]byte
		_, _ = rand.Read(b[:])                                                     // never fails
		l.record.Block = (1 + binary.BigEndian.Uint32(b[:])%(1<<12-1)) * blockSize // VNIs have 24 bits
		if by := l.state.Sites.By(); by.Keys {
			var err error
			if l.record.Secure, err = secured(namesOf(l.state.Sites), l.address, by.Ports); err != nil {
				return err
			}
		}
	}
	var err error
	if l.record.Wires, err = wireLinks(t, l.state.Sites, l.record.Wires); err != nil {
		return err
	}
	had, now := l.record.VNIs, map[string]uint32{}
	taken := map[uint32]bool{}
	nodes := t.NodesByName()
	type open struct {
		key  string
		link *topology.Link
	}
	var fresh []open
	by := l.state.Sites.By()
	before := crossings(l.Topology())
	for i, key := range topology.LinkKeys(t) {
		_, wired := l.record.Wires[key]
		switch number, has := had[key]; {
		case wired || !t.Links[i].Crosses(nodes):
		case has && (by.Numbers == nil || before[key] == crossing(t.Links[i], nodes)):
			now[key], taken[number] = number, true
		default:
			fresh = append(fresh, open{key, t.Links[i]})
		}
	}
	next, last := l.record.Block, l.record.Block+blockSize-1
	var of site.Range
	if by.Numbers != nil {
		of = by.Numbers(l.state.Sites)
		next, last = of.First, of.Last
		others, err := numbersOfOthers(l.state.Name)
		if err != nil {
			return err
		}
		maps.Copy(taken, others)
	}
	for _, c := range fresh {
		if own := l.ownNumber(c.link, nodes); own != 0 && !taken[own] {
			now[c.key], taken[own] = own, true
			continue
		}
		for taken[next] {
			next++
		}
		if next > last && by.Numbers != nil {
			return fmt.Errorf("the %d links that cross between machines need more %ss than there are free ones of %d-%d: allow more (%s in the list of machines)",
				len(now)+1, by.Title, of.First, of.Last, of.Key)
		} else if next > last {
			return fmt.Errorf("more links cross between sites than the %d that a lab can have: place what is joined by many links at one site", blockSize)
		}
		now[c.key], taken[next] = next, true
	}
	l.record.VNIs = now
	return l.save()
}

// crossings returns the machines that links join, by link key.
func crossings(t *topology.Topology) map[string]pair {
	out, nodes := map[string]pair{}, t.NodesByName()
	for i, key := range topology.LinkKeys(t) {
		if t.Links[i].Crosses(nodes) {
			out[key] = crossing(t.Links[i], nodes)
		}
	}
	return out
}

// crossing returns the machines that a link joins, ordered by name.
func crossing(link *topology.Link, nodes map[string]*topology.Node) pair {
	a, b := nodes[link.Ends[0].Node].Sited(), nodes[link.Ends[1].Node].Sited()
	return pair{min(a, b), max(a, b)}
}

// ownNumber returns the number of the machine to which a link leads from the head; 0 if the machine
// has none, or the link is not of this kind.
func (l *Lab) ownNumber(link *topology.Link, nodes map[string]*topology.Node) uint32 {
	own := l.state.Sites.By().Own
	a, b := nodes[link.Ends[0].Node].Sited(), nodes[link.Ends[1].Node].Sited()
	if a == topology.Head {
		a, b = b, a
	}
	if own == nil || b != topology.Head {
		return 0
	}
	return own(l.state.Sites.Machine(a))
}

// numberOf returns the number of one of the links between two sites.
func (l *Lab) numberOf(t *topology.Topology, p pair) uint32 {
	nodes := t.NodesByName()
	for i, key := range topology.LinkKeys(t) {
		a, b := nodes[t.Links[i].Ends[0].Node], nodes[t.Links[i].Ends[1].Node]
		if _, wired := l.record.Wires[key]; wired {
			continue
		}
		if a != nil && b != nil && (pair{a.Sited(), b.Sited()} == p || pair{b.Sited(), a.Sited()} == p) {
			return l.record.VNIs[key]
		}
	}
	return 0
}

// numbersOfOthers returns the shared numbers that other labs with this machine as their head use.
func numbersOfOthers(name string) (map[uint32]bool, error) {
	out := map[uint32]bool{}
	labs, err := lab.List()
	if err != nil {
		return nil, err
	}
	for _, other := range labs {
		if other.Name == name || other.Sites == nil || other.Sites.By().Numbers == nil {
			continue
		}
		r, err := readRecord(other.Name)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a lab without a record has none yet
			return nil, fmt.Errorf("which %ss lab %s has is not known: %w; take that down first",
				other.Sites.By().Title, other.Name, err)
		}
		for _, number := range r.VNIs {
			out[number] = true
		}
	}
	return out, nil
}
