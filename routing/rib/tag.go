package rib

import "hash/crc32"

// TagOf is the tag of routes that have come from a program or a protocol and have none of their
// own, when others are told of them. Who hands routes on keeps their tags; so a router that is to
// tell the program or protocol of a route with this tag knows that it has come from there, and does
// not. Such tags are those from 2³¹ on, as those that RFC 1745, section 4.4, calls automatic; two
// names have the same one by chance of 1 in 2³¹.
func TagOf(name string) uint32 { return 1<<31 | crc32.ChecksumIEEE([]byte(name)) }
