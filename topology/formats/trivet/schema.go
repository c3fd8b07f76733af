package trivet

import (
	"encoding/json"
	"reflect"
	"regexp"

	"trivet.dev/trivet/topology"
)

// object is a JSON Schema, or a part of one.
type object = map[string]any

// Schema returns the JSON Schema (draft 2020-12) of Trivet's topology files, which editors use for
// help and completion. It is derived from the structs that the reader fills; what it cannot
// express, such as ranges of different lengths, the reader checks.
func Schema() []byte {
	s := structSchema(reflect.TypeFor[document](), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"] = "https://trivet.dev/schema/topology.json"
	s["title"] = "Trivet topology"
	s["description"] = "A network: nodes, links and what happens to them."
	s["required"] = []string{"nodes"}
	defs := object{
		"link":   structSchema(reflect.TypeFor[linkOptions](), "link"),
		"end":    structSchema(reflect.TypeFor[endOptions](), "link end"),
		"model":  modelSchema(),
		"ends":   object{"type": "string", "pattern": `^\S.*\s--\s.*\S$`},
		"action": object{"type": "string", "pattern": `^(\S+\s+--\s+\S+\s+.+|link\s+.+|\S+\s+run\s+.+)$`},
	}
	for _, kind := range kinds {
		defs[kind] = structSchema(reflect.TypeFor[nodeOptions](), kind)
	}
	s["$defs"] = defs
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // impossible: made of strings and maps only
	}
	return append(out, '\n')
}

func ref(name string) object { return object{"$ref": "#/$defs/" + name} }

// orNothing also allows an empty value, as in "host:" with nothing after it.
func orNothing(s object) object { return anyOf(s, object{"type": "null"}) }

func anyOf(alternatives ...object) object { return object{"anyOf": alternatives} }

func listOf(item object) object { return object{"type": "array", "items": item} }

func structSchema(t reflect.Type, kind string) object {
	properties := object{}
	s := object{"type": "object", "additionalProperties": false, "properties": properties}
	for _, f := range fieldsOf(t, kind) {
		if !f.isOption {
			s["patternProperties"] = object{"^x-": true}
			continue
		}
		for _, name := range f.names {
			property := fieldSchema(f)
			property["description"] = f.doc
			properties[name] = property
		}
	}
	return s
}

func fieldSchema(f field) object {
	if as, ok := forms[f.typ]; ok {
		return as.schema(f)
	}
	switch {
	case f.typ == reflect.TypeFor[deferred]():
		return deferredSchemas[f.as]()
	case f.typ == reflect.TypeFor[*topology.Point]():
		return object{"type": "array", "items": object{"type": "number"}, "minItems": 2, "maxItems": 2}
	case f.typ == reflect.TypeFor[*topology.Cluster]():
		return clusterSchema()
	case f.typ == reflect.TypeFor[[]topology.Model]():
		return orNothing(object{"type": "object", "additionalProperties": ref("model")})
	case f.typ == reflect.TypeFor[*topology.Model]():
		return anyOf(object{"type": []string{"string", "number", "boolean"}}, ref("model"))
	case f.typ == reflect.TypeFor[[]topology.ConfigFile]():
		kinds := object{}
		for _, k := range topology.ConfigKinds() {
			kinds[k.Name] = object{"type": "string", "minLength": 1, "description": k.Help}
		}
		return orNothing(object{"type": "object", "additionalProperties": false, "properties": kinds})
	case f.typ == reflect.TypeFor[[]topology.NodeFile]():
		return orNothing(object{"type": "object", "propertyNames": object{"pattern": "^/."},
			"additionalProperties": object{"type": "string", "minLength": 1}})
	case f.typ == reflect.TypeFor[topology.Words]():
		word := object{"type": []string{"string", "number", "boolean"}}
		return orNothing(anyOf(word, listOf(word)))
	case f.typ == reflect.TypeFor[[]topology.Assignment]():
		value := object{"type": []string{"string", "number", "boolean", "null"}}
		return orNothing(anyOf(object{"type": "object", "additionalProperties": value},
			listOf(object{"type": "string", "pattern": "^[^=]+="})))
	case f.typ == reflect.TypeFor[[]topology.Interface]():
		return orNothing(object{"type": "object", "additionalProperties": structSchema(f.typ.Elem(), f.as)})
	case f.typ == reflect.TypeFor[topology.VLANs]():
		item := valueSchema(f.typ, f.as)
		return anyOf(item, object{"type": "array", "items": item, "minItems": 1})
	case f.typ.Kind() == reflect.Slice:
		item := valueSchema(f.typ.Elem(), f.as)
		if f.as == interfaceAddresses {
			return orNothing(anyOf(item, listOf(item), object{"const": topology.NoAddress}))
		}
		return orNothing(anyOf(item, listOf(item)))
	}
	return valueSchema(f.typ, f.as)
}

func valueSchema(t reflect.Type, as string) object {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[topology.PrivateDir]() {
		return anyOf(object{"type": "string"},
			object{"type": "object", "additionalProperties": object{"type": "string"}, "minProperties": 1,
				"maxProperties": 1})
	}
	leaf, ok := leafOf(t, as)
	switch {
	case t == reflect.TypeFor[topology.Queue]():
		return queueSchema(object{"type": []string{"string", "number"}, "pattern": leaf.pattern})
	case !ok:
		return orNothing(structOrShort(t, as))
	case t.Kind() == reflect.Bool:
		return anyOf(object{"type": "boolean"}, object{"enum": leaf.words})
	case t == reflect.TypeFor[topology.Management]():
		return anyOf(object{"type": "boolean"}, object{"type": "string", "pattern": leaf.pattern})
	case leaf.words != nil:
		return object{"enum": leaf.words}
	case leaf.pattern != "":
		if !regexp.MustCompile(leaf.pattern).MatchString("7") && as != "version" {
			return object{"type": "string", "pattern": leaf.pattern}
		}
		return object{"type": []string{"string", "number"}, "pattern": leaf.pattern}
	}
	return object{"type": []string{"string", "number", "boolean"}}
}

// deferredSchemas describe the parts with a grammar of their own, by their "as" tag.
var deferredSchemas = map[string]func() object{
	"nodes": func() object {
		options := object{}
		for _, kind := range kinds {
			options[kind] = orNothing(ref(kind))
		}
		return object{"type": "object", "minProperties": 1, "additionalProperties": anyOf(
			object{"enum": kinds},
			object{"type": "object", "additionalProperties": false, "properties": options, "minProperties": 1,
				"maxProperties": 1})}
	},
	"links": func() object {
		long := object{"allOf": []object{ref("link"), {"required": []string{"from", "to"}}}}
		short := object{"type": "object", "minProperties": 1, "additionalProperties": orNothing(ref("link")),
			"propertyNames": ref("ends")}
		item := anyOf(ref("ends"), long, short)
		return orNothing(listOf(anyOf(item, listOf(item))))
	},
	"end": func() object { return anyOf(object{"type": []string{"string", "number"}}, ref("end")) },
	"schedule": func() object {
		at := object{"type": "object", "minProperties": 1, "propertyNames": object{"pattern": `^at\s+\S+$`},
			"additionalProperties": anyOf(ref("action"), listOf(ref("action")))}
		item := anyOf(object{"type": "string", "pattern": `^at\s+\S+\s*:\s*.+$`}, at)
		return orNothing(anyOf(item, listOf(item)))
	},
}
