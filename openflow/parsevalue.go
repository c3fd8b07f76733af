package openflow

import (
	"net/netip"
	"strconv"
	"strings"
)

// masked reads the value of a field, with a mask behind a slash where it has one.
func (p *parser) masked(f Field, text string, column int) OXM {
	value, maskText, masked := strings.Cut(text, "/")
	o := OXM{Class: ClassBasic, Field: f, Value: p.value(f, value, column)}
	if !masked {
		return o
	}
	if !f.Maskable() {
		p.fail(column, "%v cannot have a mask", f)
		return o
	}
	width := f.Bits()
	kind := fields[f].kind
	if kind == kindIPv4 || kind == kindIPv6 {
		if n, err := strconv.Atoi(maskText); err == nil {
			if n < 0 || n > width {
				p.fail(column, "/%s: a prefix of %v has 0 to %d bits", maskText, f, width)
			}
			return o.WithPrefix(n)
		}
	}
	return o.WithMask(p.value(f, maskText, column))
}

// value reads a value of a field.
func (p *parser) value(f Field, text string, column int) Value {
	switch fields[f].kind {
	case kindPort:
		return Value{Lo: uint64(p.port(text, column))}
	case kindMAC:
		mac, err := ParseMAC(text)
		if err != nil {
			p.fail(column, "%v: %v", f, err)
		}
		return mac.value()
	case kindIPv4, kindIPv6:
		a, err := netip.ParseAddr(text)
		if err != nil || a.BitLen() != f.Bits() {
			p.fail(column, "%v: %q is not an address of %d bits", f, text, f.Bits())
			return Value{}
		}
		return valueOfAddr(a)
	}
	return Value{Lo: p.number(text, f.Bits(), column, nil)}
}

// actions reads a list of actions.
func (p *parser) actions(s string, column int) (list []Action) {
	for _, i := range p.instructions(s, column) {
		if i.Type != InstructionApplyActions {
			p.fail(column, "%v is an instruction; only actions can stand here", i)
			continue
		}
		list = append(list, i.Actions...)
	}
	return list
}

// instructions reads what follows "actions=": instructions, and actions that make one
// apply-actions together.
func (p *parser) instructions(s string, column int) (list []Instruction) {
	apply := -1 // index of the apply-actions
	words(s, column, func(word string, column int) {
		if word == "drop" {
			return
		}
		name, argument := cutArgument(word)
		if i, ok := p.instruction(name, argument, column); ok {
			list = append(list, i)
			return
		}
		a, ok := p.action(name, argument, column)
		if !ok {
			return
		}
		if apply < 0 {
			apply = len(list)
			list = append(list, ApplyActions())
		}
		list[apply].Actions = append(list[apply].Actions, a)
	})
	return list
}

// cutArgument splits name:argument and name(argument).
func cutArgument(word string) (name, argument string) {
	i := strings.IndexAny(word, ":(")
	if i < 0 {
		return word, ""
	}
	if word[i] == '(' {
		return word[:i], strings.TrimSuffix(word[i+1:], ")")
	}
	return word[:i], word[i+1:]
}

func (p *parser) instruction(name, argument string, column int) (Instruction, bool) {
	switch name {
	case "goto_table":
		return GotoTable(uint8(p.number(argument, 8, column, nil))), true
	case "write_metadata":
		value, mask, masked := strings.Cut(argument, "/")
		bits := ^uint64(0)
		if masked {
			bits = p.number(mask, 64, column, nil)
		}
		return WriteMetadata(p.number(value, 64, column, nil), bits), true
	case "write_actions":
		return WriteActions(p.actions(argument, column+len(name)+1)...), true
	case "clear_actions":
		return ClearActions(), true
	case "meter":
		return Meter(uint32(p.number(argument, 32, column, nil))), true
	}
	return Instruction{}, false
}

// action parses an action; false: it is none, which is recorded as a problem.
func (p *parser) action(name, argument string, column int) (Action, bool) {
	switch name {
	case "output":
		return Output(p.port(argument, column)), true
	case "group":
		return Group(uint32(p.number(argument, 32, column, nil))), true
	case "set_queue":
		return SetQueue(uint32(p.number(argument, 32, column, nil))), true
	case "set_field":
		return p.setField(argument, column)
	case "mod_dl_src", "mod_dl_dst", "mod_nw_src", "mod_nw_dst", "mod_tp_src", "mod_tp_dst":
		return p.setField(argument+"->"+strings.TrimPrefix(name, "mod_"), column)
	case "check_pkt_larger":
		return p.checkLarger(argument, column)
	case "set_mpls_ttl":
		return SetMPLSTTL(uint8(p.number(argument, 8, column, nil))), true
	case "mod_nw_ttl", "set_nw_ttl":
		return SetNwTTL(uint8(p.number(argument, 8, column, nil))), true
	case "push_vlan":
		return PushVLAN(uint16(p.number(argument, 16, column, nil))), true
	case "push_mpls":
		return PushMPLS(uint16(p.number(argument, 16, column, nil))), true
	case "pop_mpls":
		return PopMPLS(uint16(p.number(argument, 16, column, nil))), true
	case "push_pbb":
		return PushPBB(uint16(p.number(argument, 16, column, nil))), true
	case "dec_ttl", "dec_nw_ttl":
		return DecNwTTL(), true
	case "dec_mpls_ttl":
		return DecMPLSTTL(), true
	case "copy_ttl_out":
		return CopyTTLOut(), true
	case "copy_ttl_in":
		return CopyTTLIn(), true
	case "pop_vlan", "strip_vlan":
		return PopVLAN(), true
	case "pop_pbb":
		return PopPBB(), true
	}
	for number, known := range portNames {
		if strings.EqualFold(name, known) {
			a := Output(number)
			if number == PortController {
				a.MaxLen = MaxLenNoBuffer
				if argument != "" {
					a.MaxLen = uint16(p.number(argument, 16, column, nil))
				}
			}
			return a, true
		}
	}
	if n, err := strconv.ParseUint(name, 0, 32); err == nil && argument == "" {
		return Output(uint32(n)), true
	}
	p.fail(column, "%s: no such action", name)
	return Action{}, false
}

// checkLarger reads bytes)->OXM_OF_METADATA[bit].
func (p *parser) checkLarger(argument string, column int) (Action, bool) {
	bytes, to, found := strings.Cut(argument, ")->")
	bit, metadata := strings.CutPrefix(to, "OXM_OF_METADATA[")
	bit, closed := strings.CutSuffix(bit, "]")
	if !found || !metadata || !closed {
		p.fail(column, "check_pkt_larger: write check_pkt_larger(1414)->OXM_OF_METADATA[0]")
		return Action{}, false
	}
	n := p.number(bit, 8, column, nil)
	if n > 63 {
		p.fail(column, "bit %d of the metadata: it has bits 0 to 63", n)
		return Action{}, false
	}
	return CheckPacketLarger(uint16(p.number(bytes, 16, column, nil)), uint8(n)), true
}

// setField parses value->field. If a name stands for several fields, the match decides.
func (p *parser) setField(argument string, column int) (Action, bool) {
	value, name, found := strings.Cut(argument, "->")
	if !found {
		p.fail(column, "set_field:%s: write set_field:value->field", argument)
		return Action{}, false
	}
	candidates := fieldsByName[name]
	if len(candidates) == 0 {
		p.fail(column, "%s: no such field", name)
		return Action{}, false
	}
	f, ok := p.fieldToSet(name, candidates)
	if !ok {
		p.fail(column, "%s: the match must name the protocol it belongs to (%s)", name, protocolsOf(name))
		return Action{}, false
	}
	o := p.masked(f, value, column)
	if o.Masked {
		p.fail(column, "set_field of %v: OpenFlow 1.3 cannot set part of a field", f)
		return Action{}, false
	}
	return SetField(o), true
}

// fieldToSet returns the field that a name stands for in set_field: the one for the protocol of the
// match, or else the one that is written so.
func (p *parser) fieldToSet(name string, candidates []Field) (Field, bool) {
	if len(candidates) == 1 {
		return candidates[0], true
	}
	if f, ok := choose(name, p.conditions()); ok {
		return f, true
	}
	for _, f := range candidates {
		if f.nameToSet() == name {
			return f, true
		}
	}
	return 0, false
}
