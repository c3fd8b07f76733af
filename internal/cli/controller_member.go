package cli

import (
	"context"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/cluster/centre"
	"trivet.dev/trivet/cluster/report"
	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/controller/builtin"
)

// leaveTime is how long a member that ends waits for others to take its switches over.
const leaveTime = 10 * time.Second

// join makes the controller a member of its cluster. The context also ends when the membership
// does, with the reason as its cause; leave hands the member's switches over to the others.
func (a *app) join(ctx context.Context, c *builtin.Controller, s serving, name string, o builtin.Options,
	broker report.Broker,
	queries *api.Listener) (
	joined context.Context, role *centre.Centre, leave func(), err error) {
	if name == "" {
		return ctx, nil, func() {}, nil
	}
	role, err = centre.New(centre.Options{Store: o.Store, Member: name, Broker: broker, Load: c.Load, Log: o.Log,
		Live: func() []string { return c.Member.Alive() }})
	if err != nil {
		return nil, nil, nil, err
	}
	m := cluster.Options{OpenFlow: s.listen}
	if queries != nil {
		m.API = queries.Address
	}
	if err := c.Join(context.WithoutCancel(ctx), m); err != nil {
		return nil, nil, nil, err
	}
	joined, end := context.WithCancelCause(ctx)
	go func() {
		<-c.Member.Done()
		end(c.Member.Err())
	}()
	go role.Run(joined)
	return joined, role, func() {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		if err := c.Member.Leave(ctx); err != nil {
			a.warn("leaving the cluster:", err)
		}
		end(nil)
	}, nil
}
