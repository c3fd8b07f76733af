package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
)

// Rule is a rule of a node's policy routing (ip-rule(8)): it says which table packets that it
// matches are routed by, or what happens to them.
type Rule struct {
	Not      bool         `json:"not,omitempty"`  // packets that do not match
	From     netip.Prefix `json:"from,omitzero"`  // their source
	To       netip.Prefix `json:"to,omitzero"`    // their destination
	In       string       `json:"iif,omitempty"`  // the device that they arrived on; lo: the node's own packets
	Out      string       `json:"oif,omitempty"`  // the device that a socket is bound to
	Mark     uint32       `json:"mark,omitempty"` // of the firewall (fwmark)
	Mask     uint32       `json:"mask,omitempty"` // of Mark, 0: all of it
	TOS      uint8        `json:"tos,omitempty"`
	Protocol string       `json:"protocol,omitempty"` // RuleProtocols
	FromPort PortRange    `json:"sport,omitzero"`
	ToPort   PortRange    `json:"dport,omitzero"`

	Table uint32 `json:"table,omitempty"` // 0: see Action
	// Routes of Table with prefixes no longer than this are ignored.
	Suppress *int       `json:"suppress_prefixlength,omitempty"`
	Action   RuleAction `json:"action,omitempty"`

	// Priority orders the rules: the lowest number applies first. 0: not given; Resolve then
	// numbers rules from FirstPriority on, in the order of the file.
	Priority uint32 `json:"priority,omitempty"`
}

// RuleAction is what happens to packets for which no table is consulted.
type RuleAction string

// RuleActions are the actions of ip-rule(8) that discard a packet.
var RuleActions = []RuleAction{"blackhole", "unreachable", "prohibit"}

// RuleProtocols are the protocols that rules can match, and their numbers in IP packets.
var RuleProtocols = map[string]int{"icmp": 1, "tcp": 6, "udp": 17, "ipv6-icmp": 58, "sctp": 132}

// FirstPriority is the first priority of rules without one: after those of Trivet's management
// network (100) and of VRFs (1000), before the kernel's own for the main table (32766).
const FirstPriority = 10000

// PortRange is a range of ports of TCP, UDP or SCTP, both ends included. The zero value is all
// ports.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

func (p PortRange) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

const ruleHint = "write from 10.1.0.0/16 table 100 priority 1000, fwmark 7 table 20, or iif r1-eth0 prohibit (ip-rule(8))"

// tableNames are the routing tables that every kernel has (rtnetlink(7)).
var tableNames = map[string]uint32{"default": 253, "main": 254, "local": 255}

// ParseRule reads a rule in the syntax of ip-rule(8): not, from, to, iif, oif, fwmark, tos,
// ipproto, sport, dport, table, suppress_prefixlength, blackhole, unreachable, prohibit, priority.
func ParseRule(s string) (rule Rule, err error) {
	bad := Mistaken(ruleHint, "%q is not a rule", s)
	seen := map[string]bool{}
	for f := strings.Fields(s); len(f) > 0; {
		word := cmp.Or(map[string]string{"lookup": "table", "pref": "priority", "preference": "priority",
			"order": "priority", "dsfield": "tos"}[f[0]], f[0])
		if seen[word] {
			return Rule{}, bad
		}
		seen[word] = true
		switch {
		case word == "not":
			rule.Not, f = true, f[1:]
			continue
		case slices.Contains(RuleActions, RuleAction(word)):
			if rule.Action != "" {
				return Rule{}, bad
			}
			rule.Action, f = RuleAction(word), f[1:]
			continue
		case len(f) < 2 || !rule.set(word, f[1]):
			return Rule{}, bad
		}
		f = f[2:]
	}
	if (rule.Table == 0) == (rule.Action == "") || rule.Suppress != nil && rule.Table == 0 ||
		rule.From.IsValid() && rule.To.IsValid() && rule.From.Addr().Is4() != rule.To.Addr().Is4() {
		return Rule{}, bad
	}
	return rule, nil
}

// set stores the value of a keyword.
func (rule *Rule) set(word, value string) bool {
	number := func(text string, bits int) uint32 {
		n, err := strconv.ParseUint(text, 0, bits)
		if err != nil {
			return 0
		}
		return uint32(n)
	}
	switch word {
	case "from", "to":
		p, ok := rulePrefix(value)
		if word == "from" {
			rule.From = p
		} else {
			rule.To = p
		}
		return ok
	case "iif":
		rule.In = value
		return true
	case "oif":
		rule.Out = value
		return true
	case "fwmark":
		mark, mask, masked := strings.Cut(value, "/")
		rule.Mark, rule.Mask = number(mark, 32), number(mask, 32)
		return rule.Mark > 0 && (!masked || rule.Mask > 0)
	case "tos":
		rule.TOS = uint8(number(value, 8))
		return rule.TOS > 0
	case "ipproto":
		rule.Protocol = value
		return RuleProtocols[value] > 0
	case "sport":
		return rule.FromPort.set(value)
	case "dport":
		return rule.ToPort.set(value)
	case "table":
		rule.Table = cmp.Or(tableNames[value], number(value, 32))
		return rule.Table > 0
	case "suppress_prefixlength":
		n, err := strconv.ParseUint(value, 10, 8)
		rule.Suppress = new(int(n))
		return err == nil && n <= 128
	case "priority":
		rule.Priority = number(value, 32)
		return rule.Priority > 0
	}
	return false
}

// rulePrefix reads a network or an address; all means no restriction.
func rulePrefix(s string) (p netip.Prefix, ok bool) {
	if s == "all" {
		return p, true
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err == nil
}

func (p *PortRange) set(s string) bool {
	first, last, ranged := strings.Cut(s, "-")
	if !ranged {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	*p = PortRange{uint16(a), uint16(b)}
	return errA == nil && errB == nil && a > 0 && a <= b
}

// String returns the rule in the syntax of ip-rule(8).
func (rule Rule) String() string {
	var words []string
	add := func(is bool, text ...string) {
		if is {
			words = append(words, text...)
		}
	}
	add(rule.Not, "not")
	add(rule.From.IsValid(), "from", rule.From.String())
	add(rule.To.IsValid(), "to", rule.To.String())
	add(rule.In != "", "iif", rule.In)
	add(rule.Out != "", "oif", rule.Out)
	mark := strconv.FormatUint(uint64(rule.Mark), 10)
	if rule.Mask > 0 {
		mark = fmt.Sprintf("%#x/%#x", rule.Mark, rule.Mask)
	}
	add(rule.Mark > 0, "fwmark", mark)
	add(rule.TOS > 0, "tos", fmt.Sprintf("%#x", rule.TOS))
	add(rule.Protocol != "", "ipproto", rule.Protocol)
	add(rule.FromPort != PortRange{}, "sport", rule.FromPort.String())
	add(rule.ToPort != PortRange{}, "dport", rule.ToPort.String())
	add(rule.Table > 0, "table", TableName(rule.Table))
	if rule.Suppress != nil {
		words = append(words, "suppress_prefixlength", strconv.Itoa(*rule.Suppress))
	}
	add(rule.Action != "", string(rule.Action))
	add(rule.Priority > 0, "priority", strconv.FormatUint(uint64(rule.Priority), 10))
	return strings.Join(words, " ")
}

// says returns which keywords a rule has, whatever their values. To compare two rules of one
// priority and table, the kernel considers only those of the second (rule_exists in
// net/core/fib_rules.c).
func (rule Rule) says() string {
	return fmt.Sprint(rule.Not, rule.From.IsValid(), rule.To.IsValid(), rule.In != "", rule.Out != "", rule.Mark > 0,
		rule.TOS > 0,
		rule.Protocol != "", rule.FromPort != PortRange{}, rule.ToPort != PortRange{}, rule.Suppress != nil)
}

// TableName returns a routing table's name in files: main, or its number.
func TableName(table uint32) string {
	for name, number := range tableNames {
		if number == table {
			return name
		}
	}
	return strconv.FormatUint(uint64(table), 10)
}

// Families returns the address families that the rule applies to: that of its networks or, without
// networks, IPv4 and, if the lab has it, IPv6.
func (rule Rule) Families(ipv6 IPv6) (v4, v6 bool) {
	for _, p := range []netip.Prefix{rule.From, rule.To} {
		if p.IsValid() {
			return p.Addr().Is4(), p.Addr().Is6() && ipv6 != IPv6Off
		}
	}
	switch rule.Protocol {
	case "icmp":
		return true, false
	case "ipv6-icmp":
		return false, ipv6 != IPv6Off
	}
	return true, ipv6 != IPv6Off
}

// rules checks a node's own rules, as far as that does not depend on the names of others.
func (v *validator) rules(n *Node, bad func(hint, format string, args ...any)) {
	if !kernelEntries(n, "rules", len(n.Rules), bad) {
		return
	}
	for _, rule := range n.Rules {
		switch back, err := ParseRule(rule.String()); {
		case err != nil || back.String() != rule.String():
			bad(ruleHint, "rules: %q is not a rule", clip(rule.String()))
		case rule.Table == ManagementTable:
			bad("choose another", "rule %s: table %d is that of the management network", rule, ManagementTable)
		case rule.Priority >= 1<<31:
			bad("write 1 to 2147483647", "rule %s: its priority is too large", rule)
		case (rule.FromPort != PortRange{} || rule.ToPort != PortRange{}) &&
			!slices.Contains([]string{"tcp", "udp", "sctp"}, rule.Protocol):
			bad("write ipproto tcp, udp or sctp", "rule %s: ports are those of a protocol", rule)
		case rule.Protocol == "icmp" &&
			(rule.From.IsValid() && rule.From.Addr().Is6() || rule.To.IsValid() && rule.To.Addr().Is6()):
			bad("write ipproto ipv6-icmp", "rule %s: IPv6 has another protocol", rule)
		}
	}
}

// rules checks the devices of rules, and numbers rules without a priority.
func (r *resolver) rules() {
	for _, n := range r.t.Nodes {
		if len(n.Rules) == 0 || !r.hasOwn(n, "rules", n.Pos) {
			continue
		}
		devices, _ := r.devicesOf(n)
		taken := lists.Set(n.Rules, func(rule Rule) uint32 { return rule.Priority })
		next, seen := uint32(FirstPriority), map[string]bool{}
		says := map[string]string{} // by family, priority and what follows: see Rule.says
		for i := range n.Rules {
			rule := &n.Rules[i]
			bad := func(hint, format string, args ...any) {
				r.problems.Add(n.Pos, hint, "%s %s: rule %s: %s", n.Kind, n.Name, rule, fmt.Sprintf(format, args...))
			}
			for _, device := range []string{rule.In, rule.Out} {
				if device != "" && device != "lo" && !slices.Contains(devices, device) {
					bad(cmp.Or(DidYouMean(device, devices), "it has "+words.Some(devices)), "it has no device %s",
						clip(device))
				}
			}
			v4, v6 := rule.Families(r.t.IPv6)
			if !v4 && !v6 {
				r.problems.Warn(n.Pos, "ipv6: assigned, or --ipv6 assigned",
					"%s %s: rule %s has no effect, as the lab has no IPv6", n.Kind, n.Name, rule)
			}
			if rule.Priority == 0 {
				for taken[next] {
					next++
				}
				rule.Priority = next
				taken[next] = true
			}
			if text := rule.String(); seen[text] {
				bad("write it once", "there are two of it")
			} else {
				seen[text] = true
			}
			clash := false
			for family, has := range map[string]bool{"IPv4": v4, "IPv6": v6} {
				if !has {
					continue
				}
				place := fmt.Sprint(family, rule.Priority, rule.Table, rule.Action)
				other, ok := says[place]
				if clash = clash || ok && other != rule.says(); !ok {
					says[place] = rule.says()
				}
			}
			if clash {
				bad("give one of them another priority",
					"another rule of this priority leads there, too, and says another kind of thing: the kernel may take them for the same")
			}
		}
	}
}
