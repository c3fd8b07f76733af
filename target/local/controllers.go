package local

import (
	"context"
	"maps"
	"slices"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// Control connects switches to the lab's own controller: it listens on a Unix socket, and meets the
// switches of this process in memory (see datapath.Site).
func (l *Lab) Control(socket string, meet func(name string, join func(datapath.Peer) datapath.Session) error) {
	l.controller.socket, l.controller.meet = socket, meet
}

// Controllers returns the addresses of a switch's controllers, as the switch is given them.
func (s site) Controllers(n *topology.Node) []string {
	if slices.Contains(n.Controllers, topology.ControllerTrivet) {
		return []string{"unix:" + s.controller.socket}
	}
	out := topology.ControllersOf(s.Topology(), n)
	for _, c := range n.Controllers {
		if address := s.listening[c]; address != "" && s.Topology().IsControllerProgram(c) {
			out = append(out, address)
		}
	}
	return out
}

func (s site) Programs() []string { return slices.Collect(maps.Values(s.listening)) }

func (s site) HasController() bool { return s.controller.meet != nil }

func (s site) Meet(name string, join func(datapath.Peer) datapath.Session) error {
	return s.controller.meet(name, join)
}

// Controllers says, for each switch that has one, whether it is connected. It may be called at any
// time.
func (l *Lab) Controllers(ctx context.Context) (out []datapath.SwitchStatus, err error) {
	err = each(l, func(c datapath.Controlled) error {
		list, err := c.Status(ctx)
		out = append(out, list...)
		return err
	})
	return out, err
}

// WaitControllers waits until every switch with a controller is connected to one.
// The error, once ctx ends or a controller refuses, names those that are not and why.
func (l *Lab) WaitControllers(ctx context.Context) error {
	return each(l, func(c datapath.Controlled) error { return c.Wait(ctx) })
}

// Settle waits until packets are handled by the present flow entries, and by no others.
func (l *Lab) Settle(ctx context.Context) error {
	return each(l, func(c datapath.Controlled) error { return c.Settle(ctx) })
}
