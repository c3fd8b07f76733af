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

// OSPF leaves it to IP to carry packets that are larger than the MTU (RFC 2328, sections 4.3 and
// A.1): an LSA of a router with many links, which is one, or a Hello on a network with many
// neighbours. Switches and the routers' flow tables pass fragments on as they are, so they are put
// together here.

// Bounds of what fragments can make us keep. Those that arrive at one port cannot displace those at
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

// incomplete is a packet of which something is missing.
type incomplete struct {
	since time.Time
	parts []fragment // in order, without overlaps
	size  int        // of what is there
	whole int        // length of the payload; 0: the last fragment is missing
	bad   bool       // its fragments contradict each other: what comes of it still is dropped
}

// fragments puts packets together. Its zero value is ready.
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

// add puts a part in its place. One that is there already is ignored; one that overlaps others in
// any other way is an error, as in RFC 5722: no router makes such, and which of the two holds would
// be anybody's guess.
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

// makeRoom keeps to the bounds before another packet is begun: the oldest give way.
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

// expire gives up packets that have not become complete.
func (f *fragments) expire(now time.Time) {
	for k, p := range f.packets {
		if now.Sub(p.since) >= fragmentTime {
			f.drop(k)
		}
	}
}
