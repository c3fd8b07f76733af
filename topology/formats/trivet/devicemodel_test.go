package trivet

import (
	"fmt"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestNoModel proves that model: none keeps a node out of the model that the defaults have, also in
// a file that is written and read again.
func TestNoModel(t *testing.T) {
	text := `models: {slow: {per_packet: 1ms, source: a test}}
defaults: {switch: {model: slow}}
nodes: {s1: switch, s2: {switch: {model: none}}}
links: [s1 -- s2]
`
	for range 2 {
		top, problems := Read("test.yaml", []byte(text))
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		if m := top.Node("s1").Model; m == nil || m.Name != "slow" || top.Node("s2").Model != nil {
			t.Fatalf("%v, %v:\n%s", m, top.Node("s2").Model, text)
		}
		data, losses, err := Write(top)
		if err != nil || len(losses) > 0 {
			t.Fatal(err, losses)
		}
		text = string(data)
	}
}

// TestModelsAtMost proves that a file has as many models as allowed, and that one more is refused
// where it stands.
func TestModelsAtMost(t *testing.T) {
	for _, more := range []int{0, 1} {
		var b strings.Builder
		b.WriteString("nodes: {s1: {switch: {model: m999}}}\nmodels:\n")
		for i := range topology.MaxModels + more {
			fmt.Fprintf(&b, "  m%d: {per_packet: 1ms, source: a test}\n", i)
		}
		_, problems := Read("test.yaml", []byte(b.String()))
		err := problems.Err()
		if (err != nil) != (more > 0) ||
			err != nil && !strings.Contains(err.Error(), "test.yaml:1003:3  there are 1001 models, and 1000 is the most") {
			t.Errorf("%d models: %v", topology.MaxModels+more, err)
		}
	}
}
