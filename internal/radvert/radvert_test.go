package radvert

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/mdlayher/ndp"

	"trivet.dev/trivet/topology"
)

// Proves that a message says what RFC 4861 (sections 4.2 and 4.6), RFC 4191 and RFC 8106 have for
// each setting, and that it can be read again from the wire.
func TestMessage(t *testing.T) {
	none := topology.Duration(0)
	prefixes := []netip.Prefix{netip.MustParsePrefix("fd00:1::1/64"), netip.MustParsePrefix("fd00:2::/56")}
	mac := topology.MAC{2, 0, 0, 0, 0, 1}
	full := topology.Advertisement{Interval: topology.Duration(10 * time.Second), Preference: topology.PreferenceHigh, Managed: true, Other: true,
		Valid: topology.Duration(time.Hour), MTU: 1400, DNS: []netip.Addr{netip.MustParseAddr("fd00::53")}, Search: []string{"example.org"}}
	want := &ndp.RouterAdvertisement{CurrentHopLimit: 64, ManagedConfiguration: true, OtherConfiguration: true,
		RouterSelectionPreference: ndp.High, RouterLifetime: 30 * time.Second, Options: []ndp.Option{
			&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: mac[:]},
			&ndp.PrefixInformation{PrefixLength: 64, OnLink: true, AutonomousAddressConfiguration: true, ValidLifetime: time.Hour,
				PreferredLifetime: time.Hour, Prefix: netip.MustParseAddr("fd00:1::")},
			&ndp.PrefixInformation{PrefixLength: 56, OnLink: true, ValidLifetime: time.Hour, PreferredLifetime: time.Hour,
				Prefix: netip.MustParseAddr("fd00:2::")},
			ndp.NewMTU(1400),
			&ndp.RecursiveDNSServer{Lifetime: 30 * time.Second, Servers: full.DNS},
			&ndp.DNSSearchList{Lifetime: 30 * time.Second, DomainNames: full.Search},
		}}
	guest := full
	guest.Lifetime = &none
	for what, c := range map[string]struct {
		a        topology.Advertisement
		prefixes []netip.Prefix
		want     *ndp.RouterAdvertisement
	}{
		"all":      {full, prefixes, want},
		"defaults": {topology.Advertisement{}, nil, &ndp.RouterAdvertisement{CurrentHopLimit: 64, RouterLifetime: 30 * time.Minute, Options: want.Options[:1]}},
		"no default router": {guest, prefixes, &ndp.RouterAdvertisement{CurrentHopLimit: 64, ManagedConfiguration: true,
			OtherConfiguration: true, Options: want.Options}},
	} {
		b, err := Marshal(&c.a, c.prefixes, mac)
		if err != nil {
			t.Fatal(what, err)
		}
		if got, err := ndp.ParseMessage(b); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %+v, not %+v", what, err, got, c.want)
		}
	}
}

// Proves, in simulated time, that all nodes get three advertisements in the first 32 seconds, then
// one in each interval, never two within 3 s however many ask, and that who asks has an answer
// within half a second (RFC 4861, sections 6.2.4 and 6.2.6).
func TestSchedule(t *testing.T) {
	begin := time.Now()
	a := &topology.Advertisement{}
	node := func(i int) netip.Addr {
		return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 14: byte(i >> 8), 15: byte(i)})
	}
	for range 200 {
		s, now := Schedule{}, begin
		if all, to := s.Take(a, now); all || to != nil || !s.Due().IsZero() {
			t.Fatalf("before it begins: %v %v, due %s", all, to, s.Due())
		}
		s.Begin(now)
		var at []time.Duration
		for len(at) < 6 {
			if all, to := s.Take(a, now); !all || len(to) > 0 {
				t.Fatalf("after %s %v %v", now.Sub(begin), all, to)
			}
			at = append(at, now.Sub(begin))
			now = s.Due()
		}
		if at[0] != 0 || at[2] > 32*time.Second {
			t.Errorf("the first ones come at %v", at)
		}
		for i := 3; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < a.MinInterval() || gap > a.MaxInterval() {
				t.Errorf("two in a row %s apart, not %s to %s", gap, a.MinInterval(), a.MaxInterval())
			}
		}
	}

	s, now := Schedule{}, begin
	s.Begin(now)
	s.Take(a, now)
	now = now.Add(time.Second)
	for range 2 {
		s.Asked(node(1), now)
		s.Asked(node(2), now)
	}
	due := s.Due()
	if due.Sub(now) > answerDelay {
		t.Errorf("an answer is due in %s", due.Sub(now))
	}
	if all, to := s.Take(a, due); all || !reflect.DeepEqual(to, []netip.Addr{node(1), node(2)}) {
		t.Errorf("answered are all: %v, or %v", all, to)
	}
	if all, to := s.Take(a, due); all || to != nil {
		t.Errorf("answered a second time are all: %v, or %v", all, to)
	}

	s, now = Schedule{}, begin
	s.Begin(now)
	s.Take(a, now)
	last, single := now, 0
	for now.Before(begin.Add(time.Minute)) { // a host that asks in the name of a thousand, or without an address
		now = now.Add(10 * time.Millisecond)
		for i := range 20 {
			s.Asked(node(i+int(now.Sub(begin)/time.Millisecond)), now)
		}
		s.Asked(netip.IPv6Unspecified(), now)
		all, to := s.Take(a, now)
		if all && now.Sub(last) < MinDelay {
			t.Errorf("all get another one after %s", now.Sub(last))
		}
		if single += len(to); all {
			last = now
		}
	}
	if now.Sub(last) > 2*MinDelay || single > 60*mostAsked*6 {
		t.Errorf("the last that all got was %s ago, and %d were sent to one", now.Sub(last), single)
	}
}
