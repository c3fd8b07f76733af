package ospf

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// InterfaceType is the type of network that an interface attaches to (sections 1.2 and 9).
type InterfaceType uint8

const (
	PointToPoint InterfaceType = iota
	Broadcast
	Loopback // the router's own address: a host route, no packets
	Virtual  // a virtual link; made by AddVirtualLink
)

// String returns the name of the type.
func (t InterfaceType) String() string {
	return []string{"point-to-point", "broadcast", "loopback", "virtual link"}[t]
}

// InterfaceState is the state of an interface (section 9.1), in the RFC's order.
type InterfaceState uint8

const (
	InterfaceDown InterfaceState = iota
	InterfaceLoopback
	InterfaceWaiting
	InterfacePointToPoint
	InterfaceDROther
	InterfaceBackup
	InterfaceDR
)

// String returns the name in the RFC.
func (s InterfaceState) String() string {
	return []string{"Down", "Loopback", "Waiting", "Point-to-point", "DR Other", "Backup", "DR"}[s]
}

// InterfaceConfig configures an interface (appendix C.3). Zero values mean the defaults.
type InterfaceConfig struct {
	Area ID
	Type InterfaceType
	// Address is the interface's address with the length of its network's mask. On point-to-point
	// links it may be left out: then the link is unnumbered, and identified by Index.
	Address netip.Prefix
	Index   uint32
	Cost    uint16 // of sending out of the interface; default 10, of a loopback 0
	// Passive: the network is announced, but no packets are exchanged.
	Passive bool

	Priority uint8 // in the election of the Designated Router: the higher wins; default 1
	NeverDR  bool  // priority 0: never Designated Router

	HelloInterval time.Duration // whole seconds; default 10 s
	DeadInterval  time.Duration // RouterDeadInterval, whole seconds; default 4 × HelloInterval
	RxmtInterval  time.Duration // default 5 s
	TransmitDelay time.Duration // InfTransDelay, whole seconds; default 1 s
	MTU           uint16        // octets; default 1500
	MTUIgnore     bool          // accept neighbours whose MTU is larger
	Auth          Auth
	// MaxLSAs limits the LSAs from one neighbour, which is dropped if it exceeds that; 0 is
	// DefaultMaxLSAsOfNeighbor.
	MaxLSAs int
}

const defaultMTU = 1500

func (c *InterfaceConfig) setDefaults() {
	orDuration := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}
	orDuration(&c.HelloInterval, 10*time.Second)
	orDuration(&c.DeadInterval, 4*c.HelloInterval)
	orDuration(&c.RxmtInterval, 5*time.Second)
	orDuration(&c.TransmitDelay, time.Second)
	if c.Cost == 0 && c.Type != Loopback {
		c.Cost = 10
	}
	if c.MaxLSAs == 0 {
		c.MaxLSAs = DefaultMaxLSAsOfNeighbor
	}
	if c.MTU == 0 {
		c.MTU = defaultMTU
	}
	switch {
	case c.NeverDR:
		c.Priority = 0
	case c.Priority == 0:
		c.Priority = 1
	}
}

func (c *InterfaceConfig) check() error {
	whole := func(d time.Duration) bool { return d >= time.Second && d%time.Second == 0 && d <= 65535*time.Second }
	switch {
	case c.Type > Loopback:
		return fmt.Errorf("type %d is not known; virtual links are made by AddVirtualLink", c.Type)
	case c.Address.IsValid() && !c.Address.Addr().Is4():
		return fmt.Errorf("%v is not an IPv4 address", c.Address)
	case !c.Address.IsValid() && c.Type != PointToPoint:
		return fmt.Errorf("it needs an address: only point-to-point links can do without")
	case !whole(c.HelloInterval) || !whole(c.DeadInterval) || !whole(c.TransmitDelay):
		return fmt.Errorf("HelloInterval, DeadInterval and TransmitDelay must be whole seconds from 1 to 65535")
	case c.RxmtInterval < time.Millisecond:
		return fmt.Errorf("RxmtInterval %v is too short", c.RxmtInterval)
	case c.MaxLSAs < 0:
		return fmt.Errorf("a limit of %d LSAs is below 0", c.MaxLSAs)
	case c.MTU < 256:
		return fmt.Errorf("an MTU of %d octets is too small", c.MTU)
	}
	return c.Auth.check()
}

// Interface is a router's attachment to a network (section 9). One that exchanges packets has a
// wire; one that is passive, or leads only to routers of the domain, has not.
type Interface struct {
	router     *Router
	area       *Area
	addr, mask ID
	dr, bdr    ID // addresses
	index      uint32
	cost       uint16
	priority   uint8
	typ        InterfaceType
	state      InterfaceState
	passive    bool
	segment    *Segment
	wire       *wire
}

// AddInterface adds an interface, which is down (appendix C.3). If the domain does not have its
// area yet, the area is created.
func (r *Router) AddInterface(cfg InterfaceConfig) (*Interface, error) {
	cfg.setDefaults()
	fail := func(err error) (*Interface, error) {
		return nil, fmt.Errorf("ospf: interface %v of router %v: %w", cfg.Address, r.id, err)
	}
	if err := cfg.check(); err != nil {
		return fail(err)
	}
	a := r.domain.areas[cfg.Area]
	if a == nil {
		var err error
		if a, err = r.domain.AddArea(AreaConfig{ID: cfg.Area}); err != nil {
			return fail(err)
		}
	}
	i := &Interface{router: r, area: a, index: cfg.Index, cost: cfg.Cost, priority: cfg.Priority, typ: cfg.Type,
		passive: cfg.Passive}
	if cfg.Address.IsValid() {
		i.addr, i.mask = IDOf(cfg.Address.Addr()), maskOf(cfg.Address.Bits())
		if other := r.domain.addresses[i.addr]; other != nil {
			return fail(fmt.Errorf("router %v has that address already", other.router.id))
		}
		r.domain.addresses[i.addr] = i
	}
	if !cfg.Passive && cfg.Type != Loopback {
		i.wire = newWire(i, cfg)
	}
	r.interfaces = append(r.interfaces, i)
	a.interfaces++
	return i, nil
}

// Router returns the router that the interface belongs to.
func (i *Interface) Router() *Router { return i.router }

// Area returns the interface's area.
func (i *Interface) Area() *Area { return i.area }

// Type returns the kind of the network.
func (i *Interface) Type() InterfaceType { return i.typ }

// State returns the state (section 9.1).
func (i *Interface) State() InterfaceState { return i.state }

// Address returns the interface's address and the length of the mask; invalid if it has none.
func (i *Interface) Address() netip.Prefix {
	if i.addr == 0 {
		return netip.Prefix{}
	}
	p, _ := prefixOf(i.addr, i.mask)
	return netip.PrefixFrom(i.addr.Addr(), p.Bits())
}

// Index returns the number given in InterfaceConfig.
func (i *Interface) Index() uint32 { return i.index }

// DR returns the addresses of Designated Router and Backup Designated Router, 0.0.0.0 for none.
func (i *Interface) DR() (dr, bdr netip.Addr) { return i.dr.Addr(), i.bdr.Addr() }

// MTU returns the maximum length of an IP packet in octets. Datagrams may be longer: the caller
// must fragment them.
func (i *Interface) MTU() uint16 {
	if i.wire == nil {
		return defaultMTU
	}
	return i.wire.cfg.MTU
}

// LSAs lists the link-local LSAs of the interface's link, as Area.LSAs does.
func (i *Interface) LSAs() []LSA {
	if i.wire == nil || i.wire.link == nil {
		return nil
	}
	return i.wire.link.list()
}

// Cost returns the cost of sending out of the interface.
func (i *Interface) Cost() uint16 { return i.cost }

// SetCost changes the interface's cost.
func (i *Interface) SetCost(now time.Time, cost uint16) {
	i.router.domain.advance(now)
	i.cost = max(cost, 1)
	i.router.touch()
}

// String names the interface by router and address.
func (i *Interface) String() string {
	if i.addr == 0 {
		return fmt.Sprintf("interface %d of %v", i.index, i.router.id)
	}
	return fmt.Sprintf("interface %v of %v", i.addr, i.router.id)
}

// Up is the event InterfaceUp (section 9.2).
func (i *Interface) Up(now time.Time) {
	i.router.domain.advance(now)
	i.up()
}

func (i *Interface) up() {
	if i.state != InterfaceDown {
		return
	}
	switch {
	case i.typ == Loopback:
		i.setState(InterfaceLoopback)
	case i.typ != Broadcast:
		i.setState(InterfacePointToPoint)
	case i.priority == 0 || i.wire == nil: // there is nobody to wait for
		i.setState(InterfaceDROther)
	default:
		i.setState(InterfaceWaiting)
	}
	if i.segment != nil {
		i.segment.changed()
	} else if i.wire != nil {
		i.wire.up()
	}
}

// Down is the event InterfaceDown (section 9.2): neighbours are lost at once.
func (i *Interface) Down(now time.Time) {
	i.router.domain.advance(now)
	i.down()
}

func (i *Interface) down() {
	if i.state == InterfaceDown {
		return
	}
	i.dr, i.bdr = 0, 0
	i.setState(InterfaceDown)
	if i.segment == nil && i.wire != nil {
		i.wire.down()
	}
	if i.segment != nil {
		i.segment.changed()
	}
}

// Remove brings the interface down and removes it from its router. It must not be used any more.
func (i *Interface) Remove(now time.Time) {
	d := i.router.domain
	d.advance(now)
	i.down()
	i.router.interfaces = slices.DeleteFunc(i.router.interfaces, func(o *Interface) bool { return o == i })
	i.forget()
}

// forget removes the interface from the domain's lists.
func (i *Interface) forget() {
	i.area.interfaces--
	if d := i.router.domain; d.addresses[i.addr] == i {
		delete(d.addresses, i.addr)
	}
	if s := i.segment; s != nil {
		s.members = slices.DeleteFunc(s.members, func(m *Interface) bool { return m == i })
	}
}

// setState changes the state. The router-LSA depends on it, and so does the network-LSA of a DR.
func (i *Interface) setState(s InterfaceState) {
	i.state = s
	i.router.touch()
}

// isUp reports whether the interface forwards packets.
func (i *Interface) isUp() bool { return i.state != InterfaceDown }

// network returns the interface's network.
func (i *Interface) network() netKey { return keyOf(i.addr, i.mask) }

// peers lists the routers that the interface is fully adjacent to.
func (i *Interface) peers() []peer {
	switch {
	case !i.isUp():
		return nil
	case i.segment != nil:
		return i.segment.peers(i)
	case i.wire != nil:
		return i.wire.peers()
	}
	return nil
}

// peer is a router at the other end of a full adjacency.
type peer struct{ id, addr ID }

// isTransit reports whether the router-LSA has a link to the broadcast network: full with the DR,
// or DR and full with anyone (section 12.4.1.2).
func (i *Interface) isTransit() bool {
	if i.typ != Broadcast || i.state < InterfaceDROther || i.dr == 0 {
		return false
	}
	peers := i.peers()
	if i.state == InterfaceDR {
		return len(peers) > 0
	}
	return slices.ContainsFunc(peers, func(p peer) bool { return p.addr == i.dr })
}
