package ospf

import (
	"fmt"
	"time"
)

// VirtualLinkConfig configures a virtual link (section 15, appendix C.4). Zero values mean the
// defaults of InterfaceConfig.
type VirtualLinkConfig struct {
	Transit ID // the area that the link goes through: neither the backbone nor a stub area
	Peer    ID // Router ID of the border router at the other end

	HelloInterval, DeadInterval, RxmtInterval, TransmitDelay time.Duration
	Auth                                                     Auth
}

// virtualLink is an unnumbered point-to-point link of the backbone between two border routers,
// through an area that both are in (section 15). It is up as long as there is a path.
type virtualLink struct {
	iface   *Interface
	transit *Area
	peer    ID
	remote  ID // an address of the peer
}

// AddVirtualLink adds a virtual link to the router. Both ends need one. It goes up and down by
// itself.
func (r *Router) AddVirtualLink(now time.Time, cfg VirtualLinkConfig) (*Interface, error) {
	d := r.domain
	d.advance(now)
	ic := InterfaceConfig{Type: PointToPoint, Area: Backbone, HelloInterval: cfg.HelloInterval,
		DeadInterval: cfg.DeadInterval,
		RxmtInterval: cfg.RxmtInterval, TransmitDelay: cfg.TransmitDelay, Auth: cfg.Auth}
	ic.setDefaults()
	err := ic.check()
	transit := d.areas[cfg.Transit]
	switch {
	case cfg.Transit == Backbone:
		err = fmt.Errorf("it cannot go through the backbone")
	case transit == nil:
		err = fmt.Errorf("the router is not in area %v", cfg.Transit)
	case transit.cfg.Stub:
		err = fmt.Errorf("it cannot go through the stub area %v", cfg.Transit)
	case cfg.Peer == r.id:
		err = fmt.Errorf("its peer is the router itself")
	case err == nil && d.areas[Backbone] == nil:
		_, err = d.AddArea(AreaConfig{ID: Backbone})
	}
	if err != nil {
		return nil, fmt.Errorf("ospf: virtual link of router %v to %v: %w", r.id, cfg.Peer, err)
	}
	v := &virtualLink{transit: transit, peer: cfg.Peer}
	v.iface = &Interface{router: r, area: d.areas[Backbone], typ: Virtual}
	v.iface.wire = newWire(v.iface, ic)
	v.iface.wire.virtual = v
	r.virtual = append(r.virtual, v)
	v.iface.area.interfaces++
	r.touch()
	d.scheduleCalculation()
	return v.iface, v.join()
}

// join makes the link a segment if the other end is in the domain, too.
func (v *virtualLink) join() error {
	d := v.iface.router.domain
	other := d.routers[v.peer]
	if other == nil {
		return nil
	}
	for _, o := range other.virtual {
		if o.transit == v.transit && o.peer == v.iface.router.id {
			o.iface.down()
			_, err := d.Connect(v.iface, o.iface)
			return err
		}
	}
	return nil
}

// update brings the link up or down by the route through the transit area, and sets its cost and
// addresses (sections 15 and 16.1).
func (v *virtualLink) update(c *calculation) {
	i := v.iface
	route := c.borderRoute(v.peer, v.transit.id)
	if route == nil || len(route.NextHops) == 0 || route.Cost >= 0xffff {
		i.down()
		return
	}
	if addr := c.ownAddress(v.transit, route.NextHops[0]); addr != i.addr || uint16(route.Cost) != i.cost {
		i.addr, i.cost = addr, uint16(route.Cost)
		i.router.touch()
	}
	v.remote = v.remoteAddress()
	i.up()
}

// ownAddress returns the virtual interface's address: that of the outgoing interface or, if it is
// unnumbered, another one in the transit area.
func (c *calculation) ownAddress(a *Area, hop NextHop) ID {
	if hop.Interface.addr != 0 {
		return hop.Interface.addr
	}
	for _, i := range c.r.interfaces {
		if i.area == a && i.isUp() && i.addr != 0 {
			return i.addr
		}
	}
	return 0
}

// remoteAddress finds an address of the peer in its router-LSA.
func (v *virtualLink) remoteAddress() ID {
	g := v.transit.graph
	for l := range g.lsas[g.routers[v.peer]].links() {
		switch {
		case l.Type == LinkTransit, l.Type == LinkPointToPoint && l.Data >= 1<<24: // below: an interface index
			return l.Data
		case l.Type == LinkStub && l.Data == maskOf(32):
			return l.ID
		}
	}
	return 0
}

// hasVirtual reports whether the router has a virtual link to another one through an area.
func (r *Router) hasVirtual(a *Area, peer ID) bool {
	for _, v := range r.virtual {
		if v.transit == a && v.peer == peer {
			return true
		}
	}
	return false
}
