package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/topology"
)

// errAnother is the cause that cancels nodes because another one could not start.
var errAnother = errors.New("another node does not begin")

// beginInOrder starts nodes concurrently, each once the nodes that it comes after are ready; begin
// returns when a node is. If some fail, the others are cancelled, and the error is only that of the
// nodes that failed by themselves. done is called for each node.
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
			if ready[other] == nil { // at another site: see target/sites.Check
				continue
			}
			select {
			case <-ready[other]:
			case <-ctx.Done():
				return nil // the error is another node's
			}
		}
		if err := begin(ctx, n); err != nil {
			ended := errors.Is(err, errAnother) || errors.Is(err, context.Canceled) ||
				errors.Is(err, os.ErrDeadlineExceeded)
			if context.Cause(ctx) == errAnother && ended {
				return nil // the error is that node's
			}
			cancel(errAnother)
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		close(ready[n.Name])
		return nil
	})
}
