package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
)

// Labels of MPLS. Those below FirstLabel are reserved (RFC 3032, section 2.1).
const (
	FirstLabel = 16
	MaxLabel   = 1<<20 - 1

	explicitNull4, explicitNull6 = 0, 2 // the packet below is one of IPv4, of IPv6
	implicitNull                 = 3    // for protocols only: the label is to be popped
)

// LabelStack is a stack of labels to push, the outermost first, in the syntax of ip-route(8):
// "100/200"; empty: none. ParseLabelStack reads it.
type LabelStack string

// mostLabels limits a stack: iproute2 reads no more.
const mostLabels = 16

// ParseLabelStack reads "100/200": explicit null (0 and 2) and labels from FirstLabel on.
func ParseLabelStack(s string) (LabelStack, error) {
	parts := strings.Split(s, "/")
	if len(parts) > mostLabels {
		return "", Mistaken("write fewer", "%q: these are more than %d labels", clip(s), mostLabels)
	}
	for _, part := range parts {
		switch n, err := strconv.ParseUint(part, 10, 32); {
		case err != nil:
			return "", Mistaken("write 100, or 100/200, of which the first is outermost", "%q is not a stack of labels",
				clip(s))
		case n == implicitNull:
			return "", Mistaken("write 100 pop via 10.0.0.2; a route without labels sends packets with none",
				"label 3, implicit null, is never in a packet")
		case n > MaxLabel || n < FirstLabel && n != explicitNull4 && n != explicitNull6:
			return "", Mistaken(fmt.Sprintf("write a number, %d to %d, or 0 or 2, explicit null", FirstLabel, MaxLabel),
				"%s is no label for packets", clip(part))
		}
	}
	return LabelStack(s), nil
}

// Labels returns the stack's labels, the outermost first.
func (s LabelStack) Labels() (out []int) {
	if s == "" {
		return nil
	}
	for part := range strings.SplitSeq(string(s), "/") {
		n, _ := strconv.Atoi(part)
		out = append(out, n)
	}
	return out
}

// StackOf returns the stack of these labels, the outermost first.
func StackOf(labels []int) LabelStack {
	text := lists.Map(labels, strconv.Itoa)
	return LabelStack(strings.Join(text, "/"))
}

// LabelRoute says what a node does with packets with a given outermost label (RFC 3031, section
// 3.11: an entry of its Incoming Label Map): the label is swapped for others, or popped, and the
// packet is sent to a neighbour, or processed by the node itself once it has no label left.
type LabelRoute struct {
	Label int        `json:"label"`          // FirstLabel to MaxLabel
	Swap  LabelStack `json:"swap,omitempty"` // labels in its place; empty: it is popped
	Via   netip.Addr `json:"via,omitzero"`
	// lo or a VRF if there is no Via: the node processes the packet itself. Otherwise Resolve finds
	// the device of Via.
	Device string `json:"device,omitempty"`
}

const labelHint = "write 100 swap 200 via 10.0.0.2, 100 pop via 10.0.0.2, or 100 pop dev lo for packets that are the node's to look at; " +
	"dev r1-eth0 may follow via"

// ParseLabelRoute reads "100 swap 200 via 10.0.0.2" or "100 pop via 10.0.0.2", either followed by
// an optional dev, or "100 pop dev lo".
func ParseLabelRoute(s string) (l LabelRoute, err error) {
	bad := Mistaken(labelHint, "%q does not say what becomes of a label", clip(s))
	f := strings.Fields(s)
	if len(f) < 2 {
		return l, bad
	}
	if l.Label, err = strconv.Atoi(f[0]); err != nil {
		return LabelRoute{}, bad
	}
	if err := incoming(l.Label); err != nil {
		return LabelRoute{}, err
	}
	switch {
	case f[1] == "pop":
		f = f[2:]
	case f[1] == "swap" && len(f) > 2:
		if l.Swap, err = ParseLabelStack(f[2]); err != nil {
			return LabelRoute{}, err
		}
		f = f[3:]
	default:
		return LabelRoute{}, bad
	}
	for ; len(f) > 0; f = f[2:] {
		switch {
		case len(f) > 1 && f[0] == "via" && !l.Via.IsValid() && l.Device == "":
			if l.Via, err = netip.ParseAddr(f[1]); err != nil || l.Via.Zone() != "" {
				return LabelRoute{}, bad
			}
		case len(f) > 1 && f[0] == "dev" && l.Device == "":
			l.Device = f[1]
		default:
			return LabelRoute{}, bad
		}
	}
	if !l.Via.IsValid() && (l.Swap != "" || l.Device == "") {
		return LabelRoute{}, bad
	}
	return l, nil
}

// incoming says why there can be no route for a label.
func incoming(label int) error {
	const hint = "write a number, 16 to 1048575"
	switch {
	case label == explicitNull4 || label == explicitNull6:
		return Mistaken("leave it out", "label %d, explicit null, is known to every router", label)
	case label == implicitNull:
		return Mistaken("leave it out: the router before this one pops", "label 3, implicit null, is never in a packet")
	case label >= 0 && label < FirstLabel:
		return Mistaken(hint, "label %d is reserved", label)
	case label < 0 || label > MaxLabel:
		return Mistaken(hint, "%d is no label", label)
	}
	return nil
}

func (l LabelRoute) String() string {
	s := strconv.Itoa(l.Label) + " pop"
	if l.Swap != "" {
		s = fmt.Sprintf("%d swap %s", l.Label, l.Swap)
	}
	if l.Via.IsValid() {
		s += " via " + l.Via.String()
	}
	if l.Device != "" {
		s += " dev " + l.Device
	}
	return s
}

// PlatformSetting is the sysctl, per network namespace, that limits the labels that a node can have
// routes for.
const PlatformSetting = "net.mpls.platform_labels"

// usualLabels is the minimum of PlatformLabels. The kernel needs eight bytes for each: 800 kB per
// node.
const usualLabels = 100_000

// PlatformLabels returns how many labels, from 0 on, the kernel of a resolved node has to allow; 0
// if the node does not use MPLS. A value in the node's sysctls takes precedence. ends are the
// node's.
func (n *Node) PlatformLabels(ends []*Endpoint) int {
	if !n.labelled() && !slices.ContainsFunc(ends, func(e *Endpoint) bool { return e.MPLS }) {
		return 0
	}
	if given := n.platformGiven(); given > 0 {
		return given
	}
	most := usualLabels
	for _, l := range n.Labels {
		most = max(most, l.Label+1)
	}
	return most
}

// platformGiven returns that value in the node's own sysctls; 0 if there is none, or it is no
// number.
func (n *Node) platformGiven() (given int) {
	for _, s := range n.Sysctls {
		if s.Name == PlatformSetting {
			given, _ = strconv.Atoi(s.Value)
		}
	}
	return given
}

// labelled says whether the node itself, rather than the ends of its links, has settings of MPLS.
func (n *Node) labelled() bool {
	return n.MPLS || len(n.Labels) > 0 || slices.ContainsFunc(n.Interfaces, func(i Interface) bool { return i.MPLS }) ||
		slices.ContainsFunc(n.Routes, func(r Route) bool { return r.Labels != "" })
}

// labels checks a node's settings of MPLS, as far as that does not depend on the names of others.
func (v *validator) labels(n *Node, bad func(hint, format string, args ...any)) {
	if n.MPLS && n.Kind != Host && n.Kind != Router {
		bad("make it a host or a router", "mpls: only these have it")
	}
	for _, r := range n.Routes {
		if r.Labels == "" {
			continue
		}
		if _, err := ParseLabelStack(string(r.Labels)); err != nil {
			text, hint := TextAndHint(err)
			bad(hint, "route %s: %s", r, text)
		} else if r.Discard || !r.Via.IsValid() {
			bad("write 10.2.0.0/16 via 10.0.0.254 labels 100", "route %s: packets with labels go to a router", r)
		}
	}
	if !kernelEntries(n, "labels", len(n.Labels), bad) {
		return
	}
	given, seen := n.platformGiven(), map[int]bool{}
	for _, l := range n.Labels {
		switch back, err := ParseLabelRoute(l.String()); {
		case err != nil:
			text, hint := TextAndHint(err)
			bad(hint, "labels: %s", text)
		case back != l:
			bad(labelHint, "labels: %q does not say what becomes of a label", clip(l.String()))
		case l.Via.IsValid() && !assignable(l.Via):
			bad(labelHint, "label %s: %s cannot be the address of a neighbour", l, l.Via)
		case seen[l.Label]:
			bad("write it once", "label %d: there are two of it", l.Label)
		case given > 0 && l.Label >= given:
			bad(fmt.Sprintf("write %s: %d, or leave that out", PlatformSetting, l.Label+1),
				"label %d: sysctls let the node know only those below %d", l.Label, given)
		}
		seen[l.Label] = true
	}
}

// mpls checks a link's settings of MPLS.
func (v *validator) mpls(l *Link, bad func(hint, format string, args ...any)) {
	can := func(e Endpoint) bool {
		n := v.nodes[e.Node]
		return n != nil && (n.Kind == Host || n.Kind == Router)
	}
	if l.MPLS && !slices.ContainsFunc(l.Ends[:], can) {
		bad("give it to a link of a router", "mpls: only hosts and routers have it")
	}
	for _, e := range l.Ends {
		if e.MPLS && !can(e) {
			bad("give it to the end at the router", "mpls: only hosts and routers have it, and %s is none",
				clip(e.Label()))
		}
	}
}

// asksForMPLS returns the nodes that use MPLS, by their own settings or their links'.
func asksForMPLS(t *Topology) map[string]bool {
	out := map[string]bool{}
	for _, n := range t.Nodes {
		if n.labelled() {
			out[n.Name] = true
		}
	}
	for _, l := range t.Links {
		for _, e := range l.Ends {
			if l.MPLS || e.MPLS {
				out[e.Node] = true
			}
		}
	}
	return out
}

// mpls sets for each device whether it accepts packets with labels, and finds the devices of label
// routes' neighbours, once all have addresses.
func (r *resolver) mpls() {
	for _, l := range r.t.Links {
		some, lacks := false, ""
		for i := range l.Ends {
			e := &l.Ends[i]
			n := r.nodes[e.Node]
			if n == nil || n.Kind != Host && n.Kind != Router {
				continue
			}
			if made := n.Made(); !made.Own || made.Guest {
				if lacks = cmp.Or(lacks, n.Name); e.MPLS {
					r.hasOwn(n, "mpls", l.Pos)
				}
				continue
			}
			some, e.MPLS = true, e.MPLS || l.MPLS || n.MPLS
		}
		if l.MPLS && !some {
			r.hasOwn(r.nodes[lacks], "mpls", l.Pos)
		}
	}
	for _, n := range r.t.Nodes {
		if !n.labelled() || (n.MPLS || len(n.Labels) > 0) && !r.hasOwn(n, "mpls and labels", n.Pos) {
			continue
		}
		for i := range n.Interfaces {
			x := &n.Interfaces[i]
			x.MPLS = x.MPLS || n.MPLS && len(x.VRF) == 0
		}
		r.labelRoutes(n)
	}
	r.unlabelled()
}

func (r *resolver) labelRoutes(n *Node) {
	devices, addresses := r.devicesOf(n)
	own := ownAddresses(n, addresses)
	looks := []string{"lo"} // devices that mean the node itself
	for _, i := range n.Interfaces {
		if len(i.VRF) > 0 {
			looks = append(looks, i.Name)
		}
	}
	var kept []LabelRoute
	for _, l := range n.Labels {
		bad := func(hint, format string, args ...any) {
			r.problems.Add(n.Pos, hint, "%s %s: label %s: %s", n.Kind, n.Name, l, fmt.Sprintf(format, args...))
		}
		if l.Via.Is6() && r.t.IPv6 == IPv6Off {
			r.problems.Warn(n.Pos, "ipv6: assigned, or --ipv6 assigned",
				"%s %s: label %s is left out, as the lab has no IPv6", n.Kind, n.Name, l)
			continue
		}
		found := devicesWith(l.Via, devices, addresses)
		switch {
		case !l.Via.IsValid() && !slices.Contains(looks, l.Device):
			bad("name a neighbour: via 10.0.0.2; the node itself looks at what is popped with dev "+
				strings.Join(looks, " or "),
				"it does not say who gets the packet")
		case !l.Via.IsValid():
		case l.Device != "" && !slices.Contains(devices, l.Device):
			bad(cmp.Or(DidYouMean(l.Device, devices), "it has "+words.Some(devices)), "it has no device %s",
				clip(l.Device))
		case slices.Contains(looks, l.Device):
			bad("name the device of a link", "%s is no device at which there are neighbours", l.Device)
		case own[l.Via]:
			bad("name another node's address", "%s is its own address", l.Via)
		case l.Device == "" && len(found) == 0:
			bad("a neighbour's address is in a subnet of the node; or name the device: dev "+words.Some(devices),
				"none of its subnets has %s", l.Via)
		case l.Device == "" && len(found) > 1:
			bad("name one of them: dev "+found[0], "%s have that address in their subnets", words.Some(found))
		case l.Device == "":
			l.Device = found[0]
		}
		kept = append(kept, l)
	}
	n.Labels = kept
}

// unlabelled warns of packets with labels that are sent to a node of the lab whose device drops
// them.
func (r *resolver) unlabelled() {
	takes := map[netip.Addr]bool{} // by the addresses of hosts and Linux routers
	for _, n := range r.t.Nodes {
		if made := n.Made(); !made.Own || made.Guest {
			continue
		}
		for _, e := range r.ends[n.Name] {
			for _, p := range e.Addresses {
				takes[p.Addr()] = e.MPLS
			}
		}
		for _, i := range n.Interfaces {
			for _, p := range i.Addresses {
				takes[p.Addr()] = i.MPLS
			}
		}
	}
	for _, n := range r.t.Nodes {
		told := map[netip.Addr]bool{}
		tell := func(what string, via netip.Addr) {
			if takes, known := takes[via]; known && !takes && !told[via] {
				told[via] = true
				r.problems.Warn(n.Pos, "mpls: true at that end of the link, or at the node",
					"%s %s: %s: the node with %s takes no packets with labels there", n.Kind, n.Name, what, via)
			}
		}
		for _, rt := range n.Routes {
			if rt.Labels != "" {
				tell("route "+rt.String(), rt.Via)
			}
		}
		for _, l := range n.Labels {
			if l.Swap != "" {
				tell("label "+l.String(), l.Via)
			}
		}
	}
}
