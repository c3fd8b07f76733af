package delayline

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// superPacket returns a frame with its virtio header: start bytes, a transport header of transport
// bytes, then payload.
func superPacket(kind byte, start, transport, payload, perSegment int) []byte {
	b := make([]byte, vnetLen+start+transport+payload)
	b[vnetFlags] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
	b[vnetGSOType] = kind
	binary.NativeEndian.PutUint16(b[vnetGSOSize:], uint16(perSegment))
	binary.NativeEndian.PutUint16(b[vnetCsumStart:], uint16(start))
	if kind != unix.VIRTIO_NET_HDR_GSO_UDP_L4 {
		b[vnetLen+start+tcpOffsetField] = byte(transport/4) << 4
	}
	return b
}

// TestWireSize proves that frames count as what a wire would carry, segments with all their
// headers, and that headers that contradict themselves are refused.
func TestWireSize(t *testing.T) {
	const tcp4, tcp6, udp = unix.VIRTIO_NET_HDR_GSO_TCPV4, unix.VIRTIO_NET_HDR_GSO_TCPV6, unix.VIRTIO_NET_HDR_GSO_UDP_L4
	noChecksum := superPacket(tcp4, 34, 32, 3000, 1448)
	noChecksum[vnetFlags] = 0
	noHeader := superPacket(tcp4, 34, 32, 3000, 1448)
	binary.NativeEndian.PutUint16(noHeader[vnetCsumStart:], 5000)
	shortTCP := superPacket(tcp4, 34, 16, 3000, 1448)
	for _, c := range []struct {
		name  string
		frame []byte
		want  Traffic // zero: refused
	}{
		{"empty", nil, Traffic{}},
		{"no Ethernet header", make([]byte, vnetLen+13), Traffic{}},
		{"a frame", make([]byte, vnetLen+1514), Traffic{Packets: 1, Bytes: 1514}},
		{"a jumbo frame", make([]byte, vnetLen+9014), Traffic{Packets: 1, Bytes: 9014}},
		{"full segments", superPacket(tcp4, 34, 32, 10*1448, 1448), Traffic{Packets: 10, Bytes: 10 * 1514}},
		{"a short one last", superPacket(tcp4, 34, 32, 2*1448+1, 1448), Traffic{Packets: 3, Bytes: 2*1514 + 67}},
		{"explicit congestion notification", superPacket(tcp4|unix.VIRTIO_NET_HDR_GSO_ECN, 34, 20, 2*1460, 1460), Traffic{Packets: 2, Bytes: 2 * 1514}},
		{"IPv6 with a tag", superPacket(tcp6, 58, 32, 2*1428, 1428), Traffic{Packets: 2, Bytes: 2 * 1518}},
		{"UDP", superPacket(udp, 34, 8, 5*1200, 1200), Traffic{Packets: 5, Bytes: 5 * 1242}},
		{"one segment", superPacket(tcp4, 34, 32, 100, 1448), Traffic{Packets: 1, Bytes: 166}},
		{"no segment size", superPacket(tcp4, 34, 32, 3000, 0), Traffic{}},
		{"no checksum", noChecksum, Traffic{}},
		{"header behind the end", noHeader, Traffic{}},
		{"TCP header too short", shortTCP, Traffic{}},
		{"unknown kind", superPacket(77, 34, 32, 3000, 1448), Traffic{}},
	} {
		got, ok := wireSize(c.frame)
		if ok != (c.want != Traffic{}) || got != c.want {
			t.Errorf("%s: %+v %t, want %+v", c.name, got, ok, c.want)
		}
	}
}

// FuzzWireSize proves that no frame makes the parser fail or return what a wire could not have
// carried.
func FuzzWireSize(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, vnetLen+60))
	f.Add(superPacket(unix.VIRTIO_NET_HDR_GSO_TCPV4, 34, 32, 3000, 1448))
	f.Add(superPacket(unix.VIRTIO_NET_HDR_GSO_TCPV6, 54, 20, 3000, 1))
	f.Add(superPacket(unix.VIRTIO_NET_HDR_GSO_UDP_L4, 42, 8, 9, 65535))
	f.Fuzz(func(t *testing.T, b []byte) {
		size, ok := wireSize(b)
		if !ok {
			if size != (Traffic{}) {
				t.Fatalf("refused, but %+v", size)
			}
			return
		}
		length := uint64(len(b) - vnetLen)
		if size.Packets < 1 || size.Packets > length || size.Bytes < length || size.Bytes > size.Packets*length {
			t.Fatalf("%d bytes are %+v", length, size)
		}
		if b[vnetGSOType]&^unix.VIRTIO_NET_HDR_GSO_ECN == unix.VIRTIO_NET_HDR_GSO_NONE && size != (Traffic{Packets: 1, Bytes: length}) {
			t.Fatalf("one frame of %d bytes is %+v", length, size)
		}
	})
}

// TestOffload proves for which impairments super-packets are used.
func TestOffload(t *testing.T) {
	for _, c := range []struct {
		topology.Impairment
		want bool
	}{
		{topology.Impairment{}, true},
		{topology.Impairment{Delay: ms(20)}, true},
		{topology.Impairment{Bandwidth: 100e6, Delay: ms(20)}, true},
		{topology.Impairment{Bandwidth: 99e6}, false},
		{topology.Impairment{Jitter: ms(1)}, false},
		{topology.Impairment{Loss: 0.001}, false},
		{topology.Impairment{Bandwidth: 1e9, Queue: topology.Queue{Limit: 20}}, false},
		{topology.Impairment{Bandwidth: 1e9, Queue: topology.Queue{Limit: 1000}}, true},
	} {
		if got := Offload(c.Impairment); got != c.want {
			t.Errorf("%+v: %t", c.Impairment, got)
		}
	}
}
