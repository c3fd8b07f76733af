package local

import (
	"net/netip"
	"testing"

	"golang.org/x/net/ipv6"
)

// TestSolicits proves that only what RFC 4861, section 6.1.1, calls a valid router solicitation is
// one, from a host on the link: whatever else comes is left unanswered.
func TestSolicits(t *testing.T) {
	const solicitation = 133
	plain := []byte{solicitation, 0, 0, 0, 0, 0, 0, 0}
	named := append(append([]byte{}, plain...), 1, 1, 2, 0, 0, 0, 0, 9) // the sender's MAC address
	for what, c := range map[string]struct {
		message []byte
		hops    int
		from    string
		want    bool
	}{
		"of a host":                       {plain, 255, "fe80::9", true},
		"with its MAC address":            {named, 255, "fe80::9", true},
		"without an address":              {plain, 255, "::", true},
		"a MAC address, but no other":     {named, 255, "::", false},
		"forwarded by a router":           {plain, 254, "fe80::9", false},
		"from somebody beyond the link":   {plain, 255, "fd00::9", false},
		"an advertisement":                {append([]byte{134}, make([]byte, 15)...), 255, "fe80::9", false},
		"cut":                             {plain[:5], 255, "fe80::9", false},
		"nothing":                         {nil, 255, "fe80::9", false},
		"an option that is cut":           {named[:12], 255, "fe80::9", false},
		"an option of no length":          {append(append([]byte{}, plain...), 1, 0, 0, 0, 0, 0, 0, 0), 255, "fe80::9", false},
		"an option longer than it can be": {append(append([]byte{}, plain...), 1, 255, 0, 0, 0, 0, 0, 0), 255, "fe80::9", false},
	} {
		if got := solicits(c.message, &ipv6.ControlMessage{HopLimit: c.hops}, netip.MustParseAddr(c.from)); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
