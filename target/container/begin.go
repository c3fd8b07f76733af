package container

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// Begin lets a container's program begin, and waits until it is ready. One that is made anew as it
// had ended is not waited for: if it does not begin, it ends once more.
func (k *containers) Begin(ctx context.Context, n *topology.Node) error {
	k.mu.Lock()
	again := k.restarting == n.Name
	k.mu.Unlock()
	err := k.begin(ctx, n, again)
	if again && err != nil {
		k.Lab.Ended(fmt.Sprintf("warning: %s: %v", what(n), err))
		return nil
	}
	return err
}

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
