package delayline

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// udp returns a frame of a flow, as a TAP device gives it: with a number behind its headers.
func udp(size, flow, number int, ecn byte) []byte {
	b := make([]byte, max(size, vnetLen+ethernetLen+ipv4Min+udpLen+8))
	b[vnetLen+12] = 8
	p := b[vnetLen+ethernetLen:]
	copy(p, []byte{0x45, ecn, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	binary.BigEndian.PutUint16(p[10:], checksum(p[:ipv4Min]))
	binary.BigEndian.PutUint16(p[ipv4Min:], uint16(flow))
	binary.BigEndian.PutUint64(p[ipv4Min+udpLen:], uint64(number))
	return b
}

func numberOf(b []byte) int {
	return int(binary.BigEndian.Uint64(b[vnetLen+ethernetLen+ipv4Min+udpLen:]))
}

func flowOf(b []byte) int { return int(binary.BigEndian.Uint16(b[vnetLen+ethernetLen+ipv4Min:])) }

// tagged puts a VLAN's tag into a frame.
func tagged(b []byte, kind uint16) []byte {
	tag := binary.BigEndian.AppendUint16(nil, kind)
	return bytes.Join([][]byte{b[:vnetLen+12], tag, {0, 7}, b[vnetLen+12:]}, nil)
}

// udp6 returns a frame of IPv6 with an extension header.
func udp6(flow int, ecn byte) []byte {
	b := make([]byte, vnetLen+ethernetLen+ipv6Len+8+udpLen)
	b[vnetLen+12], b[vnetLen+13] = 0x86, 0xdd
	p := b[vnetLen+ethernetLen:]
	p[0], p[1], p[6], p[ipv6Len] = 0x60, ecn<<4, destination, 17
	binary.BigEndian.PutUint16(p[ipv6Len+8:], uint16(flow))
	return b
}

// TestMark proves that what is capable of ECN is told from what is not, and marked so that nothing
// but the mark changes and the checksum is right, behind tags of VLANs as well.
func TestMark(t *testing.T) {
	for _, make := range []func(ecn byte) []byte{
		func(ecn byte) []byte { return udp(100, 5, 9, ecn) },
		func(ecn byte) []byte { return tagged(udp(100, 5, 9, ecn), 0x8100) },
		func(ecn byte) []byte { return tagged(tagged(udp(100, 5, 9, ecn), 0x8100), 0x88a8) },
		func(ecn byte) []byte { return udp6(5, ecn) },
	} {
		for ecn := range byte(4) {
			b := make(ecn)
			if ecnCapable(b) != (ecn != 0) {
				t.Fatalf("ECN field %d: capable is %v", ecn, ecnCapable(b))
			}
			if ecn == 0 {
				continue
			}
			if mark(b); !bytes.Equal(b, make(ecnCE)) {
				t.Errorf("ECN field %d marked is\n%x, want\n%x", ecn, b, make(ecnCE))
			}
		}
	}
	arp := udp(100, 0, 0, 3)
	arp[vnetLen+13] = 6
	if ecnCapable(arp) || ecnCapable(arp[:20]) || ecnCapable(nil) {
		t.Error("what is not IP is capable of ECN")
	}
}

// TestFlow proves that packets of a flow have one hash, also with tags and marks, others another,
// that fragments of a packet stay together, and that the hash depends on the seed.
func TestFlow(t *testing.T) {
	a := flow(udp(100, 1, 1, 0), 1)
	if flow(udp(900, 1, 2, 3), 1) != a || flow(tagged(udp(100, 1, 3, 0), 0x8100), 1) != a {
		t.Error("a flow has several hashes")
	}
	if flow(udp(100, 2, 1, 0), 1) == a || flow(udp(100, 1, 1, 0), 2) == a || flow(udp6(1, 0), 1) == flow(udp6(2, 0), 1) {
		t.Error("several flows, or seeds, have one hash")
	}
	first, last := udp(100, 1, 1, 0), udp(100, 2, 1, 0)
	first[vnetLen+ethernetLen+6], last[vnetLen+ethernetLen+7] = 0x20, 50
	if flow(first, 1) != flow(last, 1) {
		t.Error("fragments of a packet are in several flows")
	}
}

// TestComplete proves that a checksum that was left to be filled in is right afterwards, and not
// looked over by the receiver.
func TestComplete(t *testing.T) {
	b := udp(101, 7, 3, 0)
	p := b[vnetLen+ethernetLen:]
	pseudo := append(append([]byte{}, p[12:20]...), 0, 17, 0, byte(len(p)-ipv4Min))
	binary.BigEndian.PutUint16(p[ipv4Min+6:], ^checksum(pseudo)) // as the kernel leaves it
	b[vnetFlags] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
	binary.NativeEndian.PutUint16(b[vnetCsumStart:], ethernetLen+ipv4Min)
	binary.NativeEndian.PutUint16(b[vnetCsumOffset:], 6)
	complete(b)
	if sum := checksum(append(pseudo, p[ipv4Min:]...)); sum != 0 || b[vnetFlags] != 0 {
		t.Errorf("the checksum is off by %#x, flags are %d", sum, b[vnetFlags])
	}
}

// FuzzPacket proves that no packet, however made, stops what looks into it, that a mark changes the
// ECN field and the checksum alone, and keeps a right checksum right, and the flow.
func FuzzPacket(f *testing.F) {
	f.Add(udp(60, 1, 1, 2))
	f.Add(tagged(udp(60, 1, 1, 1), 0x88a8))
	f.Add(udp6(3, 2))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		before, was := bytes.Clone(b), flow(b, 3)
		if !ecnCapable(b) {
			return
		}
		mark(b)
		if !ecnCapable(b) || flow(b, 3) != was {
			t.Fatal("a mark changes the flow, or goes away")
		}
		kind, p := network(b)
		_, old := network(before)
		if kind == etherIPv4 {
			n := int(p[0]&15) * 4
			if checksum(old[:n]) == 0 && checksum(p[:n]) != 0 {
				t.Fatalf("the checksum was right: %x, and is not: %x", old[:n], p[:n])
			}
			copy(old[10:12], p[10:12])
		}
		if old[1] = p[1]; !bytes.Equal(before, b) {
			t.Fatalf("a mark changes more: %x is %x", before, b)
		}
	})
}
