package pipeline

import (
	"bytes"
	"math"
	"slices"
	"time"

	"trivet.dev/trivet/openflow"
)

// A Translation is what happens to a packet, and to all packets that agree with it on the bits of
// Mask, have a TTL in the range and are no longer than Largest. Its contents are valid until it is
// used for another translation.
type Translation struct {
	Mask           Mask  // of the key as it was at the ingress
	TTLMin, TTLMax uint8 // of IP at the ingress; 0 and 255 if the TTL does not matter
	// The length, at the ingress, of the longest frame for which it holds; AnySize if lengths do
	// not matter.
	Largest int

	// Slow says why packets must be handled one by one by a Processor; the translation then says
	// nothing but that all packets under the mask must. Empty: the translation can be kept.
	Slow string

	Stages   []Stage // at least one; the first has no meter
	Outputs  []Output
	Mirrors  []Output  // the packet on virtual links with captures
	Messages []Message // for controllers
	Credits  []Credit
	Reads    []Read // what it depends on: it holds while these versions do

	Hops  int   // how many ports the packet has arrived at
	Loops int   // how often it was dropped because it came back unchanged
	Loop  *Port // the first port where that happened

	sets []Set
	tags []Tag
}

// AnySize is the Largest of a Translation that does not depend on the length of packets.
const AnySize = math.MaxInt

// Stage is a part of a translation that depends on a meter: its outputs and credits are only for
// packets that get through all meters up to the root. A parent comes before its children.
type Stage struct {
	Parent int    // index; of the first stage, 0
	Meter  *Meter // nil of the first stage
	Grown  int16  // by how many bytes packets are longer there than at the ingress
}

// Output is a port through which the packet leaves the network, or a controller to which it is
// sent.
type Output struct {
	Stage   int
	Port    *Port // nil: to controllers, see Message
	Message int   // index, where Port is nil
	Queue   uint32
	Rewrite Rewrite
	base    []byte // the bytes to which Rewrite applies; nil: the received packet
}

// Message is the information for controllers besides the packet itself: see openflow.PacketIn.
type Message struct {
	Switch   *Switch
	Reason   openflow.PacketInReason
	Table    uint8
	Cookie   uint64
	MaxLen   uint16
	InPort   uint32
	Metadata uint64
	TunnelID uint64
}

// Credit is a counter that each packet adds to: of a flow entry, table, group, bucket or port.
type Credit struct {
	Counter *Counter
	Stage   int
	Grown   int16 // by how many bytes packets are longer there than at the ingress
}

// What a translation can read of a switch besides tables.
const (
	ReadPorts  = -1 - iota // ports, their states and links
	ReadGroups             // the group table
	ReadMeters             // the meter table
	ReadPlaces             // where addresses have been seen
	ReadFlags              // of SET_CONFIG, and whether it forwards by itself
)

// Read is a part of a switch that a translation has read, and the version that it had.
type Read struct {
	Switch  *Switch
	What    int // a table, or one of ReadPorts, …
	Version uint64
}

// Fresh reports whether nothing that the translation depends on has changed.
func (o *Translation) Fresh() bool {
	if len(o.Reads) == 0 {
		return true
	}
	n := o.Reads[0].Switch.net
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, r := range o.Reads {
		if r.Switch.version(r.What) != r.Version {
			return false
		}
	}
	return true
}

// Version returns the version of a part of the switch: see Read.
func (s *Switch) Version(what int) uint64 {
	s.net.mu.RLock()
	defer s.net.mu.RUnlock()
	return s.version(what)
}

func (s *Switch) version(what int) uint64 {
	switch {
	case what >= 0 && s.tables[what] == nil:
		return 0
	case what >= 0:
		return s.tables[what].version
	case what == ReadPlaces:
		s.learned.mu.Lock()
		defer s.learned.mu.Unlock()
		return s.learned.version
	}
	return s.versions[-what-1]
}

// Holds reports whether the translation, made for the packet with one key, also holds for another
// packet of at most Largest bytes.
func (o *Translation) Holds(of, other *Key) bool {
	return o.Mask.Covers(of, other) && other.TTL() >= o.TTLMin && other.TTL() <= o.TTLMax
}

// Same reports whether another translation does the same with the same packets, and credits the
// same counters.
func (o *Translation) Same(other *Translation) bool {
	return o.Mask == other.Mask && o.TTLMin == other.TTLMin && o.TTLMax == other.TTLMax && o.Largest == other.Largest &&
		o.Slow == other.Slow &&
		o.Hops == other.Hops && o.Loop == other.Loop && slices.Equal(o.Credits, other.Credits) &&
		slices.Equal(o.Stages, other.Stages) && slices.Equal(o.Messages, other.Messages) &&
		len(o.Mirrors) == 0 && len(other.Mirrors) == 0 &&
		slices.EqualFunc(o.Outputs, other.Outputs, func(a, b Output) bool { return a.equal(&b) })
}

func (o *Output) equal(other *Output) bool {
	return o.Stage == other.Stage && o.Port == other.Port && o.Message == other.Message && o.Queue == other.Queue &&
		bytes.Equal(o.base, other.base) && o.Rewrite.equal(&other.Rewrite)
}

// ToController reports whether packets are sent to controllers.
func (o *Translation) ToController() bool { return len(o.Messages) > 0 }

// Metered reports whether meters are involved.
func (o *Translation) Metered() bool { return len(o.Stages) > 1 }

// Clone returns a copy that stays valid.
func (o *Translation) Clone() *Translation {
	c := *o
	c.Stages, c.Outputs, c.Messages = slices.Clone(o.Stages), slices.Clone(o.Outputs), slices.Clone(o.Messages)
	c.Credits, c.Reads, c.sets, c.tags = slices.Clone(o.Credits), slices.Clone(o.Reads), nil, nil
	c.Mirrors = slices.Clone(o.Mirrors)
	for _, list := range [][]Output{c.Outputs, c.Mirrors} {
		for i := range list {
			r := &list[i].Rewrite
			r.Sets, r.Push = slices.Clone(r.Sets), slices.Clone(r.Push)
		}
	}
	return &c
}

func (o *Translation) reset() {
	*o = Translation{
		TTLMax: 255, Largest: AnySize, Stages: append(o.Stages[:0],
			Stage{}), Outputs: o.Outputs[:0], Mirrors: o.Mirrors[:0], Messages: o.Messages[:0],
		Credits: o.Credits[:0], Reads: o.Reads[:0], sets: o.sets[:0], tags: o.tags[:0],
	}
}

// Credit adds packets, with that many bytes in total at the ingress, to the counters, and applies
// the meters. open has room for a bool per stage; it is returned with the stages that the packets
// have reached.
func (o *Translation) Credit(open []bool, packets, bytes uint64, now time.Duration) []bool {
	open = open[:0]
	size := func(grown int16) uint64 { return uint64(max(int64(bytes)+int64(grown)*int64(packets), 0)) }
	for i, s := range o.Stages {
		pass := i == 0 || open[s.Parent]
		if pass && s.Meter != nil {
			drop, _ := s.Meter.pass(packets, size(s.Grown), now)
			pass = !drop
		}
		open = append(open, pass)
	}
	for _, c := range o.Credits {
		if open[c.Stage] {
			c.Counter.Add(packets, size(c.Grown), now)
		}
	}
	return open
}
