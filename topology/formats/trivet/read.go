package trivet

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"

	"trivet.dev/trivet/topology"
)

// Read reads a topology and collects what is wrong with the file. It does not check
// what the topology means: whether the nodes of links exist, whether addresses clash.
// Where there are errors, the topology is what could be read, or nil.
func Read(file string, data []byte) (*topology.Topology, topology.Problems) {
	r := newReader(file, data, atMost)
	return r.t, r.problems
}

// reader makes a topology of a file.
type reader struct {
	*decoder
	t        *topology.Topology
	defaults defaults
	entries  []linkEntry // for SetLink: what made each link
}

// newReader reads a file; its topology is nil where the file is not YAML.
func newReader(file string, data []byte, limits limits) *reader {
	r := &reader{decoder: &decoder{file: file, limits: limits}}
	top, problems := parse(data)
	for _, p := range problems {
		p.Pos.File = file
		r.problems = append(r.problems, p)
	}
	if top != nil {
		r.t = &topology.Topology{Pos: topology.Position{File: file}}
		r.read(top)
	}
	return r
}

func (r *reader) read(top *value) {
	defer func() {
		if err := recover(); err != nil && err != errTooMuch {
			panic(err)
		}
	}()
	var doc document
	r.bits4, r.bits6 = 8, 64
	for _, subnet := range []string{"subnet", "subnet6"} { // first, because addresses refer to them
		if v := top.get(subnet); v != nil && v.shape == scalar {
			if p, err := netip.ParsePrefix(v.text); err == nil && p.Addr().Is4() == (subnet == "subnet") {
				*map[string]*int{"subnet": &r.bits4, "subnet6": &r.bits6}[subnet] = p.Bits()
			}
		}
	}
	r.options(top, &doc, "")
	r.defaults = doc.Defaults
	copyFields(r.t, doc)
	if n := doc.Nodes.Value; n == nil || len(n.pairs)+len(n.items) == 0 && n.shape != scalar {
		if len(r.problems) == 0 { // otherwise they are the reason
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

// copyFields copies the fields that two structs have in common, by name, where they
// are set. Slices, maps and pointers are copied too: no two nodes share one.
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

var commonFieldsOf sync.Map // of [2]reflect.Type: what commonFields returns, which takes a while

// commonFields returns the indices of fields of the same name and type in two structs.
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

func (r *reader) nodes(v *value) {
	if v.shape != mapping {
		r.add(v, "write nodes: {h1: host, h2: host}", "nodes: needs a mapping of names to kinds, not %s", shown(v))
		return
	}
	for _, p := range v.pairs {
		before := r.work
		kind, options, ok := r.node(p.value)
		names, err := expand(p.key.text, r.limits.items-len(r.t.Nodes))
		if err == nil && p.key.text == "" {
			r.add(p.key, "write h1: host", "a node needs a name")
		}
		if err != nil {
			r.wrong(p.key, "", err)
			continue
		}
		if !ok {
			kind = "host" // its problem is told; links to it should not be another
		}
		r.spend(p.key, len(names)*(1+r.work-before))
		for _, name := range names {
			r.addNode(p.key, name, kind, &options)
		}
	}
}

func (r *reader) addNode(key *value, name, kind string, options *nodeOptions) {
	n := &topology.Node{}
	copyFields(n, options)
	n.Name, n.Kind, n.Pos = name, topology.Kind(kind), r.pos(key)
	if kind == "nat" {
		n.Kind, n.NAT = topology.Router, true
	}
	r.t.Nodes = append(r.t.Nodes, n)
}

// node reads a kind, or {kind: {options}}.
func (r *reader) node(v *value) (kind string, options nodeOptions, ok bool) {
	word, given := v, &value{}
	if v.shape == mapping && len(v.pairs) == 1 {
		word, given = v.pairs[0].key, v.pairs[0].value
	}
	if word.shape != scalar {
		r.add(v, "write host, or host: {address: 10.0.0.1}", "a node needs one kind (%s), not %s", strings.Join(kinds, ", "), v.shape)
		return
	}
	kind = word.text
	switch kind {
	case "host":
		options = r.defaults.Host
	case "switch":
		options = r.defaults.Switch
	case "router":
		options = r.defaults.Router
	case "nat":
		options = r.defaults.Router
		options.Datapath = topology.Kernel
	case "controller":
	default:
		hint := topology.DidYouMean(kind, kinds)
		if hint == "" {
			hint = "there are " + strings.Join(kinds, ", ")
		}
		r.add(word, hint, "%s: no such kind of node", clip(kind))
		return
	}
	r.options(given, &options, kind)
	return kind, options, true
}

func (r *reader) schedule(v *value) {
	items := v.items
	switch v.shape {
	case nothing:
	case list:
	default:
		items = []*value{v}
	}
	for _, item := range items {
		r.spend(item, 1)
		switch item.shape {
		case scalar:
			e, err := topology.ParseEvent(item.text)
			r.event(item, e, err)
		case mapping: // "at 30s: r1 -- r2 down" without quotes is one
			for _, p := range item.pairs {
				r.eventAt(p)
			}
		default:
			r.add(item, "write at 30s: r1 -- r2 down", "an event is a text, not %s", item.shape)
		}
	}
}

func (r *reader) eventAt(p pair) {
	actions := []*value{p.value}
	if p.value.shape == list {
		actions = p.value.items
	}
	for _, a := range actions {
		r.spend(a, 1)
		if a.shape != scalar {
			r.add(a, "write at 30s: r1 -- r2 down", "an action is a text, not %s", a.shape)
			continue
		}
		where := p.key
		if p.value.shape == list {
			where = a
		}
		e, err := topology.ParseEvent(p.key.text + ": " + a.text)
		r.event(where, e, err)
	}
}

func (r *reader) event(v *value, e topology.Event, err error) {
	if err != nil {
		r.wrong(v, "", err)
		return
	}
	e.Pos = r.pos(v)
	r.t.Schedule = append(r.t.Schedule, e)
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
