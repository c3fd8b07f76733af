package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// RedistributeRule is a rule for which routes of another source a router announces as external
// ones, and how. The first of a router's rules that matches a route decides; a route that none
// matches is not announced. It corresponds to FRR's route-map and prefix-list together.
type RedistributeRule struct {
	Deny   bool   `json:"deny,omitempty"` // what matches is not announced
	Source string `json:"source"`         // connected, static, program, protocol or default
	Name   string `json:"name,omitempty"` // of the program (none: of any), or of the protocol

	// Prefix matches routes to networks within it whose lengths are from GE to LE; with neither,
	// only the network itself. 0 means for GE the prefix's length, and for LE that of addresses. No
	// Prefix matches all but the default route.
	Prefix netip.Prefix `json:"prefix,omitzero"`
	GE     int          `json:"ge,omitempty"`
	LE     int          `json:"le,omitempty"`
	Tag    uint32       `json:"tag,omitempty"` // of the routes; 0: any

	Metric int    `json:"metric,omitempty"`  // 0: 20
	Type   int    `json:"type,omitempty"`    // metric type: 1 or 2; 0: 2
	SetTag uint32 `json:"set_tag,omitempty"` // to announce; 0: the route's own
}

// Sources of RedistributeRule, besides SourceStatic, SourceProgram and SourceProtocol.
const (
	SourceConnected = "connected" // networks of interfaces on which the protocol is off
	SourceDefault   = "default"   // a default route, whether or not the router has one
)

const (
	maxRuleMetric = 1<<24 - 2 // RFC 2328, B: LSInfinity is above it

	redistributeIntoHint = "write ospf into bgp, or deny static 10.20.0.0/16 le 24 tag 7 into bgp, or program sdwan set metric 30 tag 8 into bgp"
)

// Redistribute is a rule for which of its routes a router passes to a program, or to a protocol
// that an app of the controller speaks, and how. The first rule for a target that matches a route
// decides; a route that none matches is not passed. Its source may also be shortest-path or a
// protocol, and its Prefix may be IPv6; it has no Type.
type Redistribute struct {
	RedistributeRule
	Into string `json:"into"` // the program or protocol
}

// Matches says whether the rule applies to a route of its source.
func (r RedistributeRule) Matches(p netip.Prefix, tag uint32) bool {
	switch {
	case r.Tag != 0 && r.Tag != tag:
		return false
	case r.Source == SourceDefault:
		return p.Bits() == 0
	case !r.Prefix.IsValid():
		return p.Bits() > 0
	case p.Bits() < r.Prefix.Bits() || !r.Prefix.Contains(p.Addr()):
		return false
	}
	least, most := r.Lengths()
	return least <= p.Bits() && p.Bits() <= most
}

// Lengths returns the minimum and maximum lengths of the networks that Prefix matches.
func (r RedistributeRule) Lengths() (least, most int) {
	if r.GE == 0 && r.LE == 0 {
		return r.Prefix.Bits(), r.Prefix.Bits()
	}
	return cmp.Or(r.GE, r.Prefix.Bits()), cmp.Or(r.LE, r.Prefix.Addr().BitLen())
}

// Plain says whether the rule applies to all routes of its source, and changes no tag.
func (r RedistributeRule) Plain() bool {
	return !r.Deny && !r.Prefix.IsValid() && r.Tag == 0 && r.SetTag == 0
}

// ParseRedistribute reads "ospf into bgp" or "deny static 10.20.0.0/16 tag 7 into bgp".
func ParseRedistribute(s string) (r Redistribute, err error) {
	f := strings.Fields(s)
	why := "into and the name of a program or protocol are missing"
	if i := slices.Index(f, "into"); i >= 0 && i+1 < len(f) {
		r.Into = f[i+1]
		if r.RedistributeRule, why = parseRedistribute(slices.Delete(f, i, i+2)); why == "" {
			why = r.wrong()
		}
	}
	if why != "" {
		return Redistribute{}, Mistaken(redistributeIntoHint, "%q cannot be redistributed: %s", s, why)
	}
	return r, nil
}

// parseRedistribute reads the words of a rule; why says what is wrong with them.
func parseRedistribute(f []string) (r RedistributeRule, why string) {
	bad := func(format string, args ...any) (RedistributeRule, string) {
		return RedistributeRule{}, fmt.Sprintf(format, args...)
	}
	if len(f) > 0 && f[0] == "deny" {
		r.Deny, f = true, f[1:]
	}
	if len(f) == 0 {
		return bad("the source is missing")
	}
	r.Source, f = f[0], f[1:]
	if len(f) > 0 && slices.Contains([]string{SourceProgram, SourceProtocol}, r.Source) && isProgram(f[0]) {
		r.Name, f = f[0], f[1:]
	}
	if len(f) > 0 && strings.Contains(f[0], "/") {
		p, err := netip.ParsePrefix(f[0])
		if err != nil {
			return bad("%s is not a network", f[0])
		}
		r.Prefix, f = p, f[1:]
	}
	set := false // the following words say what is announced
	explicit := false
	seen := map[string]bool{}
	for len(f) > 0 {
		word := f[0]
		if word == "set" && !set {
			set, explicit, f = true, true, f[1:]
			continue
		}
		if word == "metric" || word == "type" {
			set = true
		}
		into := r.word(word, set)
		switch name := fmt.Sprint(set, word); {
		case into == nil:
			return bad("%s is not a word for it", word)
		case len(f) < 2:
			return bad("a number is missing after %s", word)
		case seen[name]:
			return bad("%s is there twice", word)
		case word == "tag" && set && !explicit:
			return bad("a tag is matched before metric and type, or announced behind set")
		default:
			seen[name] = true
		}
		n, err := strconv.ParseUint(f[1], 10, 32)
		if err != nil || n == 0 {
			return bad("%s is not a number above 0", f[1])
		}
		into(n)
		f = f[2:]
	}
	return r, ""
}

// ruleWords are keywords of rules, which cannot be names of programs.
var ruleWords = []string{"ge", "le", "tag", "set", "metric", "type", "into"}

// isProgram says whether a word can be the name of a program or protocol.
func isProgram(word string) bool {
	return ProgramName.MatchString(word) && !slices.Contains(ruleWords, word)
}

// word returns the function that stores the number after a keyword.
func (r *RedistributeRule) word(word string, set bool) func(uint64) {
	number := func(into *int) func(uint64) { return func(n uint64) { *into = int(n) } }
	tag := func(into *uint32) func(uint64) { return func(n uint64) { *into = uint32(n) } }
	switch {
	case !set && word == "ge":
		return number(&r.GE)
	case !set && word == "le":
		return number(&r.LE)
	case !set && word == "tag":
		return tag(&r.Tag)
	case set && word == "metric":
		return number(&r.Metric)
	case set && word == "type":
		return number(&r.Type)
	case set && word == "tag":
		return tag(&r.SetTag)
	}
	return nil
}

// wrong says why no router could follow the rule; "" if one can.
func (r Redistribute) wrong() string {
	switch {
	case !isProgram(r.Into) || announces(r.Into):
		return clip(r.Into) + " cannot be the name of a program or protocol"
	case !IsProtocol(r.Source) &&
		!slices.Contains([]string{SourceConnected, SourceStatic, SourceProgram, SourceProtocol, SourceShortestPath},
			r.Source):
		return clip(r.Source) + " is not a source"
	case r.Name == r.Into:
		return r.Into + " knows its own routes"
	case r.Type != 0:
		return "only OSPF has types of metrics"
	}
	return r.never()
}

// announces says whether a protocol has rules of its own for what it announces.
func announces(name string) bool {
	p := protocolNamed(name)
	return p != nil && p.Announces
}

// never says why no router could follow a rule, whatever its target.
func (r RedistributeRule) never() string {
	least, most := r.Lengths()
	switch {
	case r.Source == SourceProtocol && r.Name == "":
		return "the protocol has no name"
	case r.Name != "" && (!isProgram(r.Name) || r.Source != SourceProgram && r.Source != SourceProtocol):
		return clip(r.Name) + " is no name of a program or protocol"
	case r.Deny && (r.Metric != 0 || r.Type != 0 || r.SetTag != 0):
		return "what is denied has no metric, type or tag"
	case r.Source == SourceDefault && (r.Deny || r.Prefix.IsValid() || r.Tag != 0):
		return "default is always announced; one that the router has is static 0.0.0.0/0"
	case r.Source == SourceConnected && r.Tag != 0:
		return "connected networks have no tag"
	case !r.Prefix.IsValid() && (r.GE != 0 || r.LE != 0):
		return "ge and le follow a network"
	case r.Prefix.IsValid() && r.Prefix != r.Prefix.Masked():
		return r.Prefix.String() + " is not a network; write " + r.Prefix.Masked().String()
	case r.Prefix.IsValid() && (least < r.Prefix.Bits() || most < least || most > r.Prefix.Addr().BitLen()):
		return fmt.Sprintf("lengths of networks in %s are ge %d le %d", r.Prefix, r.Prefix.Bits(),
			r.Prefix.Addr().BitLen())
	case r.Metric < 0 || r.Metric > maxRuleMetric:
		return fmt.Sprintf("the metric is at most %d", maxRuleMetric)
	case r.Type < 0 || r.Type > 2:
		return "the type is 1 or 2"
	}
	return ""
}

func (r RedistributeRule) String() string {
	s := strings.TrimSpace(r.Source + " " + r.Name)
	if r.Deny {
		s = "deny " + s
	}
	if r.Prefix.IsValid() {
		s += " " + r.Prefix.String()
	}
	add := func(word string, n uint64) {
		if n != 0 {
			s += " " + word + " " + strconv.FormatUint(n, 10)
		}
	}
	add("ge", uint64(r.GE))
	add("le", uint64(r.LE))
	add("tag", uint64(r.Tag))
	if r.SetTag != 0 {
		s += " set"
	}
	add("metric", uint64(r.Metric))
	add("type", uint64(r.Type))
	add("tag", uint64(r.SetTag))
	return s
}

func (r Redistribute) String() string { return r.RedistributeRule.String() + " into " + r.Into }

// checkRedistribute reports rules that nothing would follow: Linux routers have their own daemons.
func (r *resolver) checkRedistribute() {
	for _, n := range r.t.Nodes {
		for _, rule := range n.Redistribute {
			why := rule.wrong()
			switch {
			case why != "":
				r.problems.Add(n.Pos, redistributeIntoHint, "router %s: cannot redistribute %q: %s", n.Name,
					clip(rule.String()), why)
			case !n.RoutingNode():
				r.problems.Add(n.Pos, "leave it out, or make it a routing node",
					"router %s: redistribute: routes of routing nodes are told to programs; datapath %s keeps its own",
					n.Name, n.Datapath)
			}
		}
	}
}
