// Package cluster shares the switches of a network out between several controllers, its members.
//
// Every switch connects to all members; one of them, its master, may change it, the others stand
// by. What the members agree on is in the store that they share (controller/store):
//
//	cluster/member/NAME      a member's sign of life, renewed with every beat, under its lease
//	cluster/connected/NAME   the switches connected to it, under the same lease
//	cluster/switch/DPID      {"master":"NAME","instance":…}; none: the switch is free
//	cluster/wanted/DPID      {"member":"NAME"}: that member is to take the switch over
//	cluster/drain/NAME       the others are to take over all that the member has
//
// Whoever takes a switch, or hands it over, commits on the condition that its key is as it was
// read. The revision of that commit is the generation of the OpenFlow role that the master claims,
// so that a switch refuses a master that comes too late, whatever that one believes.
//
// engine.go decides, without input, output, goroutines or a clock: what the store tells goes in;
// commits, and switches to become master of, come out. It counts time by the beats of this member
// as it hears of them from the store: as they come in one order with all others' beats, neither a
// store that stalls nor a clock that jumps makes anybody look dead. member.go does what it says.
package cluster
