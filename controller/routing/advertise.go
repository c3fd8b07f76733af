package routing

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"trivet.dev/trivet/internal/radvert"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// Router advertisements (RFC 4861, section 6.2). Interfaces without settings in the topology send
// them only in answer to solicitations, so their content must stay valid for long: the router
// lifetime is the maximum (RFC 8319). Others send them as the topology says.
const (
	routerLifetime    = 65535   // s
	prefixLifetime    = 2592000 // s
	preferredLifetime = 604800  // s
)

// adverts are a router's periodic advertisements, at interfaces with settings in the topology.
type adverts struct {
	at    map[uint32]*radvert.Schedule // by port, of those that are up
	timer *time.Timer                  // fires when the next one is due; nil: none was scheduled yet
}

// takeFrom continues the schedules of an earlier node's interfaces whose advertisements have not
// changed, and stops that node from advertising. mu of both must be held.
func (a *adverts) takeFrom(before *adverts, old, n *node) {
	if before.timer != nil {
		before.timer.Stop()
	}
	for port, s := range before.at {
		was, is := old.itf[port], n.itf[port]
		if is != nil && is.RA != nil && is.RA.String() == was.RA.String() && is.MAC == was.MAC &&
			slices.Equal(is.Prefixes, was.Prefixes) {
			a.at[port] = s
		}
	}
	clear(before.at)
}

// advertiseUp starts advertisements on interfaces that are up, and stops them on others. mu must be
// held.
func (n *node) advertiseUp() {
	for port, f := range n.itf {
		switch s := n.adverts.at[port]; {
		case f.RA == nil || !n.up[port]:
			delete(n.adverts.at, port)
		case s == nil:
			s = &radvert.Schedule{}
			s.Begin(time.Now())
			n.adverts.at[port] = s
		}
	}
	n.armAdverts()
}

// Advertise makes all routers that advertise themselves do so now: earlier advertisements may have
// been lost, because their switches, or others, had no entries yet.
func (a *App) Advertise() {
	for _, n := range *a.nodes.Load() {
		n.mu.Lock()
		for _, s := range n.adverts.at {
			s.Again(time.Now())
		}
		n.armAdverts()
		n.mu.Unlock()
	}
}

// armAdverts sets the timer to when the next advertisement is due. mu must be held.
func (n *node) armAdverts() {
	var next time.Time
	for _, s := range n.adverts.at {
		if due := s.Due(); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	switch {
	case n.adverts.timer != nil && next.IsZero():
		n.adverts.timer.Stop()
	case n.adverts.timer != nil:
		n.adverts.timer.Reset(time.Until(next))
	case !next.IsZero():
		n.adverts.timer = time.AfterFunc(time.Until(next), n.sendAdverts)
	}
}

// sendAdverts sends the advertisements that are due, if the switch is connected.
func (n *node) sendAdverts() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone || n.sw == nil {
		return
	}
	now := time.Now()
	for port, s := range n.adverts.at {
		f := n.itf[port]
		if all, _ := s.Take(f.RA, now); all {
			n.outputAdvert(f, multicastMAC(allNodes), allNodes)
		}
	}
	n.armAdverts()
}

// advertise answers a router solicitation (RFC 4861, section 6.2.6), to its sender or, if the
// sender has no address yet, to all nodes.
func (n *node) advertise(f *Interface, from openflow.MAC, p ipPacket, message []byte) {
	if !radvert.Solicits(message, int(p.ttl), p.src) {
		return
	}
	to, mac := p.src, from
	if p.src.IsUnspecified() { // limited as section 6.2.6 requires
		now := time.Now()
		if s := n.adverts.at[f.Port]; s != nil {
			s.Asked(p.src, now)
			n.armAdverts()
			return
		}
		if now.Sub(n.advertised[f.Port]) < radvert.MinDelay {
			return
		}
		n.advertised[f.Port] = now
		to, mac = allNodes, multicastMAC(allNodes)
	}
	n.outputAdvert(f, mac, to)
}

// outputAdvert sends an advertisement out of an interface.
func (n *node) outputAdvert(f *Interface, mac openflow.MAC, to netip.Addr) {
	b := f.onLinkOnly()
	if f.RA != nil {
		var err error
		if b, err = radvert.Marshal(f.RA, f.RA.Advertised(f.Prefixes), topology.MAC(f.MAC)); err != nil {
			return
		}
	}
	n.output(f.Port, frame(mac, f.MAC, openflow.EthTypeIPv6, ip6(linkLocal(f.MAC), to, openflow.IPProtoICMPv6, 255, b)))
}

// onLinkOnly returns an advertisement of prefixes that are on-link but not for address
// autoconfiguration, because the topology assigns addresses.
func (f *Interface) onLinkOnly() []byte {
	b := []byte{routerAdvertisement, 0, 0, 0, 64, 0, byte(routerLifetime >> 8), byte(routerLifetime & 0xff), 15: 0}
	b = append(append(b, 1, 1), f.MAC[:]...)
	for _, prefix := range f.Prefixes {
		if prefix.Addr().Is4() {
			continue
		}
		const onLink = 0x80 // on-link flag; the autonomous flag is not set
		b = append(b, 3, 4, byte(prefix.Bits()), onLink)
		b = binary.BigEndian.AppendUint32(b, prefixLifetime)
		b = binary.BigEndian.AppendUint32(b, preferredLifetime)
		b = append(b, 0, 0, 0, 0)
		b = append(b, prefix.Masked().Addr().AsSlice()...)
	}
	return b
}
