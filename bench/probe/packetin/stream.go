package packetin

import (
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/reassembly"

	"trivet.dev/trivet/controller/monitor"
	"trivet.dev/trivet/openflow"
)

// Counts are packets that came to controllers, and how much of that was not seen.
type Counts struct {
	Packets  [monitor.NumProtocols]uint64 // by protocol
	Bytes    uint64                       // of all OpenFlow messages to the controllers
	Late     uint64                       // connections that were there before they were listened to
	Gaps     uint64                       // places where segments were not seen, or were no messages
	Missing  uint64                       // bytes that were not seen, or passed over until a message began
	Unread   uint64                       // PACKET_INs that could not be read
	Foreign  uint64                       // connections in which no OpenFlow was found, as with TLS
	Overflow uint64                       // segments for which the packet socket had no room
}

// Plus is the sum of two.
func (c Counts) Plus(o Counts) Counts {
	for i := range c.Packets {
		c.Packets[i] += o.Packets[i]
	}
	return Counts{c.Packets, c.Bytes + o.Bytes, c.Late + o.Late, c.Gaps + o.Gaps, c.Missing + o.Missing,
		c.Unread + o.Unread, c.Foreign + o.Foreign, c.Overflow + o.Overflow}
}

// Since is what was counted after an earlier reading. Foreign stays that of now: such a connection
// began at any time, and is none any more where OpenFlow is found in it after all.
func (c Counts) Since(o Counts) Counts {
	for i := range c.Packets {
		c.Packets[i] -= o.Packets[i]
	}
	return Counts{c.Packets, c.Bytes - o.Bytes, c.Late - o.Late, c.Gaps - o.Gaps, c.Missing - o.Missing,
		c.Unread - o.Unread, c.Foreign, c.Overflow - o.Overflow}
}

// stream is what a switch sends to a controller.
type stream struct {
	counts  *Counts
	version uint8  // of its messages; 0: none has been seen
	synced  bool   // the next byte begins a message, or rest does
	began   bool   // it was in step before
	start   bool   // it is heard from its beginning
	foreign bool   // no OpenFlow has been found, and it is counted as such
	rest    []byte // of a message that has not ended
}

// put takes the next bytes; lost are those before them that were not seen.
func (s *stream) put(b []byte, lost int) {
	if lost > 0 {
		s.counts.Gaps++
		s.pass(lost + len(s.rest))
		s.synced, s.rest = false, nil
	}
	if s.rest != nil {
		b = append(s.rest, b...)
		s.rest = nil
	}
	if s.start && !s.began && !s.greets(b) {
		return
	}
	for len(b) > 0 {
		if !s.synced && !s.find(&b) {
			return
		}
		n := s.messages(b)
		if b = b[n:]; s.synced {
			s.rest = append([]byte(nil), b...)
			return
		}
	}
}

// greets says whether a stream begins as each of OpenFlow does: with HELLO (1.3.5, section 6.3.1).
func (s *stream) greets(b []byte) bool {
	if len(b) < openflow.HeaderLen {
		s.rest = append([]byte(nil), b...)
		return false
	}
	h := openflow.ParseHeader(b)
	if !s.foreign && plausible(h, 0) && h.Type == openflow.TypeHello {
		s.synced, s.began = true, true
		return true
	}
	if !s.foreign {
		s.foreign = true
		s.counts.Foreign++
	}
	return false
}

// find goes to where messages begin, and says whether they do.
func (s *stream) find(b *[]byte) bool {
	at := resync(*b, s.version)
	if at < 0 {
		s.pass(len(*b))
		if !s.began && !s.foreign {
			s.foreign = true
			s.counts.Foreign++
		}
		return false
	}
	s.pass(at)
	if s.foreign {
		s.foreign = false
		s.counts.Foreign--
	}
	s.synced, s.began, *b = true, true, (*b)[at:]
	return true
}

// pass counts bytes that are not read. What is left of a message that began before the watch did is
// none of them.
func (s *stream) pass(n int) {
	if s.began {
		s.counts.Missing += uint64(n)
	}
}

// messages reads those that are whole, and returns their length. Where something else comes it is
// out of step.
func (s *stream) messages(b []byte) (n int) {
	for len(b)-n >= openflow.HeaderLen {
		h := openflow.ParseHeader(b[n:])
		if !plausible(h, s.version) {
			s.counts.Gaps++
			s.synced, s.version = false, 0 // it may be of another version now
			s.pass(1)
			return n + 1
		}
		if h.Type != openflow.TypeHello {
			s.version = h.Version
		}
		end := n + int(h.Length)
		if end > len(b) {
			break
		}
		if h.Type == openflow.TypePacketIn {
			s.packet(b[n:end])
		}
		s.counts.Bytes += uint64(h.Length)
		n = end
	}
	return n
}

func (s *stream) packet(m []byte) {
	frame, ok := frameOf(m)
	if !ok {
		s.counts.Unread++
		return
	}
	s.counts.Packets[monitor.Classify(frame)]++
}

// What follows makes a stream one of gopacket's.

// Accept takes segments of connections also where their beginning was not seen.
func (s *stream) Accept(tcp *layers.TCP, _ gopacket.CaptureInfo, _ reassembly.TCPFlowDirection,
	next reassembly.Sequence, start *bool, _ reassembly.AssemblerContext) bool {
	switch {
	case next >= 0:
	case tcp.SYN:
		s.start = true
	default:
		s.counts.Late++
		*start = true
	}
	return true
}

// ReassembledSG takes the next bytes.
func (s *stream) ReassembledSG(sg reassembly.ScatterGather, _ reassembly.AssemblerContext) {
	length, _ := sg.Lengths()
	_, _, _, lost := sg.Info()
	if length > 0 {
		s.put(sg.Fetch(length), lost)
	}
}

// ReassemblyComplete lets the connection be forgotten.
func (s *stream) ReassemblyComplete(reassembly.AssemblerContext) bool { return true }
