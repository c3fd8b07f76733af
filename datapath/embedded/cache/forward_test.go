//go:build linux

package cache

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// Two hosts at one switch reach each other, and after the first packets none comes to user space
// any more.
func TestFirst(t *testing.T) {
	b := newFixture(t, 2, Options{})
	b.chain(1, false)
	b.at(1, "ping", "-c", "5", "-i", "0.02", "10.0.0.2")
	b.pingsInKernel()
}

// pingsInKernel waits until packets from host 1 to host 2 do not come to user space.
func (b *fixture) pingsInKernel() {
	b.Helper()
	b.eventually(func() string { // an entry that is there takes over once no packet is on its way through user space
		before := b.engine.Stats().Missed
		b.at(1, "ping", "-c", "20", "-i", "0.01", "10.0.0.2")
		if after := b.engine.Stats(); after.Missed > before+4 { // a host may ask for an address again
			return fmt.Sprintf("%d packets came to user space while an entry was there: %+v", after.Missed-before, after)
		}
		return ""
	})
}

// A learning switch without tables does the same.
func TestStandalone(t *testing.T) {
	b := newFixture(t, 3, Options{})
	s := b.add(1, 3)
	for i := 1; i <= 3; i++ {
		b.plug(s, uint32(i), i, Auto)
	}
	s.SetStandalone(true)
	b.at(1, "ping", "-c", "5", "-i", "0.02", "10.0.0.2")
	b.at(1, "ping", "-c", "5", "-i", "0.02", "10.0.0.3")
	b.pingsInKernel()
}

// The same in user space alone.
func TestUserSpace(t *testing.T) {
	b := newFixture(t, 2, Options{UserSpace: true})
	if b.engine.UserSpace() == "" {
		t.Error("the engine does not say that it forwards in user space")
	}
	b.chain(3, true)
	out := b.at(1, "ping", "-c", "3", "-i", "0.02", "10.0.0.2")
	if !strings.Contains(out, "ttl=61") {
		t.Errorf("the TTL is not what three routing nodes make of it:\n%s", out)
	}
}

// A packet whose IPv4 header has a wrong checksum does not get through routing nodes, also where an
// entry is there for its flow; it does get through switches.
func TestWrongHeaderChecksum(t *testing.T) {
	for _, route := range []bool{true, false} {
		b := newFixture(t, 2, Options{})
		b.chain(2, route)
		b.at(1, "ping", "-c", "5", "-i", "0.02", "10.0.0.2") // a route of each host to the other, and their MACs
		dev, _ := b.open(0)
		heard := b.hear(1)
		packet := func(sum byte, number byte) []byte {
			ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
			udp := &layers.UDP{SrcPort: 7, DstPort: 7}
			if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
				t.Fatal(err)
			}
			buf := gopacket.NewSerializeBuffer()
			if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
				&layers.Ethernet{SrcMAC: b.macs[0][:], DstMAC: b.macs[1][:], EthernetType: layers.EthernetTypeIPv4}, ip, udp, gopacket.Payload{'#', number}); err != nil {
				t.Fatal(err)
			}
			frame := bytes.Clone(buf.Bytes())
			frame[24] += sum
			return frame
		}
		for i := range byte(40) { // every second one is wrong, the last one right
			frame := packet(1-i&1, i)
			if err := dev.Send(&pipeline.Sent{Data: frame}, &pipeline.Packet{Data: frame}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		wrong, right, timeout := 0, 0, time.After(time.Minute)
		for last := false; !last; {
			select {
			case frame := <-heard:
				if len(frame) < 44 || frame[42] != '#' {
					continue
				}
				if last = frame[43] == 39; frame[43]&1 == 0 {
					wrong++
				} else {
					right++
				}
			case <-timeout:
				t.Fatal("the last packet does not arrive")
			}
		}
		if want := map[bool]int{true: 0, false: 20}[route]; wrong != want || right != 20 {
			t.Errorf("routed: %v: %d packets with a wrong checksum arrived, want %d, and %d of 20 others", route, wrong, want, right)
		}
		if missed := b.engine.Stats().Missed; missed > 60 {
			t.Errorf("routed: %v: %d packets went through user space", route, missed)
		}
	}
}

// Ten routing nodes on the way: addresses and TTL are rewritten, a packet whose TTL is too small
// does not arrive, TCP's data does, and the counters of each flow entry on the way are exact, by
// segments.
func TestRouted(t *testing.T) {
	b := newFixture(t, 2, Options{})
	list := b.chain(10, true)
	out := b.at(1, "ping", "-c", "5", "-i", "0.02", "10.0.0.2")
	if !strings.Contains(out, "ttl=54") {
		t.Errorf("the TTL is not what ten routing nodes make of it:\n%s", out)
	}
	var before uint64
	b.eventually(func() string { // ping does not wait for the last answer
		if before, _ = b.flowTo(list[9], "10.0.0.2"); before < 5 {
			return fmt.Sprintf("the last switch counts %d of 5 packets", before)
		}
		return ""
	})
	data := bytes.Repeat([]byte("trivet"), 1<<20)
	retransmitted := b.transfer(data)
	for i, s := range list {
		b.eventually(func() string {
			packets, size := b.flowTo(s, "10.0.0.2")
			packets -= before
			size -= before * 98 // of each ping
			// TCP with time stamps: 66 bytes before the data, 74 in the first packet.
			if want := uint64(len(data)) + 66*packets + 8; size != want && retransmitted == 0 {
				return fmt.Sprintf("switch %d counts %d packets of %d bytes, want %d bytes", i+1, packets, size, want)
			}
			if packets < uint64(len(data))/1448 {
				return fmt.Sprintf("switch %d counts %d packets: too few for %d bytes", i+1, packets, len(data))
			}
			return ""
		})
	}
	if s := b.engine.Stats(); s.Failed > 0 {
		t.Errorf("%d packets failed", s.Failed)
	}
	c := b.listen(1, 0)
	sink := b.listen(2, 9000)
	b.setTTL(c, 10)
	for range 20 {
		_, _ = c.WriteToUDP([]byte("too far"), addrOf(2, 9000))
		time.Sleep(time.Millisecond)
	}
	sink.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := sink.Read(make([]byte, 100)); err == nil {
		t.Errorf("a packet of %d bytes came through ten routing nodes with a TTL of 10", n)
	}
}

func (b *fixture) setTTL(c *net.UDPConn, ttl int) {
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl) })
	}
	if err != nil {
		b.Fatal(err)
	}
}

// transfer sends data from host 1 to host 2 by TCP and returns how many segments were sent again.
func (b *fixture) transfer(data []byte) (retransmitted uint32) {
	b.Helper()
	return b.transferTo("10.0.0.2:9001", "10.0.0.2:9001", data)
}

func (b *fixture) transferTo(listen, dial string, data []byte) (retransmitted uint32) {
	b.Helper()
	var listener net.Listener
	var conn net.Conn
	b.inside(b.hosts[1], func() (err error) {
		listener, err = net.Listen("tcp", listen)
		return err
	})
	defer listener.Close()
	got := make(chan []byte, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c)
		got <- all
	}()
	b.inside(b.hosts[0], func() (err error) {
		conn, err = net.DialTimeout("tcp", dial, time.Minute)
		return err
	})
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write(data); err != nil {
		b.Fatal(err)
	}
	tcp := conn.(*net.TCPConn)
	tcp.CloseWrite()
	select {
	case all := <-got:
		if !bytes.Equal(all, data) {
			b.Errorf("%d bytes arrived, not the %d that were sent", len(all), len(data))
		}
	case <-time.After(time.Minute):
		b.Fatal("the data did not arrive")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			retransmitted = info.Total_retrans
		}
	})
	return retransmitted
}

// flowTo returns the counters of a switch's entry for packets to an address.
func (b *fixture) flowTo(s *pipeline.Switch, addr string) (packets, size uint64) {
	b.Helper()
	body, err := s.Multipart(openflow.AllFlows(), b.Now())
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range body.(openflow.FlowStatsList) {
		if strings.HasSuffix(f.Match.String(), "nw_dst="+addr) || strings.HasSuffix(f.Match.String(), "ipv4_dst="+addr) {
			return f.Packets, f.Bytes
		}
	}
	b.Fatalf("there is no entry for %s", addr)
	return 0, 0
}

// An entry that packets meet in the kernel is not idle; when they end it goes, and the message that
// says so counts all of them.
func TestIdle(t *testing.T) {
	for try := 1; !idle(t); try++ {
		if try == 10 {
			t.Fatal("this machine does not let a program send for two seconds without keeping it waiting for one")
		}
	}
}

// idle is the test, and says whether the sender was there in time all along.
func idle(t *testing.T) (inTime bool) {
	b := newFixture(t, 2, Options{})
	s := b.add(1, 2)
	b.plug(s, 1, 1, Auto)
	b.plug(s, 2, 2, Auto)
	removed := make(chan *openflow.FlowRemoved, 10)
	s.SetNotify(func(m openflow.Message) {
		if m, ok := m.(*openflow.FlowRemoved); ok {
			removed <- m
		}
	})
	b.flow(s, "priority=1,arp,actions=flood")
	b.flow(s, "priority=1,icmp,actions=flood")
	c, sink := b.listen(1, 0), b.listen(2, 9000)
	b.at(1, "ping", "-c", "1", "-W", "30", "10.0.0.2") // so that no packet waits for an address
	const count = 250
	start := time.Now()
	b.flow(s, "priority=1,udp,idle_timeout=1,send_flow_rem,actions=output:2")
	last, longest := start, time.Duration(0)
	for range count {
		if _, err := c.WriteToUDP(make([]byte, 100), addrOf(2, 9000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		longest, last = max(longest, time.Since(last)), time.Now()
	}
	if longest > 800*time.Millisecond {
		return false
	}
	select {
	case m := <-removed:
		t.Fatalf("the entry went after %v, while packets met it: %+v", time.Since(start), m)
	default:
	}
	for range count {
		sink.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := sink.Read(make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case m := <-removed:
		if m.Packets != count || m.Bytes != count*142 {
			t.Errorf("the message counts %d packets, %d bytes; want %d, %d", m.Packets, m.Bytes, count, count*142)
		}
	case <-time.After(time.Minute):
		t.Error("the entry stays though no packet meets it")
	}
	return true
}

// What the kernel has counted is known before an entry is found idle, and soon to who reads, also
// if it was slow to be added up the last time, as it is where others have the processor meanwhile.
func TestSlowFold(t *testing.T) {
	b := newFixture(t, 2, Options{})
	s := b.add(1, 2)
	b.plug(s, 1, 1, Auto)
	b.plug(s, 2, 2, Auto)
	c, sink := b.listen(1, 0), b.listen(2, 9000)
	const idle = 600 * time.Second
	b.flow(s, "priority=1,arp,actions=flood")
	b.flow(s, "priority=1,ip,nw_dst=10.0.0.2,idle_timeout=600,actions=output:2")
	sent := uint64(0)
	send := func() {
		t.Helper()
		if _, err := c.WriteToUDP([]byte("x"), addrOf(2, 9000)); err != nil {
			t.Fatal(err)
		}
		sink.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := sink.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	folded := func(at time.Time) {
		b.engine.counts.mu.Lock()
		defer b.engine.counts.mu.Unlock()
		b.engine.counts.folded, b.engine.counts.took = at, time.Hour
	}
	b.eventually(func() string {
		missed := b.engine.Stats().Missed
		if send(); b.engine.Stats().Missed > missed {
			return "all packets come to user space"
		}
		return ""
	})
	time.Sleep(time.Second) // the kernel's time of packets is some milliseconds old
	used := b.Now()
	send()
	folded(time.Now())
	b.Network().Expire(used - time.Second/2 + idle) // when only the packets before are that long ago
	b.flowTo(s, "10.0.0.2")                         // fails where it is gone
	send()
	folded(time.Now().Add(-oldAtMost))
	if packets, _ := b.flowTo(s, "10.0.0.2"); packets != sent {
		t.Errorf("the entry counts %d of %d packets", packets, sent)
	}
}

// When a barrier has been answered, each packet goes as the tables say now.
func TestBarrier(t *testing.T) {
	b := newFixture(t, 3, Options{})
	s := b.add(1, 3)
	for i := 1; i <= 3; i++ {
		b.plug(s, uint32(i), i, Auto)
	}
	b.flow(s, "priority=1,arp,actions=flood")
	c := b.listen(1, 0)
	sinks := []*net.UDPConn{b.listen(2, 9000), b.listen(3, 9000)}
	for round := range 40 {
		if round%2 == 0 {
			b.flow(s, "priority=2,udp,in_port=1,actions=output:2")
		} else {
			b.flow(s, fmt.Sprintf("priority=2,udp,in_port=1,actions=set_field:%v->eth_dst,set_field:10.0.0.3->ip_dst,output:3", b.macs[2]))
		}
		b.engine.Barrier(s)
		room := make([]byte, 10)
		for range 5 {
			if _, err := c.WriteToUDP([]byte{byte(round)}, addrOf(2, 9000)); err != nil {
				t.Fatal(err)
			}
			sinks[round%2].SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := sinks[round%2].Read(room); err != nil || room[0] != byte(round) {
				t.Fatalf("round %d: got a packet of round %d, error %v", round, room[0], err)
			}
		}
	}
	if s := b.engine.Stats(); s.Missed > 160 { // of 200
		t.Errorf("%d packets came to user space: entries did not live on", s.Missed)
	}
}

// A packet for all goes to all, by one entry, also where it is changed on one way and not on the
// next.
func TestFlood(t *testing.T) {
	b := newFixture(t, 5, Options{})
	s := b.add(1, 5)
	for i := 1; i <= 5; i++ {
		b.plug(s, uint32(i), i, Auto)
	}
	b.flow(s, "priority=1,arp,actions=flood")
	actions := ""
	for i := 2; i <= 5; i++ {
		actions += fmt.Sprintf("set_field:%v->eth_dst,set_field:10.0.0.%d->ip_dst,set_field:%d->udp_dst,output:%d,", b.macs[i-1], i, 9000+i, i)
	}
	b.flow(s, "priority=2,udp,actions="+strings.TrimSuffix(actions, ","))
	c := b.listen(1, 0)
	var sinks []*net.UDPConn
	for i := 2; i <= 5; i++ {
		sinks = append(sinks, b.listen(i, 9000+i))
	}
	b.at(1, "ip", "neigh", "replace", "10.0.0.2", "lladdr", b.macs[1].String(), "dev", "eth0")
	for n := range 50 {
		if _, err := c.WriteToUDP([]byte{byte(n)}, addrOf(2, 9000)); err != nil {
			t.Fatal(err)
		}
		for i, sink := range sinks {
			room := make([]byte, 10)
			sink.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := sink.Read(room); err != nil || room[0] != byte(n) {
				t.Fatalf("host %d, packet %d: got %d, error %v", i+2, n, room[0], err)
			}
		}
	}
	if s := b.engine.Stats(); s.Missed > 10 || s.Failed > 0 {
		t.Errorf("%+v", s)
	}
}

// TCP and UDP whose addresses and ports are rewritten both ways, by IPv4 and IPv6: checksums that a
// device is left to complete, and packets that it is left to cut, come out right.
func TestTranslated(t *testing.T) {
	b := newFixture(t, 2, Options{})
	s := b.add(1, 2)
	b.plug(s, 1, 1, Auto)
	b.plug(s, 2, 2, Auto)
	for i := 1; i <= 2; i++ {
		b.at(i, "sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=0")
		b.at(i, "ip", "addr", "add", fmt.Sprintf("fd00::%d/64", i), "dev", "eth0", "nodad")
		b.at(i, "ip", "neigh", "replace", "10.0.0.9", "lladdr", b.macs[2-i].String(), "dev", "eth0")
		b.at(i, "ip", "neigh", "replace", "fd00::9", "lladdr", b.macs[2-i].String(), "dev", "eth0")
	}
	for _, f := range []string{
		"priority=1,arp,actions=flood",
		"priority=5,tcp,in_port=1,nw_dst=10.0.0.9,actions=set_field:10.0.0.2->ip_dst,set_field:10.0.0.9->ip_src,set_field:9001->tcp_dst,dec_ttl,output:2",
		"priority=5,tcp,in_port=2,nw_dst=10.0.0.9,actions=set_field:10.0.0.1->ip_dst,set_field:10.0.0.9->ip_src,set_field:80->tcp_src,set_field:8->ip_dscp,output:1",
		"priority=5,tcp6,in_port=1,ipv6_dst=fd00::9,actions=set_field:fd00::2->ipv6_dst,set_field:fd00::9->ipv6_src,set_field:9001->tcp_dst,dec_ttl,output:2",
		"priority=5,tcp6,in_port=2,ipv6_dst=fd00::9,actions=set_field:fd00::1->ipv6_dst,set_field:fd00::9->ipv6_src,set_field:80->tcp_src,set_field:8->ip_dscp,output:1",
	} {
		b.flow(s, f)
	}
	data := bytes.Repeat([]byte("trivet"), 1<<20)
	for listen, dial := range map[string]string{"10.0.0.2:9001": "10.0.0.9:80", "[fd00::2]:9001": "[fd00::9]:80"} {
		missed := b.engine.Stats().Missed
		// Were no packet left to be cut, all would be sent again; on a busy machine TCP takes a few
		// of up to 45 segments for lost.
		if n, all := b.transferTo(listen, dial, data), uint32(len(data)/1448); n > all/4 {
			t.Errorf("%s: %d of %d segments were sent again", dial, n, all)
		}
		if after := b.engine.Stats(); after.Failed > 0 || after.Missed-missed > 1000 {
			t.Errorf("%s: the kernel did not do it: %+v", dial, after)
		}
	}
}

// Frames get a tag and lose it again, with and without the kernel's help: packets that are to be
// cut are cut with it.
func TestTagged(t *testing.T) {
	b := newFixture(t, 2, Options{})
	s := b.add(1, 2)
	b.plug(s, 1, 1, Auto)
	b.plug(s, 2, 2, Auto)
	b.run("ip", "-n", b.hosts[1], "link", "set", "eth0", "mtu", "1600")
	b.flow(s, "priority=1,arp,actions=flood")
	b.flow(s, "priority=5,ip,in_port=1,actions=push_vlan:0x8100,set_field:4098->vlan_vid,output:2")
	b.flow(s, "priority=5,in_port=2,dl_vlan=2,actions=pop_vlan,output:1")
	dev := b.hear(1)
	data := []byte("to the VLAN")
	c := b.listen(1, 0)
	for range 5 {
		if _, err := c.WriteToUDP(data, addrOf(2, 9000)); err != nil {
			t.Fatal(err)
		}
		for {
			var frame []byte
			select {
			case frame = <-dev:
			case <-time.After(time.Minute):
				t.Fatalf("the frame does not come: %+v", b.engine.Stats())
			}
			if frame[12] == 0x81 && frame[15] == 2 && bytes.HasSuffix(frame, data) {
				break
			}
			if bytes.HasSuffix(frame, data) {
				t.Fatalf("the frame has no tag: %x", frame)
			}
		}
	}
}

// Packets of known flows go on without an engine, and another one takes the devices.
func TestKeep(t *testing.T) {
	b := newFixture(t, 2, Options{})
	s := b.chain(2, false)
	b.at(1, "ping", "-c", "5", "-i", "0.02", "10.0.0.2")
	if err := b.engine.Close(true); err != nil {
		t.Fatal(err)
	}
	b.at(1, "ping", "-c", "5", "-i", "0.02", "-W", "2", "10.0.0.2")
	next, err := New(b.Datapath, Options{Namespace: "/run/netns/" + b.fabric})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close(false)
	for i := range 2 {
		if err := next.Attach(s[i].Port(uint32(i+1)), b.index[i], Auto); err != nil {
			t.Fatal(err)
		}
	}
	b.at(1, "ping", "-c", "5", "-i", "0.02", "10.0.0.2")
	if next.Stats().Installed == 0 {
		t.Error("the second engine has no part in it")
	}
}

// A port without a device any more forwards nothing; what went there is dropped.
func TestDetach(t *testing.T) {
	b := newFixture(t, 2, Options{})
	s := b.chain(1, false)
	b.at(1, "ping", "-c", "5", "-i", "0.02", "10.0.0.2")
	if err := b.engine.Detach(s[0].Port(2)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "netns", "exec", b.hosts[0], "ping", "-c", "2", "-i", "0.2", "-W", "1", "10.0.0.2").CombinedOutput(); err == nil {
		t.Errorf("packets still go:\n%s", out)
	}
	b.plug(s[0], 2, 2, Egress)
	b.at(1, "ping", "-c", "5", "-i", "0.02", "10.0.0.2")
}

// TCP in a tunnel (VXLAN) between two hosts, while entries go again and again: its large packets
// reach user space in parts, which are one packet to the program. None is dropped or overtaken,
// which TCP would take for a loss.
func TestTunnel(t *testing.T) {
	b := newFixture(t, 2, Options{Queue: 12_000})
	s := b.add(1, 2)
	b.plug(s, 1, 1, Auto)
	b.plug(s, 2, 2, Auto)
	b.flow(s, "priority=1,arp,actions=flood")
	b.flow(s, "priority=1,ip,in_port=1,actions=output:2")
	b.flow(s, "priority=1,ip,in_port=2,actions=output:1")
	for i := 1; i <= 2; i++ {
		vxlan := fmt.Sprintf("ip link add tunnel type vxlan id 1 dstport 4789 local 10.0.0.%d remote 10.0.0.%d dev eth0 && "+
			"ip link set tunnel up && ip addr add 10.1.0.%d/24 dev tunnel", i, 3-i, i)
		if out, err := exec.Command("ip", "netns", "exec", b.hosts[i-1], "sh", "-c", vxlan).CombinedOutput(); err != nil {
			t.Skipf("this kernel makes no tunnel: %v: %s", err, out)
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				b.engine.mu.Lock()
				for _, p := range b.engine.attached {
					for _, x := range p.flows {
						b.engine.remove(x)
					}
				}
				b.engine.mu.Unlock()
			}
		}
	}()
	data := bytes.Repeat([]byte("trivet"), 4<<20)
	again := b.transferTo("10.1.0.2:9001", "10.1.0.2:9001", data)
	close(stop)
	<-stopped
	st := b.engine.Stats()
	if again > uint32(len(data)/1448/40) || st.Dropped > 0 {
		t.Errorf("%d segments were sent again: %+v", again, st)
	}
	t.Logf("%d segments were sent again: %+v", again, st)
}
