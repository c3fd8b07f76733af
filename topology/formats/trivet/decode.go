package trivet

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// limits bound what ranges and aliases expand to.
type limits struct {
	items int // maximum number of nodes, and of links
	work  int // values read, including those from ranges and aliases, each time they are used
}

var atMost = limits{items: 1_000_000, work: 10_000_000}

// decoder fills the structs of model.go from values and collects problems.
type decoder struct {
	limits   limits
	problems topology.Problems
	work     int

	bits4, bits6 int // prefix lengths of the subnets
	models       []topology.Model
	modelNamed   map[string]int // where in models
}

// errTooMuch ends reading when a file expands to too much.
var errTooMuch = fmt.Errorf("too much")

func (d *decoder) add(v *yamlfile.Value, hint, format string, args ...any) {
	d.problems.Add(v.Pos, hint, format, args...)
}

// spend counts the values read, including those from ranges and aliases, each time they are used.
func (d *decoder) spend(v *yamlfile.Value, work int) {
	if d.work += work; d.work > d.limits.work {
		d.add(v, "use fewer aliases, and fewer options on long ranges", "this expands to more than %d values",
			d.limits.work)
		panic(errTooMuch)
	}
}

// wrong reports a value that its parser refused: "bandwidth 1gbti: not a rate; write 1gbit".
func (d *decoder) wrong(v *yamlfile.Value, label string, err error) {
	if len(v.Text) > 200 {
		d.add(v, "write less", "%s: too long", strings.TrimSpace(label+" "+formats.Clip(v.Text)))
		return
	}
	message, hint := topology.TextAndHint(err)
	if rest, ok := strings.CutPrefix(message, strconv.Quote(v.Text)+" is "); ok {
		message = strings.TrimSpace(label+" "+v.Text) + ": " + rest
	} else if label != "" {
		message = label + ": " + message
	}
	d.add(v, hint, "%s", message)
}

// field is a struct field with its tags.
type field struct {
	index    []int
	names    []string
	as, doc  string
	typ      reflect.Type
	isOption bool // not the x- field
	protocol bool // its value is the protocol's of that name: see in
}

// fieldsOf returns the fields that apply to things of a kind, embedded structs included.
func fieldsOf(t reflect.Type, kind string) []field {
	fields, _ := splitFields(t, kind)
	return fields
}

type fieldsKey struct {
	of      reflect.Type
	kind    string
	options *topology.LinkOption // the table that those of links are from
	spoken  int                  // how many protocols there are
}

var knownFields sync.Map // by fieldsKey: the results of splitFields, which is slow

// splitFields divides the fields of a struct into those that apply to things of a kind and those
// that do not.
func splitFields(t reflect.Type, kind string) (has, lacks []field) {
	if by, ok := described[t]; ok {
		t = by
	}
	key := fieldsKey{t, kind, &topology.LinkOptions[0], len(protocols)}
	if known, ok := knownFields.Load(key); ok {
		both := known.([2][]field)
		return both[0], both[1]
	}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous || f.Tag.Get("yaml") == "-" {
			continue
		}
		for _, o := range topology.LinkOptions { // fields of an impairment have no tags
			if f.Tag.Get("yaml") == "" && o.Field == f.Name {
				f.Tag = reflect.StructTag(fmt.Sprintf("yaml:%q as:%[1]q doc:%q", o.Name, o.Meaning))
			}
		}
		names := strings.Split(f.Tag.Get("yaml"), ",")
		some := []field{{index: f.Index, names: names, as: f.Tag.Get("as"), doc: f.Tag.Get("doc"), typ: f.Type,
			isOption: names[0] != "x-"}}
		if f.Type == reflect.TypeFor[topology.Protocols]() || f.Type == reflect.TypeFor[topology.LinkProtocols]() {
			some = protocolFields(t, f.Index)
		}
		if of, limited := f.Tag.Lookup("of"); limited && !slices.Contains(strings.Fields(of), kind) {
			lacks = append(lacks, some...)
		} else {
			has = append(has, some...)
		}
	}
	knownFields.Store(key, [2][]field{has, lacks})
	return has, lacks
}

// options fills the struct that into points to; kind is what these are the options of: "host",
// "link", or "" for the file itself. What is not in v is left unchanged.
func (d *decoder) options(v *yamlfile.Value, into any, kind string) {
	d.structure(v, reflect.ValueOf(into).Elem(), kind)
}

func (d *decoder) structure(v *yamlfile.Value, into reflect.Value, kind string) {
	d.spend(v, 1)
	if v.Shape == yamlfile.Nothing {
		return
	}
	if v.Shape != yamlfile.Mapping {
		hint := "write {key: value, …}"
		if kind == "" {
			hint = "write nodes: {h1: host, s1: switch} and links: [h1 -- s1]"
		}
		d.add(v, hint, "%s takes options, not %s", orFile(kind), v)
		return
	}
	fields := fieldsOf(into.Type(), kind)
	given := map[string]*yamlfile.Value{}
	for _, p := range v.Pairs {
		f, ok := find(fields, p.Key.Text)
		switch {
		case strings.HasPrefix(p.Key.Text, "x-") && hasForeign(fields):
			d.foreign(p, into)
		case !ok:
			d.unknown(p.Key, kind, fields)
		case given[f.names[0]] != nil:
			d.add(p.Key, "keep one of them", "%s: is already given as %s (line %d)", p.Key.Text, given[f.names[0]].Text,
				given[f.names[0]].Pos.Line)
		default:
			given[f.names[0]] = p.Key
			d.value(p.Value, into, f, p.Key.Text)
		}
	}
}

// value fills a field of a struct.
func (d *decoder) value(v *yamlfile.Value, into reflect.Value, f field, label string) {
	if f.as == interfaceAddresses {
		none := v.Shape == yamlfile.Scalar && v.Text == topology.NoAddress
		if unaddressed(into).SetBool(none); none {
			into.FieldByIndex(f.index).SetZero() // those of the defaults
			return
		}
	}
	if f.protocol {
		d.protocol(v, into.FieldByIndex(f.index), f, label)
		return
	}
	d.field(v, into.FieldByIndex(f.index), f, label)
}

// unaddressed is the field beside a list of addresses that says that they are none.
func unaddressed(of reflect.Value) reflect.Value { return of.FieldByName("Unaddressed") }

func orFile(kind string) string {
	if kind == "" {
		return "a topology"
	}
	if strings.ContainsRune("aeio", rune(kind[0])) {
		return "an " + kind
	}
	return "a " + kind
}

func find(fields []field, name string) (field, bool) {
	for _, f := range fields {
		if f.isOption && slices.Contains(f.names, name) {
			return f, true
		}
	}
	return field{}, false
}

func hasForeign(fields []field) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return !f.isOption })
}

func (d *decoder) foreign(p yamlfile.Pair, into reflect.Value) {
	f := into.FieldByName("Foreign")
	clone := maps.Clone(f.Interface().(foreign)) // it may be shared with the defaults
	if clone == nil {
		clone = foreign{}
	}
	left := d.limits.work - d.work
	budget := left
	plain, err := p.Value.JSON(&budget)
	if d.spend(p.Value, left-budget); err != nil {
		d.add(p.Value, "a topology needs no more than ten", "%s", err)
	}
	clone[strings.TrimPrefix(p.Key.Text, "x-")] = plain
	f.Set(reflect.ValueOf(clone))
}

func (d *decoder) unknown(key *yamlfile.Value, kind string, fields []field) {
	var names []string
	for _, f := range fields {
		if f.isOption {
			names = append(names, f.names[0])
		}
	}
	d.add(key, cmp.Or(topology.DidYouMean(key.Text, names), words.Choose(names)), "%s: no such %s",
		formats.Clip(key.Text), strings.TrimSpace(kind+" option"))
}

func (d *decoder) field(v *yamlfile.Value, into reflect.Value, f field, label string) {
	if as, ok := forms[into.Type()]; ok {
		into.Set(reflect.ValueOf(as.read(d, v, label)))
		return
	}
	switch {
	case into.Type() == reflect.TypeFor[deferred]():
		into.Set(reflect.ValueOf(deferred{v}))
	case into.Type() == reflect.TypeFor[*topology.Guest]():
		d.guest(v, into, f, label)
	case into.Type() == reflect.TypeFor[*topology.Point]():
		if p := d.point(v, label); p != nil {
			into.Set(reflect.ValueOf(p))
		}
	case into.Type() == reflect.TypeFor[*topology.Cluster]():
		into.Set(reflect.ValueOf(d.cluster(v)))
	case into.Type() == reflect.TypeFor[[]topology.Model]():
		into.Set(reflect.ValueOf(d.models)) // read before: see reader.read
	case into.Type() == reflect.TypeFor[*topology.Model]():
		into.Set(reflect.ValueOf(d.model(v, label)))
	case into.Type() == reflect.TypeFor[[]topology.ConfigFile]():
		into.Set(reflect.ValueOf(d.config(v, label)))
	case into.Type() == reflect.TypeFor[[]topology.NodeFile]():
		into.Set(reflect.ValueOf(d.files(v, label)))
	case into.Type() == reflect.TypeFor[topology.Words]():
		into.Set(reflect.ValueOf(d.words(v, label)))
	case into.Type() == reflect.TypeFor[[]topology.Assignment]():
		into.Set(reflect.ValueOf(d.assignments(v, label)))
	case into.Type() == reflect.TypeFor[[]topology.Interface]():
		into.Set(reflect.ValueOf(d.interfaces(v, label)))
	case into.Type() == reflect.TypeFor[topology.VLANs]():
		into.Set(reflect.ValueOf(d.vlans(v, label)))
	case into.Kind() == reflect.Slice:
		d.list(v, into, f, label)
	default:
		d.single(v, into, f, label)
	}
}

func (d *decoder) list(v *yamlfile.Value, into reflect.Value, f field, label string) {
	items := []*yamlfile.Value{v}
	if v.Shape == yamlfile.List {
		items = v.Items
	}
	if v.Shape == yamlfile.Nothing {
		items = nil
	}
	into.SetZero() // lists replace those of the defaults
	for _, item := range items {
		d.spend(item, 1)
		element := reflect.New(into.Type().Elem()).Elem()
		if d.single(item, element, f, label) {
			into.Set(reflect.Append(into, element))
		}
	}
}

// single fills one value; it says whether there was one.
func (d *decoder) single(v *yamlfile.Value, into reflect.Value, f field, label string) bool {
	d.spend(v, 1)
	if into.Kind() == reflect.Pointer {
		fresh := reflect.New(into.Type().Elem())
		if _, ok := shorts[into.Type().Elem()]; ok && !into.IsNil() {
			fresh.Elem().Set(into.Elem()) // keep what the defaults say
		}
		into.Set(fresh)
		into = fresh.Elem()
	}
	if into.Type() == reflect.TypeFor[topology.PrivateDir]() {
		return d.privateDir(v, into.Addr().Interface().(*topology.PrivateDir), label)
	}
	if into.Type() == reflect.TypeFor[topology.Queue]() && v.Shape == yamlfile.Mapping {
		q, ok := d.queue(v, label)
		into.Set(reflect.ValueOf(q))
		return ok
	}
	leaf, ok := leafOf(into.Type(), f.as)
	if !ok {
		kind := cmp.Or(f.as, label)
		if !d.shortForm(v, into, label) {
			d.structure(v, into, kind)
		}
		return true
	}
	if v.Shape != yamlfile.Scalar {
		d.add(v, "write "+label+": VALUE", "%s: needs a value, not %s", label, v.Shape)
		return false
	}
	parsed, err := leaf.parse(d, v.Text)
	if err != nil {
		d.wrong(v, label, err)
		return false
	}
	into.Set(reflect.ValueOf(parsed))
	return true
}

// quotedDir matches a directory and its source written as one text by mistake.
var quotedDir = regexp.MustCompile(`^/[^:]*: *[./]`)

// privateDir reads /var/run, or /etc/x: ./conf.
func (d *decoder) privateDir(v *yamlfile.Value, into *topology.PrivateDir, label string) bool {
	switch {
	case v.Shape == yamlfile.Scalar && quotedDir.MatchString(v.Text):
		path, source, _ := strings.Cut(v.Text, ":")
		d.add(v, fmt.Sprintf("write %s: %s, without quotes", path, strings.TrimSpace(source)),
			"%s: %q names two directories in one text", label, v.Text)
		return false
	case v.Shape == yamlfile.Scalar:
		into.Path = v.Text
	case v.Shape == yamlfile.Mapping && len(v.Pairs) == 1 && v.Pairs[0].Value.Shape == yamlfile.Scalar:
		into.Path = v.Pairs[0].Key.Text
		into.Source, into.ReadOnly = strings.CutSuffix(v.Pairs[0].Value.Text, topology.ReadOnlySuffix)
	default:
		d.add(v, "write [/var/run, /etc/x: ./conf]", "%s: needs directories, not %s", label, v.Shape)
		return false
	}
	return true
}

// vlans reads 10, [10, 20, 30-39], or all.
func (d *decoder) vlans(v *yamlfile.Value, label string) topology.VLANs {
	items := []*yamlfile.Value{v}
	if v.Shape == yamlfile.List {
		items = v.Items
	}
	var texts []string
	for _, item := range items {
		d.spend(item, 1)
		if item.Shape != yamlfile.Scalar {
			d.add(item, "write "+label+": [10, 20, 30-39], or all", "%s: needs numbers of VLANs, not %s", label, item)
			return ""
		}
		if _, err := topology.ParseVLANs(item.Text); err != nil {
			d.wrong(item, label, err)
			return ""
		}
		texts = append(texts, item.Text)
	}
	if slices.Contains(texts, string(topology.AllVLANs)) {
		return topology.AllVLANs
	}
	if len(texts) == 0 {
		d.add(v, "write "+label+": [10, 20, 30-39], or all", "%s: there are none", label)
		return ""
	}
	all, err := topology.ParseVLANs(strings.Join(texts, ","))
	if err != nil {
		d.wrong(v, label, err)
	}
	return all
}

// config reads {flows: lab.d/s1.flows}.
func (d *decoder) config(v *yamlfile.Value, label string) (out []topology.ConfigFile) {
	d.besides(v, label, "kinds and their files", "write {flows: lab.d/s1.flows}",
		func(kind string, f topology.TextFile) {
			out = append(out, topology.ConfigFile{Kind: kind, TextFile: f})
		})
	return out
}

// files reads {/etc/nginx/nginx.conf: web/nginx.conf}.
func (d *decoder) files(v *yamlfile.Value, label string) (out []topology.NodeFile) {
	d.besides(v, label, "files of the node and those beside this one", "write {/etc/nginx/nginx.conf: web/nginx.conf}",
		func(path string, f topology.TextFile) {
			out = append(out, topology.NodeFile{Path: path, TextFile: f})
		})
	return out
}

// besides reads names and files beside the topology's; what has several lines is the text itself.
func (d *decoder) besides(v *yamlfile.Value, label, what, hint string, add func(name string, f topology.TextFile)) {
	if v.Shape == yamlfile.Nothing {
		return
	}
	if v.Shape != yamlfile.Mapping {
		d.add(v, hint, "%s: needs %s, not %s", label, what, v)
	}
	for _, p := range v.Pairs {
		d.spend(p.Key, 1)
		if p.Value.Shape != yamlfile.Scalar || p.Value.Text == "" {
			d.add(p.Value, hint, "%s: %s needs a file, not %s", label, formats.Clip(p.Key.Text), p.Value)
			continue
		}
		add(p.Key.Text, topology.ParseTextFile(p.Value.Text))
	}
}

func (d *decoder) point(v *yamlfile.Value, label string) *topology.Point {
	var xy [2]float64
	if v.Shape == yamlfile.List && len(v.Items) == 2 {
		for i, item := range v.Items {
			n, ok := item.Plain.(float64)
			if !ok {
				d.add(item, "write place: [100, 50]", "%s: needs two numbers, not %s", label, item)
				return nil
			}
			xy[i] = n
		}
		return &topology.Point{X: xy[0], Y: xy[1]}
	}
	d.add(v, "write place: [100, 50]", "%s: needs two numbers, not %s", label, v)
	return nil
}
