package drive

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
)

// portsOf is what a provider has made for one lab: ports of its nodes and networks that are its
// links. Its machines are the run's, this is the lab's, and goes with it. nil: nothing.
type portsOf struct {
	driver *Driver
	user   *site.User
	held   result.Machines
}

// connect has a provider make the ports that nodes of a lab are to have in its networks. The lab
// must have been spread.
func (d *Driver) connect(ctx context.Context, l *experiment.Lab, state *lab.State) (*portsOf, error) {
	list := state.Sites
	t, problems := l.Read(d.Dir)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	want, err := sites.PortsWanted(list, t, state.Topology)
	if err != nil || len(want) == 0 {
		return nil, err
	}
	u, err := site.UserOf(lab.Owner())
	if err != nil {
		return nil, err
	}
	allocation := site.NewAllocation(u, state.Name)
	held, err := d.hold(list.Provided, filepath.Base(l.Listed(d.Dir)), allocation.Key)
	if err != nil {
		return nil, err
	}
	p := &portsOf{d, u, held}
	complete := func(t *topology.Topology) (*topology.Topology, error) { return completed(l, t) }
	if err := sites.Connect(ctx, u, allocation, state, t, complete, d.steps(p.held.By)); err != nil {
		return p, fmt.Errorf("%s: %w", p.held.By, err)
	}
	return p, nil
}

// await waits until packets pass them in a lab that is up.
func (p *portsOf) await(ctx context.Context, c *lab.Client, s *lab.State) error {
	if p == nil {
		return nil
	}
	return sites.Await(ctx, p.user, c, s, p.driver.steps(p.held.By))
}

// release removes the ports. If it fails, Driver.Release tries again.
func (p *portsOf) release(ctx context.Context) error {
	if p == nil {
		return nil
	}
	if _, err := p.driver.unmake(ctx, p.held); err != nil {
		return err
	}
	if err := p.driver.noteRemoved(p.held); err != nil {
		return err
	}
	p.driver.machines.held = slices.DeleteFunc(p.driver.machines.held,
		func(m result.Machines) bool { return m.Key == p.held.Key })
	return nil
}
