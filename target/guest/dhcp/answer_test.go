package dhcp

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"trivet.dev/trivet/topology"
)

var (
	own    = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	sample = Lease{
		MAC:     topology.MAC{2, 0, 0, 0, 0xfe, 0xa7},
		Address: netip.MustParsePrefix("10.1.2.3/20"),
		Gateway: netip.MustParseAddr("10.1.0.1"),
		Routes: []Route{{To: netip.MustParsePrefix("10.9.8.7/17"), Via: netip.MustParseAddr("10.1.0.2")},
			{To: netip.MustParsePrefix("192.0.2.1/32")}},
		MTU:      1400,
		Hostname: "h1",
		DNS:      []netip.Addr{netip.MustParseAddr("10.1.0.53"), netip.MustParseAddr("10.1.0.54")},
	}
)

// change makes another packet of a request.
type change = func(*layers.IPv4, *layers.UDP, *layers.DHCPv4)

// asks makes a request of sample's client, a frame, with a change unless it is nil.
func asks(kind layers.DHCPMsgType, options layers.DHCPOptions, c change) []byte {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4zero, DstIP: net.IPv4bcast}
	udp := &layers.UDP{SrcPort: clientPort, DstPort: serverPort}
	d := &layers.DHCPv4{Operation: layers.DHCPOpRequest, HardwareType: layers.LinkTypeEthernet, Xid: 0x1234567,
		ClientHWAddr: sample.MAC[:],
		Options:      append(layers.DHCPOptions{option(layers.DHCPOptMessageType, byte(kind))}, options...)}
	if kind == layers.DHCPMsgTypeUnspecified {
		d.Options = options
	}
	if c != nil {
		c(ip, udp, d)
	}
	_ = udp.SetNetworkLayerForChecksum(ip)
	return serialize(toEverybody(layers.EthernetTypeIPv4), ip, udp, d)
}

func toEverybody(kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: sample.MAC[:], DstMAC: layers.EthernetBroadcast, EthernetType: kind}
}

// asksWho is an ARP request of the client, or another operation.
func asksWho(operation uint16, has netip.Addr) []byte {
	return serialize(toEverybody(layers.EthernetTypeARP),
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, Operation: operation,
			SourceHwAddress: sample.MAC[:], SourceProtAddress: sample.Address.Addr().AsSlice(),
			DstHwAddress: make([]byte, 6), DstProtAddress: has.AsSlice()})
}

func option(kind layers.DHCPOpt, data ...byte) layers.DHCPOption {
	return layers.NewDHCPOption(kind, data)
}

func address(kind layers.DHCPOpt, a string) layers.DHCPOption {
	return option(kind, netip.MustParseAddr(a).AsSlice()...)
}

// has is a client with an address.
func has(a string) change {
	return func(ip *layers.IPv4, _ *layers.UDP, d *layers.DHCPv4) {
		ip.SrcIP, d.ClientIP = net.ParseIP(a), net.ParseIP(a)
	}
}

// said is an answer as a client reads it.
type said struct {
	layers.DHCPv4
	kind layers.DHCPMsgType
	to   string // MAC and IP
	all  map[layers.DHCPOpt][]byte
}

// hear reads an answer of the server with a MAC address, and checks what all of them have.
func hear(t *testing.T, frame []byte, from net.HardwareAddr) (s said) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	eth, _ := p.LinkLayer().(*layers.Ethernet)
	ip, _ := p.NetworkLayer().(*layers.IPv4)
	udp, _ := p.TransportLayer().(*layers.UDP)
	d, _ := p.Layer(layers.LayerTypeDHCPv4).(*layers.DHCPv4)
	if p.ErrorLayer() != nil || eth == nil || ip == nil || udp == nil || d == nil {
		t.Fatalf("not an answer: %s", p)
	}
	s = said{DHCPv4: *d, to: eth.DstMAC.String() + " " + ip.DstIP.String(), all: map[layers.DHCPOpt][]byte{}}
	for _, o := range d.Options {
		s.all[o.Type] = append(s.all[o.Type], o.Data...)
	}
	if len(s.all[layers.DHCPOptMessageType]) != 1 {
		t.Fatalf("an answer without a type: %v", d.Options)
	}
	s.kind = layers.DHCPMsgType(s.all[layers.DHCPOptMessageType][0])
	if d.Operation != layers.DHCPOpReply || !bytes.Equal(d.ClientHWAddr, sample.MAC[:]) ||
		udp.SrcPort != 67 || udp.DstPort != 68 ||
		!bytes.Equal(eth.SrcMAC, from) || !ip.SrcIP.Equal(Identifier.AsSlice()) ||
		!bytes.Equal(s.all[layers.DHCPOptServerID], Identifier.AsSlice()) {
		t.Errorf("answer %s", p)
	}
	if ip.Length > largest || udp.Length < 8+shortest {
		t.Errorf("an answer of %d bytes, %d of DHCP", ip.Length, udp.Length-8)
	}
	return s
}

const (
	toAll  = "ff:ff:ff:ff:ff:ff 255.255.255.255"
	toHost = "02:00:00:00:fe:a7 10.1.2.3"
)

// TestAnswers proves what each message of RFC 2131 is answered with and where the answer goes, and
// what is not answered.
func TestAnswers(t *testing.T) {
	const (
		discover, request, inform = layers.DHCPMsgTypeDiscover, layers.DHCPMsgTypeRequest, layers.DHCPMsgTypeInform
		offer, ack, nak           = layers.DHCPMsgTypeOffer, layers.DHCPMsgTypeAck, layers.DHCPMsgTypeNak
		nothing                   = layers.DHCPMsgTypeUnspecified
	)
	ours, other := address(layers.DHCPOptServerID, Identifier.String()), address(layers.DHCPOptServerID, "10.1.0.1")
	right, wrong := address(layers.DHCPOptRequestIP, "10.1.2.3"), address(layers.DHCPOptRequestIP, "10.1.2.4")
	type options = layers.DHCPOptions
	of := func(f func(*layers.DHCPv4)) change {
		return func(_ *layers.IPv4, _ *layers.UDP, d *layers.DHCPv4) { f(d) }
	}
	toBroadcast := of(func(d *layers.DHCPv4) { d.Flags = answerToAll })
	another := of(func(d *layers.DHCPv4) { d.ClientHWAddr = own })
	relayed := of(func(d *layers.DHCPv4) { d.RelayAgentIP = net.IPv4(10, 1, 0, 1) })
	reply := of(func(d *layers.DHCPv4) { d.Operation = layers.DHCPOpReply })
	toClient := func(_ *layers.IPv4, udp *layers.UDP, _ *layers.DHCPv4) { udp.SrcPort, udp.DstPort = 67, 68 }
	fragment := func(ip *layers.IPv4, _ *layers.UDP, _ *layers.DHCPv4) { ip.Flags = layers.IPv4MoreFragments }
	for _, c := range []struct {
		name  string
		frame []byte
		want  layers.DHCPMsgType
		to    string
	}{
		{"discover", asks(discover, nil, nil), offer, toHost},
		{"discover, hoping for another address", asks(discover, options{wrong}, nil), offer, toHost},
		{"discover, to be answered to all", asks(discover, nil, toBroadcast), offer, toAll},
		{"select", asks(request, options{ours, right}, nil), ack, toHost},
		{"select what was not offered", asks(request, options{ours, wrong}, nil), nak, toAll},
		{"select another server", asks(request, options{other, right}, nil), nothing, ""},
		{"come up again", asks(request, options{right}, nil), ack, toHost},
		{"come up again elsewhere", asks(request, options{wrong}, nil), nak, toAll},
		{"renew, rebind", asks(request, nil, has("10.1.2.3")), ack, toHost},
		{"renew, rebind another address", asks(request, nil, has("10.1.2.4")), nak, toAll},
		{"request nothing", asks(request, nil, nil), nothing, ""},
		{"request what is cut", asks(request, options{option(layers.DHCPOptRequestIP, 10, 1, 2)}, nil), nothing, ""},
		{"inform", asks(inform, nil, has("10.1.2.9")), ack, "02:00:00:00:fe:a7 10.1.2.9"},
		{"inform without an address", asks(inform, nil, nil), ack, toAll},
		{"release", asks(layers.DHCPMsgTypeRelease, options{ours}, has("10.1.2.3")), nothing, ""},
		{"decline", asks(layers.DHCPMsgTypeDecline, options{ours, right}, nil), nothing, ""},
		{"an answer", asks(ack, nil, nil), nothing, ""},
		{"no type: BOOTP", asks(nothing, nil, nil), nothing, ""},
		{"another client", asks(discover, nil, another), nothing, ""},
		{"through a relay", asks(discover, nil, relayed), nothing, ""},
		{"a reply", asks(discover, nil, reply), nothing, ""},
		{"another port", asks(discover, nil, toClient), nothing, ""},
		{"a fragment", asks(discover, nil, fragment), nothing, ""},
		{"cut", asks(discover, nil, nil)[:285], nothing, ""},
		{"nothing", nil, nothing, ""},
	} {
		frame := answer(c.frame, &sample, own)
		if frame == nil || c.want == nothing {
			if frame != nil || c.want != nothing {
				t.Errorf("%s: answered %v, want %v", c.name, frame != nil, c.want)
			}
			continue
		}
		got := hear(t, frame, own)
		if got.kind != c.want || got.to != c.to || got.Xid != 0x1234567 {
			t.Errorf("%s: %v to %s, want %v to %s", c.name, got.kind, got.to, c.want, c.to)
		}
		gives := c.want == offer || c.want == ack && !strings.HasPrefix(c.name, "inform")
		_, timed := got.all[layers.DHCPOptLeaseTime]
		mine := got.YourClientIP.String() == "10.1.2.3"
		if gives != mine || gives == got.YourClientIP.IsUnspecified() || timed != gives {
			t.Errorf("%s: gives %s (for a time: %v)", c.name, got.YourClientIP, timed)
		}
		if _, told := got.all[layers.DHCPOptSubnetMask]; told != (c.want != nak) {
			t.Errorf("%s: told the network: %v", c.name, told)
		}
	}
}

// TestTold proves the content of each option of a lease, of one with all and of the least one; that
// a client's identifier is repeated, but for one that leaves no room for the rest; and that the
// times are in the order that RFC 2131 wants.
func TestTold(t *testing.T) {
	id := bytes.Repeat([]byte{0xff}, longestID)
	discovers := func(l *Lease, o layers.DHCPOption) said {
		return hear(t, answer(asks(layers.DHCPMsgTypeDiscover, layers.DHCPOptions{o}, nil), l, own), own)
	}
	full := discovers(&sample, option(layers.DHCPOptClientID, id...))
	for kind, want := range map[layers.DHCPOpt][]byte{
		layers.DHCPOptSubnetMask:    {255, 255, 240, 0},
		layers.DHCPOptBroadcastAddr: {10, 1, 15, 255},
		layers.DHCPOptRouter:        {10, 1, 0, 1},
		// RFC 3442: a length, what is significant of the network, the router.
		layers.DHCPOptClasslessStaticRoute: {17, 10, 9, 0, 10, 1, 0, 2, 32, 192, 0, 2, 1, 0, 0, 0, 0, 0, 10, 1, 0, 1},
		layers.DHCPOptDNS:                  {10, 1, 0, 53, 10, 1, 0, 54},
		layers.DHCPOptHostname:             []byte("h1"),
		layers.DHCPOptInterfaceMTU:         {5, 120},
		layers.DHCPOptLeaseTime:            {0, 0, 14, 16},
		layers.DHCPOptT1:                   {0, 0, 1, 44},
		layers.DHCPOptT2:                   {0, 0, 1, 104},
		layers.DHCPOptClientID:             id,
	} {
		if got := full.all[kind]; !bytes.Equal(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
	kinds := func(s said) (out []layers.DHCPOpt) {
		for _, o := range s.Options {
			out = append(out, o.Type)
		}
		return out
	}
	all := kinds(full)
	if slices.Index(all, layers.DHCPOptClasslessStaticRoute) > slices.Index(all, layers.DHCPOptRouter) {
		t.Errorf("the gateway is told before routes: %v", all)
	}

	least := Lease{MAC: sample.MAC, Address: netip.MustParsePrefix("10.0.0.0/31")}
	long := option(layers.DHCPOptClientID, make([]byte, longestID+1)...)
	want := []layers.DHCPOpt{layers.DHCPOptMessageType, layers.DHCPOptServerID, layers.DHCPOptLeaseTime,
		layers.DHCPOptT1, layers.DHCPOptT2, layers.DHCPOptSubnetMask}
	if got := kinds(discovers(&least, long)); !slices.Equal(got, want) {
		t.Errorf("the least lease: %v, want %v", got, want)
	}
	if !(0 < renewAfter && renewAfter < rebindAfter && rebindAfter < leaseTime) {
		t.Error(renewAfter, rebindAfter, leaseTime)
	}
}

// TestARP proves that the server says where it is, and nothing of other addresses.
func TestARP(t *testing.T) {
	if answer(asksWho(layers.ARPRequest, sample.Gateway), &sample, own) != nil ||
		answer(asksWho(layers.ARPReply, Identifier), &sample, own) != nil {
		t.Error("answered what does not ask for the server")
	}
	out := answer(asksWho(layers.ARPRequest, Identifier), &sample, own)
	p := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default)
	eth, _ := p.LinkLayer().(*layers.Ethernet)
	a, _ := p.Layer(layers.LayerTypeARP).(*layers.ARP)
	if eth == nil || a == nil || !bytes.Equal(eth.DstMAC, sample.MAC[:]) || a.Operation != layers.ARPReply ||
		!bytes.Equal(a.SourceHwAddress, own) || !bytes.Equal(a.SourceProtAddress, Identifier.AsSlice()) ||
		!bytes.Equal(a.DstProtAddress, sample.Address.Addr().AsSlice()) {
		t.Errorf("answer %s", p)
	}
}

// TestCheck proves that what DHCP cannot tell is refused, and says what it is; and that of routes
// as many as are not refused fit into what each client takes.
func TestCheck(t *testing.T) {
	v6 := netip.MustParseAddr("fd00::1")
	for want, change := range map[string]func(*Lease){
		"MAC address":       func(l *Lease) { l.MAC = topology.MAC{} },
		"01:00:00:00:00:00": func(l *Lease) { l.MAC = topology.MAC{1} },
		"fd00::1/64":        func(l *Lease) { l.Address = netip.PrefixFrom(v6, 64) },
		"invalid Prefix":    func(l *Lease) { l.Address = netip.Prefix{} },
		"gateway fd00::1":   func(l *Lease) { l.Gateway = v6 },
		"server fd00::1":    func(l *Lease) { l.DNS = append(l.DNS, v6) },
		"via fd00::1":       func(l *Lease) { l.Routes = []Route{{To: sample.Address, Via: v6}} },
		"route fd00::1/64":  func(l *Lease) { l.Routes = []Route{{To: netip.PrefixFrom(v6, 64)}} },
		"MTU 67":            func(l *Lease) { l.MTU = 67 },
		"MTU 65536":         func(l *Lease) { l.MTU = 65536 },
		"256 bytes":         func(l *Lease) { l.Hostname = strings.Repeat("a", 256) },
		"another address":   func(l *Lease) { l.Routes = []Route{{To: sample.Address, Via: Identifier}} },
		"169.254.255.67 ":   func(l *Lease) { l.Address = netip.PrefixFrom(Identifier, 16) },
	} {
		l := sample
		change(&l)
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
	}
	l := sample
	for l.Check() == nil {
		id := option(layers.DHCPOptClientID, make([]byte, longestID)...)
		hear(t, answer(asks(layers.DHCPMsgTypeDiscover, layers.DHCPOptions{id}, nil), &l, own), own)
		l.Routes = append(slices.Clip(l.Routes), Route{To: netip.MustParsePrefix("192.0.2.1/32"), Via: sample.Gateway})
	}
	if err := l.Check(); len(l.Routes) < 20 || !strings.Contains(err.Error(), "own configuration") {
		t.Errorf("%d routes: %v", len(l.Routes), err)
	}
}

// FuzzAnswer proves that whatever comes in at the device, the server does not panic, and that what
// it answers is well formed, fits, goes to the client, and gives it its own address or none.
func FuzzAnswer(f *testing.F) {
	for kind := range layers.DHCPMsgTypeInform + 2 {
		wants, is := address(layers.DHCPOptRequestIP, "10.1.2.3"), option(layers.DHCPOptClientID, 1, 2, 3)
		f.Add(asks(kind, layers.DHCPOptions{wants, is}, nil))
		f.Add(asks(kind, nil, has("10.1.2.3")))
	}
	overloads := func(ip *layers.IPv4, _ *layers.UDP, d *layers.DHCPv4) {
		d.File, d.ServerName = []byte{50, 4, 10, 1, 2, 3, 255}, []byte{61, 200}
		ip.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 7, OptionData: make([]byte, 5)}, {OptionLength: 1}}
	}
	f.Add(asks(layers.DHCPMsgTypeDiscover, layers.DHCPOptions{option(layers.DHCPOptExtOptions, 3)}, overloads))
	f.Add(asksWho(layers.ARPRequest, Identifier))
	f.Fuzz(func(t *testing.T, frame []byte) {
		out := answer(frame, &sample, own)
		if out == nil {
			return
		}
		if out[12] == 8 && out[13] == 6 { // ARP
			if len(out) != 60 {
				t.Errorf("%x", out)
			}
			return
		}
		if s := hear(t, out, own); !s.YourClientIP.IsUnspecified() && s.YourClientIP.String() != "10.1.2.3" {
			t.Errorf("%v: %s", s.kind, s.YourClientIP)
		}
	})
}
