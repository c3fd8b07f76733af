package discovery

import (
	"cmp"
	"crypto/hmac"
	"encoding/binary"
	"fmt"
	"hash"
	"time"

	"trivet.dev/trivet/openflow"
)

// A probe is an LLDP frame (IEEE 802.1AB) with the switch, port and time of sending, signed with a
// key of this run. Frames that a host makes up, or replays later or from an earlier run, are
// rejected. Frames that two hosts relay at once are accepted, because they cannot be distinguished
// from those that cross a cable.
const (
	etherTypeLLDP = 0x88cc
	etherTypeBDDP = 0x8942 // the same, sent to the broadcast address: it passes switches that do not forward LLDP
)

var (
	lldpDst = openflow.MAC{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e} // nearest bridge
	bddpDst = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// LLDP's TLV types (IEEE 802.1AB-2016, section 8.4).
const (
	tlvEnd = iota
	tlvChassis
	tlvPort
	tlvTTL
	tlvOrganization = 127
)

const localSubtype = 7 // "locally assigned", of chassis and port ids

// oui marks our signature; it has the bit of locally administered addresses.
var oui = [4]byte{0x02, 't', 'v', 1}

const (
	stampLen     = 8
	signatureLen = 16

	// probeLife is the maximum age of a probe on arrival: longer than one takes to a controller
	// under load.
	probeLife = 2 * openMost
)

// place is a port of a switch.
type place struct {
	dpid uint64
	port uint32
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.dpid, q.dpid), cmp.Compare(p.port, q.port))
}

func (p place) String() string { return fmt.Sprintf("%016x:%d", p.dpid, p.port) }

// sign returns the signature of a probe from a place, sent at a time since the start.
func (a *App) sign(p place, at time.Duration) []byte {
	mac := a.macs.Get().(hash.Hash)
	defer a.macs.Put(mac)
	mac.Reset()
	var b [20]byte
	binary.BigEndian.PutUint64(b[:], p.dpid)
	binary.BigEndian.PutUint32(b[8:], p.port)
	binary.BigEndian.PutUint64(b[12:], uint64(at))
	mac.Write(b[:])
	return mac.Sum(nil)[:signatureLen]
}

// probe makes the frame for a place and a time since the start.
func (a *App) probe(p place, at time.Duration, src openflow.MAC, dst openflow.MAC, etherType uint16) []byte {
	b := make([]byte, 0, 96)
	b = append(append(b, dst[:]...), src[:]...)
	b = binary.BigEndian.AppendUint16(b, etherType)
	tlv := func(kind int, value ...byte) {
		b = binary.BigEndian.AppendUint16(b, uint16(kind<<9|len(value)))
		b = append(b, value...)
	}
	tlv(tlvChassis, binary.BigEndian.AppendUint64([]byte{localSubtype}, p.dpid)...)
	tlv(tlvPort, binary.BigEndian.AppendUint32([]byte{localSubtype}, p.port)...)
	tlv(tlvTTL, 0, 120)
	tlv(tlvOrganization, append(binary.BigEndian.AppendUint64(oui[:], uint64(at)), a.sign(p, at)...)...)
	tlv(tlvEnd)
	return b
}

// read returns where the probe in a frame was sent; ok is false if the frame is no probe of this
// controller, or too old.
func (a *App) read(frame []byte) (from place, ok bool) {
	b := frame[14:]
	var signature []byte
	var at time.Duration
	for len(b) >= 2 {
		head := binary.BigEndian.Uint16(b)
		kind, n := int(head>>9), int(head&0x1ff)
		if len(b) < 2+n {
			return from, false
		}
		value := b[2 : 2+n]
		b = b[2+n:]
		switch {
		case kind == tlvEnd:
			b = nil
		case kind == tlvChassis && n == 9 && value[0] == localSubtype:
			from.dpid = binary.BigEndian.Uint64(value[1:])
		case kind == tlvPort && n == 5 && value[0] == localSubtype:
			from.port = binary.BigEndian.Uint32(value[1:])
		case kind == tlvOrganization && n == len(oui)+stampLen+signatureLen && [4]byte(value) == oui:
			at = time.Duration(binary.BigEndian.Uint64(value[len(oui):]))
			signature = value[len(oui)+stampLen:]
		}
	}
	return from, signature != nil && hmac.Equal(signature, a.sign(from, at)) && a.isFresh(at)
}
