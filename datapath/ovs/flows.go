package ovs

import (
	"context"
	"fmt"
	"strings"

	"trivet.dev/trivet/topology"
)

// FlowEntries are those of a switch.
func (f *fabric) FlowEntries(ctx context.Context, n *topology.Node) (out []string, err error) {
	s := f.switches.Load()
	if s == nil {
		return nil, fmt.Errorf("there is no switch %s", n.Name)
	}
	text, err := s.ofctl(ctx, topology.DeviceName(n.Name), "", "dump-flows", "--no-stats", "--no-names")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "actions=") {
			out = append(out, strings.TrimPrefix(strings.TrimSpace(line), "reset_counts ")) // versions from 1.2 on say so of each
		}
	}
	return out, nil
}

// ChangeFlows removes entries, and then adds others.
func (f *fabric) ChangeFlows(ctx context.Context, n *topology.Node, remove, add []string) error {
	s := f.switches.Load()
	if s == nil {
		return fmt.Errorf("there is no switch %s", n.Name)
	}
	var lines strings.Builder
	for _, line := range remove {
		lines.WriteString("delete_strict " + line + "\n")
	}
	for _, line := range add {
		lines.WriteString("add " + line + "\n")
	}
	if lines.Len() == 0 {
		return nil
	}
	_, err := s.ofctl(ctx, topology.DeviceName(n.Name), lines.String(), "add-flows", "-")
	return err
}
