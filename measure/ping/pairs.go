package ping

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// In a paced ping of all pairs, young are the pings under way all told that are younger
// than youth: so few that they do not measure each other. Older ones, which wait for
// a slow link or for nothing, do not hold the others up; perHost bounds their number.
const (
	young   = 16
	youth   = 100 * time.Millisecond
	perHost = 16
)

// Pair is who pings whom, by the name of the sender.
type Pair struct {
	From    string     `json:"from"`
	To      string     `json:"to"`
	Address netip.Addr `json:"address"` // of To
}

// Pairs pings all pairs. It opens a pinger in each node that sends. Each sender begins at
// another of its pairs: in the order of all pairs the first node would have to answer everybody at
// once, and then the second.
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

// inTurn pings one pair when it is its turn; at once where nothing is paced.
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
