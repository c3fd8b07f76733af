package routing

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
)

// hearing is a protocol that has no routes and notes what it is given.
type hearing struct{ heard []string }

func (*hearing) Routes(uint64) []Learned                      { return nil }
func (*hearing) RouteTo(uint64, netip.Prefix) (Learned, bool) { return Learned{}, false }
func (*hearing) Networks() []netip.Prefix                     { return nil }
func (*hearing) Settled() bool                                { return true }
func (h *hearing) Receive(dpid uint64, port uint32, b []byte) {
	p, _ := parseIP(etherTypeOf(b), b)
	h.heard = append(h.heard, p.dst.String())
}

// Proves that each of the protocols that a router speaks is given the packets that it wants, and no
// others: of its IP protocol, and to its port if it names one, to the groups that it names and to
// addresses of the router, link-local ones of IPv6 too; that the router's switch sends those to
// groups up; and that both end, and begin, with the router's speaking the protocol.
func TestWanted(t *testing.T) {
	const pim, udp = 103, openflow.IPProtoUDP
	groups := []netip.Prefix{netip.MustParsePrefix("224.0.0.13/32"), netip.MustParsePrefix("ff02::d/128")}
	one, two := &hearing{}, &hearing{}
	app, s, sw := singleOf(t, Protocol{Name: "pim", Distance: 120, Speaker: one, Wants: []Wanted{{Protocol: pim, Groups: groups}}},
		Protocol{Name: "rip", Distance: 120, Speaker: two, Wants: []Wanted{{Protocol: udp, Groups: groups[:1], Port: 520}}})
	own := linkLocal(router1).String()
	give := func(from, to string, proto, port uint8) {
		src, dst := netip.MustParseAddr(from), netip.MustParseAddr(to)
		packet := ip6
		if dst.Is4() {
			packet = ip4
		}
		b := packet(src, dst, proto, 64, []byte{0, 1, 2, port, 19: 0}) // 2, 8 is 520
		one.heard, two.heard = nil, nil
		receive(app, sw, 1, openflow.ReasonAction, frame(router1, host1, etherTypeOf(b), b))
	}
	for _, c := range []struct {
		from, to    string
		proto, port uint8
		want        *hearing
	}{
		{"10.0.1.9", "224.0.0.13", pim, 0, one},
		{"10.0.1.9", "224.0.0.14", pim, 0, nil},
		{"10.0.1.9", "224.0.0.13", 89, 0, nil},
		{"10.0.1.9", "10.0.1.1", pim, 0, one},
		{"10.0.1.9", "10.0.2.1", pim, 0, one},
		{"10.0.1.9", "10.0.2.7", pim, 0, nil},
		{"fe80::9", "ff02::d", pim, 0, one},
		{"fe80::9", own, pim, 0, one},
		{"fe80::9", linkLocal(host1).String(), pim, 0, nil},
		{"fd00:1::9", "fd00:1::1", pim, 0, one},
		{"fd00:1::9", "fd00:1::1", 89, 0, nil},
		{"10.0.1.9", "224.0.0.13", udp, 8, two},
		{"10.0.1.9", "224.0.0.13", udp, 9, nil},
		{"10.0.1.9", "10.0.1.1", udp, 8, two},
		{"10.0.1.9", "10.0.1.1", udp, 9, nil},
		{"fe80::9", own, udp, 8, two},
	} {
		give(c.from, c.to, c.proto, c.port)
		for _, h := range []*hearing{one, two} {
			if got := slices.Equal(h.heard, []string{c.to}); got != (h == c.want) || len(h.heard) > 1 {
				t.Errorf("protocol %d, port %d to %s: given %v and %v", c.proto, c.port, c.to, one.heard, two.heard)
			}
		}
	}
	s.take()
	entries := func(of uint8) (count int) {
		n := app.node(1)
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, m := range n.rules.Flows() {
			if o, ok := m.Match.Get(openflow.FieldIPProto); ok && o.Value.Lo == uint64(of) && m.Table == admissionTable {
				count++
			}
		}
		return count
	}
	if p, u := entries(pim), entries(udp); p != 2 || u != 1 {
		t.Errorf("%d and %d entries send the protocols' groups up, want 2 and 1", p, u)
	}
	app.SetSpeakers("pim", nil)
	if p, u := entries(pim), entries(udp); p != 0 || u != 1 || !slices.Equal(app.Speaks(1), []string{"rip"}) {
		t.Errorf("a protocol that is not spoken any more has %d entries, the other %d; spoken are %v", p, u, app.Speaks(1))
	}
	if give("10.0.1.9", "224.0.0.13", pim, 0); len(one.heard) > 0 {
		t.Error("a protocol is given packets of a router that does not speak it any more")
	}
	app.SetSpeakers("pim", []uint64{1, 7})
	if give("10.0.1.9", "224.0.0.13", pim, 0); len(one.heard) != 1 || entries(pim) != 2 {
		t.Error("a router that speaks a protocol again gives it nothing")
	}
}

// Proves which protocols cannot be introduced: of a name that is taken, also by another source of
// routes, or with a distance that routes cannot have.
func TestSpeak(t *testing.T) {
	app, err := New(discovery.New(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		Protocol
		want string
	}{
		{Protocol{Name: "rip", Distance: 120, Speaker: &hearing{}}, ""},
		{Protocol{Name: "rip", Distance: 130, Speaker: &hearing{}}, "two protocols called rip"},
		{Protocol{Name: "static", Distance: 120, Speaker: &hearing{}}, "no name of another source"},
		{Protocol{Name: "Rip", Distance: 120, Speaker: &hearing{}}, "lower-case letters"},
		{Protocol{Name: "bgp", Speaker: &hearing{}}, "write 1 to 254"},
		{Protocol{Name: "bgp", Distance: 255, Speaker: &hearing{}}, "write 1 to 254"},
		{Protocol{Name: "bgp", Distance: 20}, "has no Speaker"},
	} {
		if err := app.Speak(c.Protocol); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %d: %v, want %q", c.Name, c.Distance, err, c.want)
		}
	}
}
