// Package cluster distributes the switches of a network among several controllers, its members.
//
// Every switch connects to all members; one of them, its master, may change it, the others are
// standbys. What the members agree on is in the store that they share (controller/store):
//
//	cluster/member/NAME      a member's heartbeat, under its lease
//	cluster/connected/NAME   the switches connected to it, under the same lease
//	cluster/switch/DPID      {"master":"NAME","instance":…}; none: the switch has no master
//	cluster/wanted/DPID      {"member":"NAME"}: that member is to take the switch over
//	cluster/drain/NAME       the others are to take over all switches of the member
//
// A member takes a switch, or hands it over, by a commit on condition that the switch's key has not
// changed. The revision of that commit is the generation of the OpenFlow role that the new master
// claims, so that the switch rejects a master that comes too late, whatever that one believes.
//
// engine.go decides, without I/O, goroutines or a clock: events of the store go in; commits, and
// switches to become master of, come out. It measures time in this member's own beats, as the store
// reports them. They arrive in one order with all others' beats, so neither a stalled store nor a
// jumping clock makes a member look dead. member.go carries out what the engine decides.
package cluster
