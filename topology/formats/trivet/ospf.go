package trivet

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

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

// described maps structs of package topology to the structs that describe them.
var described = map[reflect.Type]reflect.Type{
	reflect.TypeFor[topology.OSPF]():            reflect.TypeFor[ospfOptions](),
	reflect.TypeFor[topology.OSPFArea]():        reflect.TypeFor[ospfAreaOptions](),
	reflect.TypeFor[topology.OSPFVirtualLink](): reflect.TypeFor[ospfVirtualOptions](),
	reflect.TypeFor[topology.OSPFLink]():        reflect.TypeFor[ospfLinkOptions](),
	reflect.TypeFor[topology.OSPFAuth]():        reflect.TypeFor[ospfAuthOptions](),
	reflect.TypeFor[topology.Wifi]():            reflect.TypeFor[wifiOptions](),
	reflect.TypeFor[topology.Interface]():       reflect.TypeFor[interfaceOptions](),
	reflect.TypeFor[topology.Balance]():         reflect.TypeFor[balanceOptions](),
	reflect.TypeFor[topology.Advertisement]():   reflect.TypeFor[advertisementOptions](),
	reflect.TypeFor[topology.Guest]():           reflect.TypeFor[guestOptions](),
	reflect.TypeFor[topology.GuestDisk]():       reflect.TypeFor[guestDiskOptions](),
}

// short is a form of a struct in a word or two.
type short struct {
	pattern string
	parse   func(into any, text string) bool // false: the text is not valid
	write   func(v any) string               // "": the value has no short form
	example string
	truth   bool // true and false are such forms
}

var shorts = map[reflect.Type]short{
	reflect.TypeFor[topology.Guest]():         guestShort,
	reflect.TypeFor[topology.GuestDisk]():     diskShort,
	reflect.TypeFor[topology.Advertisement](): advertisementShort,
	reflect.TypeFor[topology.Balance](): {pattern: `^(ecmp|off|load)$`, example: "ecmp, off, load", parse: func(into any, text string) bool {
		by := topology.BalanceBy(text)
		into.(*topology.Balance).By = by
		return by == topology.BalanceECMP || by == topology.BalanceOff || by == topology.BalanceLoad
	}, write: func(v any) string {
		b := v.(topology.Balance)
		if b != (topology.Balance{By: b.By}) {
			return ""
		}
		return string(b.By)
	}},
	reflect.TypeFor[topology.OSPF](): {pattern: `^area +[0-9.]+$`, example: "area 0", parse: func(into any, text string) bool {
		return parseArea(&into.(*topology.OSPF).Area, text)
	}, write: func(v any) string {
		o := v.(topology.OSPF)
		area := o.Area
		o.Area = 0
		return areaAlone(reflect.ValueOf(o).IsZero(), area)
	}},
	reflect.TypeFor[topology.OSPFLink](): {pattern: `^(off|area +[0-9.]+)$`, example: "area 0, or off", parse: func(into any, text string) bool {
		o := into.(*topology.OSPFLink)
		if text == "off" {
			o.Off = true
			return true
		}
		o.Area = new(topology.AreaID)
		return parseArea(o.Area, text)
	}, write: func(v any) string {
		switch o := v.(topology.OSPFLink); {
		case o == topology.OSPFLink{Off: true}:
			return "off"
		case o.Area != nil:
			return areaAlone(o == topology.OSPFLink{Area: o.Area}, *o.Area)
		}
		return ""
	}},
	reflect.TypeFor[topology.OSPFArea](): {pattern: `^stub$`, example: "stub", parse: func(into any, text string) bool {
		into.(*topology.OSPFArea).Stub = true
		return text == "stub"
	}, write: func(v any) string {
		a := v.(topology.OSPFArea)
		a.ID = 0
		if !a.Stub || a.DefaultCost != 0 || a.NoSummary || a.MaxLSAs != 0 || len(a.Ranges) > 0 {
			return ""
		}
		return "stub"
	}},
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

// shortForm reads a struct given in its short form; it says whether there is such a form.
func (d *decoder) shortForm(v *yamlfile.Value, into reflect.Value, label string) bool {
	s, ok := shorts[into.Type()]
	if !ok || v.Shape != yamlfile.Scalar {
		return false
	}
	if !s.parse(into.Addr().Interface(), v.Text) {
		d.add(v, "write "+s.example+", or {key: value, …}", "%s: %s cannot be read", label, strconv.Quote(formats.Clip(v.Text)))
	}
	return true
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

// structText writes a struct of options in one line.
func structText(v reflect.Value) string {
	if s, ok := shorts[v.Type()]; ok {
		if text := s.write(v.Interface()); text != "" {
			return text
		}
	}
	var out []string
	for _, f := range fieldsOf(v.Type(), "") {
		if value := v.FieldByIndex(f.index); !value.IsZero() && !(value.Kind() == reflect.Slice && value.Len() == 0) {
			out = append(out, f.names[0]+": "+flowValue(value, f))
		}
	}
	return "{" + strings.Join(out, ", ") + "}"
}

func areasText(areas []topology.OSPFArea) string {
	out := make([]string, len(areas))
	for i, a := range areas {
		out[i] = fmt.Sprintf("%s: %s", a.ID, structText(reflect.ValueOf(a)))
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// structOrShort is the schema of a struct that may have a short form.
func structOrShort(t reflect.Type, kind string) object {
	if s, ok := shorts[t]; ok {
		forms := []object{structSchema(t, kind), {"type": "string", "pattern": s.pattern}}
		if s.truth {
			forms = append(forms, object{"type": "boolean"})
		}
		return anyOf(forms...)
	}
	return structSchema(t, kind)
}

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 1<<24 {
		return 0, topology.Mistaken("write 1, 2, 10", "%q is not a whole number above 0", s)
	}
	return n, nil
}
