package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// Running is how many containers a topology has.
func (k *containers) Running(t *topology.Topology) (count int) {
	for _, n := range t.Nodes {
		if n.Contained() {
			count++
		}
	}
	return count
}

// Run lets the programs of containers begin that wait, each once those that it comes after are
// ready.
func (k *containers) Run(ctx context.Context, done func()) error {
	k.mu.Lock()
	again := k.restarting
	k.mu.Unlock()
	if again != "" {
		k.runAgain(ctx, again)
		return nil
	}
	var nodes []*topology.Node
	ready := map[string]chan struct{}{}
	for _, n := range k.Topology().Nodes {
		if n.Contained() {
			nodes, ready[n.Name] = append(nodes, n), make(chan struct{})
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return parallel.All(nodes, func(n *topology.Node) error {
		defer done()
		for _, other := range n.After {
			if ready[other] == nil { // elsewhere: see target/sites.Check
				continue
			}
			select {
			case <-ready[other]:
			case <-ctx.Done():
				return nil // another one says why
			}
		}
		if err := k.begin(ctx, n, false); err != nil {
			if context.Cause(ctx) == errAnother && (errors.Is(err, errAnother) || errors.Is(err, os.ErrDeadlineExceeded)) {
				return nil // it says why
			}
			cancel(errAnother)
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		close(ready[n.Name])
		return nil
	})
}

// errAnother ends waiting for containers where one of them does not begin.
var errAnother = errors.New("another container does not begin")

// begin lets a container's program begin, and waits until it is ready, unless it is made anew as it
// had ended.
func (k *containers) begin(ctx context.Context, n *topology.Node, again bool) error {
	if err := k.follow(n); err != nil {
		return err
	}
	k.note(n) // of a container that another process has made
	r, err := k.of(n)
	if err != nil {
		return err
	}
	began, err := open(ctx, k.gates(n.Name), r.program, r.runs)
	if err != nil || !began || n.Health == "" || again {
		return err
	}
	limit, cancel := patience.Healthy.Context(ctx)
	defer cancel()
	for {
		said, err := k.Healthy(limit, n, n.Health)
		if err == nil {
			return nil
		}
		if !r.runs() {
			engine, err := k.engine()
			if err != nil {
				return err
			}
			return fmt.Errorf("health: %s: the container has ended before: %s", n.Health, lastWords(ctx, engine, r.id))
		}
		select {
		case <-limit.Done():
			return fmt.Errorf("health: %s: %w: %s", n.Health, cmp.Or(context.Cause(limit), err), strings.TrimSpace(said))
		case <-wakeUp():
		}
	}
}
