package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// Begin lets a container's program start, and waits until it is ready. It does not wait for a
// container that is remade because it had ended: if its program does not start, it has ended again.
// A container that no longer exists has ended.
func (k *containers) Begin(ctx context.Context, n *topology.Node) error {
	again := k.remakes(n) != nil
	err := k.begin(ctx, n, again)
	var not cannotRun
	if again && (errors.As(err, &not) || errors.Is(err, errEndedBefore)) {
		k.Lab.Ended(fmt.Sprintf("warning: %s: %v", what(n), err))
		return nil
	}
	return err
}

func (k *containers) begin(ctx context.Context, n *topology.Node, again bool) error {
	r, err := k.of(n)
	if errors.Is(err, errGone) {
		r, err = &running{}, nil
		k.mu.Lock()
		k.known[n.Name] = r
		k.mu.Unlock()
	}
	if err != nil {
		return err
	}
	if r.id == "" {
		if !r.followed.Swap(true) {
			r.since = time.Now()
			k.ended(n, r, unknownStatus, " (it is not there any more)")
		}
		return nil
	}
	if err := k.follow(n); err != nil {
		return err
	}
	k.note(n) // of a container that another process has made
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
			return fmt.Errorf("health: %s: %w: %s", n.Health, cmp.Or(context.Cause(limit), err),
				strings.TrimSpace(said))
		case <-wakeUp():
		}
	}
}
