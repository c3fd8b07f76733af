package pipeline

import (
	"bytes"
	"math"
	"slices"
	"time"

	"trivet.dev/trivet/openflow"
)

// A Translation is what becomes of a packet, and of all that agree with it on the bits of Mask and
// have a TTL in the range and no more bytes. What it holds is valid until it is used for another
// translation.
type Translation struct {
	Mask           Mask  // of the key as it was at the ingress
	TTLMin, TTLMax uint8 // of IP at the ingress; 0 and 255 where the TTL does not matter
	// Bytes of the longest frame at the ingress that it holds for; AnySize where that does not
	// matter.
	Largest int

	// Slow says why packets must be handled one by one by a Processor; the translation then says
	// nothing but that all packets under the mask must. Empty: the translation can be kept.
	Slow string

	Stages   []Stage // at least one; the first has no meter
	Outputs  []Output
	Mirrors  []Output  // the packet as it goes over virtual links that somebody looks at
	Messages []Message // for controllers
	Credits  []Credit
	Reads    []Read // what it follows from: while these versions hold, it does

	Hops  int   // how many ports of switches the packet has come in by
	Loops int   // how often it was dropped because it came back as it had been there before
	Loop  *Port // the first port where that was

	sets []Set
	tags []Tag
}

// AnySize is Largest of a Translation in which the length of packets plays no part.
const AnySize = math.MaxInt

// Stage is a part of a translation that depends on a meter: its outputs and credits are only for
// packets that get through all meters up to the root. A parent comes before its children.
type Stage struct {
	Parent int    // index; of the first stage, 0
	Meter  *Meter // nil of the first stage
	Grown  int16  // by how many bytes packets are longer there than at the ingress
}

// Output is a port that the packet leaves the network by, or a controller it is sent to.
type Output struct {
	Stage   int
	Port    *Port // nil: to controllers, see Message
	Message int   // index, where Port is nil
	Queue   uint32
	Rewrite Rewrite
	base    []byte // what Rewrite is about; nil: the packet as it came in
}

// Message says of a packet to controllers what the packet itself does not: see openflow.PacketIn.
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

// What a translation has read of a switch, beside tables.
const (
	ReadPorts  = -1 - iota // ports, their states and links
	ReadGroups             // the group table
	ReadMeters             // the meter table
	ReadPlaces             // where addresses have been seen
	ReadFlags              // of SET_CONFIG, and whether it forwards by itself
)

// Read is a part of a switch that a translation has read, and its version then.
type Read struct {
	Switch  *Switch
	What    int // a table, or one of ReadPorts, …
	Version uint64
}

// Fresh reports whether nothing that the translation follows from has changed.
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

// Holds reports whether the translation, which is that of the packet of one key, is that of another
// of no more than Largest bytes, too.
func (o *Translation) Holds(of, other *Key) bool {
	return o.Mask.Covers(of, other) && other.TTL() >= o.TTLMin && other.TTL() <= o.TTLMax
}

// Same reports whether another translation does the same with the same packets, and counts them at
// the same places.
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

// Metered reports whether meters decide over packets.
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

// Credit adds packets of together that many bytes at the ingress to the counters, and asks the
// meters. open is room for a bool per stage; it comes back with which ones the packets have
// reached.
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
