package api

import (
	"net/netip"
	"time"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/routing/rib"
)

// Overview describes the controller.
type Overview struct {
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Apps     []string  `json:"apps" doc:"In the order in which they are asked for a packet"`
	Switches int       `json:"switches" doc:"Connected, routers among them"`
	Links    int       `json:"links" doc:"Between them; both directions are one"`
	Hosts    int       `json:"hosts"`
	Database string    `json:"database,omitempty" doc:"The SQLite file"`
	Load     Load      `json:"load"`
}

// Load is what the controller's process uses.
type Load struct {
	CPUSeconds  float64 `json:"cpu_seconds" doc:"Of all its threads, since its start"`
	MemoryBytes uint64  `json:"memory_bytes" doc:"Of the heap, in use"`
	Goroutines  int     `json:"goroutines"`
}

// Topology is the network as the controller sees it now.
type Topology struct {
	Switches []Switch `json:"switches" doc:"And routers"`
	Links    []Link   `json:"links"`
	Hosts    []Host   `json:"hosts"`
}

// Switch is a switch or a routing node.
type Switch struct {
	Name      string `json:"name"`
	DPID      string `json:"dpid" doc:"Datapath id, 16 hexadecimal digits"`
	Kind      string `json:"kind" enum:"switch,router"`
	Connected bool   `json:"connected"`
	Flows     *int   `json:"flows,omitempty" doc:"Entries, when last counted"`
	Ports     []Port `json:"ports"`

	Southbound *Southbound `json:"southbound,omitempty" doc:"OpenFlow with the switch since it connected; missing: it is in the controller's process, and nothing is sent"`
}

// Southbound is traffic between the controller and a switch.
type Southbound struct {
	Received uint64 `json:"received" doc:"Bytes"`
	Sent     uint64 `json:"sent" doc:"Bytes"`
	Recent   uint64 `json:"recent" doc:"Bytes of both in the last 30 seconds"`
}

// Port is a port of a switch.
type Port struct {
	Number        uint32  `json:"number" doc:"In OpenFlow"`
	Name          string  `json:"name"`
	Kind          string  `json:"kind" enum:"open,edge,inner" doc:"What it leads to: open: not known yet, edge: hosts, inner: another switch"`
	Up            bool    `json:"up"`
	MAC           string  `json:"mac"`
	Peer          string  `json:"peer,omitempty" doc:"Node at the other end"`
	PeerInterface string  `json:"peer_interface,omitempty"`
	Traffic       Traffic `json:"traffic"`
}

// Traffic is the traffic of a port, as last measured. Counters that the switch does not keep are
// absent.
type Traffic struct {
	Time         *time.Time `json:"time,omitempty" doc:"Of the counters"`
	RxRate       *float64   `json:"rx_rate,omitempty" doc:"bit/s"`
	TxRate       *float64   `json:"tx_rate,omitempty" doc:"bit/s"`
	RxPacketRate *float64   `json:"rx_packet_rate,omitempty" doc:"Packets/s"`
	TxPacketRate *float64   `json:"tx_packet_rate,omitempty" doc:"Packets/s"`
	RxPackets    *uint64    `json:"rx_packets,omitempty"`
	TxPackets    *uint64    `json:"tx_packets,omitempty"`
	RxBytes      *uint64    `json:"rx_bytes,omitempty"`
	TxBytes      *uint64    `json:"tx_bytes,omitempty"`
	RxDropped    *uint64    `json:"rx_dropped,omitempty"`
	TxDropped    *uint64    `json:"tx_dropped,omitempty"`
	RxErrors     *uint64    `json:"rx_errors,omitempty"`
	TxErrors     *uint64    `json:"tx_errors,omitempty"`
	Capacity     float64    `json:"capacity,omitempty" doc:"bit/s, in each direction; missing: not known"`
	Utilisation  *float64   `json:"utilisation,omitempty" doc:"Share of the capacity that the busier direction uses"`
}

// Link is a link, in both directions, between two switches or a switch and another node.
type Link struct {
	Ends       [2]End `json:"ends"`
	Inner      bool   `json:"inner" doc:"Between switches"`
	Indirect   bool   `json:"indirect,omitempty" doc:"Switches of others are between the ends"`
	Remembered bool   `json:"remembered,omitempty" doc:"Not confirmed since one of its switches was disconnected"`

	Rates       [2]*float64 `json:"rates" doc:"bit/s that each end sends"`
	Capacity    [2]float64  `json:"capacity" doc:"bit/s of each direction; 0: not known"`
	Utilisation *float64    `json:"utilisation,omitempty" doc:"Share of the capacity that the busier direction uses"`
}

// End is an end of a link.
type End struct {
	Node      string `json:"node"`
	Interface string `json:"interface,omitempty"`
	Port      uint32 `json:"port,omitempty" doc:"Of a switch: its number in OpenFlow"`
}

// Host is a sender with its own MAC at the edge of the network.
type Host struct {
	Name      string       `json:"name,omitempty" doc:"Of the topology's node"`
	MAC       string       `json:"mac"`
	Addresses []netip.Addr `json:"addresses" doc:"Claimed by ARP or neighbour discovery; of a host not seen yet, those of the topology"`
	Switch    string       `json:"switch,omitempty"`
	Interface string       `json:"interface,omitempty" doc:"Of the switch"`
	Port      uint32       `json:"port,omitempty"`
	Since     *time.Time   `json:"since,omitempty" doc:"At this port"`
	Seen      *time.Time   `json:"seen,omitempty" doc:"Last packet; missing: none yet"`
}

// Flows are the flow entries that the switches reported when they were asked.
type Flows struct {
	Flows   []Flow   `json:"flows"`
	Pending []Flow   `json:"pending" doc:"Users' entries for switches that are not connected"`
	Silent  []string `json:"silent" doc:"Switches that have not answered, and why"`
}

// Flow is a flow entry.
type Flow struct {
	Switch      string  `json:"switch"`
	Table       uint8   `json:"table"`
	Priority    uint16  `json:"priority"`
	Match       string  `json:"match" doc:"As ovs-ofctl writes it; empty: every packet"`
	Actions     string  `json:"actions" doc:"And other instructions, as ovs-ofctl writes them"`
	Readable    string  `json:"readable" doc:"Match and actions with names of ports and hosts"`
	App         string  `json:"app,omitempty" doc:"Whose entry it is, by its cookie"`
	ID          int64   `json:"id,omitempty" doc:"Of a user's entry"`
	Cookie      string  `json:"cookie"`
	Packets     *uint64 `json:"packets,omitempty"`
	Bytes       *uint64 `json:"bytes,omitempty"`
	Seconds     float64 `json:"seconds" doc:"Since it was installed"`
	IdleTimeout uint16  `json:"idle_timeout,omitempty" doc:"Seconds"`
	HardTimeout uint16  `json:"hard_timeout,omitempty" doc:"Seconds"`
}

// Groups are the groups that the switches reported when they were asked.
type Groups struct {
	Groups []Group  `json:"groups"`
	Silent []string `json:"silent" doc:"Switches that have not answered, and why"`
}

// Group is a group of a switch.
type Group struct {
	Switch  string   `json:"switch"`
	ID      uint32   `json:"id"`
	Type    string   `json:"type" enum:"all,select,indirect,ff"`
	Packets *uint64  `json:"packets,omitempty"`
	Bytes   *uint64  `json:"bytes,omitempty"`
	Seconds float64  `json:"seconds"`
	Buckets []Bucket `json:"buckets"`
}

// Bucket is a bucket of a group.
type Bucket struct {
	Actions  string  `json:"actions"`
	Readable string  `json:"readable" doc:"With names of ports and hosts"`
	Weight   uint16  `json:"weight,omitempty"`
	Packets  *uint64 `json:"packets,omitempty"`
}

// FlowRequest asks to add a flow entry.
type FlowRequest struct {
	Switch string `json:"switch" doc:"Name, or datapath id"`
	Flow   string `json:"flow" maxLength:"4096" doc:"As ovs-ofctl reads it: priority=100,ip,nw_dst=10.0.0.2,actions=drop"`
}

// Routes are the routes by which routers forward.
type Routes struct {
	Routes []Route             `json:"routes"`
	Added  []builtin.UserRoute `json:"added" doc:"What users have added, also for routers that do not exist"`
}

// Route is a route of a router.
type Route struct {
	Router   string       `json:"router"`
	Prefix   netip.Prefix `json:"prefix"`
	Source   string       `json:"source" doc:"connected, static, balanced, shortest path, fallback, the routing protocol, or program and its name"`
	Distance uint8        `json:"distance" doc:"Of routes to one prefix, the one with the least is used"`
	Metric   uint32       `json:"metric" doc:"Decides between routes of one distance"`
	Tag      uint32       `json:"tag,omitempty"`
	Hops     []Hop        `json:"hops" doc:"Next hops of equal cost"`
	User     bool         `json:"user,omitempty" doc:"Added by a user"`
	Drop     bool         `json:"drop,omitempty" doc:"Matching packets are dropped: a route that discards, or an area range of which no more specific route is known"`
	Used     bool         `json:"used" doc:"It is the one that packets to the prefix follow, unless another has a longer prefix"`
	Why      string       `json:"why,omitempty" doc:"Why it is not used"`
	Kernel   bool         `json:"kernel,omitempty" doc:"Of a Linux router's kernel, which has no distances"`
}

// Hop is a next hop.
type Hop struct {
	Interface string     `json:"interface"`
	Via       netip.Addr `json:"via,omitzero" doc:"The neighbour's address; of a connected subnet there is none"`
	Router    string     `json:"router,omitempty" doc:"The neighbour, where it is a router of the controller"`
	For       netip.Addr `json:"for,omitzero" doc:"The next hop that the route was given, where that is no neighbour"`
}

// RouteRequest asks to add a static route.
type RouteRequest struct {
	Router   string       `json:"router"`
	Prefix   netip.Prefix `json:"prefix"`
	Via      []netip.Addr `json:"via" maxItems:"64" doc:"Next hops, which share the traffic; none: matching packets are dropped"`
	Distance rib.Distance `json:"distance,omitempty" maximum:"255" doc:"That of static routes, 1, where none is given"`
	Metric   uint32       `json:"metric,omitempty" maximum:"16777215"`
	Tag      uint32       `json:"tag,omitempty"`
}

// ProgramRequest has all routes that a program gives.
type ProgramRequest struct {
	Distance rib.Distance   `json:"distance,omitempty" maximum:"255" doc:"Of its routes beside those of other sources; 20 where none is given"`
	Routes   []ProgramRoute `json:"routes" maxItems:"20000" doc:"In place of all that it has given before"`
}

// ProgramRoute is a route that a program gives.
type ProgramRoute struct {
	Router string       `json:"router"`
	Prefix netip.Prefix `json:"prefix"`
	Via    []netip.Addr `json:"via,omitempty" maxItems:"64" doc:"Next hops, which share the traffic; none: matching packets are dropped"`
	Metric uint32       `json:"metric,omitempty" maximum:"16777215" doc:"Decides between routes of the program; 1 where none is given"`
	Tag    uint32       `json:"tag,omitempty" doc:"For rules of redistribution"`
}

func (r *ProgramRequest) of(name string) builtin.ProgramRoutes {
	p := builtin.ProgramRoutes{Name: name, Distance: r.Distance}
	for _, x := range r.Routes {
		p.Routes = append(p.Routes, builtin.UserRoute{Router: x.Router, Prefix: x.Prefix, Via: x.Via, Metric: x.Metric,
			Tag: x.Tag})
	}
	return p
}

// Statistics are the measurements.
type Statistics struct {
	Time      time.Time        `json:"time"`
	Period    float64          `json:"period" doc:"Seconds between two readings of a port"`
	Links     []Link           `json:"links" doc:"The busiest first"`
	Moved     []MovedPath      `json:"moved" doc:"Paths that avoid busy links"`
	Ports     []PortStatistics `json:"ports"`
	PacketsIn []PacketsIn      `json:"packets_in" doc:"At the controller; protocols of which there were any"`
	Load      Load             `json:"load"`
	Requests  Requests         `json:"requests" doc:"For statistics, to the switches"`
	Database  *DatabaseRows    `json:"database,omitempty"`
}

// DatabaseRows counts the rows passed to the database.
type DatabaseRows struct {
	Written uint64 `json:"written"`
	Dropped uint64 `json:"dropped" doc:"The queue was full"`
	Failed  uint64 `json:"failed"`
	Queued  int    `json:"queued"`
}

// PortStatistics is the traffic of a port.
type PortStatistics struct {
	Switch string `json:"switch"`
	Port   uint32 `json:"port"`
	Name   string `json:"name"`
	Traffic
}

// PacketsIn counts the packets of one protocol that the controller has received.
type PacketsIn struct {
	Protocol   string  `json:"protocol"`
	Family     string  `json:"family"`
	Packets    uint64  `json:"packets"`
	Bytes      uint64  `json:"bytes"`
	PacketRate float64 `json:"packet_rate" doc:"Packets/s"`
	ByteRate   float64 `json:"byte_rate" doc:"Bytes/s"`
}

// Requests counts readings of counters.
type Requests struct {
	Answered   uint64 `json:"answered"`
	Refused    uint64 `json:"refused"`
	Unanswered uint64 `json:"unanswered"`
	Skipped    uint64 `json:"skipped" doc:"Not sent: the previous one had not been answered"`
}
