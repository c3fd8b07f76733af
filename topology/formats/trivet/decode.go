package trivet

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"trivet.dev/trivet/topology"
)

// decoder fills the structs of model.go from values and collects what is wrong.
type decoder struct {
	file     string
	limits   limits
	problems topology.Problems
	work     int

	bits4, bits6 int // prefix lengths of the subnets
}

// errTooMuch ends reading when a file asks for more than there should be.
var errTooMuch = fmt.Errorf("too much")

func (d *decoder) pos(v *value) topology.Position {
	p := v.pos
	p.File = d.file
	return p
}

func (d *decoder) add(v *value, hint, format string, args ...any) {
	d.problems.Add(d.pos(v), hint, format, args...)
}

// spend counts the values read, those of ranges and aliases each time.
func (d *decoder) spend(v *value, work int) {
	if d.work += work; d.work > d.limits.work {
		d.add(v, "use fewer aliases, and fewer options on long ranges", "this expands to more than %d values", d.limits.work)
		panic(errTooMuch)
	}
}

// wrong reports a value that its parser refused: "bandwidth 1gbti: not a rate; write 1gbit".
func (d *decoder) wrong(v *value, label string, err error) {
	if len(v.text) > 200 {
		d.add(v, "", "%s: %q is no such value", label, clip(v.text))
		return
	}
	message, hint, _ := strings.Cut(err.Error(), "; ")
	if rest, ok := strings.CutPrefix(message, strconv.Quote(v.text)+" is "); ok {
		message = strings.TrimSpace(label+" "+v.text) + ": " + rest
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
}

// fieldsOf returns the fields that things of a kind have, embedded structs included.
func fieldsOf(t reflect.Type, kind string) []field {
	fields, _ := splitFields(t, kind)
	return fields
}

type fieldsKey struct {
	of   reflect.Type
	kind string
}

var knownFields sync.Map // of fieldsKey: what splitFields returns, which takes a while

// splitFields returns the fields of a struct that things of a kind have, and those that they do not.
func splitFields(t reflect.Type, kind string) (has, lacks []field) {
	if known, ok := knownFields.Load(fieldsKey{t, kind}); ok {
		both := known.([2][]field)
		return both[0], both[1]
	}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		names := strings.Split(f.Tag.Get("yaml"), ",")
		one := field{f.Index, names, f.Tag.Get("as"), f.Tag.Get("doc"), f.Type, names[0] != "x-"}
		if of, limited := f.Tag.Lookup("of"); limited && !slices.Contains(strings.Fields(of), kind) {
			lacks = append(lacks, one)
		} else {
			has = append(has, one)
		}
	}
	knownFields.Store(fieldsKey{t, kind}, [2][]field{has, lacks})
	return has, lacks
}

// options fills the struct that into points to; kind is what has these options:
// "host", "link", or "" for the file itself. What is not in v stays as it is.
func (d *decoder) options(v *value, into any, kind string) {
	d.structure(v, reflect.ValueOf(into).Elem(), kind)
}

func (d *decoder) structure(v *value, into reflect.Value, kind string) {
	d.spend(v, 1)
	if v.shape == nothing {
		return
	}
	if v.shape != mapping {
		d.add(v, "write {key: value, …}", "%s takes options, not %s", orFile(kind), shown(v))
		return
	}
	fields := fieldsOf(into.Type(), kind)
	given := map[string]*value{}
	for _, p := range v.pairs {
		f, ok := find(fields, p.key.text)
		switch {
		case strings.HasPrefix(p.key.text, "x-") && hasForeign(fields):
			d.foreign(p, into)
		case !ok:
			d.unknown(p.key, kind, fields)
		case given[f.names[0]] != nil:
			d.add(p.key, "keep one of them", "%s: is given as %s already (line %d)", p.key.text, given[f.names[0]].text, given[f.names[0]].pos.Line)
		default:
			given[f.names[0]] = p.key
			d.field(p.value, into.FieldByIndex(f.index), f, p.key.text)
		}
	}
}

func orFile(kind string) string {
	if kind == "" {
		return "a topology"
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
	for _, f := range fields {
		if !f.isOption {
			return true
		}
	}
	return false
}

func (d *decoder) foreign(p pair, into reflect.Value) {
	f := into.FieldByName("Foreign")
	clone := maps.Clone(f.Interface().(foreign)) // it may be that of the defaults
	if clone == nil {
		clone = foreign{}
	}
	clone[strings.TrimPrefix(p.key.text, "x-")] = p.value.json(d, 0)
	f.Set(reflect.ValueOf(clone))
}

func (d *decoder) unknown(key *value, kind string, fields []field) {
	var names []string
	for _, f := range fields {
		if f.isOption {
			names = append(names, f.names[0])
		}
	}
	hint := topology.DidYouMean(key.text, names)
	if hint == "" {
		hint = "there are " + strings.Join(names, ", ")
	}
	d.add(key, hint, "%s: no such %s", clip(key.text), strings.TrimSpace(kind+" option"))
}

// clip keeps messages short where the file is not.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

// shown is what a message calls a value that has the wrong shape.
func shown(v *value) string {
	if v.shape == scalar {
		return strconv.Quote(clip(v.text))
	}
	return v.shape.String()
}

func (d *decoder) field(v *value, into reflect.Value, f field, label string) {
	switch {
	case into.Type() == reflect.TypeFor[deferred]():
		into.Set(reflect.ValueOf(deferred{v}))
	case into.Type() == reflect.TypeFor[*topology.Point]():
		if p := d.point(v, label); p != nil {
			into.Set(reflect.ValueOf(p))
		}
	case into.Kind() == reflect.Slice:
		d.list(v, into, f, label)
	default:
		d.single(v, into, f, label)
	}
}

func (d *decoder) list(v *value, into reflect.Value, f field, label string) {
	items := []*value{v}
	if v.shape == list {
		items = v.items
	}
	if v.shape == nothing {
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
func (d *decoder) single(v *value, into reflect.Value, f field, label string) bool {
	d.spend(v, 1)
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	if into.Type() == reflect.TypeFor[topology.PrivateDir]() {
		return d.privateDir(v, into.Addr().Interface().(*topology.PrivateDir), label)
	}
	leaf, ok := leafOf(into.Type(), f.as)
	if !ok {
		kind := f.as
		if kind == "" {
			kind = label
		}
		d.structure(v, into, kind)
		return true
	}
	if v.shape != scalar {
		d.add(v, "write "+label+": VALUE", "%s: needs a value, not %s", label, v.shape)
		return false
	}
	parsed, err := leaf.parse(d, v.text)
	if err != nil {
		d.wrong(v, label, err)
		return false
	}
	into.Set(reflect.ValueOf(parsed))
	return true
}

// privateDir reads /var/run, or /etc/x: ./conf.
func (d *decoder) privateDir(v *value, into *topology.PrivateDir, label string) bool {
	switch {
	case v.shape == scalar:
		into.Path = v.text
	case v.shape == mapping && len(v.pairs) == 1 && v.pairs[0].value.shape == scalar:
		into.Path, into.Source = v.pairs[0].key.text, v.pairs[0].value.text
	default:
		d.add(v, "write [/var/run, /etc/x: ./conf]", "%s: needs directories, not %s", label, v.shape)
		return false
	}
	return true
}

func (d *decoder) point(v *value, label string) *topology.Point {
	var xy [2]float64
	if v.shape == list && len(v.items) == 2 {
		for i, item := range v.items {
			n, ok := item.plain.(float64)
			if !ok {
				d.add(item, "write place: [100, 50]", "%s: needs two numbers, not %s", label, shown(item))
				return nil
			}
			xy[i] = n
		}
		return &topology.Point{X: xy[0], Y: xy[1]}
	}
	d.add(v, "write place: [100, 50]", "%s: needs two numbers, not %s", label, shown(v))
	return nil
}
