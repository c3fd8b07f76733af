package ospf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// OSPF relies on IP for packets larger than the MTU (RFC 2328, sections 4.3 and A.1): a router LSA
// with many links, or a Hello on a network with many neighbours. Switches and the routers' flow
// tables forward fragments as they are, so they are reassembled here.

// Limits on what fragments can make us store. Those from one port cannot displace those from
// another.
const (
	fragmentTime  = 30 * time.Second // for a packet to be complete
	maxIncomplete = 8                // packets of one port
	maxFragments  = 512              // of one packet
	maxWaiting    = 16 << 20         // octets of all
	maxPacket     = 65535            // octets of an IP packet
)

// fragmentKey tells which fragments belong together (RFC 791, section 3.2; the protocol is always
// OSPF).
type fragmentKey struct {
	at       place
	src, dst netip.Addr
	id       uint16
}

// fragment is a part of a packet's payload.
type fragment struct {
	start int
	data  []byte
}

func (f fragment) end() int { return f.start + len(f.data) }

// incomplete is a packet with missing fragments.
type incomplete struct {
	since time.Time
	parts []fragment // in order, without overlaps
	size  int        // of what has arrived
	whole int        // length of the payload; 0: the last fragment is missing
	bad   bool       // its fragments contradict each other: further ones are dropped
}

// fragments reassembles packets. Its zero value is ready.
type fragments struct {
	packets map[fragmentKey]*incomplete
	octets  int
}

var errOverlap = errors.New("its fragments overlap")

// add takes a fragment, and returns the packet's payload once it is complete.
func (f *fragments) add(now time.Time, key fragmentKey, h ipHeader) ([]byte, error) {
	f.expire(now)
	p := f.packets[key]
	if p == nil {
		f.makeRoom(key.at, len(h.payload))
		p = &incomplete{since: now}
		if f.packets == nil {
			f.packets = map[fragmentKey]*incomplete{}
		}
		f.packets[key] = p
	}
	if p.bad {
		return nil, errOverlap
	}
	before := p.size
	err := p.add(fragment{h.offset, h.payload}, h.more)
	f.octets += p.size - before
	if err != nil {
		f.octets -= p.size
		*p = incomplete{since: p.since, bad: true}
		return nil, err
	}
	if p.whole == 0 || p.size < p.whole {
		for f.octets > maxWaiting {
			f.dropOldest(func(fragmentKey) bool { return true })
		}
		return nil, nil
	}
	f.drop(key)
	payload := make([]byte, 0, p.whole)
	for _, part := range p.parts {
		payload = append(payload, part.data...)
	}
	return payload, nil
}

// add inserts a fragment. A duplicate is ignored; any other overlap is an error, as in RFC 5722: no
// router sends such fragments, and which of two to believe would be a guess.
func (p *incomplete) add(part fragment, more bool) error {
	switch {
	case len(part.data) == 0, more && len(part.data)%8 != 0:
		return fmt.Errorf("a fragment of %d octets", len(part.data))
	case part.end() > maxPacket-ipHeaderLen:
		return fmt.Errorf("its fragments make more than %d octets", maxPacket)
	case p.whole > 0 && (part.end() > p.whole || !more && part.end() != p.whole):
		return errOverlap
	case !more && len(p.parts) > 0 && p.parts[len(p.parts)-1].end() > part.end():
		return errOverlap
	case len(p.parts) >= maxFragments:
		return fmt.Errorf("it has more than %d fragments", maxFragments)
	}
	i, there := slices.BinarySearchFunc(p.parts, part, func(a, b fragment) int { return cmp.Compare(a.start, b.start) })
	switch {
	case there && bytes.Equal(p.parts[i].data, part.data):
		return nil
	case there, i > 0 && p.parts[i-1].end() > part.start, i < len(p.parts) && part.end() > p.parts[i].start:
		return errOverlap
	}
	p.parts = slices.Insert(p.parts, i, part)
	p.size += len(part.data)
	if !more {
		p.whole = part.end()
	}
	return nil
}

// makeRoom enforces the limits before another packet is begun: the oldest are dropped.
func (f *fragments) makeRoom(at place, size int) {
	n := 0
	for k := range f.packets {
		if k.at == at {
			n++
		}
	}
	if n >= maxIncomplete {
		f.dropOldest(func(k fragmentKey) bool { return k.at == at })
	}
	for f.octets+size > maxWaiting {
		f.dropOldest(func(fragmentKey) bool { return true })
	}
}

func (f *fragments) dropOldest(of func(fragmentKey) bool) {
	var oldest fragmentKey
	var since time.Time
	for k, p := range f.packets {
		if of(k) && (since.IsZero() || p.since.Before(since)) {
			oldest, since = k, p.since
		}
	}
	f.drop(oldest)
}

func (f *fragments) drop(key fragmentKey) {
	if p := f.packets[key]; p != nil {
		f.octets -= p.size
		delete(f.packets, key)
	}
}

// expire drops packets that have not become complete in time.
func (f *fragments) expire(now time.Time) {
	for k, p := range f.packets {
		if now.Sub(p.since) >= fragmentTime {
			f.drop(k)
		}
	}
}
