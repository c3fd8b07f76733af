package routing

import (
	"net/netip"
	"slices"
	"testing"

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

// Proves that a protocol is given the packets that it wants, and no others: of its IP protocol, to
// the groups that it names and to addresses of the router, link-local ones of IPv6 too; and that
// the router's switch sends those to groups up.
func TestWanted(t *testing.T) {
	const pim = 103
	h := &hearing{}
	app, s, sw := singleOf(t, "pim", h, Wanted{pim, []netip.Prefix{netip.MustParsePrefix("224.0.0.13/32"), netip.MustParsePrefix("ff02::d/128")}})
	own := linkLocal(router1).String()
	for _, c := range []struct {
		from, to string
		proto    uint8
		want     bool
	}{
		{"10.0.1.9", "224.0.0.13", pim, true},
		{"10.0.1.9", "224.0.0.14", pim, false},
		{"10.0.1.9", "224.0.0.13", 89, false},
		{"10.0.1.9", "10.0.1.1", pim, true},
		{"10.0.1.9", "10.0.2.1", pim, true},
		{"10.0.1.9", "10.0.2.7", pim, false},
		{"fe80::9", "ff02::d", pim, true},
		{"fe80::9", own, pim, true},
		{"fe80::9", linkLocal(host1).String(), pim, false},
		{"fd00:1::9", "fd00:1::1", pim, true},
		{"fd00:1::9", "fd00:1::1", 89, false},
	} {
		src, dst := netip.MustParseAddr(c.from), netip.MustParseAddr(c.to)
		packet := ip6
		if dst.Is4() {
			packet = ip4
		}
		b := packet(src, dst, c.proto, 64, make([]byte, 20))
		h.heard = nil
		receive(app, sw, 1, openflow.ReasonAction, frame(router1, host1, etherTypeOf(b), b))
		if got := slices.Equal(h.heard, []string{c.to}); got != c.want || len(h.heard) > 1 {
			t.Errorf("protocol %d to %s: given %v, want %v", c.proto, c.to, h.heard, c.want)
		}
	}
	s.take()
	groups := 0
	n := app.node(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.rules.Flows() {
		if o, is := m.Match.Get(openflow.FieldIPProto); is && o.Value.Lo == pim && m.Table == admissionTable {
			groups++
		}
	}
	if groups != 2 {
		t.Errorf("%d entries send the protocol's groups up, want 2", groups)
	}
}
