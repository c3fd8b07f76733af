package trivet

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"trivet.dev/trivet/topology"
)

// oddNames are valid names of nodes that YAML or the link grammar could take for something else.
var oddNames = []string{"1", "01", "h01", "h1", "h2", "h3", "h09", "h10", "h11", "true", "null", "on", "no", "0x1f", "1e3", "1.5", "a.b", "x-ray",
	"link", "at", "run", "host", "from", "to", "s1-eth1", "A_b", "9-", "h99999999999999999999", "nat"}

func maybe[T any](t *rapid.T, g *rapid.Generator[T]) (v T) {
	if rapid.IntRange(0, 3).Draw(t, "set") == 0 {
		v = g.Draw(t, "value")
	}
	return v
}

// spoken are settings of a protocol alone, which may be nil.
func spoken[P ~map[string]topology.Settings, S interface {
	comparable
	topology.Settings
}](s S) (p P) {
	var none S
	if s != none {
		p = P{s.Protocol(): s}
	}
	return p
}

func some[T any](g *rapid.Generator[T]) *rapid.Generator[[]T] { return rapid.SliceOfN(g, 1, 3) }

var (
	phrases    = rapid.StringMatching(`[a-z][a-zA-Z0-9 .:/'"#{}\[\],&*!|>%@\\\t\n-]{0,20}`)
	anyText    = rapid.OneOf(phrases, rapid.StringN(1, 10, -1))
	addresses4 = rapid.Custom(func(t *rapid.T) netip.Addr {
		return netip.AddrFrom4([4]byte{10, rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c"), rapid.Byte().Draw(t, "d")})
	})
	addresses6 = rapid.Custom(func(t *rapid.T) netip.Addr {
		return netip.AddrFrom16([16]byte{0: 0xfd, 7: rapid.Byte().Draw(t, "net"), 15: rapid.Byte().Draw(t, "host")})
	})
	addresses = rapid.OneOf(addresses4, addresses6)
	prefixes  = rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := addresses.Draw(t, "address")
		return netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
	})
	macs = rapid.Custom(func(t *rapid.T) topology.MAC {
		return topology.MAC{2, 0, rapid.Byte().Draw(t, "a"), rapid.Byte().Draw(t, "b"), 0, 1}
	})
	rates = rapid.Custom(func(t *rapid.T) topology.Rate {
		return topology.Rate(rapid.Uint64Range(1, 1e12).Draw(t, "bit/s"))
	})
	durations = rapid.Custom(func(t *rapid.T) topology.Duration {
		return topology.Duration(rapid.Int64Range(1, 3600e9).Draw(t, "ns"))
	})
	fractions = rapid.Custom(func(t *rapid.T) topology.Fraction {
		return topology.FromPercent(float64(rapid.IntRange(1, 100_000).Draw(t, "millipercent")) / 1000)
	})
	impairments = rapid.Custom(func(t *rapid.T) topology.Impairment {
		return topology.Impairment{Bandwidth: maybe(t, rates), Delay: maybe(t, durations), Jitter: maybe(t, durations),
			Loss: maybe(t, fractions), Queue: maybe(t, queues), Reorder: maybe(t, fractions), Gap: maybe(t, rapid.IntRange(1, 100)), Duplicate: maybe(t, fractions),
			Corrupt: maybe(t, fractions), LossCorrelation: maybe(t, fractions), DelayCorrelation: maybe(t, fractions), ReorderCorrelation: maybe(t, fractions)}
	})
	queues = rapid.Custom(func(t *rapid.T) topology.Queue {
		q := topology.Queue{Limit: rapid.IntRange(1, 10_000_000).Draw(t, "packets")}
		if rapid.Bool().Draw(t, "managed") {
			q, _ = topology.ParseQueue(rapid.SampledFrom([]string{"codel", "fq_codel,noecn,flows=7", "pie,tupdate=1ms", "red", "red,limit=70000,burst=30,ecn,probability=1%",
				"codel,target=1.5ms,interval=20ms,ecn,limit=7"}).Draw(t, "discipline"))
		}
		return q
	})
	areas     = rapid.Map(rapid.Uint32(), func(n uint32) topology.AreaID { return topology.AreaID(n) })
	ospfAuths = rapid.Custom(func(t *rapid.T) *topology.OSPFAuth {
		return &topology.OSPFAuth{Type: rapid.SampledFrom([]topology.OSPFAuthType{topology.AuthNone, topology.AuthSimple, topology.AuthSHA256}).Draw(t, "type"),
			Key: maybe(t, anyText), ID: maybe(t, rapid.IntRange(1, 255))}
	})
	ospfs = rapid.Custom(func(t *rapid.T) *topology.OSPF {
		o := &topology.OSPF{Area: maybe(t, areas), RouterID: maybe(t, addresses), Passive: maybe(t, some(anyText)), ReferenceBandwidth: maybe(t, rates), Auth: maybe(t, ospfAuths),
			Redistribute: maybe(t, some(rapid.Custom(func(t *rapid.T) topology.OSPFRedistribute {
				r := topology.OSPFRedistribute{}
				r.Source, r.Metric, r.Type = rapid.SampledFrom([]string{"static", "connected", "default"}).Draw(t, "source"), maybe(t, rapid.IntRange(1, 100)), maybe(t, rapid.IntRange(1, 2))
				if r.Source == topology.SourceStatic {
					r.Tag, r.SetTag = uint32(maybe(t, rapid.IntRange(1, 100))), uint32(maybe(t, rapid.IntRange(1, 100)))
					if r.Prefix = netip.MustParsePrefix("10.16.0.0/12"); rapid.Bool().Draw(t, "lengths") {
						r.GE, r.LE = maybe(t, rapid.IntRange(12, 20)), maybe(t, rapid.IntRange(20, 32))
					}
				}
				if r.Deny = r.Source != topology.SourceDefault && rapid.Bool().Draw(t, "deny"); r.Deny {
					r.Metric, r.Type, r.SetTag = 0, 0, 0
				}
				return r
			}))),
			VirtualLinks: maybe(t, some(rapid.Custom(func(t *rapid.T) topology.OSPFVirtualLink {
				return topology.OSPFVirtualLink{Area: maybe(t, areas), Router: maybe(t, anyText), Hello: maybe(t, durations), Dead: maybe(t, durations),
					Retransmit: maybe(t, durations), Delay: maybe(t, durations), Auth: maybe(t, ospfAuths)}
			})))}
		for _, id := range maybe(t, rapid.SliceOfNDistinct(areas, 1, 3, rapid.ID)) {
			o.Areas = append(o.Areas, topology.OSPFArea{ID: id, Stub: maybe(t, rapid.Bool()), NoSummary: maybe(t, rapid.Bool()), DefaultCost: maybe(t, rapid.IntRange(1, 100)),
				Ranges: maybe(t, some(rapid.Custom(func(t *rapid.T) topology.OSPFRange {
					return topology.OSPFRange{Prefix: netip.PrefixFrom(addresses4.Draw(t, "network"), 24), Hide: rapid.Bool().Draw(t, "hide")}
				})))})
		}
		return o
	})
	ospfLinks = rapid.Custom(func(t *rapid.T) *topology.OSPFLink {
		o := &topology.OSPFLink{Off: maybe(t, rapid.Bool()), Cost: maybe(t, rapid.IntRange(1, 65535)), Network: maybe(t, rapid.SampledFrom([]topology.OSPFNetwork{topology.PointToPoint, topology.Broadcast})),
			Hello: maybe(t, durations), Dead: maybe(t, durations), Retransmit: maybe(t, durations), Delay: maybe(t, durations), Auth: maybe(t, ospfAuths)}
		o.Area = maybe(t, rapid.Ptr(areas, false))
		o.Priority, o.Passive = maybe(t, rapid.Ptr(rapid.IntRange(0, 255), false)), maybe(t, rapid.Ptr(rapid.Bool(), false))
		return o
	})
	guests = rapid.Custom(func(t *rapid.T) *topology.Guest {
		g := &topology.Guest{Image: maybe(t, rapid.OneOf(anyText, rapid.Just("none")))}
		if rapid.Bool().Draw(t, "an image alone") {
			return g
		}
		g.Kernel, g.Initrd, g.Append, g.Boot = maybe(t, anyText), maybe(t, anyText), maybe(t, anyText), maybe(t, rapid.Just(topology.BootNetwork))
		g.User, g.Password, g.Ready = maybe(t, anyText), maybe(t, anyText), maybe(t, anyText)
		if text := maybe(t, anyText); rapid.Bool().Draw(t, "given user data") {
			g.UserData.Text = text + "\n"
		} else if strings.ContainsAny(text, "*\n") { // which is the node's name, or a text
			g.UserData.File = "x"
		} else if text != "" {
			g.UserData.File = filepath.Clean(text) // as it is read
		}
		g.Firmware = maybe(t, rapid.Just(topology.FirmwareUEFI))
		g.Disks = maybe(t, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) topology.GuestDisk {
			if rapid.Bool().Draw(t, "empty") {
				return topology.GuestDisk{Size: topology.MinGuestDisk * topology.Bytes(rapid.IntRange(1, 5000).Draw(t, "size"))}
			}
			return topology.GuestDisk{Image: anyText.Draw(t, "image")}
		}), 1, topology.MaxGuestDisks))
		g.NIC, g.Processors = maybe(t, rapid.SampledFrom(topology.NICs)), maybe(t, rapid.IntRange(1, topology.MaxGuestProcessors))
		g.NoDHCP, g.Unmanaged = maybe(t, rapid.Bool()), maybe(t, rapid.Bool())
		return g
	})
	ports       = rapid.Custom(func(t *rapid.T) *int { p := rapid.IntRange(0, 65279).Draw(t, "port"); return &p })
	datapaths   = rapid.SampledFrom([]topology.Datapath{topology.Embedded, topology.OVS, topology.Bridge, topology.Kernel, topology.FRR, topology.BIRD})
	controllers = some(rapid.SampledFrom([]string{"none", "trivet", "tcp:127.0.0.1:6653", "ssl:[::1]:6653", "c0", "1"}))
	foreigns    = rapid.Custom(func(t *rapid.T) map[string]any {
		return map[string]any{rapid.SampledFrom([]string{"miniedit", "a b", "", "1"}).Draw(t, "format"): jsonValue(t, 0)}
	})
)

// interfaces have names of their own; what they are made of need not be there to be written.
var advertisements = rapid.Custom(func(t *rapid.T) *topology.Advertisement {
	a := &topology.Advertisement{Off: maybe(t, rapid.Bool()), Interval: maybe(t, durations), Preference: maybe(t, rapid.SampledFrom([]topology.RoutePreference{"low", "medium", "high"})),
		Managed: maybe(t, rapid.Bool()), Other: maybe(t, rapid.Bool()), Prefixes: maybe(t, some(prefixes)), Valid: maybe(t, durations), Preferred: maybe(t, durations),
		MTU: maybe(t, rapid.IntRange(1, 9000)), DNS: maybe(t, some(addresses)), Search: maybe(t, some(anyText))}
	if rapid.Bool().Draw(t, "said") {
		a.Lifetime = new(maybe(t, durations))
	}
	return a
})

var (
	labelStacks = rapid.Custom(func(t *rapid.T) topology.LabelStack {
		text := fmt.Sprint(rapid.IntRange(topology.FirstLabel, topology.MaxLabel).Draw(t, "label"))
		if rapid.Bool().Draw(t, "two") {
			text += "/0"
		}
		return topology.LabelStack(text)
	})
	labelRoutes = rapid.Custom(func(t *rapid.T) topology.LabelRoute {
		l := topology.LabelRoute{Label: rapid.IntRange(topology.FirstLabel, topology.MaxLabel).Draw(t, "label")}
		if rapid.Bool().Draw(t, "here") {
			l.Device = "lo"
			return l
		}
		l.Swap, l.Via, l.Device = maybe(t, labelStacks), addresses.Draw(t, "via"), maybe(t, rapid.Just("r1-eth1"))
		return l
	})
)

var interfaces = rapid.Custom(func(t *rapid.T) (out []topology.Interface) {
	number := rapid.IntRange(1, 4094)
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(oddNames), 1, 3, rapid.ID).Draw(t, "interfaces") {
		i := topology.Interface{Name: name, On: maybe(t, anyText), Table: maybe(t, number), Local: maybe(t, addresses), Remote: maybe(t, addresses),
			Mode: maybe(t, rapid.SampledFrom(topology.BondModes)), Addresses: maybe(t, some(prefixes)), MAC: maybe(t, macs), MTU: maybe(t, number), RA: maybe(t, advertisements), MPLS: maybe(t, rapid.Bool())}
		switch members := some(anyText); rapid.SampledFrom(topology.InterfaceKinds).Draw(t, "kind").Name {
		case "vlan":
			i.VLAN = number.Draw(t, "id")
		case "bridge":
			i.Bridge = members.Draw(t, "ports")
		case "bond":
			i.Bond = members.Draw(t, "members")
		case "vrf":
			i.VRF = members.Draw(t, "members")
		case "vxlan":
			i.VXLAN = number.Draw(t, "id")
		case "gre":
			i.GRE = addresses.Draw(t, "remote")
		case "dummy":
			i.Dummy = true
		}
		out = append(out, i)
	}
	return out
})

var (
	devices   = rapid.StringMatching(`[a-z0-9.-]{1,8}`)
	neighbors = rapid.Custom(func(t *rapid.T) topology.Neighbor {
		return topology.Neighbor{Address: addresses.Draw(t, "address"), MAC: macs.Draw(t, "mac"), Device: maybe(t, devices)}
	})
	rules = rapid.Custom(func(t *rapid.T) topology.Rule {
		r := topology.Rule{Not: maybe(t, rapid.Bool()), From: maybe(t, prefixes).Masked(), In: maybe(t, devices), Out: maybe(t, devices), Mark: maybe(t, rapid.Uint32Min(1)),
			TOS: maybe(t, rapid.Uint8Min(1)), Protocol: maybe(t, rapid.SampledFrom([]string{"icmp", "tcp", "udp"})), Priority: maybe(t, rapid.Uint32Min(1)),
			FromPort: maybe(t, portRanges), ToPort: maybe(t, portRanges)}
		if r.Mark > 0 {
			r.Mask = maybe(t, rapid.Uint32Min(1))
		}
		if r.Action = maybe(t, rapid.SampledFrom(topology.RuleActions)); r.Action == "" {
			r.Table, r.Suppress = rapid.Uint32Min(1).Draw(t, "table"), maybe(t, rapid.Ptr(rapid.IntRange(0, 128), false))
		}
		return r
	})
	portRanges = rapid.Custom(func(t *rapid.T) topology.PortRange {
		first := rapid.Uint16Min(1).Draw(t, "first")
		return topology.PortRange{First: first, Last: rapid.Uint16Min(first).Draw(t, "last")}
	})
)

var (
	cpus     = rapid.Map(rapid.Float64Range(0.001, 4096), func(f float64) topology.CPU { return topology.CPU{CPUs: f} })
	clusters = rapid.Custom(func(t *rapid.T) *topology.Cluster {
		c := &topology.Cluster{Members: topology.NumberedMembers(rapid.IntRange(1, topology.MaxMembers).Draw(t, "members")), CPU: maybe(t, cpus)}
		if rapid.Bool().Draw(t, "named") {
			c.Members = nil
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(oddNames[:9]), 2, 4, rapid.ID).Draw(t, "names") {
				c.Members = append(c.Members, topology.Member{Name: name, CPU: maybe(t, cpus), On: maybe(t, phrases)})
			}
		}
		c.Store, c.Broker = maybe(t, elsewhere), maybe(t, elsewhere)
		return c
	})
	costs = rapid.Custom(func(t *rapid.T) topology.Cost {
		return topology.Cost{Amount: rapid.Float64Range(0.001, 1e5).Draw(t, "amount")}
	})
	models = rapid.Custom(func(t *rapid.T) topology.Model {
		m := topology.Model{PerPacket: costs.Draw(t, "packet"), Queue: maybe(t, rapid.IntRange(1, 1_000_000)), Ports: maybe(t, rates),
			Source: rapid.SampledFrom([]string{"a: data sheet", "x, y {z}", "#1", "true"}).Draw(t, "source")}
		switch rapid.IntRange(0, 2).Draw(t, "costs") {
		case 0:
			m.PerByte = costs.Draw(t, "byte")
		case 1:
			m.Rate = topology.Rate(rapid.Uint64Range(1e6, 1e12).Draw(t, "rate"))
		case 2:
			m.PerPacket.Cycles, m.Clock = true, topology.Frequency(rapid.Uint64Range(1e9, 1e12).Draw(t, "clock"))
		}
		return m
	})
	elsewhere = rapid.Custom(func(t *rapid.T) *topology.Server {
		return &topology.Server{Address: phrases.Draw(t, "address"), CA: maybe(t, phrases), Certificate: maybe(t, phrases), Key: maybe(t, phrases), Login: maybe(t, phrases)}
	})
)

func jsonValue(t *rapid.T, depth int) any {
	switch rapid.IntRange(0, 6-2*min(depth, 1)).Draw(t, "type") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Float64().Draw(t, "number")
	case 3:
		return float64(rapid.IntRange(-1e6, 1e6).Draw(t, "integer"))
	case 4:
		return rapid.OneOf(anyText, rapid.SampledFrom([]string{"", "1", "true", "~", "null", "1e5", "0x10", ".inf", "-", "a: b", " x "})).Draw(t, "text")
	case 5:
		items := []any{}
		for range rapid.IntRange(0, 2).Draw(t, "length") {
			items = append(items, jsonValue(t, depth+1))
		}
		return items
	}
	m := map[string]any{}
	for i := range rapid.IntRange(0, 2).Draw(t, "size") {
		m[fmt.Sprint(anyText.Draw(t, "key"), i)] = jsonValue(t, depth+1)
	}
	return m
}

// topologies draws topologies with every possible field, on nodes that can have it.
var topologies = rapid.Custom(func(t *rapid.T) *topology.Topology {
	out := &topology.Topology{
		Name: maybe(t, anyText), Subnet: maybe(t, prefixes), Subnet6: maybe(t, prefixes),
		IPv6:     maybe(t, rapid.SampledFrom([]topology.IPv6{topology.IPv6Off, topology.IPv6LinkLocal, topology.IPv6Assigned, topology.IPv6Auto})),
		Datapath: maybe(t, datapaths), Controllers: maybe(t, controllers), Foreign: maybe(t, foreigns), Cluster: maybe(t, clusters),
	}
	names := rapid.SliceOfNDistinct(rapid.OneOf(rapid.SampledFrom(oddNames), rapid.StringMatching(`[hs][1-9]{1,2}`)), 1, 12, rapid.ID).Draw(t, "names")
	if rapid.Bool().Draw(t, "sorted") {
		slices.Sort(names)
	}
	for _, name := range maybe(t, rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"tl-wr841n", "a: b", "1", "true", "x y"}), 1, 3, rapid.ID)) {
		m := models.Draw(t, "model")
		m.Name = name
		out.Models = append(out.Models, m)
	}
	plain := rapid.Bool().Draw(t, "plain") // so that ranges occur
	for _, name := range names {
		n := &topology.Node{Name: name, Kind: topology.Host}
		if !plain {
			n = node(t, name)
			switch k := rapid.IntRange(0, 3).Draw(t, "model"); {
			case n.Kind == topology.Controller:
			case k == 0:
				m := models.Draw(t, "own model")
				n.Model = &m
			case k == 1 && len(out.Models) > 0:
				m := rapid.SampledFrom(out.Models).Draw(t, "profile")
				n.Model = &m
			}
		}
		out.Nodes = append(out.Nodes, n)
	}
	for range rapid.IntRange(0, 10).Draw(t, "links") {
		out.Links = append(out.Links, link(t, names, plain))
	}
	for range rapid.IntRange(0, 3).Draw(t, "events") {
		out.Schedule = append(out.Schedule, event(t, names))
	}
	return out
})

func node(t *rapid.T, name string) *topology.Node {
	text := anyText
	n := &topology.Node{Name: name,
		Kind: rapid.SampledFrom([]topology.Kind{topology.Host, topology.Switch, topology.Router, topology.Controller}).Draw(t, "kind"),
		CPU: maybe(t, rapid.OneOf(rapid.Map(rapid.Float64Range(0.001, 4096), func(f float64) topology.CPU { return topology.CPU{CPUs: f} }),
			rapid.Map(fractions, func(f topology.Fraction) topology.CPU { return topology.CPU{Share: f} }))),
		Cores: maybe(t, some(rapid.IntRange(0, 4095))), Start: maybe(t, text), StartMayFail: rapid.Bool().Draw(t, "may fail"), Stop: maybe(t, text), Isolate: maybe(t, rapid.Just([]string{"pid"})),
		Dirs: maybe(t, some(rapid.Custom(func(t *rapid.T) topology.PrivateDir {
			return topology.PrivateDir{Path: "/" + text.Draw(t, "path"), Source: maybe(t, text)}
		}))),
		Device: maybe(t, text), Foreign: maybe(t, foreigns),
		Place: maybe(t, rapid.Custom(func(t *rapid.T) *topology.Point {
			return &topology.Point{X: rapid.Float64().Draw(t, "x"), Y: rapid.Float64Range(0, 1000).Draw(t, "y")}
		})),
	}
	if n.Kind == topology.Host || n.Kind == topology.Router {
		n.Guest = maybe(t, guests)
		n.Interfaces = maybe(t, interfaces)
		n.Addresses, n.MAC, n.Loopback = maybe(t, some(prefixes)), maybe(t, macs), maybe(t, some(prefixes))
		n.Unaddressed = len(n.Addresses) == 0 && maybe(t, rapid.Bool())
		n.Gateways = maybe(t, some(addresses))
		n.Routes = maybe(t, some(rapid.Custom(func(t *rapid.T) topology.Route {
			r := topology.Route{To: prefixes.Draw(t, "to"), Via: maybe(t, addresses)}
			if !r.Via.IsValid() || rapid.Bool().Draw(t, "by device") {
				r.Device = "eth-" + rapid.StringMatching(`[a-z0-9.-]{1,8}`).Draw(t, "device")
			}
			r.Table = maybe(t, rapid.Uint32Range(1, 1<<31))
			if r.OnLink = r.Via.IsValid() && r.Device != "" && rapid.Bool().Draw(t, "on link"); r.Via.IsValid() {
				r.Source, r.Labels = maybe(t, addresses), maybe(t, labelStacks)
			}
			return r
		})))
		n.AcceptRA, n.MPLS, n.Labels = maybe(t, rapid.Bool()), maybe(t, rapid.Bool()), maybe(t, some(labelRoutes))
		n.Rules, n.Neighbors = maybe(t, some(rules)), maybe(t, some(neighbors))
	}
	if n.Kind == topology.Switch || n.Kind == topology.Router {
		n.DPID = topology.DPID(maybe(t, rapid.Uint64Min(1)))
		n.Datapath, n.Controllers = maybe(t, datapaths), maybe(t, controllers)
		n.FailMode = maybe(t, rapid.SampledFrom([]topology.FailMode{topology.Standalone, topology.Secure}))
		n.OpenFlow = maybe(t, some(rapid.SampledFrom([]string{"1.0", "1.3"})))
	}
	if n.Kind == topology.Router {
		n.Protocols, n.RA = spoken[topology.Protocols](maybe(t, ospfs)), maybe(t, advertisements)
		n.Masquerade = maybe(t, some(rapid.Custom(func(t *rapid.T) topology.Masquerade {
			m := topology.Masquerade{From: maybe(t, prefixes).Masked(), Device: maybe(t, rapid.Just("r1-eth1"))}
			if m == (topology.Masquerade{}) {
				m.Device = "eth0"
			}
			return m
		})))
	}
	n.STP = n.Kind == topology.Switch && maybe(t, rapid.Bool())
	n.NAT = n.Kind == topology.Router && maybe(t, rapid.Bool())
	if n.Kind == topology.Controller {
		n.Address = maybe(t, rapid.Just("tcp:192.0.2.1:6653"))
	}
	return n
}

func link(t *rapid.T, names []string, plain bool) *topology.Link {
	l := &topology.Link{}
	for i := range l.Ends {
		l.Ends[i].Node = rapid.SampledFrom(names).Draw(t, "end")
	}
	if plain {
		return l
	}
	l.Protocols, l.MPLS = spoken[topology.LinkProtocols](maybe(t, ospfLinks)), maybe(t, rapid.Bool())
	l.Down, l.Impairment, l.Foreign = maybe(t, rapid.Bool()), impairments.Draw(t, "impairment"), maybe(t, foreigns)
	for i := range l.Ends {
		e := &l.Ends[i]
		e.Interface, e.MAC, e.Addresses, e.Port = maybe(t, anyText), maybe(t, macs), maybe(t, some(prefixes)), maybe(t, ports)
		e.MPLS = maybe(t, rapid.Bool())
		e.RA, e.AcceptRA = maybe(t, advertisements), maybe(t, rapid.Ptr(rapid.Bool(), false))
		e.Protocols, e.Unaddressed = spoken[topology.LinkProtocols](maybe(t, ospfLinks)), len(e.Addresses) == 0 && maybe(t, rapid.Bool())
		if rapid.IntRange(0, 9).Draw(t, "external") == 0 {
			e.Node, e.Interface = "", rapid.OneOf(rapid.Just("eth1"), anyText).Draw(t, "interface")
		}
		if rapid.IntRange(0, 3).Draw(t, "asymmetric") == 0 {
			egress := impairments.Draw(t, "egress")
			if rapid.Bool().Draw(t, "alike") {
				egress = l.Impairment
			}
			e.Egress = &egress
		}
	}
	return l
}

func event(t *rapid.T, names []string) topology.Event {
	e := topology.Event{At: durations.Draw(t, "at")}
	if rapid.Bool().Draw(t, "command") {
		e.Action.Node = rapid.SampledFrom(names).Draw(t, "node")
		e.Action.Run = rapid.StringMatching(`[a-z]+( [a-z"':#&|>-]+)?`).Draw(t, "command")
		return e
	}
	e.Action.Ends = [2]string{rapid.SampledFrom(names).Draw(t, "a"), rapid.SampledFrom(names).Draw(t, "b")}
	e.Action.Change = linkChange(t)
	return e
}

func linkChange(t *rapid.T) topology.LinkChange {
	i := impairments.Draw(t, "change")
	up := rapid.Bool().Draw(t, "up")
	c := topology.LinkChange{Up: &up}
	if rapid.Bool().Draw(t, "set bandwidth") {
		c.Bandwidth = &i.Bandwidth
	}
	if rapid.Bool().Draw(t, "set delay") {
		c.Delay = &i.Delay
		c.Up = nil
	}
	if rapid.Bool().Draw(t, "set jitter") {
		c.Jitter = &i.Jitter
	}
	if rapid.Bool().Draw(t, "set loss") {
		c.Loss = &i.Loss
	}
	if rapid.Bool().Draw(t, "set queue") {
		c.Queue = &i.Queue
	}
	if rapid.Bool().Draw(t, "set others") {
		c.Reorder, c.Gap, c.Corrupt, c.DelayCorrelation = &i.Reorder, &i.Gap, &i.Corrupt, &i.DelayCorrelation
	}
	return c
}
