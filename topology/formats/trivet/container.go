package trivet

import (
	"slices"
	"strings"

	"github.com/google/shlex"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// words reads [nginx, -g, daemon off;], or the same as a shell has it.
func (d *decoder) words(v *yamlfile.Value, label string) topology.Words {
	switch v.Shape {
	case yamlfile.Nothing:
		return nil
	case yamlfile.Scalar:
		list, err := shlex.Split(v.Text)
		if err != nil {
			d.add(v, "write the words in a list", "%s: %q: %s", label, formats.Clip(v.Text), err)
		}
		return list
	case yamlfile.List:
		var list topology.Words
		for _, item := range v.Items {
			d.spend(item, 1)
			if item.Shape != yamlfile.Scalar {
				d.add(item, "write [nginx, -g, daemon off;]", "%s: needs words, not %s", label, item.Shape)
				continue
			}
			list = append(list, item.Text)
		}
		return list
	}
	d.add(v, "write [nginx, -g, daemon off;]", "%s: needs words, not %s", label, v.Shape)
	return nil
}

// assignments reads {NAME: value}, or a list of NAME=value.
func (d *decoder) assignments(v *yamlfile.Value, label string) (out []topology.Assignment) {
	add := func(at *yamlfile.Value, a topology.Assignment) {
		d.spend(at, 1)
		if slices.ContainsFunc(out, func(other topology.Assignment) bool { return other.Name == a.Name }) {
			d.add(at, "keep one of them", "%s: %s has two values", label, formats.Clip(a.Name))
		}
		out = append(out, a)
	}
	items := []*yamlfile.Value{v}
	switch v.Shape {
	case yamlfile.Nothing:
		return nil
	case yamlfile.Mapping:
		items = nil
		for _, p := range v.Pairs {
			if p.Value.Shape != yamlfile.Scalar && p.Value.Shape != yamlfile.Nothing {
				d.add(p.Value, "write NAME: value", "%s: %s needs a value, not %s", label, formats.Clip(p.Key.Text),
					p.Value.Shape)
				continue
			}
			add(p.Key, topology.Assignment{Name: p.Key.Text, Value: p.Value.Text})
		}
	case yamlfile.List:
		items = v.Items
	}
	for _, item := range items {
		a, err := topology.ParseAssignment(item.Text)
		if item.Shape != yamlfile.Scalar || err != nil {
			d.add(item, "write {NAME: value}", "%s: needs names and values, not %s", label, item)
			continue
		}
		add(item, a)
	}
	return out
}

func assignmentsText(list []topology.Assignment) string {
	items := make([]string, len(list))
	for i, a := range list {
		items[i] = yamlfile.FlowKey(a.Name) + ": " + yamlfile.Quote(a.Value)
	}
	return "{" + strings.Join(items, ", ") + "}"
}
