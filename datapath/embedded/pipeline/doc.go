// Package pipeline is an OpenFlow 1.3 switch without I/O: flow tables, groups, meters and ports; a
// packet and a time go in, packets, messages and counters come out. Section numbers are those of the
// OpenFlow Switch Specification, Version 1.3.5.
//
// Switches live in a Network, and ports of two of them may be joined by a virtual link: what goes out
// by one comes in by the other, in the same call and without a copy.
//
//	n := pipeline.NewNetwork()
//	s1 := n.Add(pipeline.Config{DatapathID: 1})
//	s1.AddPort(openflow.Port{Number: 1, Name: "s1-eth1"}, now)
//	err := s1.FlowMod(flowMod, now)
//	result := pipeline.NewProcessor(n).Receive(s1, 1, packet, now)
//
// # Outcomes
//
// Translate says what becomes of a packet on its way through all switches that virtual links lead it
// to, without doing it. The Outcome holds outputs with the rewrites in force there, the counters to
// credit, what has been read to come to this decision (tables and their versions), and a Mask: the bits
// of the packet's Key that were looked at. Every packet whose key agrees on those bits, and whose TTL is
// in the outcome's range, has the same outcome, so it may be kept in a cache. What one packet's outcome
// cannot say of another is marked Slow; each such packet goes through a Processor.
//
// A Processor does what an outcome says. It translates in a second way, in which it has the packet's
// bytes at hand (for headers under MPLS labels and PBB tags) and asks meters at once.
//
// # Time
//
// Times are durations since a moment that the caller chooses, the same for all calls.
package pipeline
