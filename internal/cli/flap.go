package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// flap takes links down and up again, to see how routers cope.
type flap struct {
	rate      float64 // links per second
	length    time.Duration
	down      time.Duration
	seed      uint64
	change    func(ctx context.Context, l lab.LinkRequest) error
	mu        sync.Mutex // guards what follows
	away      map[int]bool
	took      []float64 // ms, for each change
	errs      []error
	flaps     int
	exhausted int // how often all links were down
}

// flapResult is what trivet link flap --json prints.
type flapResult struct {
	Flaps   int       `json:"flaps"`
	Links   int       `json:"links"`
	Seconds float64   `json:"seconds"`
	Took    flapTimes `json:"change_ms"`
	Skipped int       `json:"skipped"`
	Seed    uint64    `json:"seed"`
}

// flapTimes says how long changing a link took.
type flapTimes struct {
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func (a *app) linkFlap() *cobra.Command {
	f := &flap{away: map[int]bool{}}
	cmd := &cobra.Command{
		Use:   "flap [A-B...]",
		Short: "Take links down and up again, many times, to see how routers cope",
		Long: "Take links down and up again, each for a while: those that are named, or else those between switches and\n" +
			"routing nodes, chosen at random. At the end, and on Ctrl-C, all are up.",
		Example: "  trivet link flap --rate 5 --for 60s\n  trivet link flap r1-r2 r7-r8 --rate 0.5 --for 10m --down 2s",
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.rate <= 0 || f.length <= 0 || f.down <= 0 {
				return errors.New("--rate, --for and --down must be above zero")
			}
			c, _, err := a.client()
			if err != nil {
				return err
			}
			info, err := c.Info(cmd.Context())
			if err != nil {
				return err
			}
			links, err := flappable(info.Topology, args)
			if err != nil {
				return err
			}
			f.change = c.SetLink
			result, err := f.run(cmd.Context(), links)
			return errors.Join(err, a.printFlap(result))
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return a.completeLinks(cmd, prefix), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.Flags().Float64Var(&f.rate, "rate", 1, "how many links go down per second")
	cmd.Flags().DurationVar(&f.length, "for", 10*time.Second, "how long")
	cmd.Flags().DurationVar(&f.down, "down", time.Second, "how long a link stays down")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the choice of links")
	return cmd
}

// flappable returns the links with these names; without names, those between two datapaths.
func flappable(t *topology.Topology, names []string) (out []lab.LinkRequest, err error) {
	for _, name := range names {
		from, to, err := linkEnds(t, name)
		if err != nil {
			return nil, err
		}
		out = append(out, lab.LinkRequest{A: from, B: to})
	}
	if len(names) > 0 {
		return out, nil
	}
	datapath := map[string]bool{}
	for _, n := range t.Nodes {
		datapath[n.Name] = n.IsDatapath()
	}
	seen := map[[2]string]int{}
	for _, l := range t.Links {
		a, b := l.Ends[0].Node, l.Ends[1].Node
		pair := [2]string{min(a, b), max(a, b)}
		if seen[pair]++; datapath[a] && datapath[b] && !l.Down {
			out = append(out, lab.LinkRequest{A: a, B: b, Number: seen[pair]})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the lab has no links between switches or routing nodes; name the links:  trivet link flap A-B")
	}
	return out, nil
}

// run takes links down at the given rate until the time is over, and waits until all are up again.
func (f *flap) run(ctx context.Context, links []lab.LinkRequest) (flapResult, error) {
	rng := rand.New(rand.NewPCG(f.seed, 0))
	start := time.Now()
	end := time.NewTimer(f.length)
	defer end.Stop()
	var group sync.WaitGroup
	for n := 0; ; n++ {
		select {
		case <-time.After(time.Until(start.Add(time.Duration(float64(n) / f.rate * float64(time.Second))))):
			if i := f.choose(rng, len(links)); i >= 0 {
				group.Go(func() { f.once(ctx, i, links[i]) })
			}
			continue
		case <-end.C:
		case <-ctx.Done():
		}
		break
	}
	group.Wait()
	r := flapResult{Flaps: f.flaps, Links: len(links), Seconds: time.Since(start).Seconds(), Skipped: f.exhausted,
		Seed: f.seed}
	if len(f.took) > 0 {
		slices.Sort(f.took)
		r.Took = flapTimes{f.took[len(f.took)/2], f.took[len(f.took)-1]}
	}
	if len(f.errs) > 0 {
		return r, fmt.Errorf("%d changes failed; the first: %w", len(f.errs), f.errs[0])
	}
	return r, nil
}

// choose returns a link that is not down, or -1.
func (f *flap) choose(rng *rand.Rand, links int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.away) == links {
		f.exhausted++
		return -1
	}
	for {
		if i := rng.IntN(links); !f.away[i] {
			f.away[i] = true
			return i
		}
	}
}

// once takes a link down and up again.
func (f *flap) once(ctx context.Context, i int, l lab.LinkRequest) {
	errs := []error{f.set(l, "down")}
	select {
	case <-time.After(f.down):
	case <-ctx.Done():
	}
	errs = append(errs, f.set(l, "up"))
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.away, i)
	f.flaps++
	for _, err := range errs {
		if err != nil {
			f.errs = append(f.errs, err)
		}
	}
}

// set changes a link, even after Ctrl-C: links that are down must be up in the end.
func (f *flap) set(l lab.LinkRequest, to string) error {
	l.Change, l.NoWait = []string{to}, true
	start := time.Now()
	err := f.change(context.Background(), l)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took = append(f.took, float64(time.Since(start))/1e6)
	return err
}

func (a *app) printFlap(r flapResult) error {
	if a.json {
		return a.printJSON(r)
	}
	a.say("%d flaps of %d links in %.1f s; a change took %.0f ms (longest %.0f ms)", r.Flaps, r.Links, r.Seconds,
		r.Took.Median, r.Took.Max)
	if r.Skipped > 0 {
		a.say("%d times all links were already down: lower --rate or --down to keep some up", r.Skipped)
	}
	return nil
}
