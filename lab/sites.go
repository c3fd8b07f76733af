package lab

import (
	"context"
	"slices"
	"time"

	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/ping"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// Spread is a Target whose nodes may run at other sites: each of those has a lab of its own, a part
// of this one.
type Spread interface {
	Target
	// Place puts the nodes of a resolved topology at sites, those that are at one already where
	// they are.
	Place(*topology.Topology) error
	// PartOf returns the daemon of the part that has a node; nil if the node is here. It may be
	// called at any time.
	PartOf(node string) *Client
	// PartAt returns the daemon of the part at another site; nil if there is no such site. It may
	// be called at any time.
	PartAt(site string) *Client
	// DeviceOf returns the SSH connection to a node that is a device without a daemon, which can
	// only run programs; nil for any other node. It may be called at any time.
	DeviceOf(node string) (*site.Login, error)
	// Away says whether there is no connection to a site now. It may be called at any time.
	Away(site string) bool
	// Sites reports on the other sites, and asks them for the time.
	Sites(context.Context) Sites
	// Counters returns the counters of the devices at all other sites: see State.Counters.
	Counters(context.Context) (map[string]counters.Port, error)
	// BeginWatch has the other sites watch themselves, until EndWatch is called with the number
	// that it returns.
	BeginWatch(context.Context) (int, error)
	EndWatch(context.Context, int) (map[string]environment.SiteUsage, error)
	// Logs returns the ReadLogs of the other sites, by site.
	Logs(ctx context.Context, read map[string]map[string]int64) map[string]SiteLogs
	// RunStarts runs the start commands of nodes elsewhere that have not run yet.
	RunStarts(context.Context) error
}

// Sites is what is known of the machines that a lab runs at.
type Sites struct {
	Carrier  string     `json:"carrier,omitempty" doc:"What links between sites are made of: vxlan, or wireguard: the same, encrypted"`
	Others   []SiteInfo `json:"others" doc:"All but the head, at which the lab's daemon runs"`
	Carriers []Carried  `json:"carriers" doc:"The ways between each two sites that links cross, as they were when the lab came up"`
}

// SiteInfo is what is known of a site.
type SiteInfo struct {
	Name    string `json:"name"`
	Machine string `json:"machine" doc:"As it is reached over SSH"`
	Problem string `json:"problem,omitempty" doc:"Why it does not answer"`
	Kind    string `json:"kind,omitempty" doc:"Of a device that is a switch and has no daemon: openwrt"`
	Agent   string `json:"agent,omitempty" doc:"What makes a device a switch: ovs, or ofswitch"`
	Clock   *Clock `json:"clock,omitempty"`
}

// Clock says how a site's clock compares with the head's.
type Clock struct {
	Offset float64 `json:"offset_ms" doc:"How far it is ahead of the head's"`
	Within float64 `json:"within_ms" doc:"The offset is wrong by no more than that"`
}

// ClocksApart says how far the clock at one site is ahead of that at another, if that is known.
func (s *Sites) ClocksApart(from, to string) (c Clock, known bool) {
	for name, sign := range map[string]float64{from: -1, to: 1} {
		if name == topology.Head || from == to {
			continue
		}
		at := slices.IndexFunc(s.Others, func(o SiteInfo) bool { return o.Name == name && o.Clock != nil })
		if at < 0 {
			return Clock{}, false
		}
		c.Offset, c.Within = c.Offset+sign*s.Others[at].Clock.Offset, c.Within+s.Others[at].Clock.Within
	}
	return c, true
}

// Carried is a measurement of the network between two sites, by a tunnel like those of links,
// without impairments.
type Carried struct {
	Sites     [2]string     `json:"sites"`
	Sent      int           `json:"sent" doc:"Echo requests"`
	Received  int           `json:"received"`
	RTT       *ping.Summary `json:"rtt_ms,omitempty" doc:"Of those that were answered"`
	Full      bool          `json:"full" doc:"IPv4 packets of 1,500 bytes arrive, be it as fragments"`
	Whole     int           `json:"whole_bytes,omitempty" doc:"IPv4 packets of up to so many bytes arrive in one piece; 0: not known, as over IPv6"`
	Bandwidth topology.Rate `json:"bandwidth,omitempty" doc:"Of one TCP connection; only doctor measures it"`
	Time      time.Time     `json:"time"`
}

// OneWay is the delay that the carrier adds to a link: half the median round trip.
func (c Carried) OneWay() topology.Duration {
	if c.RTT == nil {
		return 0
	}
	d := time.Duration(c.RTT.Median / 2 * 1e6)
	if d < 100*time.Microsecond {
		return topology.Duration(d.Round(time.Microsecond))
	}
	return topology.Duration(d.Round(10 * time.Microsecond))
}

// Between finds what was measured between two sites; nil if nothing was.
func (s Sites) Between(a, b string) *Carried {
	for i, c := range s.Carriers {
		if c.Sites == [2]string{a, b} || c.Sites == [2]string{b, a} {
			return &s.Carriers[i]
		}
	}
	return nil
}

// partOf returns the daemon of the part that has a node; nil if the node is here.
func (d *daemon) partOf(node string) *Client {
	if s, ok := d.target().(Spread); ok {
		return s.PartOf(node)
	}
	return nil
}

// sites says what is known of the other sites; there may be none.
func (d *daemon) sites(ctx context.Context) Sites {
	if s, ok := d.target().(Spread); ok && d.state().Status == Up {
		return s.Sites(ctx)
	}
	return Sites{Others: []SiteInfo{}, Carriers: []Carried{}}
}

// Sites says what is known of the sites that a lab runs at besides the head.
func (c *Client) Sites(ctx context.Context) (Sites, error) {
	return call[Sites](ctx, c, "GET", "/v1/sites", nil)
}
