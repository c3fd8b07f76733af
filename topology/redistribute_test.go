package topology

import (
	"net/netip"
	"strings"
	"testing"
)

// Proves that a rule of redistribution is read, and written as it is read; which of a source's
// routes each is about; and that what no router could follow is refused with the reason.
func TestRedistributeRules(t *testing.T) {
	for text, about := range map[string]string{ // prefix, prefix#tag …: those of its source that it matches
		"static":                   "10.20.0.0/16 10.20.1.0/24 10.20.1.0/24#7",
		"connected metric 30":      "10.20.0.0/16 10.20.1.0/24 10.20.1.0/24#7",
		"default metric 5 type 1":  "0.0.0.0/0",
		"static 0.0.0.0/0":         "0.0.0.0/0",
		"static 0.0.0.0/0 le 16":   "0.0.0.0/0 10.20.0.0/16",
		"deny static 10.20.0.0/16": "10.20.0.0/16",
		"static 10.20.0.0/16 le 24 tag 7 set metric 30 type 1 tag 8": "10.20.1.0/24#7",
		"static 10.20.0.0/16 ge 24":                                  "10.20.1.0/24 10.20.1.0/24#7",
		"static 10.20.0.0/16 ge 17 le 23":                            "",
		"static 10.20.1.0/24":                                        "10.20.1.0/24 10.20.1.0/24#7",
		"static tag 7 metric 30":                                     "10.20.1.0/24#7",
		"program sdwan":                                              "10.20.0.0/16 10.20.1.0/24 10.20.1.0/24#7",
		"protocol rip tag 7":                                         "10.20.1.0/24#7",
		"static set tag 4294967295":                                  "10.20.0.0/16 10.20.1.0/24 10.20.1.0/24#7",
	} {
		r, err := ParseOSPFRedistribute(text)
		if err != nil || r.String() != text {
			t.Errorf("%s: %v, written as %s", text, err, r)
			continue
		}
		var got []string
		for _, p := range []string{"0.0.0.0/0", "10.20.0.0/16", "10.20.1.0/24"} {
			if r.Matches(netip.MustParsePrefix(p), 0) {
				got = append(got, p)
			}
		}
		if r.Source != SourceDefault && r.Matches(netip.MustParsePrefix("10.20.1.0/24"), 7) {
			got = append(got, "10.20.1.0/24#7")
		}
		if got := strings.Join(got, " "); got != about {
			t.Errorf("%s is about %s, want %s", text, got, about)
		}
	}
	for text, why := range map[string]string{
		"":                               "cannot be redistributed",
		"deny":                           "cannot be redistributed",
		"rip":                            "rip is not a source",
		"ospf":                           "ospf is not a source",
		"protocol":                       "the protocol has no name",
		"protocol tag 7":                 "the protocol has no name",
		"protocol ospf":                  "what OSPF has found it announces itself",
		"static sdwan":                   "sdwan is not a word for it",
		"static mtu 7":                   "mtu is not a word for it",
		"static metric":                  "a number is missing after metric",
		"static metric 0":                "0 is not a number above 0",
		"static metric 5 metric 6":       "metric is there twice",
		"static metric 16777215":         "the metric is at most 16777214",
		"static type 3":                  "the type is 1 or 2",
		"static metric 5 tag 7":          "matched before metric and type, or announced behind set",
		"static set ge 5":                "ge is not a word for it",
		"deny static metric 5":           "what is denied has no metric",
		"deny default":                   "default is always announced; one that the router has is static 0.0.0.0/0",
		"connected tag 7":                "connected networks have no tag",
		"static le 24":                   "ge and le follow a network",
		"static 10.20.0.0/33":            "10.20.0.0/33 is not a network",
		"static 10.20.0.1/16":            "10.20.0.1/16 is not a network; write 10.20.0.0/16",
		"static fd00::/64":               "fd00::/64 is not an IPv4 network",
		"static 10.20.0.0/16 ge 8":       "ge 16 le 32",
		"static 10.20.0.0/16 ge 24 le 9": "ge 16 le 32",
		"static 10.20.0.0/16 le 33":      "ge 16 le 32",
	} {
		if r, err := ParseOSPFRedistribute(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %+v, %v, want %s", text, r, err, why)
		}
	}
}

// Proves that a rule for what a program is told is read, and written as it is read, with sources
// and networks that OSPF does not take; and that what nobody could follow is refused with the
// reason.
func TestRedistributeIntoRules(t *testing.T) {
	for text, about := range map[string]string{
		"ospf into bgp":                                          "10.20.0.0/16 fd00::/64",
		"deny protocol rip tag 7 into bgp":                       "",
		"shortest-path fd00::/32 le 64 into x":                   "fd00::/64",
		"program sdwan ::/0 le 128 set metric 30 tag 8 into bgp": "::/0 fd00::/64",
		"static 10.20.0.0/16 metric 5 into a-1":                  "10.20.0.0/16",
	} {
		r, err := ParseRedistribute(text)
		if err != nil || r.String() != text {
			t.Errorf("%s: %v, written as %s", text, err, r)
			continue
		}
		var got []string
		for _, p := range []string{"0.0.0.0/0", "::/0", "10.20.0.0/16", "fd00::/64"} {
			if r.Matches(netip.MustParsePrefix(p), 0) {
				got = append(got, p)
			}
		}
		if got := strings.Join(got, " "); got != about {
			t.Errorf("%s is about %s, want %s", text, got, about)
		}
	}
	if r, err := ParseRedistribute("ospf into bgp set tag 7"); err != nil || r.String() != "ospf set tag 7 into bgp" {
		t.Errorf("%v, %v", r, err)
	}
	for text, why := range map[string]string{
		"ospf":                         "into and the name",
		"ospf into":                    "into and the name",
		"into bgp":                     "the source is missing",
		"default into bgp":             "default is not a source",
		"static into ospf":             "ospf cannot be the name",
		"static into tag":              "tag cannot be the name",
		"static into Bgp":              "Bgp cannot be the name",
		"program bgp into bgp":         "bgp knows its own routes",
		"ospf metric 5 type 1 into x":  "only OSPF has types",
		"ospf fd00::1/64 into x":       "write fd00::/64",
		"ospf fd00::/64 le 129 into x": "ge 64 le 128",
		"deny ospf metric 5 into x":    "what is denied has no metric",
	} {
		if r, err := ParseRedistribute(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %+v, %v, want %s", text, r, err, why)
		}
	}
}

// Proves that distances of sources are read, and written as they are read, those of programs and
// protocols by name too; and that of a source that there is not, or with none or too much of a
// distance, none is.
func TestSourceDistances(t *testing.T) {
	for _, text := range []string{"ospf 150", "static 5", "balanced 255", "shortest-path 1", "program 30", "program sdwan 30", "protocol rip 130"} {
		if d, err := ParseSourceDistance(text); err != nil || d.String() != text {
			t.Errorf("%s: %v, written as %s", text, err, d)
		}
	}
	for _, text := range []string{"", "ospf", "ospf 0", "ospf 256", "rip 120", "protocol 130", "static x 5", "program Sdwan 30", "program a b 30"} {
		if d, err := ParseSourceDistance(text); err == nil || !strings.Contains(err.Error(), "is not the distance of a source") {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
}
