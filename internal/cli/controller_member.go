package cli

import (
	"context"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/controller/builtin"
)

// leaveTime is how long a member that ends waits for others to take its switches over.
const leaveTime = 10 * time.Second

// join makes the controller a member of its cluster. The context ends, too, when it is not any
// more, with the reason as its cause; leave hands its switches over to the others.
func (a *app) join(ctx context.Context, c *builtin.Controller, s serving, r running, o builtin.Options, door *api.Door) (joined context.Context, leave func(), err error) {
	if r.member == "" {
		return ctx, func() {}, nil
	}
	m := cluster.Options{Store: o.Store, Name: r.member, OpenFlow: s.listen}
	if door != nil {
		m.API = door.Address
	}
	if err := c.Join(context.WithoutCancel(ctx), m); err != nil {
		return nil, nil, err
	}
	joined, end := context.WithCancelCause(ctx)
	go func() {
		<-c.Member.Done()
		end(c.Member.Err())
	}()
	return joined, func() {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		if err := c.Member.Leave(ctx); err != nil {
			a.warn("leaving the cluster:", err)
		}
		end(nil)
	}, nil
}
