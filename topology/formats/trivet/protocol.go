package trivet

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Words are what files say of a routing protocol, whose name is the key. The fields of its settings
// have the tags that model.go explains.
type Words struct {
	Protocol        string // its name, as in topology.Protocol
	Node, Link, End string // the key's meaning, in one line, at routers, links, and ends of links

	// Structs have the tags, and the same fields, of structs that have none.
	Structs map[reflect.Type]reflect.Type
	// Shorts are forms in a word or two.
	Shorts map[reflect.Type]Short
	// Leaves are single values, by their type or by the tag "as".
	Leaves map[any]Leaf
}

// Leaf is how single values of a type are read, and described in the schema.
type Leaf struct {
	Parse   func(text string) (any, error)
	Pattern string   // of the text; "": any
	Words   []string // all possible values, if they are few
}

// Simple turns a function into a Leaf's parser.
func Simple[T any](parse func(string) (T, error)) func(string) (any, error) {
	return func(s string) (any, error) { return parse(s) }
}

// OneOf returns a Leaf for a type with only a few values.
func OneOf[T ~string](all ...T) Leaf {
	l := oneOf(all...)
	return Leaf{Parse: func(s string) (any, error) { return l.parse(nil, s) }, Words: l.words}
}

// form is how a type is read, written and described that is neither a list nor options.
type form struct {
	read   func(d *decoder, v *yamlfile.Value, label string) any
	text   func(v any) string
	schema func(f field) object
}

var forms = map[reflect.Type]form{}

// protocols are in the order of their names.
var protocols []Words

// RegisterProtocol makes the words of a protocol known, which topology knows. It must be called in
// an init function.
func RegisterProtocol(w Words) {
	protocols = append(protocols, w)
	slices.SortFunc(protocols, func(a, b Words) int { return strings.Compare(a.Protocol, b.Protocol) })
	maps.Copy(described, w.Structs)
	maps.Copy(shorts, w.Shorts)
	for key, l := range w.Leaves {
		leaves[key] = leaf{parse: func(_ *decoder, s string) (any, error) { return l.Parse(s) },
			pattern: l.Pattern, words: l.Words}
	}
}

// protocolFields are the options of protocols in a struct of model.go, whose field of that index
// holds their settings.
func protocolFields(of reflect.Type, index []int) (out []field) {
	for _, p := range topology.RoutingProtocols() {
		i := slices.IndexFunc(protocols, func(w Words) bool { return w.Protocol == p.Name })
		if i < 0 {
			panic(fmt.Sprintf("trivet: files have no words for the protocol %s", p.Name))
		}
		settings, doc := p.Link, protocols[i].Link
		switch of {
		case reflect.TypeFor[nodeOptions]():
			settings, doc = p.Node, protocols[i].Node
		case reflect.TypeFor[endOptions]():
			doc = protocols[i].End
		}
		if settings != nil {
			out = append(out, field{index: index, names: []string{p.Name}, as: p.Name, doc: doc,
				typ: reflect.TypeOf(settings), isOption: true, protocol: true})
		}
	}
	return out
}

// in is the field's value in a struct: of a protocol's options, its settings or a nil pointer.
func (f field) in(v reflect.Value) reflect.Value {
	v = v.FieldByIndex(f.index)
	if !f.protocol {
		return v
	}
	if s := settingsIn(v)[f.names[0]]; s != nil {
		return reflect.ValueOf(s)
	}
	return reflect.Zero(f.typ)
}

// protocol reads the settings of a protocol into those of all.
func (d *decoder) protocol(v *yamlfile.Value, into reflect.Value, f field, label string) {
	all := settingsIn(into)
	own := reflect.New(f.typ).Elem()
	if s := all[f.names[0]]; s != nil {
		own.Set(reflect.ValueOf(s))
	}
	if d.field(v, own, f, label); own.IsNil() {
		return
	}
	if all = maps.Clone(all); all == nil { // it may be shared with the defaults
		all = map[string]topology.Settings{}
	}
	all[f.names[0]] = own.Interface().(topology.Settings)
	into.Set(reflect.ValueOf(all).Convert(into.Type()))
}

// settingsIn are those of all protocols that a router, a link or an end has.
func settingsIn(v reflect.Value) map[string]topology.Settings {
	all, _ := v.Convert(reflect.TypeFor[map[string]topology.Settings]()).Interface().(map[string]topology.Settings)
	return all
}

// protocolsOr are the protocols' names in a pattern, each followed by |.
func protocolsOr() (out string) {
	for _, p := range topology.RoutingProtocols() {
		out += p.Name + "|"
	}
	return out
}
