package segment

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// ARP is the EtherType of its packets.
const ARP = unix.ETH_P_ARP

// Answer is the owner of an address.
type Answer struct {
	Address netip.Addr
	MAC     string
	VLAN    uint16 // or Untagged
}

// arpPace is the pause between requests: a thousand of them must not overload a small switch.
const arpPace = time.Millisecond

// WhoHas asks for addresses on some VLANs, three times, and returns each answer once. The requests
// are ARP probes (RFC 5227, section 2.1.1), from which no one learns an address.
func (s *Segment) WhoHas(ctx context.Context, addresses []netip.Addr, vlans []uint16,
	wait time.Duration) (out []Answer, err error) {
	pace := time.NewTicker(arpPace)
	defer pace.Stop()
	ask := func(ctx context.Context) error {
		for range 3 {
			for _, a := range addresses {
				for _, vlan := range vlans {
					select {
					case <-ctx.Done():
						return nil
					case <-pace.C:
					}
					if err := s.Send(broadcast, vlan, ARP, arpProbe(s.nic.HardwareAddr, a)); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	most := 4 * len(addresses) * len(vlans) // an address may have several owners, not a thousand
	err = s.while(ctx, wait, ask, func(f frame) {
		a, ok := arpAnswer(f)
		if ok && len(out) < most && slices.Contains(addresses, a.Address) && slices.Contains(vlans,
			a.VLAN) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	})
	return out, err
}

// arpHeader begins packets about IPv4 addresses on Ethernet (RFC 826): their kinds and lengths.
var arpHeader = []byte{0, 1, 8, 0, 6, 4}

const (
	arpRequest = 1
	arpReply   = 2
	arpLength  = 28
)

func arpProbe(from net.HardwareAddr, to netip.Addr) []byte {
	b := binary.BigEndian.AppendUint16(slices.Clone(arpHeader), arpRequest)
	b = append(append(b, from...), 0, 0, 0, 0)
	return append(append(b, 0, 0, 0, 0, 0, 0), to.AsSlice()...)
}

// arpAnswer reads a reply.
func arpAnswer(f frame) (a Answer, ok bool) {
	b := f.data
	if f.kind != ARP || len(b) < arpLength || !slices.Equal(b[:6],
		arpHeader) || binary.BigEndian.Uint16(b[6:]) != arpReply {
		return a, false
	}
	return Answer{netip.AddrFrom4([4]byte(b[14:18])), net.HardwareAddr(b[8:14]).String(), f.vlan}, true
}
