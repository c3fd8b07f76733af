package cli

import (
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

// network writes a node's addresses and routes, as far as the text does not already lead to them.
func (s *saving) network(r *topology.Topology, n *topology.Node) error {
	addresses, loopback, routes := s.wanted(n)
	if addresses == nil {
		return nil
	}
	var change trivet.NodeChange
	for i, e := range topology.EndsOf(r)[n.Name] {
		if have := addresses[e.Interface]; !sameSet(e.Addresses, have) {
			have = inOrder(e.Addresses, have)
			s.say(n.Name, "address of %s: %s", e.Interface, orNone(have))
			if i == 0 && len(have) > 0 && s.atNode(n.Name) {
				change.Addresses = &have
			} else if err := s.setAddresses(n.Name, e.Interface, have); err != nil {
				return err
			}
		}
	}
	if !sameSet(n.Loopback, loopback) {
		loopback = inOrder(n.Loopback, loopback)
		change.Loopback = &loopback
		s.say(n.Name, "loopback: %s", orNone(loopback))
	}
	if more, gone := differing(n.StaticRoutes(), routes); len(more)+len(gone) > 0 {
		gateways, static := []netip.Addr{}, []topology.Route{}
		for _, route := range inFileOrder(n.StaticRoutes(), routes) {
			family := func(g netip.Addr) bool { return g.Is4() == route.Via.Is4() }
			if route.To.Bits() == 0 && route.Via.IsValid() &&
				route == (topology.Route{To: route.To, Via: route.Via, Device: route.Device}) &&
				!slices.ContainsFunc(gateways, family) {
				gateways = append(gateways, route.Via)
				continue
			}
			if route.Via.IsValid() && !route.OnLink && reaches(addresses, route.Via) {
				route.Device = ""
			}
			static = append(static, route)
		}
		for _, route := range more {
			s.say(n.Name, "route %s", route)
		}
		for _, route := range gone {
			s.say(n.Name, "no route %s", route)
		}
		if !slices.Equal(gateways, n.Gateways) {
			change.Gateways = &gateways
		}
		if !slices.Equal(static, n.Routes) {
			change.Routes = &static
		}
	}
	if change == (trivet.NodeChange{}) {
		return nil
	}
	text, err := trivet.SetNode(s.text, n.Name, change)
	if err == nil {
		s.text = text
	}
	return err
}

// wanted returns the addresses and routes to save for a node: its current ones or, if it is not to
// be saved, the file's. addresses is nil if they are unknown.
func (s *saving) wanted(n *topology.Node) (
	addresses map[string][]netip.Prefix, loopback []netip.Prefix, routes []topology.Route) {
	p := s.present[n.Name]
	if !p.Network {
		return nil, nil, nil
	}
	if s.has(n.Name) {
		return p.Addresses, p.Addresses["lo"], p.Routes
	}
	addresses = map[string][]netip.Prefix{}
	for _, e := range topology.EndsOf(s.first)[n.Name] {
		addresses[e.Interface] = e.Addresses
	}
	first := s.first.Node(n.Name)
	for _, i := range first.Interfaces {
		addresses[i.Name] = i.Addresses
	}
	return addresses, first.Loopback, first.StaticRoutes()
}

// atNode says whether a node's first address is written among its own options.
func (s *saving) atNode(name string) bool {
	t, _ := trivet.Read(s.file, s.text)
	ends := topology.EndsOf(t)[name]
	return !slices.ContainsFunc(ends,
		func(e *topology.Endpoint) bool { return len(e.Addresses) > 0 || e.Unaddressed || e.Port != nil })
}

// setAddresses writes the addresses of a device at its link.
func (s *saving) setAddresses(node, device string, addresses []netip.Prefix) error {
	for _, l := range s.first.Links {
		for i, e := range l.Ends {
			if e.Node != node || e.Interface != device {
				continue
			}
			text, err := trivet.SetAddresses(s.text, l.Ends[0].Label(), l.Ends[1].Label(), i, addresses)
			if err == nil {
				s.text = text
			}
			return err
		}
	}
	return nil
}

// remaining reports what the text cannot express.
func (s *saving) remaining(r *topology.Topology) error {
	for _, n := range r.Nodes {
		addresses, _, routes := s.wanted(n)
		if addresses == nil {
			continue
		}
		for _, e := range topology.EndsOf(r)[n.Name] {
			if !sameSet(e.Addresses, addresses[e.Interface]) {
				s.leave(n.Name, "the addresses of %s cannot be written: the topology gives it %s", e.Interface,
					orNone(e.Addresses))
			}
		}
		for _, i := range n.Interfaces {
			if have, ok := addresses[i.Name]; !ok {
				s.leave(n.Name, "that there is no interface %s cannot be written: take it out of interfaces:", i.Name)
			} else if !sameSet(i.Addresses, have) {
				s.leave(n.Name, "that %s has other addresses (%s) is not written: change them below interfaces:",
					i.Name, orNone(have))
			}
		}
		more, gone := differing(n.StaticRoutes(), routes)
		for _, route := range more {
			s.leave(n.Name, "the route %s cannot be written", route)
		}
		for _, route := range gone {
			s.leave(n.Name,
				"that there is no route %s cannot be written: the topology computes it (routes: as-written does not)",
				route)
		}
	}
	s.said = slices.DeleteFunc(s.said, func(one Saved) bool {
		return slices.ContainsFunc(s.left, func(what string) bool {
			return strings.HasPrefix(one.What, "no route ") &&
				strings.HasPrefix(what, one.Subject+": that there is "+one.What)
		})
	})
	return nil
}

func sameSet[T comparable](a, b []T) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x T) bool { return !slices.Contains(b, x) })
}

// inOrder returns a list in the order of another one, with new elements last.
func inOrder[T comparable](order, list []T) []T {
	out := []T{}
	for _, x := range order {
		if slices.Contains(list, x) {
			out = append(out, x)
		}
	}
	for _, x := range list {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

func orNone(list []netip.Prefix) string {
	if len(list) == 0 {
		return topology.NoAddress
	}
	var out []string
	for _, p := range list {
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}

// sameRoute compares a route of a file with one of a kernel, which knows the device of each.
func sameRoute(file, kernel topology.Route) bool {
	if file.Device == "" {
		kernel.Device = ""
	}
	file.To = file.To.Masked()
	return file.To == kernel.To && file.Table == kernel.Table && file.Source == kernel.Source &&
		file.OnLink == kernel.OnLink && file.Labels == kernel.Labels && file.Via == kernel.Via &&
		file.Device == kernel.Device && file.Discard == kernel.Discard && file.KernelMetric() == kernel.KernelMetric()
}

// differing returns the routes that only the kernel has, and those that only the file has.
func differing(file, kernel []topology.Route) (more, gone []topology.Route) {
	for _, k := range kernel {
		if !slices.ContainsFunc(file, func(f topology.Route) bool { return sameRoute(f, k) || sameRoute(k, f) }) {
			more = append(more, k)
		}
	}
	for _, f := range file {
		if !slices.ContainsFunc(kernel, func(k topology.Route) bool { return sameRoute(f, k) || sameRoute(k, f) }) {
			gone = append(gone, f)
		}
	}
	return more, gone
}

// inFileOrder returns the routes of a kernel, in the form and order of a file's where that has
// them.
func inFileOrder(file, kernel []topology.Route) (out []topology.Route) {
	for _, f := range file {
		if slices.ContainsFunc(kernel, func(k topology.Route) bool { return sameRoute(f, k) }) {
			f.Computed = false
			out = append(out, f)
		}
	}
	more, _ := differing(file, kernel)
	for _, k := range more {
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// reaches says whether a neighbour is in a subnet of a device, so that its device is known.
func reaches(addresses map[string][]netip.Prefix, via netip.Addr) bool {
	for device, list := range addresses {
		if device != "lo" && slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(via) }) {
			return true
		}
	}
	return false
}
