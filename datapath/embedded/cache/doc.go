//go:build linux

// Package cache forwards the packets of embedded switches in the kernel. The first packet of a flow
// comes to user space, the pipeline says what becomes of it and of all that are like it, and a
// program at the devices of the ports (package bpf) does that with the packets after it: one lookup
// and one output, however many switches virtual links lead through. What the program does not know
// (headers that it does not read, controllers, meters, labels) user space does packet by packet.
//
// # Keys
//
// A port has a mask for each class of packets (IPv4, IPv6, ARP, others): the bits that any
// translation in force there has looked at. When a translation looks at more, the mask is widened:
// entries under the old one are not found any more, and made again by the packets that need them.
// Masks only widen, by whole fields as far as the switches on the way can look at them, so that
// this ends soon. A flow is found by a hash of its masked key (with a seed, so that nobody can
// choose what meets) and the entry has the key itself, which the program compares: a hash map's
// element may be used anew while somebody reads it, an entry's number is not given to another one
// for a second.
//
// # The order of packets
//
// An entry is pending at first: its packets still come to user space, and are counted by the
// program in the word that holds the state. An entry becomes active by comparing and swapping that
// word, which only works when every packet that was counted has left or is the one that is leaving.
// So no packet overtakes another one. Where a flow is too fast for that moment to come, its packets
// are dropped until it does. That the last one has left is told by a packet that goes behind it.
//
// What is not kept: packets that leave by a device (Egress, copies) wait in a queue of the
// processor that sends them. When their entry goes away meanwhile, the next ones, which user space
// sends at another processor, may be there first; that takes dozens in a row. So may those of
// another flow of the same entry that come in at another processor just when it is made.
//
// Packets that user space sends go in by a tap and from there through a program to the same way out
// as the others, within the call that writes them: none waits in a queue that later ones go around.
// The other way, the same tap keeps large packets whole and checksums unfinished, which a ring
// buffer would not.
//
// # Who may use how much
//
// The program counts what a port has given to user space and what user space has dealt with, and
// drops, and counts, what is more than the port's queue. So a port cannot fill the tap for others,
// and costs nobody anything by trying. Ports have their turn one packet at a time, at a limited
// rate each. Entries of a port have a budget; idle ones make room, and where none is idle, packets
// go through user space.
//
// # Changes
//
// Entries that follow from the same parts of switches (tables, ports, …) are kept together. After a
// change, those that follow from what has changed are translated again; a barrier is answered when
// that is done and no run of the program is left that began before. The latter takes microseconds:
// see grace.
//
// # Devices
//
// The program is attached by clsact: that exists everywhere, takes a fraction of a millisecond, and
// stays without this process, as do the maps that the program uses. So nothing needs to be pinned
// for packets of known flows to go on when the process ends. Its successor finds the maps by the
// program, makes entries of its own for what is there, and takes the devices: see Adopt.
//
// Packets enter the other end of a veth pair directly where that is in another namespace and
// nothing shapes them. For these, the program must know the address of the other end; where that
// has changed, they take the longer way, out by the device. Copies always do. Nobody need say when
// a device changes: the engine hears from the kernel that it was given a queueing discipline or
// another MTU.
package cache
