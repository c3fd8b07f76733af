package ospf

import (
	"encoding/binary"
	"fmt"
	"time"
)

// RestartReason is why a router restarts (RFC 3623, appendix B).
type RestartReason uint8

const (
	RestartUnknown RestartReason = iota // an unplanned outage
	RestartSoftware
	RestartReload // including an upgrade
	RestartSwitchover
)

// GraceLSA is the body of a grace-LSA (RFC 3623, appendix B), a link-local opaque LSA by which a
// router asks its neighbours to treat it as adjacent while it restarts.
type GraceLSA struct {
	Period  time.Duration // whole seconds, from the LSA's age 0
	Reason  RestartReason
	Address ID // of the interface, on networks that may have several routers; otherwise 0
}

// graceID is the Link State ID of grace-LSAs: opaque type 3, number 0.
const graceID ID = 3 << 24

// IsGrace reports whether an LSA is a grace-LSA.
func (k LSAKey) IsGrace() bool { return k.Type == TypeOpaqueLink && k.ID>>24 == graceID>>24 }

// TLV types of a grace-LSA (RFC 3623, appendix B).
const (
	tlvPeriod  = 1
	tlvReason  = 2
	tlvAddress = 3
)

// Encode returns the body's octets.
func (g GraceLSA) Encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, tlvPeriod<<16|4)
	b = binary.BigEndian.AppendUint32(b, uint32(g.Period/time.Second))
	b = binary.BigEndian.AppendUint32(b, tlvReason<<16|1)
	b = append(b, byte(g.Reason), 0, 0, 0)
	if g.Address != 0 {
		b = binary.BigEndian.AppendUint32(b, tlvAddress<<16|4)
		b = binary.BigEndian.AppendUint32(b, uint32(g.Address))
	}
	return b
}

// DecodeGrace reads the body of a grace-LSA. Unknown TLVs are skipped.
func DecodeGrace(body []byte) (g GraceLSA, err error) {
	there := false
	for b := body; len(b) > 0; {
		if len(b) < 4 {
			return g, fmt.Errorf("a grace-LSA ends with %d octets that say nothing", len(b))
		}
		kind, length := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		padded := 4 + (length+3)&^3
		if padded > len(b) {
			return g, fmt.Errorf("in a grace-LSA %d octets of type %d are to come, and %d are left", length, kind,
				len(b)-4)
		}
		switch value := b[4 : 4+length]; {
		case kind == tlvPeriod && length == 4:
			g.Period, there = time.Duration(binary.BigEndian.Uint32(value))*time.Second, true
		case kind == tlvReason && length == 1:
			g.Reason = RestartReason(value[0])
		case kind == tlvAddress && length == 4:
			g.Address = ID(binary.BigEndian.Uint32(value))
		case kind >= tlvPeriod && kind <= tlvAddress:
			return g, fmt.Errorf("in a grace-LSA type %d has %d octets", kind, length)
		}
		b = b[padded:]
	}
	if !there {
		return g, fmt.Errorf("a grace-LSA does not say for how long")
	}
	return g, nil
}
