package ospf

import (
	"fmt"
	"slices"
)

// Segment is a network whose routers are all in the domain: a point-to-point link or a broadcast
// network. They share their databases, so they are fully adjacent as soon as both are up, and
// exchange no packets. To other routers it looks as if they did: there are router-LSAs, and the
// network-LSA of a Designated Router, elected by the rules of section 9.4.
type Segment struct {
	members []*Interface
	pending bool
}

// Connect joins interfaces of the domain, which must be down, by a segment: two point-to-point
// ones, or any number of broadcast ones on one network. A network with routers outside the domain
// cannot be a segment: all its routers exchange packets.
func (d *Domain) Connect(members ...*Interface) (*Segment, error) {
	for _, i := range members {
		var err error
		switch first := members[0]; {
		case i.router.domain != d:
			err = fmt.Errorf("it is of another domain")
		case i.isUp():
			err = fmt.Errorf("it is already up")
		case i.segment != nil:
			err = fmt.Errorf("it is connected already")
		case i.passive || i.typ == Loopback:
			err = fmt.Errorf("it is passive or a loopback")
		case i.area != first.area:
			err = fmt.Errorf("its area is %v, that of %v is %v", i.area.id, first, first.area.id)
		case i.typ != first.typ:
			err = fmt.Errorf("it is %v, but %v is %v", i.typ, first, first.typ)
		case i.typ == Broadcast && i.network() != first.network():
			err = fmt.Errorf("its network is %v, that of %v is %v", i.Address(), first, first.Address())
		case i.typ != Broadcast && len(members) != 2:
			err = fmt.Errorf("such a link joins 2 interfaces, not %d", len(members))
		}
		if err != nil {
			return nil, fmt.Errorf("ospf: %v cannot be connected: %w", i, err)
		}
	}
	s := &Segment{members: slices.Clone(members)}
	for _, i := range members {
		i.segment, i.wire = s, nil
	}
	return s, nil
}

// Disconnect ends a segment: its interfaces go down, and exchange no packets until they are
// connected again.
func (d *Domain) Disconnect(s *Segment) {
	for _, i := range s.members {
		i.down()
		i.segment = nil
	}
	s.members = nil
}

// changed notes that a member went up or down.
func (s *Segment) changed() {
	for _, i := range s.members {
		i.router.touch()
	}
	if !s.pending && len(s.members) > 0 {
		s.pending = true
		d := s.members[0].router.domain
		d.elect = append(d.elect, s)
	}
}

// settle elects the Designated Router. Without lost Hellos one election serves all members.
func (s *Segment) settle() {
	s.pending = false
	if len(s.members) == 0 || s.members[0].typ != Broadcast {
		return
	}
	var dr, bdr ID
	var up []candidate
	for _, i := range s.members {
		if i.isUp() {
			up = append(up, candidate{i.router.id, i.addr, i.priority, i.dr, i.bdr})
		}
	}
	// A router that becomes DR is no longer Backup, so a Backup must be elected again (section 9.4
	// step 4).
	for range 3 {
		bdr = electBackup(up)
		dr = electDR(up, bdr)
		for c := range up {
			up[c].dr, up[c].bdr = dr, bdr
		}
	}
	if bdr == dr {
		bdr = 0
	}
	for _, i := range s.members {
		if i.isUp() && (i.dr != dr || i.bdr != bdr || i.state != i.role(dr, bdr)) {
			i.dr, i.bdr = dr, bdr
			i.setState(i.role(dr, bdr))
		}
	}
}

// peers lists whom a member is fully adjacent to (section 10.4): everyone on a point-to-point link,
// otherwise DR and Backup with all, the others with those two.
func (s *Segment) peers(i *Interface) []peer {
	var list []peer
	for _, m := range s.members {
		if m != i && s.adjacent(i, m) {
			list = append(list, peer{m.router.id, m.addr})
		}
	}
	return list
}

// adjacent reports whether a member that is up is fully adjacent to another one.
func (s *Segment) adjacent(i, m *Interface) bool {
	return m.isUp() && (i.typ != Broadcast || i.state >= InterfaceBackup || m.state >= InterfaceBackup)
}
