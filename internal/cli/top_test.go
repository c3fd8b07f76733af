package cli

import (
	"fmt"
	"strings"
	"testing"

	"trivet.dev/trivet/lab"
)

// TestModelLines proves that of many modelled nodes top shows as many as have room, and says how
// many more there are.
func TestModelLines(t *testing.T) {
	nodes := make([]lab.ModelledNode, 7)
	for i := range nodes {
		nodes[i].Node = fmt.Sprint("s", i)
	}
	for most, want := range map[int]string{3: "… and 4 more", 7: "s6"} {
		lines := modelLines(nodes, most)
		if len(lines) > most+3 || !strings.HasPrefix(lines[len(lines)-1], want) {
			t.Errorf("at most %d: %q", most, lines)
		}
	}
	if lines := modelLines(nil, 3); len(lines) != 0 {
		t.Errorf("of none: %q", lines)
	}
}
