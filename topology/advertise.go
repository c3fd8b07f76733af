package topology

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/internal/words"
)

// Advertisement is what a router tells the hosts at an interface about itself and its networks: the
// configuration of router advertisements (RFC 4861, section 6.2.1).
type Advertisement struct {
	Off bool `json:"off,omitempty"` // no advertisements on an interface, whatever its node says

	Interval Duration `json:"interval,omitempty"` // MaxRtrAdvInterval: 4 s to 1800 s; 0: 10 minutes
	// AdvDefaultLifetime: whole seconds up to 9000; 0: it is no default router; unset: 3 ×
	// Interval.
	Lifetime   *Duration       `json:"lifetime,omitempty"`
	Preference RoutePreference `json:"preference,omitempty"` // as a default router (RFC 4191); empty: medium
	Managed    bool            `json:"managed,omitempty"`    // hosts ask a DHCP server for addresses
	Other      bool            `json:"other,omitempty"`      // and for other configuration
	Prefixes   []netip.Prefix  `json:"prefixes,omitempty"`   // unset: those of the interface's addresses
	Valid      Duration        `json:"valid,omitempty"`      // AdvValidLifetime, whole seconds; 0: 30 days
	Preferred  Duration        `json:"preferred,omitempty"`  // AdvPreferredLifetime, whole seconds; 0: 7 days, or Valid
	MTU        int             `json:"mtu,omitempty"`        // of the link; 0: not advertised
	DNS        []netip.Addr    `json:"dns,omitempty"`        // name servers (RFC 8106)
	Search     []string        `json:"search,omitempty"`     // search domains (RFC 8106)
}

// RoutePreference says which of several default routers hosts prefer (RFC 4191, section 2.1).
type RoutePreference string

const (
	PreferenceLow    RoutePreference = "low"
	PreferenceMedium RoutePreference = "medium"
	PreferenceHigh   RoutePreference = "high"
)

// Defaults of RFC 4861, section 6.2.1.
const (
	advertiseInterval = 10 * time.Minute
	validLifetime     = 30 * 24 * time.Hour
	preferredLifetime = 7 * 24 * time.Hour
)

// MaxInterval is the maximum time between two advertisements.
func (a *Advertisement) MaxInterval() time.Duration {
	if a.Interval == 0 {
		return advertiseInterval
	}
	return time.Duration(a.Interval)
}

// MinInterval is the minimum time between two unsolicited advertisements.
func (a *Advertisement) MinInterval() time.Duration {
	return max(a.MaxInterval()*33/100, 3*time.Second)
}

// RouterLifetime is for how long hosts use the router as a default router.
func (a *Advertisement) RouterLifetime() time.Duration {
	if a.Lifetime != nil {
		return time.Duration(*a.Lifetime)
	}
	return 3 * a.MaxInterval()
}

// PrefixLifetimes are the valid and the preferred lifetimes of addresses of the prefixes.
func (a *Advertisement) PrefixLifetimes() (valid, preferred time.Duration) {
	if valid = time.Duration(a.Valid); valid == 0 {
		valid = validLifetime
	}
	if preferred = time.Duration(a.Preferred); preferred == 0 {
		preferred = preferredLifetime
	}
	return valid, min(valid, preferred)
}

// String returns the settings as a file has them: "interval 10s, managed".
func (a *Advertisement) String() string {
	var out []string
	add := func(there bool, format string, args ...any) {
		if there {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(a.Off, "off")
	add(a.Interval != 0, "interval %s", a.Interval)
	if a.Lifetime != nil {
		add(true, "lifetime %s", a.Lifetime)
	}
	add(a.Preference != "", "preference %s", a.Preference)
	add(a.Managed, "managed")
	add(a.Other, "other")
	add(len(a.Prefixes) > 0, "prefixes %s", joined(a.Prefixes))
	add(a.Valid != 0, "valid %s", a.Valid)
	add(a.Preferred != 0, "preferred %s", a.Preferred)
	add(a.MTU != 0, "mtu %d", a.MTU)
	add(len(a.DNS) > 0, "dns %s", joined(a.DNS))
	add(len(a.Search) > 0, "search %s", strings.Join(a.Search, ", "))
	if len(out) == 0 {
		return "on"
	}
	return strings.Join(out, "; ")
}

func (a *Advertisement) clone() *Advertisement {
	if a == nil {
		return nil
	}
	c := *a
	c.Lifetime = clonePointer(a.Lifetime)
	c.Prefixes, c.DNS, c.Search = slices.Clone(a.Prefixes), slices.Clone(a.DNS), slices.Clone(a.Search)
	return &c
}

// Advertises says whether routers of a resolved topology send advertisements, or nodes accept them.
func Advertises(t *Topology) bool {
	for _, l := range t.Links {
		for i := range l.Ends {
			if l.Ends[i].RA != nil || l.Ends[i].AcceptsRA() {
				return true
			}
		}
	}
	return slices.ContainsFunc(t.Nodes, func(n *Node) bool {
		return slices.ContainsFunc(n.Interfaces, func(i Interface) bool { return i.RA != nil })
	})
}

// Unadvertised returns a copy of an unresolved topology without router advertisements: all
// addresses and gateways are given. It is for formats that cannot express advertisements.
func Unadvertised(t *Topology) *Topology {
	t = t.Clone()
	for _, n := range t.Nodes {
		n.RA, n.AcceptRA = nil, false
		for i := range n.Interfaces {
			n.Interfaces[i].RA = nil
		}
	}
	for _, l := range t.Links {
		for i := range l.Ends {
			l.Ends[i].RA, l.Ends[i].AcceptRA = nil, nil
		}
	}
	return t
}

// Advertised returns the prefixes that a router of a resolved topology advertises at an interface
// with these addresses.
func (a *Advertisement) Advertised(addresses []netip.Prefix) (out []netip.Prefix) {
	if a == nil || a.Off {
		return nil
	}
	if len(a.Prefixes) > 0 {
		return a.Prefixes
	}
	for _, p := range addresses {
		if m := p.Masked(); p.Addr().Is6() && !p.Addr().IsLinkLocalUnicast() && !p.IsSingleIP() &&
			!slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// autoconfigurable says whether hosts derive an address from a prefix: they use an identifier of 64
// bits (RFC 4291, section 2.5.1).
func autoconfigurable(p netip.Prefix) bool { return p.Bits() == 64 }

// Autoconfigured says whether an address of the interface is one that the kernel derives from
// router advertisements (RFC 4862, section 5.5.3) and the MAC address (RFC 4291, appendix A).
func (e *Endpoint) Autoconfigured(p netip.Prefix) bool {
	return e.AcceptsRA() && autoconfigured(e.MAC, p)
}

// AcceptsRA says whether the interface accepts router advertisements. The topology is resolved.
func (e *Endpoint) AcceptsRA() bool { return e.AcceptRA != nil && *e.AcceptRA }

// learns says whether the interface gets its addresses of a family from advertisements only.
func (e *Endpoint) learns(fam int) bool { return fam == v6 && e.AcceptsRA() }

// Given returns the addresses of the interface that are not autoconfigured.
func (e *Endpoint) Given() []netip.Prefix {
	if !e.AcceptsRA() {
		return e.Addresses
	}
	return slices.DeleteFunc(slices.Clone(e.Addresses), e.Autoconfigured)
}

func autoconfigured(mac MAC, p netip.Prefix) bool {
	return autoconfigurable(p) && p.Addr().Is6() && !p.Addr().IsLinkLocalUnicast() && p == fromMAC(p, mac)
}

// fromMAC returns the address that a device derives from a prefix of 64 bits.
func fromMAC(p netip.Prefix, m MAC) netip.Prefix {
	a := p.Masked().Addr().As16()
	copy(a[8:], []byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
	return netip.PrefixFrom(netip.AddrFrom16(a), p.Bits())
}

var linkLocals = netip.MustParsePrefix("fe80::/64")

// LinkLocal is the link-local address that a kernel gives a device (RFC 4291, section 2.5.6).
func LinkLocal(m MAC) netip.Addr { return fromMAC(linkLocals, m).Addr() }

// searchDomain matches domain names that can be encoded (RFC 1035, section 2.3.1).
var searchDomain = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?$`)

// Limits on one advertisement, so that it fits into a packet of 1280 bytes.
const (
	mostPrefixes = 16
	mostDNS      = 8
	mostSearch   = 4 // of at most 100 characters each
)

// advertises checks a node's settings of advertisements, and those of its own interfaces.
func (v *validator) advertises(n *Node, bad func(hint, format string, args ...any)) {
	v.advertisement("", n, n.RA, bad)
	if n.AcceptRA {
		v.accepts("", n, bad)
	}
	for _, i := range n.Interfaces {
		if k := i.Kind(); i.RA != nil && k != nil && !k.frames {
			v.problems.Add(i.at(n), "leave it out", "%s %s: %s: ra: %s has no hosts at it that could be told", n.Kind,
				n.Name, clip(i.Name), k.Is)
		}
		v.advertisement(clip(i.Name)+": ", n, i.RA, func(hint, format string, args ...any) {
			v.problems.Add(i.at(n), hint, "%s %s: %s", n.Kind, n.Name, fmt.Sprintf(format, args...))
		})
	}
}

// advertisesAt checks the settings of an end of a link. n is nil if the end has no node.
func (v *validator) advertisesAt(n *Node, e *Endpoint, bad func(hint, format string, args ...any)) {
	of := clip(e.Label()) + ": "
	switch {
	case e.RA == nil && e.AcceptRA == nil:
	case n == nil:
		bad("say it of the node", "%sra and accept_ra are of interfaces of nodes", of)
	default:
		v.advertisement(of, n, e.RA, bad)
		if e.AcceptsRA() {
			v.accepts(of, n, bad)
		}
	}
}

// accepts reports nodes that cannot accept advertisements.
func (v *validator) accepts(of string, n *Node, bad func(hint, format string, args ...any)) {
	switch {
	case n.Kind != Host && n.Kind != Router:
		bad("leave it out", "%saccept_ra: only hosts and routers have addresses", of)
	case n.Guest != nil:
		bad("leave it out",
			"%saccept_ra: the system of a virtual machine says whether it takes router advertisements", of)
	}
}

func (v *validator) advertisement(of string, n *Node, a *Advertisement, bad func(hint, format string, args ...any)) {
	if a == nil {
		return
	}
	switch {
	case n.Kind != Router:
		bad("make it a router", "%sra: only routers advertise themselves", of)
		return
	case n.Guest != nil:
		bad("have a program in it do so", "%sra: the system of a virtual machine says whether it advertises itself", of)
		return
	case a.Off:
		return
	}
	whole := func(key string, d, least, most time.Duration) {
		if d != 0 && (d < least || d > most || d%time.Second != 0) {
			bad(fmt.Sprintf("write whole seconds, %s to %s", Duration(least), Duration(most)), "%sra: %s is %s", of,
				key, Duration(d))
		}
	}
	whole("interval", time.Duration(a.Interval), 4*time.Second, 1800*time.Second)
	if a.Lifetime != nil && *a.Lifetime != 0 {
		whole("lifetime", time.Duration(*a.Lifetime), time.Second, 9000*time.Second)
		if *a.Lifetime > 0 && time.Duration(*a.Lifetime) < a.MaxInterval() {
			bad("write at least "+Duration(a.MaxInterval()).String()+", or none",
				"%sra: lifetime is %s, and hosts would forget the router before it is heard again", of, *a.Lifetime)
		}
	}
	const longest = (1<<32 - 2) * time.Second // more than that is forever
	whole("valid", time.Duration(a.Valid), time.Second, longest)
	whole("preferred", time.Duration(a.Preferred), time.Second, longest)
	for key, d := range map[string]Duration{"valid": a.Valid, "preferred": a.Preferred} {
		if d > 0 && time.Duration(d) < a.MaxInterval() {
			bad("write at least "+Duration(a.MaxInterval()).String()+", or a shorter interval",
				"%sra: %s is %s, and hosts would be without before they are told again", of, key, d)
		}
	}
	if valid, _ := a.PrefixLifetimes(); time.Duration(a.Preferred) > valid {
		bad("write at most "+Duration(valid).String(), "%sra: preferred is %s, and addresses are valid for %s", of,
			a.Preferred, Duration(valid))
	}
	if a.MTU != 0 && (a.MTU < MinMTU6 || a.MTU > MaxMTU) {
		bad(fmt.Sprintf("write %d to %d", MinMTU6, MaxMTU), "%sra: mtu is %d", of, a.MTU)
	}
	for _, p := range a.Prefixes {
		if !p.Addr().Is6() || p.Addr().Is4In6() || p.Addr().IsLinkLocalUnicast() || p.Addr().IsMulticast() ||
			p != p.Masked() {
			bad("write fd00:0:0:1::/64", "%sra: prefixes: %s is not a network of IPv6 that hosts can have addresses of",
				of, p)
		}
	}
	for _, d := range a.DNS {
		if !d.Is6() || d.Is4In6() || d.Zone() != "" || d.IsMulticast() || d.IsUnspecified() {
			bad("write fd00::53", "%sra: dns: %s is not the IPv6 address of a server", of, d)
		}
	}
	for _, s := range a.Search {
		if len(s) > 100 || !searchDomain.MatchString(s) {
			bad("write example.org", "%sra: search: %q is not a domain of at most 100 characters", of, clip(s))
		}
	}
	for _, list := range []struct {
		key         string
		count, most int
	}{{"prefixes", len(a.Prefixes), mostPrefixes}, {"dns", len(a.DNS), mostDNS},
		{"search", len(a.Search), mostSearch}} {
		if list.count > list.most {
			bad("write fewer", "%sra: %s: these are more than %d, and one packet says them all", of, list.key,
				list.most)
		}
	}
}

// advertisers moves nodes' settings of advertisements to their interfaces.
func (r *resolver) advertisers() {
	for _, n := range r.t.Nodes {
		any := n.RA != nil && !n.RA.Off
		accepts := false
		for _, e := range r.ends[n.Name] {
			if e.RA == nil && !e.Unaddressed {
				e.RA = n.RA.clone()
			}
			if e.RA != nil && e.RA.Off {
				e.RA = nil
			}
			if e.AcceptRA == nil && n.AcceptRA && !e.Unaddressed {
				e.AcceptRA = new(true)
			}
			any, accepts = any || e.RA != nil, accepts || e.AcceptsRA()
		}
		for i := range n.Interfaces {
			x := &n.Interfaces[i]
			if x.RA == nil && len(x.Addresses) > 0 && x.Kind().frames && !x.Dummy {
				x.RA = n.RA.clone()
			}
			if x.RA != nil && x.RA.Off {
				x.RA = nil
			}
			any = any || x.RA != nil
		}
		n.RA, n.AcceptRA = nil, false
		if any || accepts {
			r.canAdvertise(n, any, accepts)
		}
	}
}

// canAdvertise reports why a node cannot send or accept advertisements.
func (r *resolver) canAdvertise(n *Node, sends, accepts bool) {
	switch {
	case r.t.IPv6 == IPv6Off:
		what := map[bool]string{true: "ra", false: "accept_ra"}[sends]
		r.problems.Warn(n.Pos, "ipv6: assigned, or --ipv6 assigned", "%s %s: %s has no effect, as the lab has no IPv6",
			n.Kind, n.Name, what)
		for _, e := range r.ends[n.Name] {
			e.RA, e.AcceptRA = nil, nil
		}
		for i := range n.Interfaces {
			n.Interfaces[i].RA = nil
		}
	case sends && n.Datapath == VM:
		r.problems.Add(n.Pos, "use datapath kernel or frr, or a configuration of its own (ipv6 nd)",
			"router %s: ra: the kernel that would advertise it is another one", n.Name)
	case sends && !n.RoutingNode() && !n.Made().Own:
		r.problems.Add(n.Pos, "use datapath kernel", "router %s: ra: it is not a router of the lab's own", n.Name)
	case accepts && (!n.Made().Own || n.Made().Guest):
		r.problems.Add(n.Pos, "use datapath kernel",
			"%s %s: accept_ra: it has no kernel of its own here that could take router advertisements", n.Kind, n.Name)
	}
}

// advertised returns the prefixes from which hosts in a segment derive addresses, and whether a
// router there advertises anything. It warns of prefixes from which no host can.
func (r *resolver) advertised(s *segment) (prefixes []netip.Prefix, any bool) {
	for _, e := range s.routers {
		if e.RA == nil {
			continue
		}
		any = true
		all := e.RA.Advertised(e.Addresses)
		for _, p := range all {
			if autoconfigurable(p) && !slices.Contains(prefixes, p) {
				prefixes = append(prefixes, p)
			}
		}
		if len(all) > 0 && !slices.ContainsFunc(all, autoconfigurable) {
			r.problems.Warn(r.nodes[e.Node].Pos, "use one of 64 bits",
				"router %s: ra: hosts make no address of %s, as that needs 64 bits (RFC 4862)", e.Node, all[0])
		}
	}
	return prefixes, any
}

// autoconfigure adds to interfaces that accept advertisements the addresses that their kernels will
// derive (RFC 4862, section 5.5.3), as far as these are known: a program in a router may advertise
// other prefixes.
func (r *resolver) autoconfigure(segs []*segment) {
	if r.t.IPv6 == IPv6Off {
		return
	}
	var deaf []string
	for _, s := range segs {
		accepts := slices.DeleteFunc(slices.Concat(s.ends, s.routers),
			func(e *Endpoint) bool { return !e.AcceptsRA() || e.Unaddressed })
		if len(accepts) == 0 {
			continue
		}
		prefixes, any := r.advertised(s)
		if !any && !r.mayBeAdvertised(s) {
			for _, e := range accepts {
				deaf = append(deaf, e.Node)
			}
		}
		for _, e := range accepts {
			for _, p := range prefixes {
				if own := fromMAC(p, e.MAC); !slices.Contains(e.Addresses, own) && e.RA == nil {
					e.Addresses = append(e.Addresses, own)
				}
			}
		}
	}
	if len(deaf) > 0 {
		r.problems.Warn(r.t.Pos, "write ra: true at a router there",
			"%s: accept_ra: no router on the link advertises itself", words.Some(deaf))
	}
}

// mayBeAdvertised says whether something in a segment may send advertisements without the topology
// saying so.
func (r *resolver) mayBeAdvertised(s *segment) bool {
	return s.external || slices.ContainsFunc(slices.Concat(s.routers, s.ends), func(e *Endpoint) bool {
		n := r.nodes[e.Node]
		return n.Inside() != "" || n.OwnRouting() != "" || n.Start != "" || r.provided[e]
	})
}

// learntRoutes sets the device, and onlink, of routes via neighbours in networks that a node learns
// from advertisements: the routes are added before anything is learnt.
func (r *resolver) learntRoutes() {
	for _, n := range r.t.Nodes {
		if !slices.ContainsFunc(r.ends[n.Name], (*Endpoint).AcceptsRA) {
			continue
		}
		_, given := r.devicesOf(n)
		for _, e := range r.ends[n.Name] {
			given[e.Interface] = e.Given()
		}
		learnt := func(via netip.Addr) string {
			contains := func(p netip.Prefix) bool { return p.Contains(via) }
			for _, list := range given {
				if slices.ContainsFunc(list, contains) {
					return ""
				}
			}
			for _, e := range r.ends[n.Name] {
				if slices.ContainsFunc(e.Addresses, contains) {
					return e.Interface
				}
			}
			return ""
		}
		for i := range n.Routes {
			route := &n.Routes[i]
			if device := learnt(route.Via); device != "" && (route.Device == "" || route.Device == device) {
				route.Device, route.OnLink = device, true
			}
		}
		n.Gateways = slices.DeleteFunc(n.Gateways, func(via netip.Addr) bool {
			device := learnt(via)
			if device != "" {
				n.Routes = append(n.Routes,
					Route{To: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Via: via, Device: device, OnLink: true})
			}
			return device != ""
		})
	}
}
