// Package radvert makes IPv6 router advertisements (RFC 4861, section 6.2) and says when they are
// due. Callers send them.
package radvert

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/ndp"

	"trivet.dev/trivet/topology"
)

// Protocol constants (RFC 4861, section 10).
const (
	initialInterval = 16 * time.Second       // MAX_INITIAL_RTR_ADVERT_INTERVAL
	initialCount    = 3                      // MAX_INITIAL_RTR_ADVERTISEMENTS
	MinDelay        = 3 * time.Second        // MIN_DELAY_BETWEEN_RAS: between two multicast ones
	answerDelay     = 500 * time.Millisecond // MAX_RA_DELAY_TIME
)

// hopLimit is the hop limit that hosts are to use.
const hopLimit = 64

// Marshal returns the ICMPv6 message, without a checksum, for an interface with this MAC address
// and these prefixes.
func Marshal(a *topology.Advertisement, prefixes []netip.Prefix, mac topology.MAC) ([]byte, error) {
	return ndp.MarshalMessage(message(a, prefixes, mac))
}

func message(a *topology.Advertisement, prefixes []netip.Prefix, mac topology.MAC) ndp.Message {
	valid, preferred := a.PrefixLifetimes()
	m := &ndp.RouterAdvertisement{
		CurrentHopLimit:           hopLimit,
		ManagedConfiguration:      a.Managed,
		OtherConfiguration:        a.Other,
		RouterSelectionPreference: preferences[a.Preference],
		RouterLifetime:            a.RouterLifetime(),
	}
	if mac != (topology.MAC{}) { // a tunnel has none
		m.Options = append(m.Options, &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: mac[:]})
	}
	if m.RouterLifetime == 0 {
		m.RouterSelectionPreference = ndp.Medium // RFC 4191, section 2.2
	}
	for _, p := range prefixes {
		m.Options = append(m.Options, &ndp.PrefixInformation{
			PrefixLength: uint8(p.Bits()), Prefix: p.Masked().Addr(),
			OnLink: true, AutonomousAddressConfiguration: p.Bits() == 64,
			ValidLifetime: valid, PreferredLifetime: preferred,
		})
	}
	if a.MTU > 0 {
		m.Options = append(m.Options, ndp.NewMTU(uint32(a.MTU)))
	}
	known := 3 * a.MaxInterval() // RFC 8106, section 5.1
	if len(a.DNS) > 0 {
		m.Options = append(m.Options, &ndp.RecursiveDNSServer{Lifetime: known, Servers: a.DNS})
	}
	if len(a.Search) > 0 {
		m.Options = append(m.Options, &ndp.DNSSearchList{Lifetime: known, DomainNames: a.Search})
	}
	return m
}

// Solicits says whether an ICMPv6 message with a correct checksum is a valid router solicitation
// (RFC 4861, section 6.1.1).
func Solicits(message []byte, hopLimit int, from netip.Addr) bool {
	m, err := ndp.ParseMessage(message)
	s, ok := m.(*ndp.RouterSolicitation)
	if err != nil || !ok || message[1] != 0 || hopLimit != 255 {
		return false
	}
	named := slices.ContainsFunc(s.Options, func(o ndp.Option) bool { return o.Code() == byte(ndp.Source) })
	return !from.IsUnspecified() || !named
}

var preferences = map[topology.RoutePreference]ndp.Preference{
	topology.PreferenceLow:  ndp.Low,
	topology.PreferenceHigh: ndp.High, // Medium is zero
}

// Schedule says when the advertisements of an interface are due. Until it has begun, only
// solicitations are answered.
type Schedule struct {
	sent int
	last time.Time // when the last one was sent to all nodes
	next time.Time // when the next one to all nodes is due; zero: it has not begun

	asked    []netip.Addr // nodes whose solicitations are answered one by one
	answerAt time.Time
}

// mostAsked is how many nodes are answered one by one within answerDelay. If more ask, one
// advertisement goes to all nodes.
const mostAsked = 64

// Begin makes an advertisement to all nodes due now, and others after that. It may be called again.
func (s *Schedule) Begin(now time.Time) {
	if s.next.IsZero() {
		s.next = now
	}
}

// Again makes another one to all nodes due now, unless several were sent already: the first may
// have been lost.
func (s *Schedule) Again(now time.Time) {
	if !s.next.IsZero() && s.sent < initialCount {
		s.next = now
	}
}

// Asked records that a node has solicited an advertisement; by is invalid if the node has no
// address yet (RFC 4861, section 6.2.6).
func (s *Schedule) Asked(by netip.Addr, now time.Time) {
	at := now.Add(rand.N(answerDelay))
	switch {
	case slices.Contains(s.asked, by):
	case by.IsValid() && !by.IsUnspecified() && len(s.asked) < mostAsked:
		if len(s.asked) == 0 {
			s.answerAt = at
		}
		s.asked = append(s.asked, by)
	case !s.next.IsZero():
		if again := s.last.Add(MinDelay); at.Before(again) {
			at = again
		}
		if at.Before(s.next) {
			s.next = at
		}
	}
}

// Due returns when the next one is due; zero: only on a solicitation.
func (s *Schedule) Due() time.Time {
	if len(s.asked) > 0 && (s.next.IsZero() || s.answerAt.Before(s.next)) {
		return s.answerAt
	}
	return s.next
}

// Take returns who is to get an advertisement now, and counts it as sent. One to all nodes also
// answers pending solicitations.
func (s *Schedule) Take(a *topology.Advertisement, now time.Time) (all bool, to []netip.Addr) {
	switch {
	case !s.next.IsZero() && !now.Before(s.next):
		least, most := a.MinInterval(), a.MaxInterval()
		if s.sent++; s.sent < initialCount {
			least, most = min(least, initialInterval), min(most, initialInterval)
		}
		s.last, s.next = now, now.Add(least+rand.N(most-least+1))
		s.asked = nil
		return true, nil
	case len(s.asked) > 0 && !now.Before(s.answerAt):
		to, s.asked = s.asked, nil
	}
	return false, to
}
