package segment

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
)

// wire is a pair of connected interfaces, each in a namespace of its own: a has 10.0.0.1, b has
// 10.0.0.2.
func wire(t *testing.T) (a, b *os.File) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	var ends [2]*os.File
	for i := range ends {
		var err error
		if ends[i], err = inside.New(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	in(t, ends[0], func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ends[1].Fd())})
	})
	for i, ns := range ends {
		in(t, ns, func() error {
			dev, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 0, byte(i+1)), Mask: net.CIDRMask(24, 32)}}
			if err := netlink.AddrAdd(dev, address); err != nil {
				return err
			}
			return netlink.LinkSetUp(dev)
		})
	}
	for _, ns := range ends {
		in(t, ns, carries)
	}
	return ends[0], ends[1]
}

// carries waits until the kernel lets frames out. It may take a second to notice that the other end
// is up, where many interfaces come and go, and drops all until then.
func carries() error {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		dev, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if dev.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("the interface does not come up")
		}
	}
}

func in(t *testing.T, ns *os.File, f func() error) {
	t.Helper()
	if err := inside.File(ns, f); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, ns *os.File, kinds ...uint16) (s *Segment) {
	t.Helper()
	in(t, ns, func() (err error) {
		s, err = Open("eth0", kinds...)
		return err
	})
	t.Cleanup(s.Close)
	return s
}

// TestWhoHas proves that a machine that has an address is found by it, with its MAC, that others
// are not, and that a VLAN on which nobody is has no answer.
func TestWhoHas(t *testing.T) {
	a, b := wire(t)
	s, far := open(t, a, ARP), open(t, b)
	has, hasNot := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	got, err := s.WhoHas(context.Background(), []netip.Addr{has, hasNot}, []uint16{Untagged, 7}, 300*time.Millisecond)
	if want := (Answer{has, far.MAC().String(), Untagged}); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// TestCalls proves that calls arrive with the VLAN by whose tag they were sent, whole, and that
// those of another check are not told. Their order is not promised.
func TestCalls(t *testing.T) {
	a, b := wire(t)
	s, far := open(t, a, Calling), open(t, b, Calling)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	calls := []Call{{1, 0, Untagged, 64}, {1, 0, 101, 64}, {1, 0, 101, 1500}}
	done := make(chan error, 1)
	go func() {
		err := s.Call(ctx, append([]Call{{2, 0, 102, 64}}, calls...))
		time.Sleep(200 * time.Millisecond)
		cancel()
		done <- err
	}()
	got, err := far.Hear(ctx, 1)
	if sent := <-done; err != nil || sent != nil {
		t.Fatal(err, sent)
	}
	var want []Heard
	for _, c := range calls {
		want = append(want, Heard{c, c.VLAN})
	}
	slices.SortFunc(got, func(a, b Heard) int { return cmp.Or(cmp.Compare(a.VLAN, b.VLAN), cmp.Compare(a.Size, b.Size)) })
	if !slices.Equal(got, want) {
		t.Errorf("heard %v; want %v", got, want)
	}
}

// serveDHCP answers discoveries with offers until the context ends.
func serveDHCP(ctx context.Context, s *Segment, server net.IP) {
	_ = s.hear(ctx, func(f frame) {
		p := gopacket.NewPacket(f.data, layers.LayerTypeIPv4, gopacket.Default)
		q, _ := p.Layer(layers.LayerTypeDHCPv4).(*layers.DHCPv4)
		if q != nil && q.Operation == layers.DHCPOpRequest {
			_ = s.Send(broadcast, Untagged, IPv4, offer(q.Xid, q.ClientHWAddr, server, layers.DHCPMsgTypeOffer))
		}
	})
}

func offer(id uint32, to net.HardwareAddr, server net.IP, kind layers.DHCPMsgType) []byte {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: server, DstIP: net.IPv4bcast}
	udp := &layers.UDP{SrcPort: dhcpServer, DstPort: dhcpClient}
	_ = udp.SetNetworkLayerForChecksum(ip)
	d := &layers.DHCPv4{Operation: layers.DHCPOpReply, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6, Xid: id, ClientHWAddr: to, YourClientIP: net.IPv4(10, 0, 0, 99),
		Options: layers.DHCPOptions{layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(kind)}), layers.NewDHCPOption(layers.DHCPOptServerID, server.To4())}}
	b := gopacket.NewSerializeBuffer()
	_ = gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, udp, d)
	return b.Bytes()
}

// TestDHCPServers proves that a server on the segment is found, once however often it offers, and
// that none is found where none is.
func TestDHCPServers(t *testing.T) {
	a, b := wire(t)
	s := open(t, a, IPv4)
	if got, err := s.DHCPServers(context.Background(), 200*time.Millisecond); err != nil || len(got) != 0 {
		t.Errorf("without a server: %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	far, served := open(t, b, IPv4), make(chan struct{})
	go func() {
		serveDHCP(ctx, far, net.IPv4(10, 0, 0, 2))
		close(served)
	}()
	var got []Offer
	var err error
	for end := time.Now().Add(time.Minute); err == nil && len(got) == 0 && time.Now().Before(end); {
		got, err = s.DHCPServers(context.Background(), 400*time.Millisecond)
	}
	cancel()
	<-served
	want := Offer{netip.MustParseAddr("10.0.0.2"), far.MAC().String(), netip.MustParseAddr("10.0.0.99")}
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// FuzzFrame proves that whatever arrives on a segment, none of what reads it panics, and that what
// is taken for an answer is one.
func FuzzFrame(f *testing.F) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	head := func(kind uint16, data []byte) []byte {
		return append(binary.BigEndian.AppendUint16(append(slices.Clone(broadcast), mac...), kind), data...)
	}
	call := make([]byte, 64)
	Call{1, 2, 3, 64}.put(call)
	reply := arpProbe(mac, netip.MustParseAddr("10.0.0.2"))
	reply[7] = arpReply
	f.Add(head(ARP, reply), uint16(0))
	f.Add(head(Calling, call), uint16(3))
	f.Add(head(IPv4, offer(7, mac, net.IPv4(10, 0, 0, 1), layers.DHCPMsgTypeOffer)), uint16(0))
	f.Add(head(tagType, append([]byte{0, 5, 8, 6}, reply...)), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, tag uint16) {
		got, ok := parse(b, tag)
		if !ok {
			return
		}
		if a, ok := arpAnswer(got); ok && (!a.Address.Is4() || a.MAC == "") {
			t.Errorf("answer %v", a)
		}
		if c, ok := called(got); ok && int(c.Size) > len(got.data) {
			t.Errorf("a call of %d bytes in %d", c.Size, len(got.data))
		}
		got.offered(7)
		tagOf(b)
	})
}

// TestOffered proves that only an answer to this very question counts, and only an offer.
func TestOffered(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	server := net.IPv4(10, 0, 0, 1)
	for _, c := range []struct {
		name  string
		f     frame
		valid bool
	}{
		{"an offer", frame{from: mac, kind: unix.ETH_P_IP, data: offer(7, mac, server, layers.DHCPMsgTypeOffer)}, true},
		{"to another question", frame{from: mac, kind: unix.ETH_P_IP, data: offer(8, mac, server, layers.DHCPMsgTypeOffer)}, false},
		{"an acknowledgement", frame{from: mac, kind: unix.ETH_P_IP, data: offer(7, mac, server, layers.DHCPMsgTypeAck)}, false},
		{"of a VLAN", frame{from: mac, vlan: 5, kind: unix.ETH_P_IP, data: offer(7, mac, server, layers.DHCPMsgTypeOffer)}, false},
		{"cut", frame{from: mac, kind: unix.ETH_P_IP, data: offer(7, mac, server, layers.DHCPMsgTypeOffer)[:100]}, false},
	} {
		if o := c.f.offered(7); o.Server.IsValid() != c.valid {
			t.Errorf("%s: %v", c.name, o)
		}
	}
}
