package builtin

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// Map is the network's parts by the names and places that the topology gives them. It is immutable.
// A nil topology gives an empty map, in which everything is called by its number.
type Map struct {
	switches map[uint64]*MapSwitch
	nodes    map[string]*MapNode // those that are not datapaths of a controller
	byMAC    map[openflow.MAC]*MapInterface
	byAddr   map[netip.Addr]*MapInterface
}

// MapSwitch is a datapath.
type MapSwitch struct {
	DPID  uint64
	Name  string
	Kind  topology.Kind
	Ports map[uint32]MapPort

	Controlled bool // by any controller
}

// MapPort is a port of a datapath, and the other end of its link.
type MapPort struct {
	Name          string
	Peer          string // the node
	PeerInterface string
	PeerNumber    uint32  // of the peer's datapath port; 0: it is not one
	Capacity      float64 // outgoing, bit/s; 0: unlimited
	CapacityIn    float64 // incoming
	VLANs         topology.PortVLANs
}

// MapNode is a host, or a router that forwards by itself.
type MapNode struct {
	Name       string
	Kind       topology.Kind
	Interfaces []*MapInterface
	Gateways   []netip.Addr
	Routes     []topology.Route
}

// MapInterface is an interface of a host or a router.
type MapInterface struct {
	Node      string
	Name      string
	MAC       openflow.MAC
	Addresses []netip.Prefix
	Switch    uint64 // to which it is attached; with Port 0: to none
	Port      uint32
}

// NewMap returns the map of a resolved topology.
func NewMap(t *topology.Topology) *Map {
	m := &Map{switches: map[uint64]*MapSwitch{}, nodes: map[string]*MapNode{}, byMAC: map[openflow.MAC]*MapInterface{},
		byAddr: map[netip.Addr]*MapInterface{}}
	if t == nil {
		return m
	}
	byName := map[string]*topology.Node{}
	for _, n := range t.Nodes {
		byName[n.Name] = n
		if n.IsDatapath() {
			m.switches[uint64(n.DPID)] = &MapSwitch{DPID: uint64(n.DPID), Name: n.Name, Kind: n.Kind,
				Ports:      map[uint32]MapPort{},
				Controlled: !slices.Equal(n.Controllers, []string{topology.ControllerNone})}
		} else if n.Kind != topology.Controller {
			m.nodes[n.Name] = &MapNode{Name: n.Name, Kind: n.Kind, Gateways: n.Gateways, Routes: n.Routes}
		}
	}
	vlans := topology.VLANPorts(t)
	for _, l := range t.Links {
		for i := range l.Ends {
			m.addEnd(l, i, byName, vlans[l][i])
		}
	}
	return m
}

// addEnd adds an end of a link: a port, an interface, or (a router's) both.
func (m *Map) addEnd(l *topology.Link, i int, byName map[string]*topology.Node, vlans topology.PortVLANs) {
	e, other := l.Ends[i], l.Ends[1-i]
	n, peer := byName[e.Node], byName[other.Node]
	if n == nil {
		return // a device of the machine
	}
	f := &MapInterface{Node: n.Name, Name: e.Interface, MAC: openflow.MAC(e.MAC), Addresses: e.Addresses}
	if peer != nil && peer.IsDatapath() {
		f.Switch, f.Port = uint64(peer.DPID), peer.OpenFlowPort(other)
	}
	if n.IsDatapath() {
		m.switches[uint64(n.DPID)].Ports[n.OpenFlowPort(e)] = MapPort{Name: e.Interface, Peer: other.Node,
			PeerInterface: other.Interface, PeerNumber: f.Port, Capacity: float64(l.Egress(i).Bandwidth),
			CapacityIn: float64(l.Egress(1 - i).Bandwidth), VLANs: vlans}
	} else if m.nodes[n.Name] != nil {
		m.nodes[n.Name].Interfaces = append(m.nodes[n.Name].Interfaces, f)
	}
	if n.Kind == topology.Switch {
		return
	}
	m.byMAC[f.MAC] = f
	for _, p := range e.Addresses {
		m.byAddr[p.Addr()] = f
	}
}

// Switches returns the names of the datapaths.
func (m *Map) Switches() map[uint64]string {
	out := make(map[uint64]string, len(m.switches))
	for dpid, s := range m.switches {
		out[dpid] = s.Name
	}
	return out
}

// Has reports whether a datapath is on the map.
func (m *Map) Has(dpid uint64) bool { return m.switches[dpid] != nil }

// Switch returns a datapath; one that is not on the map is called by its id.
func (m *Map) Switch(dpid uint64) MapSwitch {
	if s := m.switches[dpid]; s != nil {
		return *s
	}
	return MapSwitch{DPID: dpid, Name: fmt.Sprintf("%016x", dpid), Kind: topology.Switch}
}

// Port returns a port; one that is not on the map has no name.
func (m *Map) Port(dpid uint64, number uint32) MapPort {
	if s := m.switches[dpid]; s != nil {
		return s.Ports[number]
	}
	return MapPort{}
}

// Find returns the datapath with this name or id: up to 16 hexadecimal digits.
func (m *Map) Find(name string) (dpid uint64, found bool) {
	for dpid, s := range m.switches {
		if s.Name == name {
			return dpid, true
		}
	}
	id, err := topology.ParseDPID(name)
	return uint64(id), err == nil
}

// Node returns a host, or a router that forwards by itself; nil: there is none of that name.
func (m *Map) Node(name string) *MapNode { return m.nodes[name] }

// NodeNames returns the names of hosts and of routers that forward by themselves.
func (m *Map) NodeNames() []string {
	return slices.SortedFunc(maps.Keys(m.nodes), CompareNames)
}

// ByMAC returns the interface with a MAC; nil: unknown.
func (m *Map) ByMAC(mac openflow.MAC) *MapInterface { return m.byMAC[mac] }

// ByAddress returns the interface with an address; nil: unknown.
func (m *Map) ByAddress(a netip.Addr) *MapInterface { return m.byAddr[a] }

// CompareNames orders names naturally: s2 before s10.
func CompareNames(a, b string) int {
	for x, y := a, b; x != "" && y != ""; {
		var u, v string
		u, x = leading(x)
		v, y = leading(y)
		if isDigit(u[0]) && isDigit(v[0]) {
			u, v = strings.TrimLeft(u, "0"), strings.TrimLeft(v, "0")
			if c := cmp.Or(cmp.Compare(len(u), len(v)), cmp.Compare(u, v)); c != 0 {
				return c
			}
		} else if u != v {
			break
		}
	}
	return cmp.Compare(a, b)
}

// leading splits off the digits, or the non-digits, at the beginning of a name.
func leading(s string) (part, rest string) {
	i := 1
	for i < len(s) && isDigit(s[i]) == isDigit(s[0]) {
		i++
	}
	return s[:i], s[i:]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
