package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/topology"
)

// errAnother ends waiting for nodes where one of them does not begin.
var errAnother = errors.New("another node does not begin")

// beginInOrder has nodes begin, each once those are ready that it comes after: begin returns when
// one is. The error is that of those which have failed by themselves; the others are not waited for
// then. done is called for each.
func beginInOrder(ctx context.Context, nodes []*topology.Node, begin func(context.Context, *topology.Node) error,
	done func()) error {
	ready := map[string]chan struct{}{}
	for _, n := range nodes {
		ready[n.Name] = make(chan struct{})
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
		if err := begin(ctx, n); err != nil {
			ended := errors.Is(err, errAnother) || errors.Is(err, context.Canceled) ||
				errors.Is(err, os.ErrDeadlineExceeded)
			if context.Cause(ctx) == errAnother && ended {
				return nil // it says why
			}
			cancel(errAnother)
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		close(ready[n.Name])
		return nil
	})
}
