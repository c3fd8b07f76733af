package verify

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"

	"trivet.dev/trivet/internal/lists"
)

// plan says who sends to whom.
type plan struct {
	by     map[hop][]*flow // flows that cross a direction
	cover  []*flow         // flows that together cross all directions that any flow crosses
	tasks  []*task         // for rates
	others []*flow         // flows of tasks that are not in cover
	flows  []*flow         // to choose from
	tried  []*flow         // of a survey, whether or not their packets arrived
}

// task measures the rate of a direction, by flows that together bring more than it should carry.
type task struct {
	hop    hop
	shares []share
	brings float64 // bit/s that the other links on the paths let through
	narrow hop     // the narrowest of them if that is not enough; otherwise link < 0
}

// enters returns the total rate sent for a task, in bit/s.
func (t *task) enters() (sum float64) {
	for _, s := range t.shares {
		sum += s.rate
	}
	return sum
}

// share is a flow with the rate to send, in bit/s of layer 2.
type share struct {
	*flow
	rate float64
}

// enough is the ratio of the rate brought to a direction to its own rate from which the direction
// determines what comes out.
const enough = 1.15

// mostShares is the maximum number of flows of a task.
const mostShares = 3

// plan chooses flows by their expected paths.
func (v *verifier) plan() *plan { return v.planFor(v.flows()) }

func (v *verifier) planFor(flows []*flow) *plan {
	p := &plan{by: map[hop][]*flow{}, flows: flows}
	for _, f := range flows {
		for _, h := range f.way {
			p.by[h] = append(p.by[h], f)
		}
	}
	for i := range v.t.Links {
		for out := range 2 {
			h := hop{i, out}
			if fs := v.withoutDevices(p.by[h]); v.rate(h) > 0 && len(fs) > 0 {
				p.tasks = append(p.tasks, v.tasksFor(h, fs)...)
			}
		}
	}
	covered, chosen := map[hop]bool{}, map[*flow]bool{}
	take := func(f *flow) {
		if chosen[f] {
			return
		}
		if chosen[f] = true; slices.ContainsFunc(f.way, func(h hop) bool { return !covered[h] }) {
			for _, h := range f.way {
				covered[h] = true
			}
			p.cover = append(p.cover, f)
			return
		}
		p.others = append(p.others, f)
	}
	for _, t := range p.tasks {
		for _, s := range t.shares {
			take(s.flow)
		}
	}
	for i := range v.t.Links {
		for out := range 2 {
			h := hop{i, out}
			if fs := p.by[h]; !covered[h] && len(fs) > 0 {
				take(slices.MaxFunc(fs,
					func(a, b *flow) int { return cmp.Compare(news(a, covered), news(b, covered)) }))
			}
		}
	}
	return p
}

// news returns how many directions a flow crosses that are not covered.
func news(f *flow, covered map[hop]bool) int {
	return lists.Count(f.way, func(h hop) bool { return !covered[h] })
}

// tasksFor returns the tasks that measure a direction: one sender, and several at once if possible,
// as datapaths may treat these differently. A quick verification uses only one of them, the second
// if possible.
func (v *verifier) tasksFor(h hop, flows []*flow) []*task {
	one, several := v.bring(h, flows, 1), v.bring(h, flows, mostShares)
	switch {
	case len(several.shares) < 2:
		return []*task{one}
	case one.narrow.link >= 0 || v.Quick:
		return []*task{several}
	}
	return []*task{one, several}
}

// bring chooses at most most flows across a direction, from different senders or else to different
// receivers, that bring most to it.
func (v *verifier) bring(target hop, flows []*flow, most int) *task {
	asked := v.rate(target)
	offer := asked * v.oversubscribe(asked)
	t := &task{hop: target, narrow: hop{-1, 0}}
	left := map[hop]float64{}
	room := func(f *flow) (least float64, at hop) {
		least, at = math.Inf(1), hop{-1, 0}
		for _, h := range f.way {
			r, used := left[h]
			if !used {
				if r = v.carries(h); r == 0 {
					r = math.Inf(1)
				}
			}
			if h != target && r < least {
				least, at = r, h
			}
		}
		return least, at
	}
	from, to := map[string]int{}, map[string]int{}
	narrowest := math.Inf(1)
	for len(t.shares) < most {
		var best *flow
		rank := func(f *flow) [5]float64 { // lower is better
			r, _ := room(f)
			before, after := v.kept(f.way, target)
			return [5]float64{-min(r, offer), -before * after, float64(from[f.from]), float64(to[f.to]),
				float64(len(f.way))}
		}
		for _, f := range flows {
			if slices.ContainsFunc(t.shares, func(s share) bool { return s.flow == f }) {
				continue
			}
			if a := rank(f); best == nil || slices.Compare(a[:], ranked(rank(best))) < 0 {
				best = f
			}
		}
		if best == nil {
			break
		}
		r, at := room(best)
		if r <= 0 || len(t.shares) > 0 && from[best.from] > 0 && to[best.to] > 0 {
			break
		}
		if r < narrowest {
			narrowest, t.narrow = r, at
		}
		r = min(r, offer)
		for _, h := range best.way {
			if l := v.carries(h); h != target && l > 0 {
				if _, used := left[h]; !used {
					left[h] = l
				}
				left[h] -= r
			}
		}
		from[best.from]++
		to[best.to]++
		t.shares, t.brings = append(t.shares, share{best, r}), t.brings+r
	}
	if t.brings >= enough*asked*0.999 {
		t.narrow = hop{-1, 0}
	}
	if t.narrow.link < 0 { // oversubscribed in total by the same factor, however many send
		slices.SortFunc(t.shares, func(a, b share) int { return cmp.Compare(a.rate, b.rate) })
		for i := range t.shares {
			s := &t.shares[i]
			s.rate = min(s.rate, offer/float64(len(t.shares)-i))
			offer -= s.rate
		}
	}
	return t
}

// kept returns the share of a flow's packets that the links before a direction should deliver, and
// the share of those leaving it that the links after it should deliver.
func (v *verifier) kept(way []hop, target hop) (before, after float64) {
	before, after = 1, 1
	at := &before
	for _, h := range way {
		if h == target {
			at = &after
			continue
		}
		*at *= v.egress(h).Arrives()
	}
	return before, after
}

func ranked(r [5]float64) []float64 { return r[:] }

// oversubscribe returns by which factor more than its rate a link is offered: less if sending is
// expensive, more if the token bucket takes long to empty, or the queue to fill.
func (v *verifier) oversubscribe(rate float64) float64 {
	switch {
	case rate <= 4e6:
		return min(10, 8e6/rate)
	case rate <= 10e6:
		return 2
	case rate <= 200e6:
		return 1.5
	}
	return 1.2
}

// together runs tasks in their order, some of them concurrently: those whose paths share no link
// with a bandwidth, as long as the total rate is small for the machine, and the machine has time
// left.
func (v *verifier) together(ctx context.Context, tasks []*task, do func(i int), done func(int)) {
	var mu sync.Mutex
	free := sync.NewCond(&mu)
	waiting := make([]int, len(tasks))
	for i := range waiting {
		waiting[i] = i
	}
	taken, sent, running, most, finished := map[hop]bool{}, 0.0, 0, mostTogether, 0
	mu.Lock()
	defer mu.Unlock()
	for len(waiting) > 0 && ctx.Err() == nil {
		k := -1
		if running < most {
			k = slices.IndexFunc(waiting, func(i int) bool {
				return (running == 0 || sent+tasks[i].enters() <= sentTogether) &&
					!slices.ContainsFunc(v.limited(tasks[i]), func(h hop) bool { return taken[h] })
			})
		}
		if k < 0 {
			free.Wait()
			continue
		}
		i := waiting[k]
		waiting = slices.Delete(waiting, k, k+1)
		for _, h := range v.limited(tasks[i]) {
			taken[h] = true
		}
		sent += tasks[i].enters()
		running++
		go func() {
			before := readProcessors()
			do(i)
			mu.Lock()
			defer mu.Unlock()
			for _, h := range v.limited(tasks[i]) {
				delete(taken, h)
			}
			if most = mostTogether; before.busySince() {
				most = 1
			}
			sent -= tasks[i].enters()
			running--
			finished++
			done(finished)
			free.Broadcast()
		}()
	}
	for running > 0 {
		free.Wait()
	}
}

// Limits on concurrent tasks: their number, and their total rate in bit/s. A small machine can send
// four times that.
const (
	mostTogether = 6
	sentTogether = 310e6
)

// limited lists the directions with a bandwidth on the paths of a task.
func (v *verifier) limited(t *task) (out []hop) {
	for _, s := range t.shares {
		for _, h := range s.way {
			if v.rate(h) > 0 && !slices.Contains(out, h) {
				out = append(out, h)
			}
		}
	}
	return out
}
