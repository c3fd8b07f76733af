package site

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"trivet.dev/trivet/topology"
)

// Integration is the default name of the bridge into which Neutron plugs ports.
const Integration = "br-int"

// Networks is an Account with a provider that has networks, in which a lab's nodes can have ports
// of their own: ports of instances or, with the necessary rights, ports in the provider's switch on
// a machine.
type Networks interface {
	// CheckPorts reports everything that is wrong with the wanted ports. It changes nothing.
	CheckPorts(ctx context.Context, l *List, want []*Port) error

	// MakePorts makes the ports at the machines where their nodes are, and adds the outcome to
	// each. Like everything from Make, they can be found by the allocation's key at any time; the
	// machines' own key may differ.
	MakePorts(ctx context.Context, l *List, a Allocation, want []*Port, say func(string)) error

	// AwaitPorts waits until traffic passes all ports with a key.
	AwaitPorts(ctx context.Context, key string, say func(string)) error
}

// Port is a node's port in a provider's network: an existing one, or one made for a link, which
// only the two ends of the link join.
type Port struct {
	Link    string            `json:"link"`              // the link's name
	Key     string            `json:"key"`               // the link's key
	Node    string            `json:"node"`              // the link's end
	Network string            `json:"network,omitempty"` // as called in the topology; empty: the link's own
	Pos     topology.Position `json:"-"`

	Site      string `json:"site,omitempty"`      // where the node is, once it has been placed; see topology.AtProvider
	Addressed bool   `json:"addressed,omitempty"` // it gets an address from the provider

	// First what is wanted, if set; once made, what it has. MTU is at first the largest one wanted.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	MAC       topology.MAC   `json:"mac,omitzero"`
	MTU       int            `json:"mtu,omitempty"`

	At *topology.NetworkPort `json:"at,omitempty"` // once it is made

	Router *Router `json:"router,omitempty"` // the provider's router that it belongs to; nil: none
}

// Router is a router made by the provider. All its ports refer to the same one.
type Router struct {
	Node   string           `json:"node"`
	Routes []topology.Route `json:"routes,omitempty"` // besides those to its own subnets
}

// PortsOf lists the ports that a lab's nodes need in networks. resolved is the same topology with
// everything filled in. Once nodes are placed, the list includes links of the provider's routers,
// links of hosts that are machines themselves, and links between two machines if the list says that
// these are networks.
func (l *List) PortsOf(t, resolved *topology.Topology) (out []*Port) {
	keys, nodes, given := topology.LinkKeys(resolved), resolved.NodesByName(), topology.LinksByKey(t)
	routers := map[string]*Router{}
	for _, n := range resolved.Nodes {
		if n.Datapath.Provided() {
			routers[n.Name] = &Router{n.Name, n.Routes}
		}
	}
	for i, k := range resolved.Links {
		routed := routers[k.Ends[0].Node] != nil || routers[k.Ends[1].Node] != nil
		joins := routed || l.Provided != nil && k.Crosses(nodes) && (l.Provided.Joins || k.OfMachine(nodes))
		for j, near := range k.Ends {
			n, network := nodes[near.Node], k.Ends[1-j].Network
			if n == nil || network == "" && !joins {
				continue
			}
			p := &Port{Link: k.Name(), Key: keys[i], Node: near.Node, Network: network, Pos: k.Pos, Site: n.Sited(),
				MTU: max(k.Egress(0).MTU, k.Egress(1).MTU), Router: routers[near.Node]}
			if out = append(out, p); routed {
				p.Addresses = slices.Clone(near.Addresses)
			}
			if p.Router != nil {
				p.Addressed = network != "" && !near.Unaddressed
				continue
			}
			if network == "" {
				if n.Kind != topology.Switch {
					p.MAC = near.MAC
				}
				continue
			}
			p.Addresses, p.Addressed = slices.Clone(near.Addresses), n.Kind != topology.Switch && !near.Unaddressed
			if own := given[p.Key]; own != nil {
				p.MAC = own.Ends[j].MAC
			}
		}
	}
	return out
}

// Fill sets the ends of a topology's links to what the ports made for them have.
func (l *List) Fill(t *topology.Topology) {
	if l == nil || l.Provided == nil {
		return
	}
	links := topology.LinksByKey(t)
	joined := 0 // MTU of links that are networks
	for _, p := range l.Provided.Ports {
		k := links[p.Key]
		if p.Network == "" {
			joined = p.MTU
		}
		if k == nil || p.Network == "" && p.Router == nil {
			continue
		}
		at := slices.IndexFunc(k.Ends[:], func(e topology.Endpoint) bool { return e.Node == p.Node })
		if at < 0 {
			continue
		}
		near := &k.Ends[at]
		near.MAC = p.MAC
		if n := t.Node(near.Node); p.Addressed && len(near.Addresses) == 0 && len(n.Addresses) == 0 {
			near.Addresses = p.Addresses
		}
		fillMTU(k, p.MTU)
	}
	if joined > 0 { // of all links, because switches do not fragment
		for _, k := range t.Links {
			fillMTU(k, joined)
		}
	}
}

// fillMTU sets a link's MTU where it is unset, unless it is the default.
func fillMTU(k *topology.Link, mtu int) {
	for _, way := range []*topology.Impairment{&k.Impairment, k.Ends[0].Egress, k.Ends[1].Egress} {
		if way != nil && way.MTU == 0 && mtu < topology.MTU {
			way.MTU = mtu
		}
	}
}

// PortOf returns the port made for a node's end of a link; nil: there is none.
func (l *List) PortOf(link, node string) *topology.NetworkPort {
	if p := l.portOf(link, node); p != nil {
		return p.At
	}
	return nil
}

func (l *List) portOf(link, node string) *Port {
	if l.Provided == nil {
		return nil
	}
	if at := slices.IndexFunc(l.Provided.Ports,
		func(p *Port) bool { return p.Key == link && p.Node == node }); at >= 0 {
		return l.Provided.Ports[at]
	}
	return nil
}

// CheckPorts reports where the ports that were made do not fit a placed topology: ports are made
// only when the lab comes up.
func (l *List) CheckPorts(t *topology.Topology) error {
	var problems topology.Problems
	for _, p := range l.PortsOf(t, t) {
		in := "in " + p.Network
		if p.Network == "" {
			in = "in a network of the link's own"
		}
		has := l.portOf(p.Key, p.Node)
		switch bad := func(hint, format string, args ...any) {
			problems.Add(p.Pos, hint, "link %s: %s", p.Link, fmt.Sprintf(format, args...))
		}; {
		case has == nil:
			bad("take the lab down, and up again with it",
				"%s has no port %s: ports in networks of a cloud are made when a lab comes up", p.Node, in)
		case has.Site != p.Site:
			bad("leave it there, or take the lab down and up again", "%s is at %s, and so is its port %s", p.Node,
				has.Site, in)
		case (p.Router == nil) != (has.Router == nil) ||
			p.Router != nil && !slices.Equal(p.Router.Routes, has.Router.Routes):
			bad("leave it as it was, or take the lab down and up again", "the provider's router at %s is another, or is to have other routes: such routers are made when a lab comes up", p.Node)
		case (p.Addressed || p.Router != nil) && !slices.Equal(p.Addresses, has.Addresses):
			bad("leave it, or take the lab down and up again", "the port of %s %s has the address %s, not %s", p.Node,
				in, listed(has.Addresses), listed(p.Addresses))
		case p.MTU > has.MTU:
			bad(fmt.Sprintf("write mtu: %d, or leave it out", has.MTU), "packets %s have at most %d bytes, not %d", in,
				has.MTU, p.MTU)
		}
	}
	if l.Provided == nil {
		return problems.Err()
	}
	links, nodes := topology.LinksByKey(t), t.NodesByName()
	for _, p := range l.Provided.Ports {
		if n := nodes[p.Node]; p.Router != nil && links[p.Key] != nil && n != nil && !n.Datapath.Provided() {
			problems.Add(n.Pos, "leave it as it was, or take the lab down and up again",
				"%s is the provider's router, and made when a lab comes up: it cannot become another", n.Name)
		}
	}
	return problems.Err()
}

func listed(addresses []netip.Prefix) string {
	if len(addresses) == 0 {
		return topology.NoAddress
	}
	out := addresses[0].String()
	for _, a := range addresses[1:] {
		out += ", " + a.String()
	}
	return out
}
