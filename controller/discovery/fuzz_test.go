package discovery

import (
	"testing"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// FuzzFrames proves that no frame makes the app fail, that none that was not signed is taken
// for a probe, and that addresses that are taken can be a host's.
func FuzzFrames(f *testing.F) {
	f.Add(arp(macA, macA, ip1))
	f.Add(nd(macA, neighborAdvertisement, 255, targetOption, ip6, ip6))
	f.Add(nd(macA, routerAdvertisement, 255, sourceOption, ip6, ip6))
	a := New()
	f.Add(New().probe(place{1, 2}, 0, macA, lldpDst, etherTypeLLDP))
	a.key[0] = 1 // signed with another key
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 {
			return
		}
		if from, ok := a.read(frame); ok {
			t.Errorf("a probe from %v", from)
		}
		for at := 12; at+2 <= len(frame); at += 4 {
			p := &controller.Packet{PacketIn: &openflow.PacketIn{Data: frame}, Src: openflow.MAC(frame[6:12]), EtherType: uint16(frame[at])<<8 | uint16(frame[at+1])}
			if got, ok := address(p); ok && (!got.IsValid() || got.IsUnspecified() || got.IsMulticast()) {
				t.Errorf("address %v", got)
			}
			if p.EtherType != 0x8100 && p.EtherType != 0x88a8 {
				break
			}
		}
	})
}
