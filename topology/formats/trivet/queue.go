package trivet

import (
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// queue reads {codel: {target: 2ms, ecn: true}}.
func (d *decoder) queue(v *yamlfile.Value, label string) (q topology.Queue, ok bool) {
	if len(v.Pairs) != 1 || v.Pairs[0].Value.Shape != yamlfile.Mapping && v.Pairs[0].Value.Shape != yamlfile.Nothing {
		d.add(v, "write {codel: {target: 2ms}}, fq_codel, or a number of packets",
			"%s: needs a discipline with its parameters", label)
		return q, false
	}
	name := v.Pairs[0].Key.Text
	var given []topology.QueueSetting
	for _, p := range v.Pairs[0].Value.Pairs {
		d.spend(p.Key, 1)
		if p.Value.Shape != yamlfile.Scalar {
			d.add(p.Value, "write "+p.Key.Text+": VALUE", "%s: needs a value, not %s", p.Key.Text, p.Value.Shape)
			return q, false
		}
		one := topology.QueueSetting{Name: p.Key.Text, Value: p.Value.Text}
		if err := topology.CheckQueueSetting(name, one); err != nil {
			d.wrong(p.Value, label, err)
			return q, false
		}
		given = append(given, one)
	}
	q, err := topology.MakeQueue(name, given)
	if err != nil {
		d.wrong(v.Pairs[0].Key, label, err)
		return q, false
	}
	return q, true
}

// queueText writes a queue in one line.
func queueText(q topology.Queue) string {
	settings := q.Settings()
	if len(settings) == 0 {
		return string(q.Discipline)
	}
	items := lists.Map(settings, func(s topology.QueueSetting) string { return s.Name + ": " + s.Value })
	return "{" + string(q.Discipline) + ": {" + strings.Join(items, ", ") + "}}"
}

func queuePattern() string {
	return `^(none|[0-9]+|(` + strings.Join(topology.Disciplines(), "|") + `)(,[a-z]+(=[^,]+)?)*)$`
}

// queueSchema is the schema of a queue: a number, a discipline, or one with parameters.
func queueSchema(text object) object {
	properties := object{}
	for _, d := range topology.Disciplines() {
		parameters := object{}
		for _, p := range topology.QueueParameters(topology.Discipline(d)) {
			parameters[p.Name] = object{"type": []string{"string", "number", "boolean"}, "description": p.Meaning}
		}
		properties[d] = orNothing(object{"type": "object", "additionalProperties": false, "properties": parameters})
	}
	return anyOf(text,
		object{"type": "object", "additionalProperties": false, "properties": properties, "minProperties": 1,
			"maxProperties": 1})
}
