package openflow

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// tshark finds no fault with a message of each type, and in each the values that it has.
func TestTShark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed")
	}
	file := filepath.Join(t.TempDir(), "messages.pcap")
	writeCapture(t, file)
	out, err := exec.Command("tshark", "-r", file, "-d", "tcp.port==6653,openflow", "-T", "json", "--no-duplicate-keys").Output()
	if err != nil {
		t.Fatal(err)
	}
	var packets []any
	if err := json.Unmarshal(out, &packets); err != nil {
		t.Fatal(err)
	}
	if len(packets) != len(samples()) {
		t.Fatalf("tshark finds %d messages of %d", len(packets), len(samples()))
	}
	for i, s := range samples() {
		facts := leaves(nil, "", packets[i])
		for _, fact := range s.tshark {
			if !slices.ContainsFunc(facts, func(f string) bool { return f == fact || strings.HasSuffix(f, "."+fact) }) {
				t.Errorf("%v: tshark does not find %s:\n%s", s, fact, strings.Join(facts, "\n"))
			}
		}
		// tshark 4.0 takes 8 bytes more from the data of an experimenter's reply than from that
		// of a request, which has the same layout.
		if r, ok := s.Message.(*MultipartReply); ok && r.Body.MultipartType() == MultipartExperimenter {
			continue
		}
		for _, f := range facts {
			if strings.HasPrefix(f, "_ws.malformed") || strings.Contains(f, "Malformed") {
				t.Errorf("%v: tshark says %s", s, f)
			}
		}
	}
}

// writeCapture writes the samples, each in a TCP segment of a stream to a controller.
func writeCapture(t *testing.T, file string) {
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
	tcp := &layers.TCP{SrcPort: TCPPort, DstPort: 40000, Seq: 1, ACK: true, PSH: true, Window: 65535}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	eth := &layers.Ethernet{SrcMAC: make(net.HardwareAddr, 6), DstMAC: make(net.HardwareAddr, 6), EthernetType: layers.EthernetTypeIPv4}
	for _, s := range samples() {
		wire := s.AppendTo(nil)
		frame := gopacket.NewSerializeBuffer()
		options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
		if err := gopacket.SerializeLayers(frame, options, eth, ip, tcp, gopacket.Payload(wire)); err != nil {
			t.Fatal(err)
		}
		info := gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(frame.Bytes()), Length: len(frame.Bytes())}
		if err := w.WritePacket(info, frame.Bytes()); err != nil {
			t.Fatal(err)
		}
		tcp.Seq += uint32(len(wire))
	}
}
