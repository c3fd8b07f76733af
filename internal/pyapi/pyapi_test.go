package pyapi_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/pyapi"
	"trivet.dev/trivet/lab"
)

const made = "../../python/trivet/api.py"

// TestUpToDate proves that the Python client is that of the API as it is, and that Python reads it.
func TestUpToDate(t *testing.T) {
	document, err := lab.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	want, err := pyapi.Source(document)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(made)
	if err != nil || !bytes.Equal(have, want) {
		t.Errorf("python/trivet/api.py is not what the API is now: make generate (%v)", err)
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	load := exec.Command("python3", "-c", "import trivet.api")
	load.Env = append(os.Environ(), "PYTHONPATH=../../python", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := load.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSource proves what becomes of a schema and an operation, and that what has no like in Python
// is an error, not left out.
func TestSource(t *testing.T) {
	const document = `{"paths": {
		"/v1/part/x": {"get": {"operationId": "get-v1-part-x", "responses": {}}},
		"/v1/events": {"get": {"operationId": "events", "responses": {"200": {"content": {"text/event-stream": {}}}}}},
		"/v1/a/{id}": {"post": {"operationId": "post-v1-a-by-id", "summary": "Do it", "parameters": [
				{"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}},
				{"name": "from", "in": "query", "schema": {"type": "string"}},
				{"name": "to", "in": "query", "required": true, "schema": {"type": "string"}}],
			"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pair"}}}},
			"responses": {"200": {"content": {"application/json": {"schema": {"type": ["array", "null"], "items": {"$ref": "#/components/schemas/Tree"}}}}}}}}},
		"components": {"schemas": {
			"Unused": {"type": "object"},
			"Pair": {"type": "object", "required": ["from"], "properties": {"from": {"type": "string", "description": "Who\nsends"}, "n": {"type": "integer"}}},
			"Tree": {"type": "object", "properties": {"below": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Tree"}}}}}}}`
	text, err := pyapi.Source([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Pair = TypedDict(\"Pair\", {\n    \"from\": \"str\",  #: Who sends\n    \"n\": \"NotRequired[int]\",\n})\n",
		"class Tree(TypedDict):\n    below: NotRequired[Dict[str, Tree]]\n",
		"    def post_a_by_id(self, id: int, body: Pair, *, from_: Optional[str] = None, to: str) -> List[Tree]:\n        \"\"\"Do it.\"\"\"\n" +
			`        answer: List[Tree] = self._client.call("POST", "/v1/a/" + quote(str(id), safe=""), body, **{"from": from_, "to": to}) or []` + "\n        return answer\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("there is no\n%s\nin\n%s", want, text)
		}
	}
	for _, no := range []string{"Unused", "part", "events"} {
		if strings.Contains(string(text), no) {
			t.Errorf("%s is in it", no)
		}
	}
	for _, odd := range []string{`{"type": ["string", "integer"]}`, `{"type": "nonesuch"}`, `{"$ref": "#/components/schemas/None"}`} {
		if _, err := pyapi.Source([]byte(strings.Replace(document, `{"type": "integer"}}}`, odd+"}}", 1))); err == nil {
			t.Errorf("%s is taken", odd)
		}
	}
}
