package openflow

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ParseFlow reads a flow in the syntax of ovs-ofctl(8), as FormatFlow writes it and as ovs-ofctl
// dump-flows does (whose counters are skipped):
//
//	table=1,priority=100,tcp,in_port=2,nw_dst=10.0.0.0/8,tp_dst=80,actions=dec_ttl,output:3
//
// The command is FlowAdd, the default priority DefaultPriority. Fields and actions of experimenters
// are not supported. The error lists all problems, each with its column.
func ParseFlow(s string) (*FlowMod, error) {
	p := parser{flow: NewFlowMod(FlowAdd, DefaultPriority, Match{})}
	before, actions, found := cutActions(s)
	p.fields(before, 0)
	p.finishMatch()
	if found {
		p.flow.Instructions = p.instructions(s[actions:], actions)
	}
	return p.flow, p.err()
}

// ParseMatch reads a match: tcp,in_port=2,tp_dst=80.
func ParseMatch(s string) (Match, error) {
	p := parser{flow: new(FlowMod), matchOnly: true}
	p.fields(s, 0)
	p.finishMatch()
	return p.flow.Match, p.err()
}

// ParseActions reads actions: set_field:02:00:00:00:00:01->eth_dst,output:3. The words "drop" and
// "" are none.
func ParseActions(s string) ([]Action, error) {
	p := parser{flow: new(FlowMod)}
	actions := p.actions(s, 0)
	return actions, p.err()
}

// cutActions finds "actions=" where a word begins.
func cutActions(s string) (before string, at int, found bool) {
	const word = "actions="
	for from := 0; ; {
		i := strings.Index(s[from:], word)
		if i < 0 {
			return s, 0, false
		}
		if i += from; i == 0 || strings.ContainsRune(", \t", rune(s[i-1])) {
			return s[:i], i + len(word), true
		}
		from = i + 1
	}
}

type parser struct {
	flow      *FlowMod
	matchOnly bool
	oxms      []OXM
	later     []named // fields whose name stands for several, until the protocol is known
	problems  []error
}

type named struct {
	name, value string
	column      int
}

func (p *parser) err() error { return errors.Join(p.problems...) }

// fail records a problem at a column, counted from 0 here and from 1 in the message.
func (p *parser) fail(column int, format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("column %d: %s", column+1, fmt.Sprintf(format, args...)))
}

// words calls f with the parts of s between commas and spaces outside of parentheses.
func words(s string, column int, f func(word string, column int)) {
	from, depth := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) {
			switch s[i] {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth > 0 || s[i] != ',' && s[i] != ' ' && s[i] != '\t' {
				continue
			}
		}
		if i > from {
			f(s[from:i], column+from)
		}
		from = i + 1
	}
}

// fields reads what stands before the actions.
func (p *parser) fields(s string, column int) {
	words(s, column, func(word string, column int) {
		name, value, _ := strings.Cut(word, "=")
		if !p.matchOnly && p.property(name, value, column) {
			return
		}
		p.field(name, value, column)
	})
}

// property parses a part that does not belong to the match; false: name is none.
func (p *parser) property(name, value string, column int) bool {
	m := p.flow
	switch name {
	case "table":
		m.Table = uint8(p.number(value, 8, column, map[string]uint64{"all": uint64(TableAll)}))
	case "priority":
		m.Priority = uint16(p.number(value, 16, column, nil))
	case "cookie":
		value, mask, masked := strings.Cut(value, "/")
		m.Cookie = p.number(value, 64, column, nil)
		if masked {
			m.CookieMask = p.number(mask, 64, column, map[string]uint64{"-1": ^uint64(0)})
		}
	case "idle_timeout":
		m.IdleTimeout = uint16(p.number(value, 16, column, nil))
	case "hard_timeout":
		m.HardTimeout = uint16(p.number(value, 16, column, nil))
	case "out_port":
		m.OutPort = p.port(value, column)
	case "out_group":
		m.OutGroup = uint32(p.number(value, 32, column, map[string]uint64{"any": uint64(GroupAny)}))
	case "send_flow_rem":
		m.Flags |= FlowSendFlowRem
	case "check_overlap":
		m.Flags |= FlowCheckOverlap
	case "reset_counts":
		m.Flags |= FlowResetCounts
	case "no_packet_counts":
		m.Flags |= FlowNoPktCounts
	case "no_byte_counts":
		m.Flags |= FlowNoBytCounts
	case "duration", "n_packets", "n_bytes", "idle_age", "hard_age":
	default:
		return false
	}
	return true
}

// number reads a number of up to that many bits, or one of the words.
func (p *parser) number(s string, bits int, column int, words map[string]uint64) uint64 {
	if v, ok := words[strings.ToLower(s)]; ok {
		return v
	}
	v, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		p.fail(column, "%q is not a number of at most %d bits", s, bits)
	}
	return v
}

func (p *parser) port(s string, column int) uint32 {
	for number, name := range portNames {
		if strings.EqualFold(s, name) {
			return number
		}
	}
	v, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		p.fail(column,
			"%q is not a port; write its number, or LOCAL, CONTROLLER, NORMAL, FLOOD, ALL, IN_PORT, TABLE", s)
	}
	return uint32(v)
}

// field reads one field of the match, or a word for a protocol.
func (p *parser) field(name, value string, column int) {
	for _, proto := range protocols {
		if proto.word == name && value == "" {
			p.oxms = append(p.oxms, EthType(proto.ethType))
			if proto.ipProto != 0 {
				p.oxms = append(p.oxms, IPProto(proto.ipProto))
			}
			return
		}
	}
	switch name {
	case "dl_vlan":
		p.vlan(value, column)
	case "vlan_tci":
		p.vlanTCI(value, column)
	case "nw_tos":
		p.oxms = append(p.oxms, IPDSCP(uint8(p.number(value, 8, column, nil)>>2)))
	default:
		switch candidates := fieldsByName[name]; len(candidates) {
		case 0:
			p.fail(column, "%s: no such field", name)
		case 1:
			p.oxms = append(p.oxms, p.masked(candidates[0], value, column))
		default:
			p.later = append(p.later, named{name, value, column})
		}
	}
}

func (p *parser) vlan(value string, column int) {
	if vid := p.number(value, 16, column, nil); vid == 0xffff {
		p.oxms = append(p.oxms, VLANNone())
	} else if vid > 4095 {
		p.fail(column, "VLAN %d: write 0 to 4095, or 0xffff for packets without a tag", vid)
	} else {
		p.oxms = append(p.oxms, VLANVID(uint16(vid)))
	}
}

// vlanTCI reads a tag control information: priority, presence and VLAN in one number.
func (p *parser) vlanTCI(value string, column int) {
	value, maskText, masked := strings.Cut(value, "/")
	tci, mask := p.number(value, 16, column, nil), uint64(0xffff)
	if masked {
		mask = p.number(maskText, 16, column, nil)
	}
	if tci == 0 && !masked {
		mask = 0x1fff
	}
	switch mask & 0xe000 {
	case 0xe000:
		p.oxms = append(p.oxms, VLANPCP(uint8(tci>>13)))
	case 0:
	default:
		p.fail(column, "vlan_tci: the mask of the priority bits must be 0xe000 or 0")
	}
	if mask &= 0x1fff; mask != 0 {
		p.oxms = append(p.oxms, basic(FieldVLANVID, tci&0x1fff).WithMask64(mask))
	}
}

// finishMatch reads the fields whose names stand for several, and makes the match.
func (p *parser) finishMatch() {
	for pass := 0; pass < 2 && len(p.later) > 0; pass++ { // nw_proto may be needed for tp_src
		have := p.conditions()
		p.later = slices.DeleteFunc(p.later, func(n named) bool {
			f, ok := choose(n.name, have)
			if ok {
				p.oxms = append(p.oxms, p.masked(f, n.value, n.column))
			}
			return ok
		})
	}
	for _, n := range p.later {
		p.fail(n.column, "%s: first name the protocol it belongs to (%s)", n.name, protocolsOf(n.name))
	}
	seen := make(map[Field]OXM)
	for _, o := range p.oxms {
		if other, ok := seen[o.Field]; ok && other != o {
			p.fail(0, "%v is given twice: %v and %v", o.Field, other.text(), o.text())
		}
		seen[o.Field] = o
	}
	p.flow.Match = NewMatch(p.oxms...)
	if f, missing := p.flow.Match.MissingPrerequisite(); missing && len(p.problems) == 0 {
		p.fail(0, "%v needs another field before it: %s", f, needText(f))
	}
}

// conditions returns what the fields that have been read fulfil.
func (p *parser) conditions() (have condition) {
	for _, o := range p.oxms {
		have |= grants(o.Field, o.Value.Lo)
	}
	return have
}

// choose returns the field that the name stands for under the conditions.
func choose(name string, have condition) (Field, bool) {
	for _, f := range fieldsByName[name] {
		if need := prerequisites[f]; need == 0 || need&have != 0 {
			return f, true
		}
	}
	return 0, false
}

func protocolsOf(name string) string {
	var all []string
	for _, f := range fieldsByName[name] {
		all = append(all, needText(f))
	}
	return strings.Join(slices.Compact(all), ", ")
}

// needText says in words which fields a field needs.
func needText(f Field) string {
	names := []string{"in_port", "dl_vlan", "ip", "ipv6", "arp", "mpls", "dl_type=0x88e7", "tcp", "udp", "sctp", "icmp",
		"icmp6",
		"icmp_type=135", "icmp_type=136"}
	return strings.ReplaceAll(flagNames(uint32(prerequisites[f]), names...), " ", " or ")
}
