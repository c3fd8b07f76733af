package fabric

import (
	"context"
	"errors"
	"fmt"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// FlowEntries returns the entries of a switch.
func (f *fabric) FlowEntries(_ context.Context, n *topology.Node) (out []string, err error) {
	s := f.now.Load()
	a := s.agent(n.Name)
	if a == nil {
		return nil, fmt.Errorf("there is no switch %s", n.Name)
	}
	all, err := a.Switch().Multipart(openflow.AllFlows(), s.Now())
	if err != nil {
		return nil, err
	}
	list, _ := all.(openflow.FlowStatsList)
	for i := range list {
		e := &list[i]
		m := openflow.NewFlowMod(openflow.FlowAdd, e.Priority, e.Match, e.Instructions...)
		m.Table, m.Cookie, m.Flags, m.IdleTimeout, m.HardTimeout = e.Table, e.Cookie, e.Flags, e.IdleTimeout,
			e.HardTimeout
		out = append(out, openflow.FormatFlow(m))
	}
	return out, nil
}

// ChangeFlows removes entries, and then adds others.
func (f *fabric) ChangeFlows(_ context.Context, n *topology.Node, remove, add []string) error {
	s := f.now.Load()
	a := s.agent(n.Name)
	if a == nil {
		return fmt.Errorf("there is no switch %s", n.Name)
	}
	var errs []error
	change := func(line string, command openflow.FlowModCommand) {
		m, err := openflow.ParseFlow(line)
		if err == nil {
			m.Command = command
			err = a.Switch().FlowMod(m, s.Now())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", line, err))
		}
	}
	for _, line := range remove {
		change(line, openflow.FlowDeleteStrict)
	}
	for _, line := range add {
		change(line, openflow.FlowAdd)
	}
	s.fast.Barrier(a.Switch())
	return errors.Join(errs...)
}
