package openflow

import "errors"

// ActionType is ofp_action_type (section 7.2.5).
type ActionType uint16

const (
	ActionOutput     ActionType = 0
	ActionCopyTTLOut ActionType = 11
	ActionCopyTTLIn  ActionType = 12
	ActionSetMPLSTTL ActionType = 15
	ActionDecMPLSTTL ActionType = 16
	ActionPushVLAN   ActionType = 17
	ActionPopVLAN    ActionType = 18
	ActionPushMPLS   ActionType = 19
	ActionPopMPLS    ActionType = 20
	ActionSetQueue   ActionType = 21
	ActionGroup      ActionType = 22
	ActionSetNwTTL   ActionType = 23
	ActionDecNwTTL   ActionType = 24
	ActionSetField   ActionType = 25
	ActionPushPBB    ActionType = 26
	ActionPopPBB     ActionType = 27

	ActionExperimenter ActionType = 0xffff
)

var actionNames = [...]string{
	0: "OUTPUT", 11: "COPY_TTL_OUT", "COPY_TTL_IN", 15: "SET_MPLS_TTL", "DEC_MPLS_TTL",
	"PUSH_VLAN", "POP_VLAN", "PUSH_MPLS", "POP_MPLS", "SET_QUEUE", "GROUP", "SET_NW_TTL", "DEC_NW_TTL",
	"SET_FIELD", "PUSH_PBB", "POP_PBB",
}

// String returns the name in the specification without its prefix OFPAT_.
func (t ActionType) String() string {
	if t == ActionExperimenter {
		return "EXPERIMENTER"
	}
	return nameOf(actionNames[:], "action ", t)
}

// Action is one action (section 7.2.5). Besides Type, only the fields for that type have a meaning;
// the constructors (Output, SetField, …) set them. Actions that mean the same are equal (==).
type Action struct {
	Type         ActionType
	MaxLen       uint16 // Output to PortController: bytes of the packet to send, see MaxLenNoBuffer
	Port         uint32 // Output
	Group        uint32 // Group
	Queue        uint32 // SetQueue
	EtherType    uint16 // PushVLAN, PushMPLS, PopMPLS, PushPBB
	TTL          uint8  // SetMPLSTTL, SetNwTTL
	Experimenter uint32 // of an experimenter's
	Field        OXM    // SetField; without a mask
	Data         string // of an experimenter's: the bytes after its id; their number is a multiple of 8
}

// Output sends the packet to a port.
func Output(port uint32) Action { return Action{Type: ActionOutput, Port: port} }

// OutputController sends up to maxLen bytes of the packet to the controller, in a PACKET_IN.
func OutputController(maxLen uint16) Action {
	return Action{Type: ActionOutput, Port: PortController, MaxLen: maxLen}
}

// Group passes the packet to a group.
func Group(id uint32) Action { return Action{Type: ActionGroup, Group: id} }

// SetQueue selects the queue of the output port.
func SetQueue(id uint32) Action { return Action{Type: ActionSetQueue, Queue: id} }

// SetField sets a field of the packet.
func SetField(o OXM) Action { return Action{Type: ActionSetField, Field: o} }

// SetMPLSTTL sets the TTL of the outermost MPLS label.
func SetMPLSTTL(ttl uint8) Action { return Action{Type: ActionSetMPLSTTL, TTL: ttl} }

// DecMPLSTTL decrements the TTL of the outermost MPLS label.
func DecMPLSTTL() Action { return Action{Type: ActionDecMPLSTTL} }

// SetNwTTL sets the TTL of IPv4, or the hop limit of IPv6.
func SetNwTTL(ttl uint8) Action { return Action{Type: ActionSetNwTTL, TTL: ttl} }

// DecNwTTL decrements the TTL of IPv4, or the hop limit of IPv6.
func DecNwTTL() Action { return Action{Type: ActionDecNwTTL} }

// CopyTTLOut copies the TTL from the next-to-outermost header to the outermost one.
func CopyTTLOut() Action { return Action{Type: ActionCopyTTLOut} }

// CopyTTLIn copies the TTL from the outermost header to the next-to-outermost one.
func CopyTTLIn() Action { return Action{Type: ActionCopyTTLIn} }

// PushVLAN adds a VLAN tag; etherType is EthTypeVLAN or EthTypeQinQ.
func PushVLAN(etherType uint16) Action { return Action{Type: ActionPushVLAN, EtherType: etherType} }

// PopVLAN removes the outermost VLAN tag.
func PopVLAN() Action { return Action{Type: ActionPopVLAN} }

// PushMPLS adds an MPLS label; etherType is 0x8847 or 0x8848.
func PushMPLS(etherType uint16) Action { return Action{Type: ActionPushMPLS, EtherType: etherType} }

// PopMPLS removes the outermost MPLS label; etherType is that of what it uncovers.
func PopMPLS(etherType uint16) Action { return Action{Type: ActionPopMPLS, EtherType: etherType} }

// PushPBB adds a provider backbone bridging tag; etherType is EthTypePBB.
func PushPBB(etherType uint16) Action { return Action{Type: ActionPushPBB, EtherType: etherType} }

// PopPBB removes the outermost provider backbone bridging tag.
func PopPBB() Action { return Action{Type: ActionPopPBB} }

// ExperimenterAction returns an action defined by an experimenter. data is padded with zeros to a
// multiple of 8 bytes.
func ExperimenterAction(id uint32, data string) Action {
	data += "\x00\x00\x00\x00\x00\x00\x00"[:-len(data)&7]
	return Action{Type: ActionExperimenter, Experimenter: id, Data: data}
}

// appendTo appends the encoded action.
func (a *Action) appendTo(b []byte) []byte {
	at := len(b)
	switch a.Type {
	case ActionOutput:
		b, p := extend(b, 16)
		p[3] = 16
		put32(p, 4, a.Port)
		put16(p, 8, a.MaxLen)
		return b
	case ActionSetField:
		b = append(b, 0, byte(ActionSetField), 0, 0)
		b = pad8(appendOXM(b, &a.Field), at)
		put16(b, at+2, uint16(len(b)-at))
		return b
	case ActionExperimenter:
		b = append(b, 0xff, 0xff, 0, 0, 0, 0, 0, 0)
		put32(b, at+4, a.Experimenter)
		b = pad8(append(b, a.Data...), at)
		put16(b, at+2, uint16(len(b)-at))
		return b
	}
	b, p := extend(b, 8)
	put16(p, 0, uint16(a.Type))
	p[3] = 8
	switch a.Type {
	case ActionGroup:
		put32(p, 4, a.Group)
	case ActionSetQueue:
		put32(p, 4, a.Queue)
	case ActionPushVLAN, ActionPushMPLS, ActionPopMPLS, ActionPushPBB:
		put16(p, 4, a.EtherType)
	case ActionSetMPLSTTL, ActionSetNwTTL:
		p[4] = a.TTL
	}
	return b
}

func appendActions(b []byte, actions []Action) []byte {
	for i := range actions {
		b = actions[i].appendTo(b)
	}
	return b
}

// actions decodes the actions from offset at to offset end, and appends them to list.
func (d decoder) actions(list []Action, at, end int) ([]Action, error) {
	if list == nil && at < end {
		list = make([]Action, 0, d.countTLVs(at, end))
	}
	for at < end {
		kind, n, err := d.tlv(at, end, 8, BadActionBadLen)
		if err != nil {
			return nil, err
		}
		list = append(list, Action{Type: ActionType(kind)})
		if err := d.action(&list[len(list)-1], at, n); err != nil {
			return nil, err
		}
		at += n
	}
	return list, nil
}

// countTLVs counts the elements with a type and a length, going by their lengths.
func (d decoder) countTLVs(at, end int) (count int) {
	for ; end-at >= 4; count++ {
		at += max(int(get16(d.b, at+2)), 8)
	}
	return count
}

// action decodes the action at offset at, of n bytes and with its type set.
func (d decoder) action(a *Action, at, n int) error {
	want := 8
	switch a.Type {
	case ActionSetField:
		return d.setField(a, at, n)
	case ActionExperimenter:
		a.Experimenter = get32(d.b, at+4)
		a.Data = string(d.b[at+8 : at+n])
		return nil
	case ActionOutput:
		if want = 16; n == want {
			a.Port, a.MaxLen = get32(d.b, at+4), get16(d.b, at+8)
		}
	case ActionGroup:
		a.Group = get32(d.b, at+4)
	case ActionSetQueue:
		a.Queue = get32(d.b, at+4)
	case ActionPushVLAN, ActionPushMPLS, ActionPopMPLS, ActionPushPBB:
		a.EtherType = get16(d.b, at+4)
	case ActionSetMPLSTTL, ActionSetNwTTL:
		a.TTL = d.b[at+4]
	case ActionCopyTTLOut, ActionCopyTTLIn, ActionDecMPLSTTL, ActionPopVLAN, ActionDecNwTTL, ActionPopPBB:
	default:
		return d.fail(at, BadActionBadType, "%v is not defined in OpenFlow 1.3", a.Type)
	}
	if n != want {
		return d.fail(at+2, BadActionBadLen, "length %d of %v, want %d", n, a.Type, want)
	}
	return nil
}

// setField decodes a set-field action: a field without a mask, and zeros.
func (d decoder) setField(a *Action, at, n int) error {
	h, _, _, err := d.checkOXM(at+4, at+n)
	if err != nil {
		return asActionError(err)
	}
	length := 4 + int(h&0xff)
	if h>>8&1 != 0 {
		return d.fail(at+6, BadActionBadSetType, "a field to set cannot have a mask")
	}
	if n != (4+length+7)&^7 {
		return d.fail(at+2, BadActionBadLen, "length %d of SET_FIELD with a field of %d bytes", n, length)
	}
	a.Field = d.oxm(d.b[at+4 : at+4+length])
	return nil
}

// asActionError converts the code of an error about a match field to the one for an action.
func asActionError(err error) error {
	var bad *DecodeError
	if errors.As(err, &bad) {
		switch bad.Code {
		case BadMatchBadLen:
			bad.Code = BadActionBadSetLen
		case BadMatchBadValue:
			bad.Code = BadActionBadSetArgument
		default:
			bad.Code = BadActionBadSetType
		}
	}
	return err
}

// oxm is parseOXM for a byte slice; it copies the bytes only of fields that the package does not
// know.
func (d decoder) oxm(tlv []byte) OXM {
	if f := Field(tlv[2] >> 1); get16(tlv, 0) == uint16(ClassBasic) && f < NumFields {
		return OXM{Class: ClassBasic, Field: f, Value: valueOf(tlv[4:])}
	}
	return parseOXM(string(tlv))
}
