package discover

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/site"
)

func device(address, mac, banner, host string) *Device {
	d := &Device{Address: netip.MustParseAddr(address), MAC: mac, Banner: banner, Host: host, Vendor: vendorOf(mac)}
	d.Guess = guess(d)
	return d
}

// A kind of devices that are only configured, which nothing here knows but by its register.
func init() {
	site.RegisterDeviceKind(&site.DeviceKind{Word: "toy", Title: "toy switch", Guess: site.DeviceGuess{User: "admin", Name: "plaything", Servers: []string{"toyssh"}, Hosts: []string{"toybox"}}})
}

// TestGuess proves that what a device is follows from its vendor, its SSH server and its name, and
// that a vendor's MAC counts for more than what a device says; kinds that are registered are
// guessed as they say.
func TestGuess(t *testing.T) {
	for _, c := range []struct{ mac, banner, host, kind, user string }{
		{"dc:a6:32:01:02:03", "OpenSSH_9.2p1 Debian-2+deb12u3", "node1", "pi", "pi"},
		{"02:00:00:00:00:01", "OpenSSH_8.4p1 Raspbian-5+deb11u1", "", "pi", "pi"},
		{"48:b0:2d:00:00:01", "OpenSSH_8.9p1 Ubuntu-3ubuntu0.6", "", "jetson", "nvidia"},
		{"02:00:00:00:00:02", "OpenSSH_8.9p1 Ubuntu-3", "orin-7", "jetson", "nvidia"},
		{"02:00:00:00:00:03", "dropbear_2022.83", "", "openwrt", "root"},
		{"dc:a6:32:01:02:04", "dropbear", "jetson", "pi", "pi"},
		{"02:00:00:00:00:05", "ToySSH_1.0", "", "toy", "admin"}, {"02:00:00:00:00:06", "OpenSSH_9.2p1", "toybox", "toy", "admin"},
		{"02:00:00:00:00:04", "OpenSSH_9.2p1", "box", "", "root"},
	} {
		if d := device("10.42.0.9", c.mac, c.banner, c.host); d.Kind != c.kind || d.User != c.user || d.Why == "" {
			t.Errorf("%+v: %+v", c, d.Guess)
		}
	}
}

// TestInventory proves that what is written is read as the devices that were found, each with a
// name and a VLAN of its own: devices that call themselves the same, those whose last octets are
// the same, or cannot be a VLAN, and one without SSH, which is only a comment.
func TestInventory(t *testing.T) {
	ssh := "OpenSSH_9.2p1"
	devices := []*Device{
		device("10.42.0.1", "02:00:00:00:00:01", ssh, "gate.lan"), device("10.42.0.101", "dc:a6:32:00:00:01", ssh, "raspberrypi"),
		device("10.42.0.102", "dc:a6:32:00:00:02", ssh, "twin"), device("10.42.1.102", "dc:a6:32:00:00:03", ssh, "twin"),
		device("10.42.1.7", "02:00:00:00:00:07", "", "printer"), device("10.42.0.50", "02:00:00:00:00:08", "ToySSH_1.0", "toybox.lan"),
	}
	name(devices)
	text := Inventory("eth1", devices)
	list, err := site.Parse("rack.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var got []string
	for _, m := range list.Machines {
		got = append(got, m.Name+" "+m.String())
	}
	want := []string{"gate root@10.42.0.1", "pi-101 pi@10.42.0.101", "pi-102 pi@10.42.0.102", "pi-1-102 pi@10.42.1.102", "plaything-50 admin@10.42.0.50"}
	if !slices.Equal(got, want) || list.Head.NIC != "eth1" || list.Machines[1].VLAN != 101 || list.Machines[3].VLAN == 102 {
		t.Errorf("%q\n%s", got, text)
	}
	if !strings.Contains(text, "# printer: {") || list.Machine("pi-101").Labels[0] != "pi" || list.Machine("plaything-50").Kind != "toy" {
		t.Error(text)
	}
}

// TestHosts proves that a network is asked whole, without its first and last address, but never
// more than a /22 of it.
func TestHosts(t *testing.T) {
	for prefix, want := range map[string][3]string{"10.42.0.1/24": {"10.42.0.1", "10.42.0.254", "254"}, "10.42.9.1/16": {"10.42.8.1", "10.42.11.254", "1022"}, "10.0.0.4/31": {"10.0.0.4", "10.0.0.5", "2"}} {
		got := hostsOf(netip.MustParsePrefix(prefix))
		if got[0].String() != want[0] || got[len(got)-1].String() != want[1] || len(got) != map[string]int{"254": 254, "1022": 1022, "2": 2}[want[2]] {
			t.Errorf("%s: %s to %s, %d", prefix, got[0], got[len(got)-1], len(got))
		}
	}
}

// TestReadBanner proves that the line by which a server identifies itself is found behind others,
// and that servers that send nothing, no end, or far too much end as if there were none.
func TestReadBanner(t *testing.T) {
	for sent, want := range map[string]string{
		"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n":          "OpenSSH_9.2p1 Debian-2",
		"welcome\r\nto\r\nSSH-2.0-dropbear_2022\n":    "dropbear_2022",
		"SSH-2.0-" + strings.Repeat("x", 9000):        strings.Repeat("x", bannerLength+1-len("SSH-2.0-")),
		"":                                            "",
		"HTTP/1.1 400 Bad Request\r\n":                "",
		strings.Repeat("y", 100_000):                  "",
		strings.Repeat("z\n", 50_000):                 "",
		strings.Repeat("w", 400) + "\nSSH-2.0-late\n": "late",
	} {
		if got := readBanner(strings.NewReader(sent)); got != want {
			t.Errorf("%.40q: %q; want %q", sent, got, want)
		}
	}
}

// nameReply answers what nameQuestion asks.
func nameReply(a netip.Addr, name string) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Answers: []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(arpa(a)), Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET},
		Body:   &dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(name)}}}}
	b, _ := m.Pack()
	return b
}

// TestNameAnswer proves that a device's name is read, and that it can say only its own.
func TestNameAnswer(t *testing.T) {
	a, b := netip.MustParseAddr("10.42.0.101"), netip.MustParseAddr("10.42.0.102")
	if got := nameAnswer(nameReply(a, "pi-7.local."), a); got != "pi-7" {
		t.Errorf("%q", got)
	}
	if got := nameAnswer(nameReply(a, "pi-7.local."), b); got != "" {
		t.Errorf("another's name is taken: %q", got)
	}
}

// FuzzPeer proves that whatever a device sends, the inventory written of it parses, has the device
// at its address and nothing else, and nothing in it controls a terminal.
func FuzzPeer(f *testing.F) {
	a := netip.MustParseAddr("10.42.0.101")
	f.Add([]byte("SSH-2.0-OpenSSH_9.2p1\r\n"), nameReply(a, "pi-7.local."))
	f.Add([]byte("SSH-2.0-x\x1b[31m\u2028}\n"), nameReply(a, "a: {ssh: evil}.local."))
	f.Add([]byte("SSH-2.0-# \"'|>\x85next: {ssh: root@10.0.0.1}\n"), []byte{})
	f.Fuzz(func(t *testing.T, banner, answer []byte) {
		d := device("10.42.0.101", "dc:a6:32:00:00:01", readBanner(strings.NewReader(string(banner))), nameAnswer(answer, a))
		name([]*Device{d})
		text := Inventory("eth1", []*Device{d})
		for _, r := range text {
			if !unicode.IsGraphic(r) && r != '\n' {
				t.Fatalf("%q in %q", r, text)
			}
		}
		if d.Banner == "" {
			if strings.Count(text, "\n") != 4 {
				t.Fatalf("%q", text)
			}
			return
		}
		list, err := site.Parse("rack.yaml", []byte(text))
		if err != nil || len(list.Machines) != 1 || list.Machines[0].String() != "pi@10.42.0.101" || list.Machines[0].VLAN != 101 {
			t.Fatalf("%v: %s", err, text)
		}
	})
}

// TestFind proves that a device on a segment is found with its MAC and the name that it gives
// itself by mDNS, that one without an SSH server is told as such, and that addresses without
// anybody are not.
func TestFind(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	near, err := inside.New()
	must(t, err)
	defer near.Close()
	far, err := inside.New()
	must(t, err)
	defer far.Close()
	must(t, inside.File(near, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(far.Fd())})
	}))
	for i, ns := range []*os.File{near, far} {
		must(t, inside.File(ns, func() error {
			dev, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			if i == 1 {
				err = netlink.LinkSetHardwareAddr(dev, net.HardwareAddr{0xdc, 0xa6, 0x32, 1, 2, 3})
			}
			if err == nil {
				err = netlink.AddrAdd(dev, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 42, 0, byte(i*100+1)), Mask: net.CIDRMask(24, 32)}})
			}
			if err == nil {
				err = netlink.LinkSetUp(dev)
			}
			return err
		}))
	}
	at := netip.MustParseAddr("10.42.0.101")
	must(t, inside.File(far, func() error {
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		m, err := net.ListenMulticastUDP("udp4", dev, &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353})
		if err != nil {
			return err
		}
		t.Cleanup(func() { m.Close() })
		go func() {
			for b := make([]byte, 1500); ; {
				_, from, err := m.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = m.WriteTo(nameReply(at, "pi-7.local."), from)
			}
		}()
		return nil
	}))
	var found []*Device
	must(t, inside.File(near, func() error {
		addresses, err := Candidates("eth0")
		if err != nil || len(addresses) != 253 || slices.Contains(addresses, netip.MustParseAddr("10.42.0.1")) {
			t.Errorf("%v: %d addresses", err, len(addresses))
		}
		found, err = Find(context.Background(), "eth0", addresses)
		return err
	}))
	if len(found) != 1 || found[0].Address != at || found[0].MAC != "dc:a6:32:01:02:03" || found[0].Vendor != raspberry ||
		found[0].Banner != "" || found[0].Name != "pi-7" {
		for _, d := range found {
			t.Errorf("%+v", *d)
		}
		t.Fatal(len(found), "devices")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
