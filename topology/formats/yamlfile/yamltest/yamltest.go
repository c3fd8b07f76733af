// Package yamltest looks in tests whether a JSON Schema says of YAML files what their reader says.
package yamltest

import (
	"bytes"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Compile returns a schema that its author has as text.
func Compile(t testing.TB, schema []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// Instance returns what a text says, as a schema validates it; budget is how many values it may
// have.
func Instance(t interface{ Fatal(...any) }, dialect yamlfile.Dialect, text []byte, budget int) any {
	v, problems := dialect.Parse("t.yaml", text)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	instance, err := v.JSON(&budget)
	if err != nil {
		t.Fatal(err)
	}
	return instance
}
