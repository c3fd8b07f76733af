package trivet

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

func init() {
	RegisterProtocol(Words{
		Protocol: topology.SourceOSPF,
		Node:     "Speak OSPF: area 0, or {area: 0, router_id: 10.0.0.1, …}.",
		Link:     "OSPF on both ends: area 1, off, or {cost: 10, hello: 1s, …}.",
		End:      "OSPF on this end, before what the link says: area 1, off, or {cost: 10, passive: true, …}.",
		Structs: map[reflect.Type]reflect.Type{
			reflect.TypeFor[topology.OSPF]():            reflect.TypeFor[ospfOptions](),
			reflect.TypeFor[topology.OSPFArea]():        reflect.TypeFor[ospfAreaOptions](),
			reflect.TypeFor[topology.OSPFVirtualLink](): reflect.TypeFor[ospfVirtualOptions](),
			reflect.TypeFor[topology.OSPFLink]():        reflect.TypeFor[ospfLinkOptions](),
			reflect.TypeFor[topology.OSPFAuth]():        reflect.TypeFor[ospfAuthOptions](),
		},
		Shorts: map[reflect.Type]Short{
			reflect.TypeFor[topology.OSPF](): {Pattern: `^area +[0-9.]+$`, Example: "area 0",
				Parse: func(into any, text string) bool {
					return parseArea(&into.(*topology.OSPF).Area, text)
				}, Write: func(v any) string {
					o := v.(topology.OSPF)
					area := o.Area
					o.Area = 0
					return areaAlone(reflect.ValueOf(o).IsZero(), area)
				}},
			reflect.TypeFor[topology.OSPFLink](): {Pattern: `^(off|area +[0-9.]+)$`, Example: "area 0, or off",
				Parse: func(into any, text string) bool {
					o := into.(*topology.OSPFLink)
					if text == "off" {
						o.Off = true
						return true
					}
					o.Area = new(topology.AreaID)
					return parseArea(o.Area, text)
				}, Write: func(v any) string {
					switch o := v.(topology.OSPFLink); {
					case o == topology.OSPFLink{Off: true}:
						return "off"
					case o.Area != nil:
						return areaAlone(o == topology.OSPFLink{Area: o.Area}, *o.Area)
					}
					return ""
				}},
			reflect.TypeFor[topology.OSPFArea](): {Pattern: `^stub$`, Example: "stub",
				Parse: func(into any, text string) bool {
					into.(*topology.OSPFArea).Stub = true
					return text == "stub"
				}, Write: func(v any) string {
					a := v.(topology.OSPFArea)
					a.ID = 0
					if !a.Stub || a.DefaultCost != 0 || a.NoSummary || a.MaxLSAs != 0 || len(a.Ranges) > 0 {
						return ""
					}
					return "stub"
				}},
		},
		Leaves: map[any]Leaf{
			reflect.TypeFor[topology.AreaID](): {Parse: Simple(topology.ParseAreaID),
				Pattern: `^[0-9]+(\.[0-9]+){0,3}$`},
			reflect.TypeFor[topology.OSPFNetwork](): OneOf(topology.PointToPoint, topology.Broadcast),
			reflect.TypeFor[topology.OSPFAuthType](): OneOf(topology.AuthNone, topology.AuthSimple,
				topology.AuthMD5, topology.AuthSHA1, topology.AuthSHA256, topology.AuthSHA384, topology.AuthSHA512),
			reflect.TypeFor[topology.OSPFRange](): {Parse: Simple(topology.ParseOSPFRange),
				Pattern: `^[0-9.]+/[0-9]+( +hide)?$`},
			reflect.TypeFor[topology.OSPFRedistribute](): {Parse: Simple(topology.ParseOSPFRedistribute),
				Pattern: `^(deny +)?(static|connected|program|default|(program|protocol) +[a-z][a-z0-9-]*)( +[0-9.]+/[0-9]+)?( +set| +(ge|le|tag|metric|type) +[0-9]+)*$`},
		},
	})
	forms[reflect.TypeFor[[]topology.OSPFArea]()] = form{
		read: func(d *decoder, v *yamlfile.Value, label string) any { return d.areas(v, label) },
		text: func(v any) string { return areasText(v.([]topology.OSPFArea)) },
		schema: func(f field) object {
			area := orNothing(structOrShort(f.typ.Elem(), f.as))
			return orNothing(object{"type": "object",
				"propertyNames":        object{"pattern": leaves[reflect.TypeFor[topology.AreaID]()].pattern},
				"additionalProperties": area})
		},
	}
}

// The structs here describe structs of package topology that are values of options: the same
// fields, with the tags that model.go explains. A field with the key "-" is written elsewhere.

// ospfOptions describe topology.OSPF.
type ospfOptions struct {
	Area               topology.AreaID             `yaml:"area" doc:"Area of interfaces whose links name none: 0, 1 or 0.0.0.1; 0 when missing."`
	RouterID           netip.Addr                  `yaml:"router_id" doc:"Router id, like 10.0.0.1; the highest loopback address when missing, else from the name."`
	Areas              []topology.OSPFArea         `yaml:"areas" as:"area" doc:"What is special about areas, by number: {1: stub, 2: {ranges: [10.2.0.0/16]}}."`
	Passive            []string                    `yaml:"passive" doc:"Interfaces that exchange no packets, by device or by the node beside it; those to hosts only do not anyway."`
	Redistribute       []topology.OSPFRedistribute `yaml:"redistribute" doc:"What to announce from outside: static, connected, program, protocol rip or default; also static metric 30 type 1, deny static 10.3.0.0/16, static 10.2.0.0/16 le 24 tag 7 set metric 30 tag 8. The first that matches a route decides."`
	VirtualLinks       []topology.OSPFVirtualLink  `yaml:"virtual_links,virtual_link" as:"virtual link" doc:"Links to other border routers through an area: {area: 1, router: r2}."`
	ReferenceBandwidth topology.Rate               `yaml:"reference_bandwidth" doc:"Divided by the bandwidth of a link it gives the cost; without it costs are 1."`
	Auth               *topology.OSPFAuth          `yaml:"auth" as:"auth" doc:"How packets are authenticated where links say nothing: {type: md5, key: walnut}."`
}

// ospfAreaOptions describe topology.OSPFArea.
type ospfAreaOptions struct {
	ID          topology.AreaID      `yaml:"-"`
	Stub        bool                 `yaml:"stub" doc:"No external routes come in; said by one router, it holds for all in the area."`
	DefaultCost int                  `yaml:"default_cost" as:"count" doc:"Cost of the default route that a border router announces into a stub area."`
	NoSummary   bool                 `yaml:"no_summary" doc:"A border router announces nothing but that default route into a stub area."`
	Ranges      []topology.OSPFRange `yaml:"ranges,range" doc:"Networks that a border router announces in place of all in them: 10.1.0.0/16, or 10.1.0.0/16 hide."`
	MaxLSAs     int                  `yaml:"max_lsas" as:"count" doc:"Announcements of other routers that routing nodes keep, external ones included; 50000 when missing. The neighbour that has brought the most is dropped when there are more."`
}

// ospfVirtualOptions describe topology.OSPFVirtualLink.
type ospfVirtualOptions struct {
	Area       topology.AreaID    `yaml:"area" doc:"Area that the virtual link goes through."`
	Router     string             `yaml:"router" doc:"The other end: a router's name or router id."`
	Hello      topology.Duration  `yaml:"hello" doc:"Time between hellos: 10s when missing."`
	Dead       topology.Duration  `yaml:"dead" doc:"Time without hellos after which a neighbour is dead: four times hello when missing."`
	Retransmit topology.Duration  `yaml:"retransmit" doc:"Time until what is not acknowledged is sent again: 5s when missing."`
	Delay      topology.Duration  `yaml:"delay" doc:"By how much announcements age when they are sent: 1s when missing."`
	Auth       *topology.OSPFAuth `yaml:"auth" as:"auth" doc:"How packets are authenticated: {type: md5, key: walnut}."`
}

// ospfLinkOptions describe topology.OSPFLink.
type ospfLinkOptions struct {
	Off        bool                 `yaml:"off" doc:"OSPF does not run here."`
	Area       *topology.AreaID     `yaml:"area" doc:"Area of the link: 0, 1 or 0.0.0.1; the router's when missing."`
	Cost       int                  `yaml:"cost" as:"count" doc:"Cost of sending, 1 to 65535; 1 when missing, unless the router has a reference_bandwidth."`
	Network    topology.OSPFNetwork `yaml:"network" doc:"point-to-point (the default between two routers) or broadcast (where there are switches)."`
	Hello      topology.Duration    `yaml:"hello" doc:"Time between hellos: 10s when missing."`
	Dead       topology.Duration    `yaml:"dead" doc:"Time without hellos after which a neighbour is dead: four times hello when missing."`
	Retransmit topology.Duration    `yaml:"retransmit" doc:"Time until what is not acknowledged is sent again: 5s when missing."`
	Delay      topology.Duration    `yaml:"delay" doc:"By how much announcements age when they are sent: 1s when missing."`
	Priority   *int                 `yaml:"priority" doc:"The highest becomes the designated router; 0 never does; 1 when missing."`
	Passive    *bool                `yaml:"passive" doc:"Announce the network, but exchange no packets; true when missing where there are no other routers."`
	MaxLSAs    int                  `yaml:"max_lsas" as:"count" doc:"Announcements that a routing node takes from one neighbour before it drops it; 20000 when missing."`
	Auth       *topology.OSPFAuth   `yaml:"auth" as:"auth" doc:"How packets are authenticated: {type: md5, key: walnut}."`
}

// ospfAuthOptions describe topology.OSPFAuth.
type ospfAuthOptions struct {
	Type topology.OSPFAuthType `yaml:"type" doc:"none, simple (a password in clear), md5, or sha1 to sha512 (HMAC)."`
	Key  string                `yaml:"key" doc:"The password or key: up to 8 characters for simple, 16 for md5, 64 for the others."`
	ID   int                   `yaml:"id" as:"count" doc:"Number of the key, 1 to 255; 1 when missing."`
}

func parseArea(into *topology.AreaID, text string) bool {
	f := strings.Fields(text)
	if len(f) != 2 || f[0] != "area" {
		return false
	}
	var err error
	*into, err = topology.ParseAreaID(f[1])
	return err == nil
}

func areaAlone(alone bool, area topology.AreaID) string {
	if !alone {
		return ""
	}
	return "area " + area.String()
}

// areas reads {1: stub, 2: {ranges: [10.2.0.0/16]}}.
func (d *decoder) areas(v *yamlfile.Value, label string) (out []topology.OSPFArea) {
	if v.Shape == yamlfile.Nothing {
		return nil
	}
	if v.Shape != yamlfile.Mapping {
		d.add(v, "write {1: stub, 2: {ranges: [10.2.0.0/16]}}", "%s: needs areas by number, not %s", label, v)
		return nil
	}
	for _, p := range v.Pairs {
		d.spend(p.Key, 1)
		id, err := topology.ParseAreaID(p.Key.Text)
		if err != nil {
			d.wrong(p.Key, label, err)
			continue
		}
		a := topology.OSPFArea{ID: id}
		if into := reflect.ValueOf(&a).Elem(); !d.shortForm(p.Value, into, label) {
			d.structure(p.Value, into, "area")
		}
		out = append(out, a)
	}
	return out
}

func areasText(areas []topology.OSPFArea) string {
	out := make([]string, len(areas))
	for i, a := range areas {
		out[i] = fmt.Sprintf("%s: %s", a.ID, structText(reflect.ValueOf(a)))
	}
	return "{" + strings.Join(out, ", ") + "}"
}
