package ping

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// When pairs are paced, young limits the pings that have been in progress for less than youth, so
// that they do not disturb each other's measurement. Older ones, which wait for a slow link or for
// no answer at all, do not hold up others; perHost limits them.
const (
	young   = 16
	youth   = 100 * time.Millisecond
	perHost = 16
)

// Pair is a node that pings, and its target.
type Pair struct {
	From    string     `json:"from"`
	To      string     `json:"to"`
	Address netip.Addr `json:"address"` // of To
}

// Pairs pings all pairs, with a Sender opened in each sending node. Each sender starts at a
// different position in its list: otherwise all would ping the first node at once, then the second.
func Pairs(ctx context.Context, pairs []Pair, open func(node string) (Sender, error), o Options) ([]PairResult, error) {
	results := make([]PairResult, len(pairs))
	bySender := map[string][]int{}
	for i, p := range pairs {
		bySender[p.From] = append(bySender[p.From], i)
	}
	var group sync.WaitGroup
	var errs []error
	turns := make(chan struct{}, young)
	senders := 0
	for node, todo := range bySender {
		first := senders % len(todo)
		todo = slices.Concat(todo[first:], todo[:first])
		senders++
		pinger, err := open(node)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		group.Go(func() {
			defer pinger.Close()
			var inner sync.WaitGroup
			work := make(chan int)
			workers := len(todo)
			if !o.Unpaced {
				workers = min(perHost, workers)
			}
			for range workers {
				inner.Go(func() {
					for i := range work {
						results[i] = inTurn(ctx, pinger, turns, pairs[i], o)
					}
				})
			}
			for _, i := range todo {
				work <- i
			}
			close(work)
			inner.Wait()
		})
	}
	group.Wait()
	return results, errors.Join(errs...)
}

// inTurn pings one pair, when its turn comes if the pings are paced.
func inTurn(ctx context.Context, from Sender, turns chan struct{}, pair Pair, o Options) PairResult {
	if !o.Unpaced {
		turns <- struct{}{}
		leave := sync.OnceFunc(func() { <-turns })
		defer leave()
		defer time.AfterFunc(youth, leave).Stop()
	}
	r := from.PingPair(ctx, pair.Address, o)
	r.From, r.To = pair.From, pair.To
	return r
}
