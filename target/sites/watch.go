package sites

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/measure/environment"
)

// watches maps our numbers to those of the parts.
type watches struct {
	mu   sync.Mutex
	last int
	open map[int]map[string]int
}

// Counters returns the counters of the devices at all other sites. The switches' namespaces are
// distinguished by site. It may be called at any time.
func (l *Lab) Counters(ctx context.Context) (map[string]counters.Port, error) {
	out, mu := map[string]counters.Port{}, sync.Mutex{}
	err := l.each(func(p *part) error {
		got, err := p.client.PartCounters(ctx)
		mu.Lock()
		defer mu.Unlock()
		for name, port := range got {
			if counter, ok := strings.CutPrefix(name, counters.Kernel("", "")); ok {
				name = counters.Kernel("the switches at "+p.machine.Name, counter)
			}
			out[name] = port
		}
		return p.wrong(err)
	})
	return out, err
}

// Logs returns what was added to the logs at the other sites after the given offsets. It may be
// called at any time.
func (l *Lab) Logs(ctx context.Context, read map[string]map[string]int64) map[string]lab.SiteLogs {
	out, mu := map[string]lab.SiteLogs{}, sync.Mutex{}
	_ = l.each(func(p *part) error {
		var got lab.SiteLogs
		var err error
		if got.Logs, err = p.client.PartLogs(ctx, read[p.machine.Name]); err != nil {
			got.Problem = p.wrong(err).Error()
		}
		mu.Lock()
		defer mu.Unlock()
		out[p.machine.Name] = got
		return nil
	})
	return out
}

// BeginWatch has the other sites watch themselves. It may be called at any time.
func (l *Lab) BeginWatch(ctx context.Context) (int, error) {
	ids, mu := map[string]int{}, sync.Mutex{}
	err := l.each(func(p *part) error {
		id, err := p.client.BeginPartWatch(ctx)
		mu.Lock()
		defer mu.Unlock()
		ids[p.machine.Name] = id
		return p.wrong(err)
	})
	w := &l.watches
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[int]map[string]int{}
	}
	w.last++
	w.open[w.last] = ids
	return w.last, err
}

// EndWatch returns what the other sites' machines did meanwhile, and how far ahead their clocks are
// now. It may be called at any time.
func (l *Lab) EndWatch(ctx context.Context, id int) (map[string]environment.SiteUsage, error) {
	l.watches.mu.Lock()
	ids := l.watches.open[id]
	delete(l.watches.open, id)
	l.watches.mu.Unlock()
	if ids == nil {
		return nil, fmt.Errorf("there is no watch %d", id)
	}
	out, mu := map[string]environment.SiteUsage{}, sync.Mutex{}
	err := l.each(func(p *part) error {
		u, err := p.client.EndPartWatch(ctx, ids[p.machine.Name])
		mu.Lock()
		defer mu.Unlock()
		out[p.machine.Name] = environment.SiteUsage{Usage: u}
		return p.wrong(err)
	})
	known := l.Sites(ctx)
	for _, o := range known.Others {
		if u, ok := out[o.Name]; ok && o.Clock != nil {
			u.Ahead, u.AheadWithin = new(o.Clock.Offset/1e3), o.Clock.Within/1e3
			out[o.Name] = u
		}
	}
	return out, err
}

var _ lab.Spread = (*Lab)(nil)
