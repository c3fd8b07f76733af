package builtin

import (
	"context"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
)

// Join makes a controller with Options.Member join its cluster, whose members decide which of them
// is master of which switch. Call it before a switch connects. When ctx ends, the member stops
// without leaving, as if it had crashed.
func (c *Controller) Join(ctx context.Context, o cluster.Options) error {
	o.Name, o.Store, o.Log = c.facilities.Member, c.facilities.Store, c.log
	o.Become = func(dpid, generation uint64) error {
		if s := c.Seen(dpid); s != nil {
			return s.Become(generation)
		}
		return controller.ErrGone
	}
	o.Cease = func(dpid uint64) {
		if s := c.Seen(dpid); s != nil {
			_ = s.Cease() // an error: its connection has ended, and the apps are told
		}
	}
	o.Ready = func(dpid uint64) bool {
		may := true
		each(c, func(a apps.Careful) { may = may && a.MayRestart(dpid) })
		return may
	}
	o.Changed = func(x cluster.Change) { c.hub.tell(x) }
	m, err := cluster.Join(ctx, o)
	if err != nil {
		return err
	}
	c.Member, c.Controller.Owner = m, owner{m}
	return nil
}

// owner tells a member of the cluster of the switches of this controller.
type owner struct{ m *cluster.Member }

func (o owner) Connected(s *controller.Switch) { o.m.Connected(s.DPID()) }
func (o owner) Lost(s *controller.Switch)      { o.m.Lost(s.DPID()) }
func (o owner) Deposed(s *controller.Switch)   { o.m.Deposed(s.DPID()) }
