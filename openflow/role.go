package openflow

import "fmt"

// Role is ofp_controller_role (section 7.3.9).
type Role uint32

const (
	RoleNoChange Role = iota // asks for the role alone
	RoleEqual
	RoleMaster // at most one controller has it
	RoleSlave  // may only read
)

// String returns the name in the specification without its prefix OFPCR_ROLE_.
func (r Role) String() string {
	return nameOf([]string{"NOCHANGE", "EQUAL", "MASTER", "SLAVE"}, "role ", r)
}

// ControllerRole is the body of ROLE_REQUEST and ROLE_REPLY: ofp_role_request (section 7.3.9).
type ControllerRole struct {
	Role         Role
	GenerationID uint64 // grows with each election of a master
}

// RoleRequest is ROLE_REQUEST (section 7.3.9).
type RoleRequest struct {
	Xid
	ControllerRole
}

// RoleReply is ROLE_REPLY (section 7.3.9).
type RoleReply struct {
	Xid
	ControllerRole
}

// Type returns TypeRoleRequest.
func (m *RoleRequest) Type() Type { return TypeRoleRequest }

// Type returns TypeRoleReply.
func (m *RoleReply) Type() Type { return TypeRoleReply }

// AppendTo appends the encoded message.
func (m *RoleRequest) AppendTo(b []byte) []byte { return m.ControllerRole.append(b, m.Type(), m.Xid) }

// AppendTo appends the encoded message.
func (m *RoleReply) AppendTo(b []byte) []byte { return m.ControllerRole.append(b, m.Type(), m.Xid) }

func (r ControllerRole) append(b []byte, t Type, x Xid) []byte {
	b, p := start(b, t, x, 24)
	put32(p, 8, uint32(r.Role))
	put64(p, 16, r.GenerationID)
	return b
}

func (m *RoleRequest) decode(d decoder) error { return m.ControllerRole.decode(d) }

func (m *RoleReply) decode(d decoder) error { return m.ControllerRole.decode(d) }

func (r *ControllerRole) decode(d decoder) error {
	if err := d.exactly(24); err != nil {
		return err
	}
	*r = ControllerRole{Role(get32(d.b, 8)), get64(d.b, 16)}
	if r.Role > RoleSlave {
		return d.fail(8, RoleRequestFailedBadRole, "%v", r.Role)
	}
	return nil
}

// String describes the message.
func (m *RoleRequest) String() string { return "ROLE_REQUEST " + m.ControllerRole.String() }

// String describes the message.
func (m *RoleReply) String() string { return "ROLE_REPLY " + m.ControllerRole.String() }

// String describes the role.
func (r ControllerRole) String() string {
	return fmt.Sprintf("role=%v generation_id=%#x", r.Role, r.GenerationID)
}

// Changes reports whether a message changes the switch, or has it send a packet: a slave's is
// refused (section 6.3.6).
func Changes(m Message) bool {
	switch m := m.(type) {
	case *FlowMod, *GroupMod, *MeterMod, *PortMod, *TableMod, *PacketOut, *SetConfig:
		return true
	case *MultipartRequest:
		features, ok := m.Body.(TableFeaturesList)
		return ok && len(features) > 0
	}
	return false
}
