package trivet

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Read reads a topology and collects what is wrong with the file. It does not check the topology's
// meaning: whether the nodes of links exist, whether addresses clash. If there are errors, the
// topology is what could be read, or nil.
func Read(file string, data []byte) (*topology.Topology, topology.Problems) {
	r := newReader(file, data, atMost)
	return r.t, r.problems
}

// reader makes a topology from a file.
type reader struct {
	*decoder
	t        *topology.Topology
	defaults defaults
	entries  []linkEntry // for SetLink: what made each link

	nodeEntries []nodeEntry // for SetNode: what made each node
}

// newReader reads a file; its topology is nil if the file is not YAML.
func newReader(file string, data []byte, limits limits) *reader {
	top, problems := yamlfile.Dialect{Ranges: true}.Parse(file, data)
	r := &reader{decoder: &decoder{limits: limits, problems: problems}}
	if top != nil {
		r.t = &topology.Topology{Pos: topology.Position{File: file}}
		r.read(top)
	}
	return r
}

func (r *reader) read(top *yamlfile.Value) {
	defer func() {
		if err := recover(); err != nil && err != errTooMuch {
			panic(err)
		}
	}()
	var doc document
	r.bits4, r.bits6 = 8, 64
	for _, subnet := range []string{"subnet", "subnet6"} { // first, because addresses refer to them
		if v := top.Get(subnet); v != nil && v.Shape == yamlfile.Scalar {
			if p, err := netip.ParsePrefix(v.Text); err == nil && p.Addr().Is4() == (subnet == "subnet") {
				*map[string]*int{"subnet": &r.bits4, "subnet6": &r.bits6}[subnet] = p.Bits()
			}
		}
	}
	if v := top.Get("models"); v != nil { // nodes and defaults refer to them
		r.models = r.profiles(v)
	}
	r.options(top, &doc, "")
	r.defaults = doc.Defaults
	copyFields(r.t, doc)
	if n := doc.Nodes.Value; n == nil || len(n.Pairs)+len(n.Items) == 0 && n.Shape != yamlfile.Scalar {
		if len(r.problems) == 0 { // otherwise the problems are the reason
			r.add(top, "write nodes: {h1: host, h2: host}", "this topology has no nodes")
		}
	} else {
		r.nodes(n)
	}
	if doc.Links.Value != nil {
		r.links(doc.Links.Value)
	}
	if doc.Schedule.Value != nil {
		r.schedule(doc.Schedule.Value)
	}
}

// copyFields copies the fields that two structs have in common, by name, if they are set. It also
// copies slices, maps and pointers: no two nodes share one.
func copyFields(to, from any) {
	src, dst := reflect.Indirect(reflect.ValueOf(from)), reflect.ValueOf(to).Elem()
	for _, f := range commonFields(src.Type(), dst.Type()) {
		v := src.FieldByIndex(f[0])
		if v.IsZero() {
			continue
		}
		into := dst.FieldByIndex(f[1])
		switch v.Kind() {
		case reflect.Slice:
			v = reflect.AppendSlice(reflect.Zero(v.Type()), v)
		case reflect.Map:
			clone := reflect.MakeMap(v.Type())
			for key, value := range v.Seq2() {
				clone.SetMapIndex(key, value)
			}
			v = clone
		case reflect.Pointer:
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(v.Elem())
			v = p
		}
		into.Set(v.Convert(into.Type()))
	}
}

var commonFieldsOf sync.Map // by [2]reflect.Type: the results of commonFields, which is slow

// commonFields returns the indices of fields with the same name and type in two structs.
func commonFields(from, to reflect.Type) (common [][2][]int) {
	key := [2]reflect.Type{from, to}
	if known, ok := commonFieldsOf.Load(key); ok {
		return known.([][2][]int)
	}
	for _, f := range reflect.VisibleFields(from) {
		if other, ok := to.FieldByName(f.Name); ok && !f.Anonymous && f.Type.ConvertibleTo(other.Type) {
			common = append(common, [2][]int{f.Index, other.Index})
		}
	}
	commonFieldsOf.Store(key, common)
	return common
}

// kinds are the words for kinds of nodes: those of the model, and nat.
var kinds = []string{"host", "switch", "router", "controller", "nat"}

func (r *reader) nodes(v *yamlfile.Value) {
	if v.Shape != yamlfile.Mapping {
		r.add(v, "write nodes: {h1: host, h2: host}", "nodes: needs a mapping of names to kinds, not %s", v)
		return
	}
	for _, p := range v.Pairs {
		before := r.work
		kind, options, ok := r.node(p.Value)
		names, err := Expand(p.Key.Text, r.limits.items-len(r.t.Nodes))
		if err == nil && p.Key.Text == "" {
			r.add(p.Key, "write h1: host", "a node needs a name")
		}
		if err != nil {
			r.wrong(p.Key, "", err)
			continue
		}
		if !ok {
			kind = "host" // its problem has been reported; links to it should not cause another
		}
		r.spend(p.Key, len(names)*(1+r.work-before))
		r.nodeEntries = append(r.nodeEntries, nodeEntry{v, p.Key, p.Value, kind, len(r.t.Nodes), len(names)})
		for _, name := range names {
			r.addNode(p.Key, name, kind, &options)
		}
	}
}

func (r *reader) addNode(key *yamlfile.Value, name, kind string, options *nodeOptions) {
	n := &topology.Node{}
	copyFields(n, options)
	n.Protocols = n.Protocols.Clone()
	n.Interfaces = topology.CloneInterfaces(n.Interfaces)
	n.Name, n.Kind, n.Pos = name, topology.Kind(kind), key.Pos
	n.NameTexts()
	if kind == "nat" {
		n.Kind, n.NAT = topology.Router, true
	}
	r.t.Nodes = append(r.t.Nodes, n)
}

// node reads a kind, or {kind: {options}}.
func (r *reader) node(v *yamlfile.Value) (kind string, options nodeOptions, ok bool) {
	word, given := v, &yamlfile.Value{}
	if v.Shape == yamlfile.Mapping && len(v.Pairs) == 1 {
		word, given = v.Pairs[0].Key, v.Pairs[0].Value
	}
	if word.Shape != yamlfile.Scalar {
		r.add(v, "write host, or host: {address: 10.0.0.1}", "a node needs one kind (%s), not %s",
			strings.Join(kinds, ", "), v.Shape)
		return
	}
	kind = word.Text
	switch kind {
	case "host":
		options = r.defaults.Host
	case "switch":
		options = r.defaults.Switch
	case "router":
		options = r.defaults.Router
	case "nat":
		options = r.defaults.Router
		options.Datapath, options.Guest = topology.Kernel, nil // which no NAT can be
	case "controller":
	default:
		hint := cmp.Or(topology.DidYouMean(kind, kinds), words.Choose(kinds))
		r.add(word, hint, "%s: no such kind of node", formats.Clip(kind))
		return
	}
	r.options(given, &options, kind)
	return kind, options, true
}

func (r *reader) schedule(v *yamlfile.Value) {
	items := v.Items
	switch v.Shape {
	case yamlfile.Nothing:
	case yamlfile.List:
	default:
		items = []*yamlfile.Value{v}
	}
	for _, item := range items {
		r.spend(item, 1)
		switch item.Shape {
		case yamlfile.Scalar:
			e, err := topology.ParseEvent(item.Text)
			r.event(item, e, err)
		case yamlfile.Mapping: // "at 30s: r1 -- r2 down" without quotes is a mapping
			for _, p := range item.Pairs {
				r.eventAt(p)
			}
		default:
			r.add(item, "write at 30s: r1 -- r2 down", "an event is a text, not %s", item.Shape)
		}
	}
}

func (r *reader) eventAt(p yamlfile.Pair) {
	actions := []*yamlfile.Value{p.Value}
	if p.Value.Shape == yamlfile.List {
		actions = p.Value.Items
	}
	for _, a := range actions {
		r.spend(a, 1)
		if a.Shape != yamlfile.Scalar {
			r.add(a, "write at 30s: r1 -- r2 down", "an action is a text, not %s", a.Shape)
			continue
		}
		where := p.Key
		if p.Value.Shape == yamlfile.List {
			where = a
		}
		e, err := topology.ParseEvent(p.Key.Text + ": " + a.Text)
		r.event(where, e, err)
	}
}

func (r *reader) event(v *yamlfile.Value, e topology.Event, err error) {
	if err != nil {
		r.wrong(v, "", err)
		return
	}
	e.Pos = v.Pos
	r.t.Schedule = append(r.t.Schedule, e)
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
