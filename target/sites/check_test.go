package sites

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/segment"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
)

// heardOf makes what is heard of calls on VLANs, small ones and full ones, each with its own tag.
func heardOf(vlans ...uint16) (out []segment.Heard) {
	for _, c := range callsOn(1, 0, vlans) {
		out = append(out, segment.Heard{Call: c, As: c.VLAN})
	}
	return out
}

// small leaves out full packets.
func small(heard []segment.Heard) []segment.Heard {
	return slices.DeleteFunc(heard, func(h segment.Heard) bool { return h.Size == fullCall })
}

// as gives what was called on a VLAN another tag.
func as(heard []segment.Heard, vlan, tag uint16) []segment.Heard {
	for i, h := range heard {
		if h.VLAN == vlan {
			heard[i].As = tag
		}
	}
	return heard
}

// TestPortFinding proves that of what arrives at devices, with and without tags, in both directions
// and sizes, the right cause is told.
func TestPortFinding(t *testing.T) {
	both := heardOf(0, 103)
	other := &port{name: "pi-4", vlan: 104, down: heardOf(0, 104)}
	crossed := &port{name: "pi-4", vlan: 104, down: heardOf(0, 103)}
	for _, c := range []struct {
		name string
		p    port
		o    *port
		ok   bool
		says string
	}{
		{"fine", port{down: both, up: both}, other, true, "arrives both ways"},
		{"a trunk for all", port{down: heardOf(0, 103, 104), up: both}, &port{name: "pi-4", vlan: 104, down: heardOf(0, 103, 104)}, true, "arrives both ways"},
		{"in a lab", port{down: both, guarded: true}, other, true, "it is in a lab"},
		{"swapped", port{down: heardOf(0, 104)}, crossed, false, "pi-3 and pi-4 are swapped: VLAN 103 arrives at pi-4, and VLAN 104 at pi-3"},
		{"at another's port as well", port{down: heardOf(0)}, crossed, false, "VLAN 103 does not arrive; its port lets through VLAN 1 (untagged) only; it arrives at pi-4"},
		{"nothing", port{}, other, false, "VLAN 103 does not arrive; nothing else does either"},
		{"untagged", port{down: as(heardOf(0, 103), 103, 0), up: both}, other, false, "without its tag"},
		{"translated", port{down: as(heardOf(0, 103), 103, 7), up: both}, other, false, "arrives as VLAN 7"},
		{"small packets only", port{down: small(heardOf(0, 103)), up: both}, other, false, "not its packets of 1500 bytes"},
		{"one way", port{down: both}, other, false, "does not arrive at the gateway"},
		{"one way, large ones", port{down: both, up: small(heardOf(0, 103))}, other, false, "packets of 1500 bytes from the device"},
	} {
		c.p.name, c.p.vlan = "pi-3", 103
		if f := portFinding(&c.p, []*port{&c.p, c.o}); f.OK != c.ok || f.Unknown || !strings.Contains(f.Says, c.says) || f.OK == (f.Cure != "") {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
	if f := portFinding(&port{vlan: 2, silent: true}, nil); !f.Unknown {
		t.Errorf("nobody listened: %+v", f)
	}
	if f, tried := trunkFinding("eth1", []*port{{down: heardOf(0)}, {silent: true}}); !tried || f.OK {
		t.Errorf("no VLAN leaves the gateway: %+v", f)
	}
	if _, tried := trunkFinding("eth1", []*port{{silent: true}}); tried {
		t.Error("something is said of VLANs, for which nobody listened")
	}
}

// TestAddressFindings proves that who has a device's address is told from who answers: the device
// alone, at two interfaces, another as well, nobody, somebody of a device that does not let us in,
// two of those, or on another VLAN only.
func TestAddressFindings(t *testing.T) {
	a := netip.MustParseAddr("10.42.0.103")
	own, wifi, other := "dc:a6:32:00:00:01", "dc:a6:32:00:00:02", "02:00:00:00:00:09"
	in := &CheckedDevice{Machine: &site.Machine{Name: "pi-3"}, Health: &local.Health{MACs: []string{own, wifi}}}
	out := &CheckedDevice{Machine: &site.Machine{Name: "pi-3"}}
	answer := func(vlan uint16, macs ...string) (out []segment.Answer) {
		for _, mac := range macs {
			out = append(out, segment.Answer{Address: a, MAC: mac, VLAN: vlan})
		}
		return out
	}
	for _, c := range []struct {
		name    string
		d       *CheckedDevice
		answers []segment.Answer
		ok      bool
		says    string
	}{
		{"alone", in, answer(0, own), true, "its alone"},
		{"two interfaces", in, answer(0, own, wifi), false, "at 2 interfaces"},
		{"another", in, answer(0, own, other), false, "pi-3 has 10.42.0.103, and so has " + other},
		{"nobody", out, nil, false, "nobody on the segment"},
		{"of another address", out, []segment.Answer{{Address: a.Next(), MAC: own}}, false, "nobody on the segment"},
		{"somebody", out, answer(0, own), true, "it is on and connected"},
		{"two", out, answer(0, own, other), false, "2 have 10.42.0.103"},
		{"on a VLAN", out, answer(103, own), false, "answers on VLAN 103 only"},
	} {
		if f := addressFindings(c.d, a, c.answers)[0]; f.OK != c.ok || !strings.Contains(f.Says, c.says) || !f.OK && f.Cure == "" {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

// TestDHCPFinding proves that a server that is not the gateway is told with whose it is, and is
// worse where the gateway gives out addresses, too.
func TestDHCPFinding(t *testing.T) {
	offers := []segment.Offer{{Server: netip.MustParseAddr("10.42.0.9"), MAC: "02:00:00:00:00:09", Address: netip.MustParseAddr("10.42.0.77")}}
	owner := func(mac string) string { return map[string]string{"02:00:00:00:00:09": "wrt-1"}[mac] }
	if f := dhcpFinding(nil, true, owner); !f.OK {
		t.Errorf("%+v", f)
	}
	if f := dhcpFinding(offers, true, owner); f.OK || !f.Needed || !strings.Contains(f.Says, "a second DHCP server: 10.42.0.9 (02:00:00:00:00:09), which is wrt-1, offers 10.42.0.77") {
		t.Errorf("%+v", f)
	}
	if f := dhcpFinding(offers, false, owner); f.OK || f.Needed || !f.Warns {
		t.Errorf("%+v", f)
	}
}
