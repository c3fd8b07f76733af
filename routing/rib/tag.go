package rib

import "hash/crc32"

// TagOf returns the tag with which routes of a program or protocol are redistributed, if they have
// none of their own. Whoever passes routes on keeps their tags; so a router does not redistribute a
// route with this tag into that program or protocol again. These tags are those from 2³¹ on, called
// automatic by RFC 1745, section 4.4; two names collide with probability 1 in 2³¹.
func TagOf(name string) uint32 { return 1<<31 | crc32.ChecksumIEEE([]byte(name)) }
