//go:build linux

// Package cache forwards the packets of embedded switches in the kernel. The first packet of a flow comes to
// user space, the pipeline says what becomes of it and of all that are like it, and a program at the devices of
// the ports (package bpf) does that with the packets after it: one lookup and one output, however many switches
// virtual links lead through.
//
// # Keys
//
// A port has a mask for each class of packets (IPv4, IPv6, ARP, others): the bits that any outcome in force
// there has looked at. When another outcome looks at more, the mask is widened: entries under the old one are
// not found any more, and made again by the packets that need them. Masks only widen.
//
// # The order of packets
//
// An entry is pending at first: its packets still come to user space, and are counted by the program in the
// word that holds the state. User space makes it active by comparing and swapping that word, which only works
// when every packet that was counted has left. So no packet overtakes another one. Where a flow is too fast
// for that moment to come, its packets are dropped until it does.
//
// Packets that user space sends go through the same program as the others and by the same way out, so that none
// waits in a queue that later ones go around.
package cache
