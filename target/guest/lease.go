package guest

import (
	"errors"
	"net/netip"
	"slices"

	"trivet.dev/trivet/target/guest/dhcp"
	"trivet.dev/trivet/topology"
)

// leaseOf returns the DHCP lease for a guest's interface; nil if the interface has no IPv4 address,
// or gets it from its network.
func leaseOf(n *topology.Node, f Interface, all []Interface) *dhcp.Lease {
	if n.Guest.NoDHCP || n.Guest.Boot == topology.BootNetwork {
		return nil
	}
	l := &dhcp.Lease{MAC: f.MAC, Hostname: n.Name}
	if f.MTU != topology.MTU {
		l.MTU = f.MTU
	}
	for _, a := range f.Addresses {
		if a.Addr().Is4() {
			l.Address = a
			break
		}
	}
	if !l.Address.IsValid() {
		return nil
	}
	for _, r := range routesAt(n, f, all) {
		switch {
		case !r.To.Addr().Is4() || !r.Via.Is4():
		case r.To.Bits() == 0:
			l.Gateway = r.Via
		default:
			l.Routes = append(l.Routes, dhcp.Route{To: r.To, Via: r.Via})
		}
	}
	return l
}

// routesAt returns a node's static routes via a neighbour at one of its interfaces.
func routesAt(n *topology.Node, f Interface, all []Interface) (out []topology.Route) {
	for _, r := range n.StaticRoutes() {
		if r.Via.IsValid() && (r.Device == f.Device || r.Device == "" && towards(r.Via, all) == f.Device) {
			out = append(out, r)
		}
	}
	return out
}

// towards returns the device whose networks contain an address; "" if none does.
func towards(a netip.Addr, interfaces []Interface) string {
	for _, f := range interfaces {
		for _, p := range f.Addresses {
			if p.Contains(a) {
				return f.Device
			}
		}
	}
	return ""
}

// serve starts, updates or stops DHCP servers so that they match the machine's current interfaces.
// The caller holds the lock.
func (m *machine) serve(now []Interface) error {
	if m.ended() { // the servers are closed already, or will be after this
		return nil
	}
	for id, s := range m.servers {
		if !slices.ContainsFunc(now, func(f Interface) bool { return f.ID == id && f.Lease != nil }) {
			s.Close()
			delete(m.servers, id)
		}
	}
	return m.inside(func() error {
		var errs []error
		for _, f := range now {
			if f.Lease == nil {
				continue
			}
			var err error
			if s := m.servers[f.ID]; s != nil {
				err = s.Set(*f.Lease)
			} else if s, err = dhcp.Open(f.Tap, *f.Lease); err == nil {
				m.servers[f.ID] = s
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}
