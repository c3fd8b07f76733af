package dhcp

import (
	"net"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

const (
	serverPort, clientPort = 67, 68
	answerToAll            = 0x8000 // RFC 2131, figure 2
	// The minimum length of a BOOTP message, in bytes (RFC 951, section 3): some clients accept no
	// less.
	shortest = 300
)

// question is a client's message.
type question struct {
	*layers.DHCPv4
	kind      layers.DHCPMsgType
	requested netip.Addr // options 50 and 54; invalid: not there
	server    netip.Addr
	id        []byte // option 61
}

// Protocols that may be answered.
var (
	ofARP  = []gopacket.LayerType{layers.LayerTypeEthernet, layers.LayerTypeARP}
	ofDHCP = []gopacket.LayerType{layers.LayerTypeEthernet, layers.LayerTypeIPv4, layers.LayerTypeUDP,
		layers.LayerTypeDHCPv4}
)

// answer returns the frame that answers one from the device; nil if none does. own is the server's
// MAC address. The frame may be arbitrary.
func answer(frame []byte, l *Lease, own net.HardwareAddr) []byte {
	var (
		eth     layers.Ethernet
		arp     layers.ARP
		ip      layers.IPv4
		udp     layers.UDP
		d       layers.DHCPv4
		decoded []gopacket.LayerType
	)
	// It turns a decoder's panic into an error.
	p := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &eth, &arp, &ip, &udp, &d)
	p.IgnoreUnsupported = true
	if p.DecodeLayers(frame, &decoded) != nil || p.Truncated {
		return nil
	}
	switch {
	case slices.Equal(decoded, ofARP):
		return answerARP(&eth, &arp, own)
	case slices.Equal(decoded, ofDHCP):
		if q, ok := read(&d); ok && udp.DstPort == serverPort && slices.Equal(d.ClientHWAddr, l.MAC[:]) {
			return q.answer(l, own)
		}
	}
	return nil
}

// answerARP answers a request for the server's address (RFC 826).
func answerARP(eth *layers.Ethernet, q *layers.ARP, own net.HardwareAddr) []byte {
	if q.AddrType != layers.LinkTypeEthernet || q.Protocol != layers.EthernetTypeIPv4 || q.HwAddressSize != 6 ||
		q.ProtAddressSize != 4 || q.Operation != layers.ARPRequest ||
		!slices.Equal(q.DstProtAddress, Identifier.AsSlice()) {
		return nil
	}
	return serialize(&layers.Ethernet{SrcMAC: own, DstMAC: eth.SrcMAC, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, Operation: layers.ARPReply,
			SourceHwAddress: own, SourceProtAddress: Identifier.AsSlice(),
			DstHwAddress: q.SourceHwAddress, DstProtAddress: q.SourceProtAddress})
}

// read parses a client's message; ok is false if it is none, or came through a relay, which no
// client of this device needs.
func read(d *layers.DHCPv4) (q question, ok bool) {
	if d.Operation != layers.DHCPOpRequest || d.HardwareType != layers.LinkTypeEthernet || d.HardwareLen != 6 ||
		!d.RelayAgentIP.IsUnspecified() {
		return q, false
	}
	q.DHCPv4 = d
	for _, o := range d.Options {
		switch {
		case o.Type == layers.DHCPOptMessageType && len(o.Data) == 1:
			q.kind = layers.DHCPMsgType(o.Data[0])
		case o.Type == layers.DHCPOptRequestIP && len(o.Data) == net.IPv4len:
			q.requested, _ = netip.AddrFromSlice(o.Data)
		case o.Type == layers.DHCPOptServerID && len(o.Data) == net.IPv4len:
			q.server, _ = netip.AddrFromSlice(o.Data)
		case o.Type == layers.DHCPOptClientID && len(o.Data) <= longestID:
			q.id = o.Data
		}
	}
	return q, true
}

// answer answers as in RFC 2131, sections 4.3.1 (discover), 4.3.2 (request) and 4.3.5 (inform).
// Releases and declines need no record, as the address is reserved for the client.
func (q question) answer(l *Lease, own net.HardwareAddr) []byte {
	if q.server.IsValid() && q.server != Identifier {
		return nil // the client has chosen another server
	}
	current, _ := netip.AddrFromSlice(q.ClientIP.To4())
	switch q.kind {
	case layers.DHCPMsgTypeDiscover:
		return q.say(layers.DHCPMsgTypeOffer, l, own)
	case layers.DHCPMsgTypeInform:
		return q.say(layers.DHCPMsgTypeAck, l, own)
	case layers.DHCPMsgTypeRequest:
		wanted := q.requested // from clients that select an offer, or reboot
		if !current.IsUnspecified() {
			wanted = current // from clients that renew or rebind
		}
		switch {
		case !wanted.IsValid():
			return nil
		case wanted != l.Address.Addr():
			return q.say(layers.DHCPMsgTypeNak, l, own)
		}
		return q.say(layers.DHCPMsgTypeAck, l, own)
	}
	return nil
}

// say builds an answer (RFC 2131, table 3), with the destination according to section 4.1.
func (q question) say(kind layers.DHCPMsgType, l *Lease, own net.HardwareAddr) []byte {
	out := layers.DHCPv4{Operation: layers.DHCPOpReply, HardwareType: layers.LinkTypeEthernet,
		Xid: q.Xid, Flags: q.Flags, ClientHWAddr: q.ClientHWAddr, Options: layers.DHCPOptions{
			layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(kind)}),
			layers.NewDHCPOption(layers.DHCPOptServerID, Identifier.AsSlice())}}
	if kind != layers.DHCPMsgTypeNak {
		if q.kind != layers.DHCPMsgTypeInform {
			out.YourClientIP = l.Address.Addr().AsSlice()
			out.Options = append(out.Options,
				layers.NewDHCPOption(layers.DHCPOptLeaseTime, seconds(leaseTime)),
				layers.NewDHCPOption(layers.DHCPOptT1, seconds(renewAfter)),
				layers.NewDHCPOption(layers.DHCPOptT2, seconds(rebindAfter)))
		}
		if q.kind != layers.DHCPMsgTypeDiscover {
			out.ClientIP = q.ClientIP
		}
		out.Options = append(out.Options, l.options()...)
	}
	if len(q.id) > 0 {
		out.Options = append(out.Options, layers.NewDHCPOption(layers.DHCPOptClientID, q.id))
	}

	eth := &layers.Ethernet{SrcMAC: own, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP,
		SrcIP: Identifier.AsSlice(), DstIP: net.IPv4bcast}
	switch {
	case kind == layers.DHCPMsgTypeNak:
	case !q.ClientIP.IsUnspecified():
		eth.DstMAC, ip.DstIP = q.ClientHWAddr, q.ClientIP
	case q.Flags&answerToAll == 0 && out.YourClientIP != nil:
		eth.DstMAC, ip.DstIP = q.ClientHWAddr, out.YourClientIP
	}
	udp := &layers.UDP{SrcPort: serverPort, DstPort: clientPort}
	_ = udp.SetNetworkLayerForChecksum(ip) // fails only for other protocols
	padding := make(gopacket.Payload, max(0, shortest-int(out.Len())))
	return serialize(eth, ip, udp, &out, padding)
}

func serialize(l ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, options, l...); err != nil {
		return nil
	}
	return b.Bytes()
}
