package topology

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// SourceOSPF is OSPF's name.
const SourceOSPF = "ospf"

const minMTUOfOSPF = 256 // the minimum of its engines

func init() {
	RegisterProtocol(Protocol{
		Name: SourceOSPF, Title: "OSPF", Node: (*OSPF)(nil), Link: (*OSPFLink)(nil),
		Paths: [2]bool{true, false}, Announces: true,
		Check: checkOSPF, CheckLink: checkOSPFLink, Suits: suitsOSPF,
		Resolve: func(r *Resolving) {
			routerIDs(r)
			ospfPassive(r)
			ospfAgrees(r)
		},
		Inherit: func(n, old *Node) {
			if !n.OSPF().RouterID.IsValid() && slices.Equal(n.Loopback, old.Loopback) {
				n.OSPF().RouterID = old.OSPF().RouterID
			}
		},
		LeastMTU: func(l *Link, _ *Node) int {
			if o := l.OSPF(); o != nil && o.Off {
				return 0
			}
			return minMTUOfOSPF
		},
		Part: ospfTowards,
		AsWritten: func(n *Node, into map[string]string) {
			if rules := n.OSPF().Redistribute; len(rules) > 0 {
				into["ospf.redistribute"] = joined(rules)
			}
		},
		Secrets: ospfKeys,
		Reach:   ospfReach, Settles: longestDead,
		Costs: func(t *Topology) Costs { return ospfCostsOf(t) },
	})
}

// OSPF returns the node's settings; nil if it does not speak OSPF.
func (n *Node) OSPF() *OSPF { return SettingsOf[*OSPF](n.Protocols) }

// OSPF returns the settings for both ends; nil: there are none.
func (l *Link) OSPF() *OSPFLink { return SettingsOf[*OSPFLink](l.Protocols) }

// OSPF returns the settings of the end, which override the link's; nil: there are none.
func (e *Endpoint) OSPF() *OSPFLink { return SettingsOf[*OSPFLink](e.Protocols) }

func (*OSPF) Protocol() string     { return SourceOSPF }
func (*OSPFLink) Protocol() string { return SourceOSPF }

func (o *OSPF) Copy() Settings     { return o.Clone() }
func (o *OSPFLink) Copy() Settings { return o.Clone() }

// OSPF holds a router's OSPFv2 settings (RFC 2328). What it leaves open, Resolve and OSPFOf assign.
type OSPF struct {
	Area     AreaID     `json:"area"`               // of interfaces whose links specify none
	RouterID netip.Addr `json:"router_id,omitzero"` // unset: the highest loopback address, else from the name
	Areas    []OSPFArea `json:"areas,omitempty"`    // special properties of some areas

	// Passive names interfaces that exchange no packets, by device or by the node at the other end.
	Passive []string `json:"passive,omitempty"`

	Redistribute []OSPFRedistribute `json:"redistribute,omitempty"` // the first that matches a route decides
	VirtualLinks []OSPFVirtualLink  `json:"virtual_links,omitempty"`

	// ReferenceBandwidth determines the cost of interfaces whose links have a bandwidth: the
	// reference divided by the bandwidth, at least 1. Without it, costs are 1.
	ReferenceBandwidth Rate `json:"reference_bandwidth,omitempty"`

	Auth *OSPFAuth `json:"auth,omitempty"` // of interfaces whose links specify none
}

// OSPFArea holds the special properties of an area (RFC 2328, C.2).
type OSPFArea struct {
	ID AreaID `json:"id"`
	// No external routes are announced into it; if one router says so, it applies to all.
	Stub bool `json:"stub,omitempty"`
	// Of the default route that border routers announce into a stub area; 0: 1.
	DefaultCost int         `json:"default_cost,omitempty"`
	NoSummary   bool        `json:"no_summary,omitempty"` // border routers announce no other summaries into a stub area
	Ranges      []OSPFRange `json:"ranges,omitempty"`     // what border routers aggregate
	MaxLSAs     int         `json:"max_lsas,omitempty"`   // that routing nodes keep from other routers; 0: 50000
}

// OSPFRange is a network that border routers announce outside an area in place of everything in it.
type OSPFRange struct {
	Prefix netip.Prefix `json:"prefix"`
	Hide   bool         `json:"hide,omitempty"` // announce nothing of it
}

// OSPFVirtualLink joins two border routers to one backbone through another area (RFC 2328, section
// 15). It must be configured at both ends.
type OSPFVirtualLink struct {
	Area   AreaID `json:"area"`   // the area it passes through
	Router string `json:"router"` // the other end: a router id, or the name of a node

	Hello      Duration  `json:"hello,omitempty"`
	Dead       Duration  `json:"dead,omitempty"`
	Retransmit Duration  `json:"retransmit,omitempty"`
	Delay      Duration  `json:"delay,omitempty"`
	Auth       *OSPFAuth `json:"auth,omitempty"`
}

// OSPFNetwork is the type of network that an interface is attached to.
type OSPFNetwork string

const (
	PointToPoint OSPFNetwork = "point-to-point"
	Broadcast    OSPFNetwork = "broadcast"
	Loopback     OSPFNetwork = "loopback" // the loopback addresses; only in OSPFOf
)

// OSPFLink holds the OSPF settings of a link, or of one of its ends. What an end leaves open is
// taken from its link, else from its router, else from a default.
type OSPFLink struct {
	Off  bool    `json:"off,omitempty"` // OSPF does not run here
	Area *AreaID `json:"area,omitempty"`
	// For sending, 1 to 65535; 0: 1, or by the router's ReferenceBandwidth.
	Cost       int         `json:"cost,omitempty"`
	Network    OSPFNetwork `json:"network,omitempty"`
	Hello      Duration    `json:"hello,omitempty"`      // whole seconds; 0: 10 s
	Dead       Duration    `json:"dead,omitempty"`       // whole seconds; 0: 4 × Hello
	Retransmit Duration    `json:"retransmit,omitempty"` // whole seconds; 0: 5 s
	Delay      Duration    `json:"delay,omitempty"`      // InfTransDelay, whole seconds; 0: 1 s
	// For the election of the designated router, 0 (never) to 255; unset: 1.
	Priority *int      `json:"priority,omitempty"`
	Passive  *bool     `json:"passive,omitempty"`  // unset: passive if there are no routers
	MaxLSAs  int       `json:"max_lsas,omitempty"` // that a routing node accepts from one neighbour; 0: 20000
	Auth     *OSPFAuth `json:"auth,omitempty"`
}

// OSPFAuth says how packets are authenticated (RFC 2328, appendix D; RFC 5709).
type OSPFAuth struct {
	Type OSPFAuthType `json:"type"`
	Key  string       `json:"key,omitempty"`
	ID   int          `json:"id,omitempty"` // key id, 1 to 255; 0: 1; not used by AuthSimple
}

// ospfKeys returns the keys in settings: those of virtual links by link, the other by "".
func ospfKeys(s Settings) map[string]*string {
	keys := map[string]*string{}
	add := func(name string, a *OSPFAuth) {
		if a != nil && a.Key != "" {
			keys[name] = &a.Key
		}
	}
	switch o := s.(type) {
	case *OSPF:
		if o != nil {
			add("", o.Auth)
			for _, l := range o.VirtualLinks {
				add(l.Area.String()+" "+l.Router, l.Auth)
			}
		}
	case *OSPFLink:
		if o != nil {
			add("", o.Auth)
		}
	}
	return keys
}

// OSPFAuthType is a type of authentication.
type OSPFAuthType string

const (
	AuthNone   OSPFAuthType = "none"
	AuthSimple OSPFAuthType = "simple" // a cleartext password
	AuthMD5    OSPFAuthType = "md5"
	AuthSHA1   OSPFAuthType = "sha1" // HMAC, as are those below
	AuthSHA256 OSPFAuthType = "sha256"
	AuthSHA384 OSPFAuthType = "sha384"
	AuthSHA512 OSPFAuthType = "sha512"
)

// AreaID is the number of an area; 0 is the backbone.
type AreaID uint32

// ParseAreaID reads an area id such as 1 or 0.0.0.1.
func ParseAreaID(s string) (AreaID, error) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return AreaID(n), nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		b := a.As4()
		return AreaID(b[0])<<24 | AreaID(b[1])<<16 | AreaID(b[2])<<8 | AreaID(b[3]), nil
	}
	return 0, Mistaken("write 0, 1 or 0.0.0.1", "%q is not an area", s)
}

// Addr returns the dotted form.
func (a AreaID) Addr() netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
}

// String returns a number, or for large ids the dotted form.
func (a AreaID) String() string {
	if a < 1<<24 {
		return strconv.FormatUint(uint64(a), 10)
	}
	return a.Addr().String()
}

func (a AreaID) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a *AreaID) UnmarshalText(b []byte) (err error) { *a, err = ParseAreaID(string(b)); return }

// ParseOSPFRange reads "10.1.0.0/16" or "10.1.0.0/16 hide".
func ParseOSPFRange(s string) (OSPFRange, error) {
	f := strings.Fields(s)
	if len(f) == 1 || len(f) == 2 && f[1] == "hide" {
		if p, err := netip.ParsePrefix(f[0]); err == nil {
			return OSPFRange{Prefix: p, Hide: len(f) == 2}, nil
		}
	}
	return OSPFRange{}, Mistaken("write 10.1.0.0/16, or 10.1.0.0/16 hide", "%q is not a range", s)
}

func (r OSPFRange) String() string {
	if r.Hide {
		return r.Prefix.String() + " hide"
	}
	return r.Prefix.String()
}

// Clone returns a deep copy.
func (o *OSPF) Clone() *OSPF {
	if o == nil {
		return nil
	}
	c := *o
	c.Areas = slices.Clone(o.Areas)
	for i := range c.Areas {
		c.Areas[i].Ranges = slices.Clone(c.Areas[i].Ranges)
	}
	c.Passive = slices.Clone(o.Passive)
	c.Redistribute = slices.Clone(o.Redistribute)
	c.VirtualLinks = slices.Clone(o.VirtualLinks)
	for i := range c.VirtualLinks {
		c.VirtualLinks[i].Auth = clonePointer(c.VirtualLinks[i].Auth)
	}
	c.Auth = clonePointer(o.Auth)
	return &c
}

// Clone returns a deep copy.
func (o *OSPFLink) Clone() *OSPFLink {
	if o == nil {
		return nil
	}
	c := *o
	c.Area, c.Priority, c.Passive, c.Auth = clonePointer(o.Area), clonePointer(o.Priority), clonePointer(o.Passive),
		clonePointer(o.Auth)
	return &c
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// ospfTowards completes the settings of an end whose other end is a node at another site, which the
// part does not know: the type of the link depends on whether that node is a router, and both ends
// must agree on it.
func ospfTowards(l *Link, near *Endpoint, far *Node) {
	s := merged(l.OSPF(), near.OSPF())
	switch {
	case far == nil || s.Off:
		return
	case far.Kind == Router:
		s.Network = cmp.Or(s.Network, PointToPoint)
	case far.Kind == Host && s.Passive == nil:
		s.Passive = new(true)
	}
	near.Protocols.Set(&s)
}
