package trivet

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"trivet.dev/trivet/topology/formats/yamlfile"
	"trivet.dev/trivet/topology/formats/yamlfile/yamltest"
)

func instance(t interface{ Fatal(...any) }, data []byte) any {
	return yamltest.Instance(t, yamlfile.Dialect{Ranges: true}, data, atMost.work)
}

// TestSchemaAccepts proves that the examples, and whatever Write produces, are valid by the schema.
func TestSchemaAccepts(t *testing.T) {
	schema := yamltest.Compile(t, Schema())
	for name, data := range examples(t) {
		if err := schema.Validate(instance(t, data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		data, _, err := Write(topologies.Draw(t, "topology"))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(instance(t, data)); err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
	})
}

// TestSchemaRefuses proves that the schema also refuses keys and values that the reader refuses.
func TestSchemaRefuses(t *testing.T) {
	schema := yamltest.Compile(t, Schema())
	for _, text := range []string{
		"name: x", "nodes: {}", "nodes: {h1: hots}", "nodes: {h1: {host: {}, switch: {}}}", "nodes: {h1: {host: {adress: 10.0.0.1}}}",
		"nodes: {s1: {switch: {address: 10.0.0.1}}}", "nodes: {h1: {host: {mac: 02:00}}}", "nodes: {s1: {switch: {stp: maybe}}}",
		"nodes: {h1: host}\nextra: 1", "nodes: {h1: host}\nipv6: maybe", "nodes: {h1: host}\nlinks: [s1]", "nodes: {h1: host}\nlinks: [{from: s1}]",
		"nodes: {h1: host}\nlinks: [{a -- b: {dealy: 1ms}}]", "nodes: {h1: host}\nlinks: [{a -- b: {delay: 1}}]",
		"nodes: {h1: host}\nlinks: [{a -- b: {from: {delay: fast}}}]", "nodes: {h1: host}\nlinks: [{a -- b: {bandwidth: 1gbti}}]",
		"nodes: {h1: host}\nschedule: [soon]", "nodes: {h1: host}\nschedule: [{at 5s: [sometime]}]", "nodes: {h1: {host: {place: [1]}}}",
		"nodes: {r1: {router: {ospf: aera 1}}}", "nodes: {r1: {router: {ospf: {areas: {x: stub}}}}}", "nodes: {h1: {host: {ospf: area 0}}}",
		"nodes: {r1: router}\nlinks: [{a -- b: {ospf: {network: nbma}}}]",
		"nodes: {h1: {host: {address: [none, 10.0.0.1]}}}", "nodes: {h1: {host: {gateway: none}}}",
		"nodes: {h1: {host: {vm: []}}}", "nodes: {h1: {host: {vm: {dhcp: maybe}}}}", "nodes: {h1: {host: {vm: {nic: ne2k}}}}", "nodes: {h1: {host: {vm: {boot: disk}}}}",
		"nodes: {s1: {switch: {vm: x.qcow2}}}", "nodes: {n1: {nat: {vm: x.qcow2}}}", "nodes: {h1: {host: {vm: {imgae: x}}}}", "nodes: {h1: {host: {vm: {processors: two}}}}",
		"defaults: {link: {from: a}}\nnodes: {h1: host}", "[]",
	} {
		if schema.Validate(instance(t, []byte(text))) == nil {
			t.Errorf("the schema accepts %s", text)
		}
		if _, problems := Read("t.yaml", []byte(text)); problems.Err() == nil {
			t.Errorf("the reader accepts %s", text)
		}
	}
}

// TestSchemaDescribes proves that every key has a description in the schema.
func TestSchemaDescribes(t *testing.T) {
	var schema any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	keys := 0
	var walk func(path string, v any)
	walk = func(path string, v any) {
		m, _ := v.(map[string]any)
		properties, _ := m["properties"].(map[string]any)
		for key, p := range properties {
			keys++
			if description, _ := p.(map[string]any)["description"].(string); description == "" && filepath.Base(path) != "additionalProperties" {
				t.Errorf("%s/%s has no description", path, key)
			}
		}
		for key, inner := range m {
			if key != "properties" {
				walk(path+"/"+key, inner)
			} else {
				for name, p := range properties {
					walk(path+"/"+name, p)
				}
			}
		}
	}
	walk("", schema)
	if keys < 60 {
		t.Errorf("found %d keys only", keys)
	}
}
