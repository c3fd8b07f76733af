package ovs

import (
	"context"
	"fmt"
	"strings"

	"trivet.dev/trivet/topology"
)

// FlowEntries returns the flow entries of a switch.
func (f *fabric) FlowEntries(ctx context.Context, n *topology.Node) (out []string, err error) {
	s := f.switches.Load()
	if s == nil {
		return nil, fmt.Errorf("there is no switch %s", n.Name)
	}
	text, err := s.ofctl(ctx, topology.DeviceName(n.Name), "", "dump-flows", "--no-stats", "--no-names")
	if err != nil {
		return nil, err
	}
	return Entries(text), nil
}

// Entries returns the entries in the output of ovs-ofctl dump-flows, without counters.
func Entries(text string) (out []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "actions=") {
			// Tables of OpenFlow 1.2 and later have this word in each entry.
			out = append(out, strings.TrimPrefix(strings.TrimSpace(line), "reset_counts "))
		}
	}
	return out
}

// Changes returns the input for ovs-ofctl add-flows that removes entries, and then adds others; ""
// for none.
func Changes(remove, add []string) string {
	var lines strings.Builder
	for _, line := range remove {
		lines.WriteString("delete_strict " + line + "\n")
	}
	for _, line := range add {
		lines.WriteString("add " + line + "\n")
	}
	return lines.String()
}

// ChangeFlows removes entries, and then adds others.
func (f *fabric) ChangeFlows(ctx context.Context, n *topology.Node, remove, add []string) error {
	s := f.switches.Load()
	if s == nil {
		return fmt.Errorf("there is no switch %s", n.Name)
	}
	lines := Changes(remove, add)
	if lines == "" {
		return nil
	}
	_, err := s.ofctl(ctx, topology.DeviceName(n.Name), lines, "add-flows", "-")
	return err
}
