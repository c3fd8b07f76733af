package topology

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/words"
)

// ParseLinkChange reads the words of a change: "up", "down", "delay=10ms", "loss=1%", "delay=none".
func ParseLinkChange(words []string) (LinkChange, error) {
	var c LinkChange
	if len(words) == 0 {
		return c, Mistaken("write up, down or settings like delay=10ms loss=1%", "nothing to change")
	}
	for _, w := range words {
		if w == "up" || w == "down" {
			up := w == "up"
			c.Up = &up
			continue
		}
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return c, Mistaken("write up, down or settings like delay=10ms loss=1%", "%q is not a change to a link", w)
		}
		if err := c.set(key, value); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *LinkChange) set(key, value string) error {
	k := slices.IndexFunc(LinkOptions, func(o LinkOption) bool { return o.Name == key })
	if k < 0 {
		names := LinkOptionNames()
		return Mistaken(cmp.Or(DidYouMean(key, names), words.Choose(names)), "%s: no such link option", key)
	}
	v, err := LinkOptions[k].Parse(value)
	if err == nil {
		LinkOptions[k].note(c, reflect.ValueOf(v))
	}
	return err
}

// note sets the option in a change.
func (o *LinkOption) note(c *LinkChange, v reflect.Value) {
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	o.in(c).Set(p)
}

// Apply changes the link, in both directions.
func (c LinkChange) Apply(l *Link) {
	if c.Up != nil {
		l.Down = !*c.Up
	}
	for _, i := range []*Impairment{&l.Impairment, l.Ends[0].Egress, l.Ends[1].Egress} {
		if i == nil {
			continue
		}
		for _, o := range LinkOptions {
			if v := o.in(&c); !v.IsNil() {
				o.in(i).Set(v.Elem())
			}
		}
	}
}

// Between returns the change that sets those options of a link that differ, in any direction, from
// another's to what the other's first end has; false if that does not yield the other link, as its
// directions differ.
func Between(from, to *Link) (c LinkChange, ok bool) {
	if from.Down != to.Down {
		up := !to.Down
		c.Up = &up
	}
	for _, o := range LinkOptions {
		for end := range 2 {
			was, is, first := from.Egress(end), to.Egress(end), to.Egress(0)
			if !o.in(&was).Equal(o.in(&is)) {
				o.note(&c, o.in(&first))
			}
		}
	}
	after := from.Clone()
	c.Apply(after)
	return c, after.Egress(0) == to.Egress(0) && after.Egress(1) == to.Egress(1)
}

func (c LinkChange) String() string {
	var words []string
	for _, o := range LinkOptions {
		if v := o.in(&c); !v.IsNil() {
			words = append(words, o.Name+"="+TextOrNone(v.Elem().Interface()))
		}
	}
	if c.Up != nil {
		words = append(words, map[bool]string{true: "up", false: "down"}[*c.Up])
	}
	return strings.Join(words, " ")
}
