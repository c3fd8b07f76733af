package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/internal/fib"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// kernels asks the kernels of a lab's hosts and Linux routers for what the controller knows of
// switches and routing nodes.
type kernels struct {
	client *lab.Client
	trivet *api.Client // the lab's controller
	t      *topology.Topology
	nodes  map[string]*topology.Node
}

// kernelsOf returns the chosen lab's kernels; nil if it has no Linux routers, or if the controller
// asked for belongs to no lab.
func (a *app) kernelsOf(ctx context.Context, k *asking) (*kernels, error) {
	if k.address != "" {
		return nil, nil
	}
	c, _, err := a.client()
	if err != nil {
		return nil, err
	}
	info, err := c.Info(ctx)
	if err != nil || !slices.ContainsFunc(info.Topology.Nodes, isLinuxRouter) {
		return nil, err
	}
	return &kernels{c, a.controllerOf(c), info.Topology, info.Topology.NodesByName()}, nil
}

func isLinuxRouter(n *topology.Node) bool { return n.Kind == topology.Router && n.Made().Own }

func (k *kernels) isLinuxRouter(name string) bool {
	n := k.nodes[name]
	return n != nil && isLinuxRouter(n)
}

// own says whether a node's routes are a kernel's.
func (k *kernels) own(name string) bool {
	n := k.nodes[name]
	return n != nil && n.Made().Own
}

// controlled says whether one of these nodes is a datapath of Trivet's controller.
func (k *kernels) controlled(nodes ...*topology.Node) bool {
	return slices.ContainsFunc(nodes, func(n *topology.Node) bool {
		return n != nil && n.IsDatapath() && slices.Contains(n.Controllers, topology.ControllerTrivet)
	})
}

// ask returns the routes of a node's kernel.
func (k *kernels) ask(ctx context.Context, node string, to ...string) (s fib.Seen, err error) {
	var out, said bytes.Buffer
	command := append([]string{lab.ThisProgram, fib.Command}, to...)
	r := lab.ExecRequest{Node: node, Network: true, Command: command, Env: os.Environ(), Dir: "/"}
	code, err := k.client.Exec(ctx, r, lab.Streams{Out: &out, Err: &said})
	if err == nil && code != 0 {
		err = fmt.Errorf("it ends with %d: %s", code, strings.TrimSpace(said.String()))
	}
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &s)
	}
	if err != nil {
		return s, fmt.Errorf("look into the kernel of %s: %w", node, err)
	}
	return s, nil
}

// owner returns the node and device with an address, or with the MAC address that the kernel has
// resolved.
func (k *kernels) owner(a netip.Addr, mac string) (node, device string) {
	for _, l := range k.t.Links {
		for _, e := range l.Ends {
			has := slices.ContainsFunc(e.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) ||
				topology.LinkLocal(e.MAC) == a
			if !e.External() && (has || mac != "" && e.MAC.String() == mac) {
				return e.Node, e.Interface
			}
		}
	}
	for _, n := range k.t.Nodes {
		for _, i := range n.Interfaces {
			if slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
				return n.Name, i.Name
			}
		}
	}
	return "", ""
}

// routeSources translates the kernel's names for the origin of a route into the usual ones.
var routeSources = map[string]string{"kernel": "connected", "boot": "static", "196": "static"}

// routes lists the routes of a Linux router, or of all.
func (k *kernels) routes(ctx context.Context, name string) (out []api.Route, err error) {
	for _, n := range k.t.NodesOf(topology.Router) {
		if !isLinuxRouter(n) || name != "" && n.Name != name {
			continue
		}
		s, err := k.ask(ctx, n.Name)
		if err != nil {
			return nil, err
		}
		for _, r := range s.Routes {
			one := api.Route{Router: n.Name, Prefix: r.To, Source: cmp.Or(routeSources[r.Source], r.Source),
				Metric: uint32(r.Metric), Used: true, Kernel: true, Drop: len(r.Hops) == 0, Hops: []api.Hop{}}
			for _, h := range r.Hops {
				far, _ := k.owner(h.Via, "")
				one.Hops = append(one.Hops, api.Hop{Interface: h.Device, Via: h.Via, Router: far})
			}
			out = append(out, one)
		}
	}
	return out, nil
}

// path follows a packet through kernels, and through switches as the controller knows them.
func (k *kernels) path(ctx context.Context, q api.PathQuery) (api.Path, error) {
	w := kernelWalk{kernels: k, ctx: ctx, q: q, way: api.Way{Hops: []api.PathHop{}}}
	at, to, err := w.ends()
	if err != nil {
		return api.Path{}, err
	}
	if at == "" || to == "" {
		return k.trivet.Path(ctx, q)
	}
	w.path = api.Path{From: at, To: to, Packet: w.packet(), Why: []string{}}
	if err := w.follow(at); err != nil {
		return api.Path{}, err
	}
	if w.whole != nil {
		return *w.whole, nil
	}
	w.path.Arrives = "no"
	switch {
	case w.way.Arrives:
		w.path.Arrives = "yes"
	case w.way.Unknown:
		w.path.Arrives = "unknown"
	}
	w.path.Ways = []api.Way{w.way}
	return w.path, nil
}

// kernelWalk is the path of one packet.
type kernelWalk struct {
	*kernels
	ctx   context.Context
	q     api.PathQuery
	to    netip.Addr
	path  api.Path
	way   api.Way
	whole *api.Path // the controller's answer, if the packet stays among its switches
	blind []string  // switches on the path whose flow tables are unknown
}

// ends determines the nodes that a packet goes from and to, and its destination's address; they are
// empty if only the controller may know them.
func (w *kernelWalk) ends() (from, to string, err error) {
	if a, err := netip.ParseAddr(w.q.To); err == nil {
		w.to, w.q.IPv6 = a.Unmap(), a.Unmap().Is6()
	} else if a, err := netip.ParseAddr(w.q.From); err == nil {
		w.q.IPv6 = a.Is6()
	}
	name := func(text string) string {
		if a, err := netip.ParseAddr(text); err == nil {
			text, _ = w.owner(a.Unmap(), "")
		}
		if w.nodes[text] == nil || w.nodes[text].Kind == topology.Switch || w.nodes[text].Kind == topology.Controller {
			return ""
		}
		return text
	}
	if from = name(w.q.From); !w.own(from) && !w.controlled(w.nodes[from]) {
		return "", "", nil
	}
	if w.to.IsValid() {
		return from, cmp.Or(name(w.q.To), w.to.String()), nil
	}
	if to = name(w.q.To); to == "" {
		return from, "", nil
	}
	if from == to {
		return from, to, fmt.Errorf("%s is both source and destination", from)
	}
	all := topology.AddressesOf(w.t, w.nodes[to])
	if w.own(to) {
		s, err := w.ask(w.ctx, to)
		if err != nil {
			return from, to, err
		}
		all = append(all, s.Addresses...)
	}
	for _, p := range all {
		if a := p.Addr(); a.Is6() == w.q.IPv6 && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			w.to = a
			return from, to, nil
		}
	}
	return from, to, fmt.Errorf("%s has no address of IPv%s", to, map[bool]string{false: "4", true: "6"}[w.q.IPv6])
}

// packet describes the packet in the syntax of an ovs-ofctl match.
func (w *kernelWalk) packet() string {
	kind, field, port, six := "icmp", "nw_dst", uint16(0), ""
	switch {
	case w.q.TCP > 0:
		kind, port = "tcp", w.q.TCP
	case w.q.UDP > 0:
		kind, port = "udp", w.q.UDP
	}
	if w.to.Is6() {
		six, field = "6", "ipv6_dst"
	}
	text := fmt.Sprintf("%s%s,%s=%v", kind, six, field, w.to)
	if port > 0 {
		text += fmt.Sprintf(",tp_dst=%d", port)
	}
	return text
}

// follow goes from node to node until the packet arrives or is lost, or its path is unknown.
func (w *kernelWalk) follow(at string) error {
	been, in, begin := map[string]bool{}, "", at
	for {
		if been[at] {
			w.lost(at, "it goes round in a loop")
			return nil
		}
		been[at] = true
		var err error
		if !w.own(at) {
			at, in, err = w.switched(at, w.to, false)
		} else {
			at, in, err = w.routed(at, in, at == begin)
		}
		if err != nil || at == "" {
			return err
		}
	}
}

func (w *kernelWalk) lost(node, reason string) { w.way.End, w.way.Reason = node, reason }

func (w *kernelWalk) stuck(node, reason string) {
	w.way.End, w.way.Reason, w.way.Unknown = node, reason, true
}

// routed returns the next node according to this node's kernel, and the device there; none if the
// path ends here.
func (w *kernelWalk) routed(at, in string, begins bool) (next, device string, err error) {
	s, err := w.ask(w.ctx, at, w.to.String())
	if err != nil {
		return "", "", err
	}
	way, host := s.Way, w.nodes[at].Kind == topology.Host
	switch {
	case way.Here && len(w.blind) > 0:
		w.stuck(at, "if "+strings.Join(w.blind, ", ")+" forward it: what switches have learned is not looked into")
		return "", "", nil
	case way.Here:
		w.way.End, w.way.Arrives = at, true
		return "", "", nil
	case host && !begins:
		w.lost(at, at+" is not the destination")
		return "", "", nil
	}
	if !host {
		w.way.Hops = append(w.way.Hops, api.PathHop{Switch: at, In: in, Out: way.Device, Entries: []api.PathFlow{},
			Route: cmp.Or(way.None, routeText(s, w.to))})
	}
	if way.None != "" {
		w.lost(at, at+" has "+way.None)
		return "", "", nil
	}
	for _, l := range w.t.Links {
		for i, e := range l.Ends {
			if e.Node == at && e.Interface == way.Device {
				return w.cross(l, i, way)
			}
		}
	}
	w.stuck(at, "it leaves by "+way.Device+", which is no link of the lab")
	return "", "", nil
}

// addressAt returns a known IPv6 address of a node's device, or otherwise if there is none.
func (w *kernelWalk) addressAt(node, device string, otherwise netip.Addr) netip.Addr {
	for _, l := range w.t.Links {
		for _, e := range l.Ends {
			if e.Node != node || e.Interface != device {
				continue
			}
			for _, p := range e.Addresses {
				if p.Addr().Is6() && !p.Addr().IsLinkLocalUnicast() {
					return p.Addr()
				}
			}
		}
	}
	return otherwise
}

// cross returns the next node to which a link, or the switches behind it, lead.
func (w *kernelWalk) cross(l *topology.Link, i int, way *fib.Way) (next, device string, err error) {
	near, far, via := l.Ends[i], l.Ends[1-i], w.to
	if way.Via.IsValid() {
		via = way.Via
	}
	switch {
	case l.Down:
		w.lost(near.Node, "the link "+l.Name()+" is down")
		return "", "", nil
	case far.External():
		w.stuck(far.Label(), "it leaves the lab here")
		return "", "", nil
	case w.own(far.Node):
		return far.Node, far.Interface, nil
	}
	owner, device := w.owner(via, way.MAC)
	if via.IsLinkLocalUnicast() { // the kernel knows advertised routers by these; switches know the others
		via = w.addressAt(owner, device, via)
	}
	switch {
	case owner == "":
		w.stuck(near.Node, fmt.Sprintf("it goes to %v over %s, and which node that is is not known", via, far.Node))
		return "", "", nil
	case w.controlled(w.nodes[far.Node]):
		if !w.own(owner) {
			via = w.to
		}
		return w.switched(near.Node, via, owner == w.path.To && len(w.way.Hops) == 0)
	}
	w.blind = append(w.blind, far.Node)
	w.way.Hops = append(w.way.Hops, api.PathHop{Switch: far.Node, Entries: []api.PathFlow{},
		Notes: []string{"not looked into: Trivet's controller does not decide here"}})
	return owner, device, nil
}

// switched returns where a packet gets to through switches and routing nodes, according to the
// controller. If that is its whole path, the controller's answer is used as it is.
func (w *kernelWalk) switched(from string, to netip.Addr, all bool) (next, device string, err error) {
	q := w.q
	q.From, q.To = from, to.String()
	p, err := w.trivet.Path(w.ctx, q)
	if err != nil || len(p.Ways) == 0 {
		return "", "", err
	}
	way := p.Ways[0]
	if way.Arrives && all {
		p.To = w.path.To
		w.whole = &p
		return "", "", nil
	}
	w.way.Hops = append(w.way.Hops, way.Hops...)
	if w.own(way.End) && (way.Arrives || way.Unknown) && way.End != from {
		return way.End, w.entry(way), nil
	}
	way.Hops = w.way.Hops
	w.way = way
	return "", "", nil
}

// entry returns the device of the last node of a path, to which the last of its switches sends.
func (k *kernels) entry(way api.Way) string {
	if len(way.Hops) == 0 {
		return ""
	}
	last := way.Hops[len(way.Hops)-1]
	for _, l := range k.t.Links {
		for i, e := range l.Ends {
			if e.Node == last.Switch && e.Interface == last.Out && l.Ends[1-i].Node == way.End {
				return l.Ends[1-i].Interface
			}
		}
	}
	return ""
}

// routeText returns the route that the kernel uses, in the syntax of ip route: the one to the
// address with the longest prefix, unless rules send the packet elsewhere.
func routeText(s fib.Seen, to netip.Addr) string {
	text := s.Way.Device
	if s.Way.Via.IsValid() {
		text = fmt.Sprintf("via %v dev %s", s.Way.Via, s.Way.Device)
	} else if text != "" {
		text = "dev " + text
	}
	best := -1
	for i, r := range s.Routes {
		if r.To.Contains(to) && (best < 0 || r.To.Bits() > s.Routes[best].To.Bits()) {
			best = i
		}
	}
	if best < 0 {
		return text
	}
	r := s.Routes[best]
	if len(r.Hops) > 0 && !slices.Contains(r.Hops, s.Way.Hop) {
		return text
	}
	text = strings.TrimSpace(r.To.String() + " " + text)
	if len(r.Hops) > 1 {
		text += fmt.Sprintf(", one of %d next hops", len(r.Hops))
	}
	return text + " proto " + r.Source
}
