package trivet

import (
	"reflect"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// described maps structs of package topology to the structs that describe them.
var described = map[reflect.Type]reflect.Type{
	reflect.TypeFor[topology.Wifi]():          reflect.TypeFor[wifiOptions](),
	reflect.TypeFor[topology.Interface]():     reflect.TypeFor[interfaceOptions](),
	reflect.TypeFor[topology.Balance]():       reflect.TypeFor[balanceOptions](),
	reflect.TypeFor[topology.Advertisement](): reflect.TypeFor[advertisementOptions](),
	reflect.TypeFor[topology.Guest]():         reflect.TypeFor[guestOptions](),
	reflect.TypeFor[topology.GuestDisk]():     reflect.TypeFor[guestDiskOptions](),
}

// Short is a form of a struct in a word or two.
type Short struct {
	Pattern string
	Parse   func(into any, text string) bool // false: the text is not valid
	Write   func(v any) string               // "": the value has no short form
	Example string
	Truth   bool // true and false are such forms
}

var shorts = map[reflect.Type]Short{
	reflect.TypeFor[topology.Guest]():         guestShort,
	reflect.TypeFor[topology.GuestDisk]():     diskShort,
	reflect.TypeFor[topology.Advertisement](): advertisementShort,
	reflect.TypeFor[topology.Balance](): {Pattern: `^(ecmp|off|load)$`, Example: "ecmp, off, load",
		Parse: func(into any, text string) bool {
			by := topology.BalanceBy(text)
			into.(*topology.Balance).By = by
			return by == topology.BalanceECMP || by == topology.BalanceOff || by == topology.BalanceLoad
		}, Write: func(v any) string {
			b := v.(topology.Balance)
			if b != (topology.Balance{By: b.By}) {
				return ""
			}
			return string(b.By)
		}},
}

// shortForm reads a struct given in its short form; it says whether there is such a form.
func (d *decoder) shortForm(v *yamlfile.Value, into reflect.Value, label string) bool {
	s, ok := shorts[into.Type()]
	if !ok || v.Shape != yamlfile.Scalar {
		return false
	}
	if !s.Parse(into.Addr().Interface(), v.Text) {
		d.add(v, "write "+s.Example+", or {key: value, …}", "%s: %s cannot be read", label,
			strconv.Quote(formats.Clip(v.Text)))
	}
	return true
}

// structText writes a struct of options in one line.
func structText(v reflect.Value) string {
	if s, ok := shorts[v.Type()]; ok {
		if text := s.Write(v.Interface()); text != "" {
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

// structOrShort is the schema of a struct that may have a short form.
func structOrShort(t reflect.Type, kind string) object {
	if s, ok := shorts[t]; ok {
		forms := []object{structSchema(t, kind), {"type": "string", "pattern": s.Pattern}}
		if s.Truth {
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
