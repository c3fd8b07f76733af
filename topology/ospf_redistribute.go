package topology

import (
	"slices"
	"strings"
)

// OSPFRedistribute is a rule for which routes of another source a router announces as external
// ones, and how.
type OSPFRedistribute struct{ RedistributeRule }

const redistributeHint = "write static, connected, program, program sdwan, protocol rip or default; or static 10.20.0.0/16 le 24 tag 7 set metric 30 type 1 tag 8, or deny static 10.20.0.0/16"

// ParseOSPFRedistribute reads "static", "connected metric 30 type 1", "deny static 10.20.0.0/16" or
// "static 10.20.0.0/16 le 24 tag 7 set metric 30 type 1 tag 8".
func ParseOSPFRedistribute(s string) (OSPFRedistribute, error) {
	rule, why := parseRedistribute(strings.Fields(s))
	r := OSPFRedistribute{rule}
	if why == "" {
		why = r.wrong()
	}
	if why != "" {
		return OSPFRedistribute{}, Mistaken(redistributeHint, "%q cannot be redistributed: %s", s, why)
	}
	return r, nil
}

// wrong says why no router could follow the rule; "" if one can.
func (r OSPFRedistribute) wrong() string {
	switch {
	case !slices.Contains([]string{SourceConnected, SourceStatic, SourceProgram, SourceProtocol, SourceDefault},
		r.Source):
		return clip(r.Source) + " is not a source"
	case r.Source == SourceProtocol && r.Name == SourceOSPF:
		return "what OSPF has found it announces itself"
	case r.Prefix.IsValid() && !r.Prefix.Addr().Is4():
		return r.Prefix.String() + " is not an IPv4 network"
	}
	return r.never()
}
