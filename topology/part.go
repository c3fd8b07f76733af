package topology

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
)

// Head is the name of the site that holds a lab's daemon.
const Head = "head"

// Carrier is the far end of a link between two sites, as seen from one of them: a VXLAN tunnel
// (RFC 7348) from an address of this machine to one of the other's, or a VLAN (IEEE 802.1Q) of an
// interface here. Or it is a port in a network.
type Carrier struct {
	Node   string     `json:"node"` // at the link's other end; with a Port, the network
	Local  netip.Addr `json:"local"`
	Remote netip.Addr `json:"remote"`
	VNI    uint32     `json:"vni,omitempty"`
	VLAN   uint16     `json:"vlan,omitempty"` // 1 to 4094; 0: it is a tunnel
	NIC    string     `json:"nic,omitempty"`  // with the VLAN; empty: the one with the address Local
	Wire   bool       `json:"wire,omitempty"` // NIC itself is the link: a cable connects it to the node

	Encrypted bool `json:"encrypted,omitempty"` // the addresses are those within an encrypted network between the sites

	Port *NetworkPort `json:"port,omitempty"`
}

// NetworkPort is a port in a provider's network, as a machine sees it: an interface that the
// provider has attached to the machine, identified by its MAC address, or a port of an Open vSwitch
// bridge into which the node's device is plugged.
type NetworkPort struct {
	ID     string `json:"id"` // the provider's ID of it
	MAC    MAC    `json:"mac"`
	Bridge string `json:"bridge,omitempty"`  // of the machine's Open vSwitch, to plug the node's device into
	ByName bool   `json:"by_name,omitempty"` // the provider's agent finds the device by its name: Linux bridges
	Whole  bool   `json:"whole,omitempty"`   // the bridge accepts no packets with missing checksums
}

// Plugged says whether the port is a device that is made for it and plugged into the machine's
// switch, rather than an interface that the machine has.
func (p *NetworkPort) Plugged() bool { return p.Bridge != "" || p.ByName }

// Named is a node's name and one of its addresses.
type Named struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
}

// Sited returns the site that a node runs at, in a topology whose nodes have been placed.
func (n *Node) Sited() string {
	if n.On == "" {
		return Head
	}
	return n.On
}

// Crosses says whether a link joins two sites; it needs all the nodes by name.
func (l *Link) Crosses(nodes map[string]*Node) bool {
	a, b := nodes[l.Ends[0].Node], nodes[l.Ends[1].Node]
	return a != nil && b != nil && a.Sited() != b.Sited()
}

// OfMachine says whether an end of a link is a host that is a machine itself; it needs all the
// nodes by name.
func (l *Link) OfMachine(nodes map[string]*Node) bool {
	return slices.ContainsFunc(l.Ends[:], func(e Endpoint) bool {
		n := nodes[e.Node]
		return n != nil && n.Native
	})
}

// Part returns the part of a resolved and placed topology at one site: the nodes there with all
// that was assigned to them, the links between them, and its ends of the links to other sites and
// into networks, for which carry returns the far end as the site at end i sees it. Controllers that
// are only addresses are at all sites. Start commands are kept; scheduled events are not, as the
// head runs them.
func Part(t *Topology, site string, carry func(key string, l *Link, i int) *Carrier) *Topology {
	part := *t
	part.Site, part.Nodes, part.Links, part.Schedule, part.Elsewhere = site, nil, nil, nil, nil
	part.Routes = RoutesAsWritten // routes were computed for the whole topology
	here := func(n *Node) bool { return n != nil && n.Kind != Controller && n.Sited() == site }
	nodes, ends := t.NodesByName(), EndsOf(t)
	for _, n := range t.Nodes {
		if n.Kind == Controller || here(n) {
			part.Nodes = append(part.Nodes, n)
			continue
		}
		for _, list := range slices.Concat([][]netip.Prefix{n.Loopback}, addressLists(ends[n.Name]),
			n.interfaceAddresses()) {
			for _, p := range list {
				part.Elsewhere = append(part.Elsewhere, Named{n.Name, p.Addr()})
			}
		}
	}
	// By node: its devices at wires, and the interfaces of the site's machine in their place.
	wired := map[string]map[string]string{}
	blocked := Blocked(t)
	for i, key := range LinkKeys(t) {
		l := t.Links[i]
		at := [2]bool{here(nodes[l.Ends[0].Node]), here(nodes[l.Ends[1].Node])}
		external := slices.ContainsFunc(l.Ends[:], func(e Endpoint) bool { return e.External() && e.Network == "" })
		if !at[0] && !at[1] {
			continue
		}
		if l = l.Clone(); blocked[t.Links[i]] {
			l.Held = true
		}
		if far := slices.Index(at[:], false); far >= 0 && !external {
			near, egress := &l.Ends[1-far], t.Links[i].Ends[far].Egress
			for _, p := range nodes[near.Node].Speaks() {
				if p.Part != nil {
					p.Part(l, near, nodes[l.Ends[far].Node])
				}
			}
			if c := carry(key, t.Links[i], 1-far); c.Wire {
				l.Ends[far] = Endpoint{Interface: c.NIC, Egress: egress}
				if !nodes[near.Node].IsDatapath() {
					if wired[near.Node] == nil {
						wired[near.Node] = map[string]string{}
					}
					wired[near.Node][near.Interface] = c.NIC
					near.Interface = c.NIC
				}
			} else {
				l.Ends[far] = Endpoint{Interface: near.Interface, Egress: egress, Carrier: c}
			}
		}
		part.Links = append(part.Links, l)
	}
	for i, n := range part.Nodes {
		if names := wired[n.Name]; names != nil {
			part.Nodes[i] = n.clone()
			part.Nodes[i].rename(names)
		}
	}
	return &part
}

// rename renames devices throughout the settings of the node.
func (n *Node) rename(names map[string]string) {
	all := func(list ...*string) {
		for _, device := range list {
			*device = cmp.Or(names[*device], *device)
		}
	}
	for i := range n.Routes {
		all(&n.Routes[i].Device)
	}
	for i := range n.Rules {
		all(&n.Rules[i].In, &n.Rules[i].Out)
	}
	for i := range n.Neighbors {
		all(&n.Neighbors[i].Device)
	}
	for i := range n.Labels {
		all(&n.Labels[i].Device)
	}
	for i := range n.Masquerade {
		all(&n.Masquerade[i].Device)
	}
	for i := range n.Interfaces {
		x := &n.Interfaces[i]
		all(&x.On)
		for _, members := range [][]string{x.Bridge, x.Bond, x.VRF} {
			for k := range members {
				all(&members[k])
			}
		}
	}
}

// Relayed lists the controllers of the switches of a part that only the head of the lab can reach:
// programs that it runs, and addresses that mean its own machine. The names are those in
// ForeignControllers.
func Relayed(t *Topology) (out []string) {
	if t.Site == "" || t.Site == Head {
		return nil
	}
	for _, n := range t.Nodes {
		for _, c := range ForeignControllers(t, n) {
			if n.IsDatapath() && (t.IsControllerProgram(c) || strings.HasPrefix(c, "tcp:") && OfThisMachine(c)) &&
				!slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}

// OfThisMachine says whether a controller's address means something different on each machine.
func OfThisMachine(controller string) bool {
	_, address, _ := strings.Cut(controller, ":")
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().IsLoopback()
}

func addressLists(ends []*Endpoint) [][]netip.Prefix {
	return lists.Map(ends, func(e *Endpoint) []netip.Prefix { return e.Addresses })
}
