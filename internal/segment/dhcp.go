package segment

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// IPv4 is the EtherType of its packets.
const IPv4 = unix.ETH_P_IP

// Offer is a DHCP server's offer.
type Offer struct {
	Server  netip.Addr // as it calls itself
	MAC     string     // of the server, or of the relay in front of it
	Address netip.Addr // that this machine could have
}

// DHCPServers looks for DHCP servers (DHCPDISCOVER, RFC 2131, section 4.4.1), and returns their
// offers, accepting none. A server on this machine does not receive the request.
func (s *Segment) DHCPServers(ctx context.Context, wait time.Duration) (out []Offer, err error) {
	id := rand.Uint32()
	question, err := discover(s.nic.HardwareAddr, id)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context) error {
		for range 3 {
			if err := s.Send(broadcast, Untagged, IPv4, question); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait / 4):
			}
		}
		return nil
	}
	err = s.while(ctx, wait, ask, func(f frame) {
		same := func(o Offer) bool { return o.Server == f.offered(id).Server && o.MAC == f.from.String() }
		if o := f.offered(id); o.Server.IsValid() && !slices.ContainsFunc(out, same) {
			out = append(out, o)
		}
	})
	return out, err
}

const (
	dhcpServer, dhcpClient = 67, 68
	answerToAll            = 0x8000 // RFC 2131, figure 2
)

func discover(mac net.HardwareAddr, id uint32) ([]byte, error) {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4zero, DstIP: net.IPv4bcast}
	udp := &layers.UDP{SrcPort: dhcpClient, DstPort: dhcpServer}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	dhcp := &layers.DHCPv4{Operation: layers.DHCPOpRequest, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6,
		Xid: id, Flags: answerToAll,
		ClientHWAddr: mac, Options: layers.DHCPOptions{
			layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(layers.DHCPMsgTypeDiscover)}),
			layers.NewDHCPOption(layers.DHCPOptParamsRequest,
				[]byte{byte(layers.DHCPOptSubnetMask), byte(layers.DHCPOptRouter)}),
			layers.NewDHCPOption(layers.DHCPOptEnd, nil),
		}}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, udp,
		dhcp)
	return b.Bytes(), err
}

// offered reads an offer that answers a question; Server is invalid if the frame is none.
func (f frame) offered(id uint32) (o Offer) {
	if f.kind != IPv4 || f.vlan != Untagged {
		return o
	}
	p := gopacket.NewPacket(f.data, layers.LayerTypeIPv4, gopacket.NoCopy)
	ip, _ := p.NetworkLayer().(*layers.IPv4)
	udp, _ := p.TransportLayer().(*layers.UDP)
	d, _ := p.Layer(layers.LayerTypeDHCPv4).(*layers.DHCPv4)
	if ip == nil || udp == nil || d == nil || udp.SrcPort != dhcpServer || d.Xid != id ||
		d.Operation != layers.DHCPOpReply {
		return o
	}
	server, isOffer := ip.SrcIP, false
	for _, option := range d.Options {
		switch {
		case option.Type == layers.DHCPOptMessageType && len(option.Data) == 1:
			isOffer = option.Data[0] == byte(layers.DHCPMsgTypeOffer)
		case option.Type == layers.DHCPOptServerID && len(option.Data) == net.IPv4len:
			server = option.Data
		}
	}
	if !isOffer {
		return o
	}
	o.MAC = f.from.String()
	o.Server, _ = netip.AddrFromSlice(server.To4())
	o.Address, _ = netip.AddrFromSlice(d.YourClientIP.To4())
	return o
}
