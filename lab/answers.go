package lab

import (
	"net/netip"

	"trivet.dev/trivet/internal/netfacts"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/topology"
)

// Present is the part of a running node's settings that somebody may have changed by hand.
type Present struct {
	Node string `json:"node"`

	// For hosts and Linux routers, unless Unknown says why not.
	Network   bool                      `json:"network,omitempty" doc:"Addresses and routes are known"`
	Addresses map[string][]netip.Prefix `json:"addresses,omitempty" doc:"By device; those of lo are the loopback addresses"`
	Routes    []topology.Route          `json:"routes,omitempty" doc:"Of the main table, of those of VRFs and of those that routes of the topology name, without those that the kernel or a routing daemon has added"`

	Config  []topology.ConfigFile `json:"config" doc:"What has been put there by hand; a kind that is unknown is left out, one that there is nothing of has no text"`
	Files   []topology.NodeFile   `json:"files,omitempty" doc:"Those that the topology gives it, as they are now; without those that Remarks says something of"`
	Remarks []string              `json:"remarks,omitempty" doc:"What cannot be saved, and why"`
}

// Changed lists what in one namespace differs from when the lab came up, other than by the lab's
// doing.
type Changed struct {
	Node    string            `json:"node,omitempty" doc:"None: the switches' namespace"`
	Changes []netfacts.Change `json:"changes"`
}

// End is the current state of a link's end, whatever the cause.
type End struct {
	Interface string   `json:"interface"`
	State     EndState `json:"state"`
	MTU       int      `json:"mtu,omitempty" doc:"Of the device; an end without has none"`
	Problem   string   `json:"problem,omitempty" doc:"Why the state is not known"`

	Line *counters.Direction `json:"line,omitempty" doc:"What became of the packets that left here, of a link with a delay line"`
}

// EndState says whether packets can leave through an end of a link.
type EndState string

const (
	EndUp     EndState = "up"
	EndDown   EndState = "down"       // it is set down
	EndDark   EndState = "no carrier" // the other end is set down, or nothing is there
	EndAbsent EndState = "gone"       // somebody has deleted the device

	EndUnknown EndState = "unknown" // its site does not say
)

// LinkDirection describes what one end of a link sends: the packets that wait there, and what has
// become of the others since the link was made or the lab resumed.
type LinkDirection struct {
	From Place `json:"from"`
	To   Place `json:"to"`

	Sent    *counters.Traffic `json:"sent,omitempty" doc:"What has passed; none: nobody counts it"`
	Dropped uint64            `json:"dropped" doc:"Packets dropped by its devices, or the ports where it has none: the receiver had no room, or was down; the machine was too busy"`
	Queue   *Backlog          `json:"queue,omitempty" doc:"None: nothing waits here, as no bandwidth limits the link and nothing delays it"`
	Problem string            `json:"problem,omitempty" doc:"Why nothing is known"`

	Bandwidth  int64    `json:"bandwidth,omitempty" doc:"bit/s; the link's in this direction; none: nothing limits it"`
	Rate       *float64 `json:"rate,omitempty" doc:"bit/s over the period, Ethernet headers included; none: not known, as there was no look before, the link has come or changed since, or has begun to count anew"`
	PacketRate *float64 `json:"packet_rate,omitempty" doc:"Packets a second, likewise"`
	Share      *float64 `json:"share,omitempty" doc:"The rate over the bandwidth"`
}

// Place is an interface of a node.
type Place struct {
	Node      string `json:"node"`
	Interface string `json:"interface"`
}

// PlaceOf returns the interface at an end of a link.
func PlaceOf(e topology.Endpoint) Place { return Place{e.Label(), e.Interface} }

// Backlog is a queue of packets before a link.
type Backlog struct {
	Kind      string `json:"kind" doc:"line (a delay line), or the kernel's queueing disciplines, the outermost first: tbf, tbf netem, or whatever a user has put there"`
	Bandwidth int64  `json:"bandwidth,omitempty" doc:"bit/s; the link's"`
	Limit     int    `json:"limit,omitempty" doc:"Packets; the kernel's tbf takes as many bytes as these have at 1,514 each"`

	Packets uint64  `json:"packets" doc:"Waiting, or being sent; with netem also those on their way"`
	Bytes   uint64  `json:"bytes"`
	Delay   float64 `json:"delay" doc:"Seconds until these bytes are sent, at the bandwidth"`
	Flying  uint64  `json:"flying,omitempty" doc:"Packets on their way, where these are told from those that wait"`

	Dropped uint64  `json:"dropped" doc:"Packets, for whatever reason"`
	Full    *uint64 `json:"full,omitempty" doc:"Packets that found the queue full; none: the kernel counts them with others"`
	Lost    *uint64 `json:"lost,omitempty" doc:"Packets lost by the configured loss; none: the kernel counts them with others"`
	Managed *uint64 `json:"managed,omitempty" doc:"Packets dropped by active queue management before the queue was full; none: the kernel counts them with others, or there is none"`
	Marked  *uint64 `json:"marked,omitempty" doc:"Packets that it has marked (ECN)"`
}

// LineQueue is what waits in the delay line of a device.
type LineQueue struct {
	Direction  LinkDirection       `json:"direction"`
	Flying     counters.Traffic    `json:"flying"`
	Impairment topology.Impairment `json:"impairment"`
	Hooked     bool                `json:"hooked,omitempty" doc:"The device has a clsact, by which an embedded switch gets its packets"`
}
