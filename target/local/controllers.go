package local

import (
	"context"
	"net"
	"slices"
	"strings"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// Control connects switches to the lab's own controller: it listens on a Unix socket, and connects
// the embedded switches of this process within it (see datapath.Site).
func (l *Lab) Control(socket string, meet func(name string, join func(datapath.Peer) datapath.Session) error) {
	l.controller.socket, l.controller.meet = socket, meet
}

// Controllers returns the addresses of a switch's controllers, in the form that the switch is
// configured with.
func (s site) Controllers(n *topology.Node) []string {
	if slices.Contains(n.Controllers, topology.ControllerTrivet) {
		return s.members()
	}
	var out []string
	for _, c := range topology.ForeignControllers(s.Topology(), n) {
		if at, ok := s.listening.Load(c); ok {
			out = append(out, at.(string))
		} else if !s.Topology().IsControllerProgram(c) {
			out = append(out, c)
		}
	}
	return out
}

// members returns the addresses of Trivet's own controller: one, or those of its cluster.
func (s site) members() (out []string) {
	c := s.Topology().Cluster
	if c == nil {
		return []string{"unix:" + s.controller.socket}
	}
	for _, m := range c.Members {
		if at, ok := s.listening.Load(lab.MemberProgram(m.Name)); ok {
			out = append(out, at.(string))
		}
	}
	return out
}

func (s site) Programs() (out []string) {
	s.listening.Range(func(_, at any) bool {
		out = append(out, at.(string))
		return true
	})
	return out
}

// DialController connects to a controller as a switch here does; name is as in ForeignControllers.
func (l *Lab) DialController(ctx context.Context, name string) (conn net.Conn, err error) {
	if at, ok := l.listening.Load(name); ok {
		err = inside.File(l.fabric, func() (err error) {
			conn, err = dial(ctx, at.(string))
			return err
		})
		return conn, err
	}
	return dial(ctx, name)
}

func dial(ctx context.Context, controller string) (net.Conn, error) {
	network, address, _ := strings.Cut(controller, ":")
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

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
	for name, at := range l.listening.Range {
		for i := range out {
			for k := range out[i].Controllers {
				if c := &out[i].Controllers[k]; c.Address == at && strings.HasPrefix(c.Address, "unix:") {
					c.Address = name.(string) // rather than the socket that leads to it
				}
			}
		}
	}
	return out, err
}

// WaitControllers waits until every switch with a controller is connected to one.
// The error, once ctx ends or a controller refuses, names those that are not and why.
func (l *Lab) WaitControllers(ctx context.Context) error {
	return each(l, func(c datapath.Controlled) error { return c.Wait(ctx) })
}

// Settle waits until packets are forwarded by the current flow entries, and by no earlier ones.
func (l *Lab) Settle(ctx context.Context) error {
	return each(l, func(c datapath.Controlled) error { return c.Settle(ctx) })
}
