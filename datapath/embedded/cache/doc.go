//go:build linux

// Package cache forwards the packets of embedded switches in the kernel. The first packet of a flow
// goes to user space, where the pipeline decides what happens to it and to all packets like it. A
// program at the devices of the ports (package bpf) then does the same with the following ones: one
// lookup and one output, however many switches virtual links lead through. Packets that need more
// than the program can do (headers that it does not parse, controllers, meters, labels) are handled
// one by one in user space.
//
// # Keys
//
// A port has a mask for each class of packets (IPv4, IPv6, ARP, others): the bits that any
// translation in force there has looked at. When a translation looks at more, the mask is widened:
// entries under the old mask are no longer found, and are made again when packets need them. Masks
// only widen, by whole fields as far as the switches on the way can look at them, so this ends
// soon. A flow is found by a hash of its masked key (with a seed, so that nobody can provoke
// collisions). The entry contains the key itself, which the program compares: an element of a hash
// map may be reused while somebody reads it, whereas an entry's number is not given to another
// entry for a second.
//
// # The order of packets
//
// An entry is pending at first: its packets still go to user space, and the program counts them in
// the word that holds the state. An entry becomes active by a compare-and-swap of that word, which
// succeeds only when every counted packet has left or is just leaving. So no packet overtakes
// another one. If a flow is too fast for that moment to come, its packets are dropped until it
// does; a packet sent after the last one shows that the last one has left.
//
// The order is not kept in two cases. Packets that leave by a device (Egress, copies) wait in a
// queue of the processor that sends them. If their entry is removed meanwhile, the next packets,
// which user space sends on another processor, may overtake them; that takes dozens in a row. And
// packets of another flow with the same entry may do so if they arrive at another processor just
// when the entry is made.
//
// Packets that user space sends enter by a tap, and a program sends them on from there as it does
// the others, within the call that writes them: none waits in a queue that later ones bypass. In
// the other direction, the same tap keeps large packets whole and checksums unfinished, which a
// ring buffer would not.
//
// # Limits for each port
//
// The program counts how many packets of a port went to user space and how many have been handled
// there. It drops, and counts, those that exceed the port's queue. So a port can neither fill the
// tap for others nor cost them anything by trying. User space takes one packet of each port in
// turn, at a limited rate for each. The number of entries of a port is limited; idle ones make room
// for new ones, and while none is idle, packets go through user space.
//
// # Changes
//
// Entries that depend on the same parts of switches (tables, ports, …) are grouped. After a change,
// the entries that depend on a changed part are translated again. A barrier is answered when that
// is done, and when every run of the program that began before has ended. The latter takes
// microseconds: see grace.
//
// # Devices
//
// The program is attached by clsact: that exists everywhere, takes a fraction of a millisecond, and
// remains when this process ends, as do the maps that the program uses. So packets of known flows
// are forwarded without the process, and nothing needs to be pinned for that. The next process
// finds the maps through the program, makes entries of its own for the existing ones, and takes
// over the devices: see Adopt.
//
// Packets enter the other end of a veth pair directly if that is in another namespace and nothing
// shapes them. For this the program must know the MAC address of the other end; if that has
// changed, packets go the longer way, out by the device. Copies always do. Changes of devices need
// not be reported: the kernel tells the engine of a new queueing discipline or another MTU.
package cache
