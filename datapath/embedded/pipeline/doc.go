// Package pipeline is an OpenFlow 1.3 switch without I/O: flow tables, groups, meters and ports; a
// packet and a time go in, packets, messages and counters come out. Section numbers are those of
// the OpenFlow Switch Specification, Version 1.3.5.
//
// Switches live in a Network, and ports of two of them may be joined by a virtual link: what goes
// out by one comes in by the other, in the same call and without a copy.
//
//	n := pipeline.NewNetwork()
//	s1, err := n.Add(pipeline.Config{DatapathID: 1, Name: "s1"})
//	port, err := s1.AddPort(openflow.Port{Number: 1, Name: "s1-eth1"}, now)
//	err = s1.FlowMod(flowMod, now)
//	result := pipeline.NewProcessor(n).Receive(port, &pipeline.Packet{Data: frame}, now)
//
// # Translations
//
// Translate says what becomes of a packet on its way through all switches that virtual links lead
// it to, without doing it. The Translation holds outputs with the rewrites in force there, the
// counters to credit, what has been read to come to this decision (tables and their versions), and
// a Mask: the bits of the packet's Key that were looked at. Every packet whose key agrees on those
// bits, and whose TTL is in the translation's range, has the same translation, so it may be kept in
// a cache. What one packet's translation cannot say of another is marked Slow; each such packet
// goes through a Processor.
//
// A Processor does what a translation says. It translates in a second way, in which it has the
// packet's bytes at hand (for headers under MPLS labels and PBB tags) and asks meters at once.
//
// Who keeps translations learns by Network.OnChange what has changed, adds the hits that it has
// counted when OnFold and OnRead ask for them, and finds in Switch.Interest which fields can matter
// at all.
//
// # Where the specification leaves a choice, or others differ
//
//   - A packet that no entry of a later table matches is dropped with its action set (section 5.4).
//   - DEC_NW_TTL drops an IPv4 packet whose header has a wrong checksum, as a router must (RFC 1812, section 5.2.2).
//   - A TTL that is used up ends the packet, in a bucket that copy of it.
//   - A field that is set where the packet has none is passed over; POP actions too. What no packet of the
//     match could have is refused (OFPBAC_MATCH_INCONSISTENT).
//   - New VLAN tags have the values of the tag under them, new labels those of the label under them or the TTL
//     of IP, and zeros for the rest (section 5.12.1).
//   - Parts of IP packets are matched by what they have: the first one by its ports (OFPC_FRAG_NORMAL).
//   - Select groups choose by addresses, protocol and ports; a bucket that watches something is taken while
//     that is live.
//   - A meter's burst is a second's worth where none is given.
//   - PACKET_IN carries the whole packet: there are no buffers.
//   - The output to NORMAL forwards by learning; a blocked port (OFPPS_BLOCKED) takes no part.
//   - One translation brings a packet to a port with the same changes once. When it comes back, or after 1024
//     switches on one way, it is dropped and reported as a loop: a broadcast storm is not emulated.
//
// # Time
//
// Times are durations since a moment that the caller chooses, the same for all calls.
package pipeline
