package drive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trivet.dev/trivet/bench/environment"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/topology"
)

// instance is a lab that is up.
type instance struct {
	driver   *Driver
	cell     *experiment.Cell
	topology *topology.Topology
	name     string
	place    placeOf
	restore  func() error // undoes what was tuned; may be nil
}

// placeOf is a place with a life.
type placeOf interface {
	place
	watch() environment.WatchOptions
	do(ctx context.Context, e experiment.Event) error
	down(ctx context.Context) error
}

// Run runs a probe, and looks for packets that were dropped meanwhile where none should be.
func (i *instance) Run(ctx context.Context, p experiment.Probe) (experiment.Outcome, error) {
	k := kinds[p.Kind]
	if k == nil {
		return experiment.Outcome{}, fmt.Errorf("this build does not have the probe %s", p.Kind)
	}
	b := &bed{topology: i.topology, cell: i.cell, options: p.Options, name: i.name, place: i.place, alone: i.alone(p), fresh: i.fresh}
	if own, ok := i.place.(*ownLab); ok {
		b.lab = own.client
	} else if !everywhere[p.Kind] {
		return experiment.Outcome{}, fmt.Errorf("%s needs a lab of Trivet's", p.Kind)
	}
	before := i.place.ports()
	o, err := k(ctx, b)
	if len(i.cell.Schedule) == 0 { // else something may have been taken down
		o.Drops = append(o.Drops, dropsBetween(i.topology, before, i.place.ports())...)
	}
	return o, err
}

// alone says whether a probe has the lab for itself.
func (i *instance) alone(p experiment.Probe) bool {
	for _, group := range i.cell.Groups {
		for _, other := range group {
			if other.Name == p.Name {
				return len(group) == 1 && len(i.cell.Schedule) == 0
			}
		}
	}
	return false
}

// fresh brings up another lab of the same cell, and down again. Mininet is timed by its own clock: without the start of Python,
// nor of the Open vSwitch that its users have running.
func (i *instance) fresh(ctx context.Context) (up, down time.Duration, err error) {
	began := time.Now()
	other, err := i.driver.up(ctx, i.cell)
	if err != nil {
		return 0, 0, err
	}
	up, began = time.Since(began), time.Now()
	err = other.Down(context.WithoutCancel(ctx))
	if m, ok := other.place.(*mininetLab); ok {
		return m.up, m.took, err
	}
	return up, time.Since(began), err
}

// Do makes an event happen.
func (i *instance) Do(ctx context.Context, e experiment.Event) error { return i.place.do(ctx, e) }

// Watch names the processes and cgroups of the lab.
func (i *instance) Watch() environment.WatchOptions { return i.place.watch() }

// Down takes the lab down.
func (i *instance) Down(ctx context.Context) error {
	var err error
	if i.restore != nil {
		err = i.restore()
	}
	return errors.Join(err, i.place.down(ctx))
}

// exitError says that a program has ended with another code than 0.
type exitError int

func (e *exitError) Error() string { return fmt.Sprintf("exit %d", int(*e)) }

func exit(code int) error {
	if code == 0 {
		return nil
	}
	e := exitError(code)
	return &e
}

// notInstalled is the exit code of a shell for a program that is not there (POSIX, section 2.8.2).
func notInstalled(err error) bool {
	var e *exitError
	return errors.As(err, &e) && *e == 127
}

// addressOf returns the first IPv4 address of a node, as text.
func (b *bed) addressOf(node string) (string, error) {
	for _, l := range b.topology.Links {
		for _, e := range l.Ends {
			if e.Node != node {
				continue
			}
			for _, a := range e.Addresses {
				if a.Addr().Is4() {
					return a.Addr().String(), nil
				}
			}
		}
	}
	if n := b.topology.Node(node); n != nil {
		for _, a := range n.Loopback {
			if a.Addr().Is4() {
				return a.Addr().String(), nil
			}
		}
	}
	return "", fmt.Errorf("%s has no IPv4 address", node)
}
