package trivet

import (
	"cmp"
	"reflect"
	"strings"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// modelOptions describe topology.Model.
type modelOptions struct {
	Clock     topology.Frequency `yaml:"clock" doc:"Clock of the device's processor, for what is in cycles: 580mhz."`
	PerPacket topology.Cost      `yaml:"per_packet" doc:"What each packet takes of the processor, or of a host's adapter: 28us, or 15000 cycles."`
	PerByte   topology.Cost      `yaml:"per_byte" doc:"What each byte takes in addition: 2ns, or 1.5 cycles."`
	Rate      topology.Rate      `yaml:"rate" doc:"In place of per_byte: a packet takes in addition as long as at this rate: 65mbit."`
	Queue     int                `yaml:"queue" as:"count" doc:"Most packets that wait for the processor or adapter, with the one it has; 1000 when missing."`
	Ports     topology.Rate      `yaml:"ports" doc:"Most bandwidth of each link at the node, either way: 100mbit."`
	Source    string             `yaml:"source" doc:"Where the values are from: a data sheet, a measurement. It must be said."`
}

const (
	noModel   = "none" // how a node is written that has no model although the defaults have one
	modelHint = `write {per_packet: 28us, source: "…"}, or the name of one of models`
)

// profiles reads the models of a file, for nodes to name.
func (d *decoder) profiles(v *yamlfile.Value) (out []topology.Model) {
	if v.Shape == yamlfile.Nothing {
		return nil
	}
	if v.Shape != yamlfile.Mapping {
		d.add(v, `write models: {tl-wr841n: {per_packet: 28us, source: "…"}}`,
			"models: needs names and what is slow, not %s", v)
		return nil
	}
	d.modelNamed = make(map[string]int, min(len(v.Pairs), topology.MaxModels))
	for i, p := range v.Pairs {
		if i == topology.MaxModels {
			d.add(p.Key, "leave out those that no node has", "there are %d models, and %d is the most", len(v.Pairs), i)
			break
		}
		d.spend(p.Key, 1)
		if p.Key.Text == noModel || p.Key.Text == "" {
			d.add(p.Key, "choose another", "%q cannot be the name of a model", p.Key.Text)
			continue
		}
		m := d.modelValues(p.Value, "model "+formats.Clip(p.Key.Text))
		m.Name = p.Key.Text
		d.modelNamed[m.Name] = len(out)
		out = append(out, m)
	}
	return out
}

// modelValues reads what a model says, and checks it where it stands.
func (d *decoder) modelValues(v *yamlfile.Value, label string) (m topology.Model) {
	var o modelOptions
	before := len(d.problems)
	d.options(v, &o, "model")
	copyFields(&m, o)
	if len(d.problems) > before {
		return m
	}
	if err := m.Check(); err != nil {
		d.wrong(&yamlfile.Value{Pos: v.Pos}, label, err)
	}
	return m
}

// model reads the name of a profile, what a model says, or none.
func (d *decoder) model(v *yamlfile.Value, label string) *topology.Model {
	d.spend(v, 1)
	switch {
	case v.Shape == yamlfile.Mapping:
		m := d.modelValues(v, label)
		return &m
	case v.Shape != yamlfile.Scalar:
		d.add(v, modelHint, "%s: needs a model, not %s", label, v)
		return nil
	case v.Text == noModel:
		return nil
	}
	if i, ok := d.modelNamed[v.Text]; ok {
		m := d.models[i]
		return &m
	}
	names := make([]string, len(d.models)) // in the file's order
	for i := range d.models {
		names[i] = d.models[i].Name
	}
	hint := cmp.Or(topology.DidYouMean(v.Text, names), words.Choose(names))
	if len(names) == 0 {
		hint = modelHint
	}
	d.add(v, hint, "%s: there is no model %s", label, formats.Clip(v.Text))
	return nil
}

// model is the model of a node as it is to be written: one whose profile the file does not hold is
// the node's alone.
func (w *writer) model(m *topology.Model) *topology.Model {
	if m == nil || m.Name == "" || w.models[m.Name] == *m {
		return m
	}
	own := *m
	own.Name = ""
	return &own
}

// modelText writes what a model says, in one line.
func modelText(m *topology.Model) string {
	var items []string
	v := reflect.ValueOf(*m)
	for _, f := range fieldsOf(reflect.TypeFor[modelOptions](), "model") {
		if value := v.FieldByName(reflect.TypeFor[modelOptions]().FieldByIndex(f.index).Name); !value.IsZero() {
			items = append(items, f.names[0]+": "+flowValue(value, f))
		}
	}
	return "{" + strings.Join(items, ", ") + "}"
}

// profilesText writes the models of a file.
func profilesText(models []topology.Model) string {
	items := make([]string, len(models))
	for i := range models {
		items[i] = yamlfile.FlowKey(models[i].Name) + ": " + modelText(&models[i])
	}
	return "{" + strings.Join(items, ", ") + "}"
}

func modelSchema() object {
	s := structSchema(reflect.TypeFor[modelOptions](), "model")
	s["required"] = []string{"source"}
	return s
}
