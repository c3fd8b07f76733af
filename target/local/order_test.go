package local

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/topology"
)

// TestBeginInOrder proves that nodes begin at once but for those that come after others, which
// begin when these are ready; that a node at another machine is not waited for; and that where one
// does not begin, those after it never do, others are given up, and it alone is the error.
func TestBeginInOrder(t *testing.T) {
	var nodes []*topology.Node
	for name, after := range map[string][]string{"a": nil, "b": {"a", "elsewhere"}, "c": nil, "d": {"b", "c"}} {
		nodes = append(nodes, &topology.Node{Name: name, Container: topology.Container{After: after}})
	}
	for fails, want := range map[string]string{"": "a0 c0 b2 d4", "b": "a0 c0 b2", "a": "a0 c0"} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var began []string
			start, done := time.Now(), 0
			err := beginInOrder(t.Context(), nodes, func(ctx context.Context, n *topology.Node) error {
				mu.Lock()
				began = append(began, n.Name+string('0'+rune(time.Since(start)/time.Second)))
				mu.Unlock()
				takes := 2 * time.Second
				if n.Name == "c" {
					takes = 3 * time.Second
				}
				select {
				case <-time.After(takes):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				if n.Name == fails {
					return errors.New("it does not begin")
				}
				return nil
			}, func() {
				mu.Lock()
				done++
				mu.Unlock()
			})
			slices.SortStableFunc(began, func(a, b string) int { return strings.Compare(a[1:]+a, b[1:]+b) })
			if got := strings.Join(began, " "); got != want || done != len(nodes) {
				t.Errorf("%q fails: began %s, not %s; done %d", fails, got, want, done)
			}
			if fails != "" && (err == nil || err.Error() != fails+": it does not begin") || fails == "" && err != nil {
				t.Errorf("%q fails: %v", fails, err)
			}
		})
	}
}
