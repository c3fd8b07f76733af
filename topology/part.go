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
	Node   string     `json:"node"` // at the link's other end; the network, if there is a Port
	Local  netip.Addr `json:"local"`
	Remote netip.Addr `json:"remote"`
	VNI    uint32     `json:"vni,omitempty"`
	VLAN   uint16     `json:"vlan,omitempty"` // 1 to 4094; 0: it is a tunnel
	NIC    string     `json:"nic,omitempty"`  // that has the VLAN; empty: the one with the address Local
	Wire   bool       `json:"wire,omitempty"` // NIC itself is the link: a cable leads from it to the node

	Encrypted bool `json:"encrypted,omitempty"` // the addresses are those of an encrypted network between the sites

	Port *NetworkPort `json:"port,omitempty"`
}

// NetworkPort is a port in a network of a provider, as a machine has it: an interface that the
// provider gives the machine, known by the port's MAC, or a port of a bridge of Open vSwitch, into
// which the node's device is plugged.
type NetworkPort struct {
	ID     string `json:"id"` // that the provider knows it by
	MAC    MAC    `json:"mac"`
	Bridge string `json:"bridge,omitempty"`  // of the machine's Open vSwitch, into which its device is plugged
	ByName bool   `json:"by_name,omitempty"` // the provider's agent takes its device, by the name: Linux bridges
	Whole  bool   `json:"whole,omitempty"`   // the bridge takes no packets whose checksums are left to hardware
}

// Plugged says whether the port is a device that is made for it and plugged into the machine's
// switch; otherwise it is an interface that the machine has.
func (p *NetworkPort) Plugged() bool { return p.Bridge != "" || p.ByName }

// Named is a node's name and an address of its.
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

// Part returns what a resolved and placed topology is at one site: the nodes there with all that
// was assigned to them, the links between them, and its ends of the links to other sites and into
// networks, for which carry returns what the site at end i sees. Controllers that are only
// addresses are at all sites. Start commands are kept, what is scheduled is the head's to run.
func Part(t *Topology, site string, carry func(key string, l *Link, i int) *Carrier) *Topology {
	part := *t
	part.Site, part.Nodes, part.Links, part.Schedule, part.Elsewhere = site, nil, nil, nil, nil
	part.Routes = RoutesAsWritten // what is to be computed has been, on the whole
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
	// By node: devices that interfaces of the site's machine take the place of, and those.
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

// rename gives devices of the node other names, in whatever it says of them.
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

// Relayed lists the controllers of the switches of a part that only the head of the lab reaches:
// programs that it runs, and addresses of its machine alone. They are called as ForeignControllers
// calls them.
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

// OfThisMachine says whether a controller's address means something else on each machine.
func OfThisMachine(controller string) bool {
	_, address, _ := strings.Cut(controller, ":")
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().IsLoopback()
}

func addressLists(ends []*Endpoint) [][]netip.Prefix {
	return lists.Of(ends, func(e *Endpoint) []netip.Prefix { return e.Addresses })
}
