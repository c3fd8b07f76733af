// Package pipeline is an OpenFlow 1.3 switch without I/O: flow tables, groups, meters and ports.
// Its input is a packet and a time; its output is packets, messages and counters. Section numbers
// are those of the OpenFlow Switch Specification, Version 1.3.5.
//
// Switches are in a Network, and a virtual link may connect ports of two of them: a packet that
// leaves by one port enters by the other, in the same call and without a copy.
//
//	n := pipeline.NewNetwork()
//	s1, err := n.Add(pipeline.Config{DatapathID: 1, Name: "s1"})
//	port, err := s1.AddPort(openflow.Port{Number: 1, Name: "s1-eth1"}, now)
//	err = s1.FlowMod(flowMod, now)
//	result := pipeline.NewProcessor(n).Receive(port, &pipeline.Packet{Data: frame}, now)
//
// # Translations
//
// Translate determines what happens to a packet in all switches that it reaches through virtual
// links, without doing it. The Translation contains the outputs with the rewrites that apply to
// each, the counters to increase, what the decision depends on (tables and their versions), and a
// Mask: the bits of the packet's Key that were looked at. Every packet whose key has the same
// values in those bits, and whose TTL is in the translation's range, has the same translation, so
// it may be kept in a cache. A translation that does not hold for other packets is marked Slow;
// each such packet goes through a Processor.
//
// A Processor carries out translations. It also translates in a second way, which uses the packet's
// bytes (for headers under MPLS labels and PBB tags) and applies meters at once.
//
// A cache of translations learns of changes by Network.OnChange, adds the hits that it has counted
// when OnFold and OnRead ask for them, and finds in Switch.Interest which fields can matter at all.
//
// # Where the specification leaves a choice, or others differ
//
//   - A packet that no entry of a later table matches is dropped with its action set (section 5.4).
//   - DEC_NW_TTL drops an IPv4 packet whose header has a wrong checksum, as a router must (RFC 1812, section 5.2.2).
//   - A packet whose TTL is used up is dropped; in a group's bucket, only that bucket's copy is.
//   - Setting a field that the packet does not have has no effect, nor has a POP action without a header to
//     remove. Actions on what no matching packet can have are refused (OFPBAC_MATCH_INCONSISTENT).
//   - New VLAN tags have the values of the tag under them, new labels those of the label under them or the TTL
//     of IP, and zeros for the rest (section 5.12.1).
//   - IP fragments are matched by the headers that they have; only first fragments have ports (OFPC_FRAG_NORMAL).
//   - Select groups choose by addresses, protocol and ports; a bucket that watches a port or group is used while
//     that is live.
//   - A meter's burst is a second's worth where none is given.
//   - PACKET_IN carries the whole packet: there are no buffers.
//   - Output to NORMAL forwards as a learning switch does, except by blocked ports (OFPPS_BLOCKED).
//   - In one translation a packet reaches a port with the same changes only once. When it comes back, or after
//     1024 switches on one path, it is dropped and reported as a loop: a broadcast storm is not emulated.
//
// # Time
//
// Times are durations since a moment that the caller chooses, the same for all calls.
package pipeline
