package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/internal/words"
)

// checkOSPF checks a router's settings.
func checkOSPF(v *Checking, n *Node, bad func(hint, format string, args ...any)) {
	o := n.OSPF()
	if o.RouterID.IsValid() && (!o.RouterID.Is4() || o.RouterID.IsUnspecified()) {
		bad("write router_id: 10.0.0.1", "ospf: %s is not a router id", o.RouterID)
	}
	seen := map[AreaID]bool{}
	for _, a := range o.Areas {
		if seen[a.ID] {
			bad("define it once", "ospf: area %s is defined twice", a.ID)
		}
		seen[a.ID] = true
		ospfArea(a, bad)
	}
	for _, r := range o.Redistribute {
		if why := r.wrong(); why != "" {
			bad(redistributeHint, "ospf: cannot redistribute %q: %s", clip(r.String()), why)
		}
	}
	for _, l := range o.VirtualLinks {
		ospfVirtual(v, n, l, bad)
	}
	checkAuth(o.Auth, bad)
}

func ospfArea(a OSPFArea, bad func(hint, format string, args ...any)) {
	switch {
	case a.Stub && a.ID == 0:
		bad("make another area the stub", "ospf: area 0 is the backbone, which cannot be a stub")
	case !a.Stub && (a.NoSummary || a.DefaultCost != 0):
		bad("write stub: true", "ospf: area %s: only a stub area has no_summary or default_cost", a.ID)
	case a.MaxLSAs < 0:
		bad("write 1 or more", "ospf: area %s: max_lsas cannot be %d", a.ID, a.MaxLSAs)
	case a.DefaultCost < 0 || a.DefaultCost > 16777214:
		bad("write 1 to 16777214", "ospf: area %s: %d is not a default_cost", a.ID, a.DefaultCost)
	}
	for i, r := range a.Ranges {
		if !r.Prefix.IsValid() || !r.Prefix.Addr().Is4() || r.Prefix != r.Prefix.Masked() {
			bad("write 10.1.0.0/16", "ospf: area %s: %s is not an IPv4 network", a.ID, r.Prefix)
		}
		if slices.ContainsFunc(a.Ranges[:i], func(other OSPFRange) bool { return other.Prefix == r.Prefix }) {
			bad("write it once", "ospf: area %s: the range %s is listed twice", a.ID, r.Prefix)
		}
	}
}

func ospfVirtual(v *Checking, n *Node, l OSPFVirtualLink, bad func(hint, format string, args ...any)) {
	if l.Area == 0 {
		bad("name the area between the two border routers",
			"ospf: a virtual link goes through an area that is not the backbone")
	}
	for _, a := range n.OSPF().Areas {
		if a.ID == l.Area && a.Stub {
			bad("name another area, or make this one no stub",
				"ospf: a virtual link cannot go through area %s, which is a stub", l.Area)
		}
	}
	ospfPeer(v, n, l, bad)
	ospfTimers(l.Hello, l.Dead, l.Retransmit, l.Delay, bad)
	checkAuth(l.Auth, bad)
}

// ospfPeer checks the other end of a virtual link.
func ospfPeer(v *Checking, n *Node, l OSPFVirtualLink, bad func(hint, format string, args ...any)) {
	if id, err := netip.ParseAddr(l.Router); err == nil {
		if !id.Is4() || id.IsUnspecified() || id == n.OSPF().RouterID {
			bad("write the router_id of the other end, or its name",
				"ospf: virtual link to %s: no other router has that id", l.Router)
		}
		return
	}
	other := v.Node(l.Router)
	switch {
	case l.Router == n.Name:
		bad("name the router at the other end", "ospf: a virtual link to itself")
	case other == nil:
		hint := v.Similar(l.Router, func(n *Node) bool { return n.OSPF() != nil })
		hint = cmp.Or(hint, "write the name or the router_id of a border router")
		bad(hint, "ospf: virtual link to %s: there is no such node", clip(l.Router))
	case other.OSPF() == nil:
		bad("give it ospf", "ospf: virtual link to %s, which does not speak OSPF", l.Router)
	}
}

// checkOSPFLink checks the settings of a link, or of an end of one.
func checkOSPFLink(s Settings, bad func(hint, format string, args ...any)) {
	o := s.(*OSPFLink)
	if o.Cost < 0 || o.Cost > 65535 {
		bad("write 1 to 65535", "ospf: %d is not a cost", o.Cost)
	}
	if o.MaxLSAs < 0 {
		bad("write 1 or more", "ospf: max_lsas cannot be %d", o.MaxLSAs)
	}
	if o.Network != "" && o.Network != PointToPoint && o.Network != Broadcast {
		bad("choose point-to-point or broadcast", "ospf: there is no network %q", o.Network)
	}
	if o.Priority != nil && (*o.Priority < 0 || *o.Priority > 255) {
		bad("write 0 (never the designated router) to 255", "ospf: %d is not a priority", *o.Priority)
	}
	ospfTimers(o.Hello, o.Dead, o.Retransmit, o.Delay, bad)
	checkAuth(o.Auth, bad)
}

func ospfTimers(hello, dead, retransmit, delay Duration, bad func(hint, format string, args ...any)) {
	for _, t := range []struct {
		name string
		d    Duration
	}{{"hello", hello}, {"dead", dead}, {"retransmit", retransmit}, {"delay", delay}} {
		if d := time.Duration(t.d); d != 0 && (d < time.Second || d > 65535*time.Second || d%time.Second != 0) {
			bad("write whole seconds, 1s to 65535s", "ospf: %s %s is out of range", t.name, t.d)
		}
	}
	if h, d, _, _ := timers(hello, dead, 0, 0); d <= h {
		bad("make dead several times hello", "ospf: dead %s is not longer than hello %s", d, h)
	}
}

// checkAuth says what is wrong with a key. It must be a single word in the files of routing
// daemons.
func checkAuth(a *OSPFAuth, bad func(hint, format string, args ...any)) {
	if a == nil {
		return
	}
	longest := map[OSPFAuthType]int{AuthNone: 0, AuthSimple: 8, AuthMD5: 16, AuthSHA1: 64, AuthSHA256: 64,
		AuthSHA384: 64, AuthSHA512: 64}
	most, known := longest[a.Type]
	notWord := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'\\`?|", r) }
	switch {
	case !known:
		bad("choose one of none, simple, md5, sha1, sha256, sha384, sha512", "ospf: auth: there is no type %q", a.Type)
	case a.Type != AuthNone && a.Key == "":
		bad("write auth: {type: md5, key: walnut}", "ospf: auth: %s needs a key", a.Type)
	case len(a.Key) > most:
		bad(fmt.Sprintf("it has at most %d characters", most), "ospf: auth: the key is too long for %s", a.Type)
	case strings.ContainsFunc(a.Key, notWord):
		bad("use letters, digits and signs", "ospf: auth: a key has no spaces, quotes, ?, | or \\")
	case a.ID < 0 || a.ID > 255 || a.ID != 0 && (a.Type == AuthSimple || a.Type == AuthNone):
		bad("write 1 to 255, with md5 or sha256 only", "ospf: auth: %d is not a key id", a.ID)
	}
}

// suitsOSPF reports routers whose daemons cannot do what their settings ask for.
func suitsOSPF(n *Node, problems *Problems) {
	if n.Datapath.Linux() && slices.ContainsFunc(n.OSPF().Redistribute, func(d OSPFRedistribute) bool {
		return d.Source == SourceProgram || d.Source == SourceProtocol
	}) {
		problems.Add(n.Pos, "make it a routing node, or leave it out",
			"router %s: ospf: redistribute program, protocol: only routing nodes have routes of these", n.Name)
	}
}

// ospfPassive checks that passive names devices of the router, or neighbouring nodes.
func ospfPassive(r *Resolving) {
	beside := map[string][]string{}
	for _, l := range r.Links {
		for i, e := range l.Ends {
			if n := r.r.nodes[e.Node]; n != nil && n.OSPF() != nil && len(n.OSPF().Passive) > 0 {
				beside[e.Node] = append(beside[e.Node], l.Ends[1-i].Label(), e.Interface)
			}
		}
	}
	for _, n := range r.Nodes {
		if n.OSPF() == nil {
			continue
		}
		names := beside[n.Name]
		for _, p := range n.OSPF().Passive {
			if slices.Contains(names, p) {
				continue
			}
			hint := cmp.Or(DidYouMean(p, names), words.Choose(names))
			r.Problems.Add(n.Pos, hint,
				"router %s: ospf: passive: %s is neither an interface of it nor a neighbouring node", n.Name, clip(p))
		}
	}
}

// ospfAgrees warns about adjacent routers that will not become OSPF neighbours, and reports virtual
// links through stub areas, or through areas that the router is not in.
func ospfAgrees(r *Resolving) {
	routers := OSPFOf(r.Topology)
	at := map[*Endpoint]*OSPFInterface{}
	for _, o := range routers {
		for i := range o.Interfaces {
			if f := &o.Interfaces[i]; f.Link != nil && !f.Passive {
				at[&f.Link.Ends[f.End]] = f
			}
		}
		for _, v := range o.VirtualLinks {
			virtualAgrees(r, &o, v)
		}
	}
	for _, s := range r.r.segs {
		var first *OSPFInterface
		for _, e := range s.routers {
			switch f := at[e]; {
			case f == nil:
			case first == nil:
				first = f
			default:
				if why := differ(first, f); why != "" {
					r.Problems.Warn(f.Link.Pos, "make them the same", "%s and %s will not become OSPF neighbours: %s",
						first.Link.Ends[first.End].Node, e.Node, why)
				}
			}
		}
	}
}

func virtualAgrees(r *Resolving, o *OSPFRouter, v OSPFVirtual) {
	i := slices.IndexFunc(o.Areas, func(a OSPFArea) bool { return a.ID == v.Area })
	if i < 0 {
		r.Problems.Add(o.Node.Pos, "name an area that it is in",
			"router %s: ospf: a virtual link through area %s, in which it has no interface", o.Node.Name, v.Area)
	} else if o.Areas[i].Stub {
		r.Problems.Add(o.Node.Pos, "name another area",
			"router %s: ospf: a virtual link cannot go through area %s, which is a stub", o.Node.Name, v.Area)
	}
}

// differ says how two interfaces differ in what must be the same for neighbours (RFC 2328, section
// 10.5).
func differ(a, b *OSPFInterface) string {
	switch {
	case a.Area != b.Area:
		return fmt.Sprintf("area %s and %s", a.Area, b.Area)
	case a.Hello != b.Hello:
		return fmt.Sprintf("hello %s and %s", a.Hello, b.Hello)
	case a.Dead != b.Dead:
		return fmt.Sprintf("dead %s and %s", a.Dead, b.Dead)
	case a.Network != b.Network:
		return fmt.Sprintf("network %s and %s", a.Network, b.Network)
	case a.Auth != b.Auth:
		return "their auth differs"
	case a.Network == Broadcast && a.Addresses[0].Masked() != b.Addresses[0].Masked():
		return fmt.Sprintf("networks %s and %s", a.Addresses[0].Masked(), b.Addresses[0].Masked())
	}
	return ""
}
