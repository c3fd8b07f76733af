package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/measure/environment"
)

// ThisProgram runs this program in a node, at any site and under any name: exec resolves it in the
// daemon's own process.
const ThisProgram = "/proc/self/exe"

// Counters reads the counters of devices in the lab's namespaces on this machine: the switches',
// and those of nodes that have their own.
func (s State) Counters() map[string]counters.Port {
	dir := filepath.Join(Dir(s.Name), "ns")
	spaces := map[string]string{filepath.Join(dir, "fabric"): ""}
	nodes, _ := os.ReadDir(filepath.Join(dir, "net"))
	for _, n := range nodes {
		spaces[filepath.Join(dir, "net", n.Name())] = n.Name()
	}
	return counters.In(spaces)
}

// watchedNodes is up to how many nodes their cgroups are watched one by one: each poll reads a file
// for each.
const watchedNodes = 64

// Watched names what belongs to the lab on this machine: its daemon, and the cgroups of nodes, Open
// vSwitch and controllers.
func (s State) Watched(groups cgroup.Hierarchies) environment.WatchOptions {
	o := environment.WatchOptions{Processes: []environment.Process{{Name: "daemon", PID: s.PID}},
		Own: []string{"/" + cgroup.Group(s.Name)}}
	top := groups.Of(s.Name)
	dirs, _ := os.ReadDir(top)
	var nodes []environment.Cgroup
	for _, g := range dirs {
		name, program := strings.CutPrefix(g.Name(), ".")
		one := environment.Cgroup{Name: strings.Replace(name, "controller-", "controller ", 1),
			Path: filepath.Join(top, g.Name())}
		switch {
		case !g.IsDir():
		case program:
			o.Cgroups = append(o.Cgroups, one)
		default:
			nodes = append(nodes, one)
		}
	}
	if len(nodes) <= watchedNodes {
		o.Cgroups = append(o.Cgroups, nodes...)
	}
	return o
}

// watches are the measurements of its own machine that a part runs for its head.
type watches struct {
	mu   sync.Mutex
	last int
	open map[int]*environment.Watch
}

// mostWatches limits the measurements that nobody has ended, as when the head was killed.
const mostWatches = 8

func (d *daemon) beginWatch() (int, error) {
	groups, err := cgroup.Find()
	if err != nil {
		return 0, err
	}
	o := d.state().Watched(groups)
	o.Accelerators = d.target().Accelerators()
	w, err := environment.StartWatch(o)
	if err != nil {
		return 0, err
	}
	ws := &d.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.open == nil {
		ws.open = map[int]*environment.Watch{}
	}
	ws.last++
	ws.open[ws.last] = w
	if old := ws.open[ws.last-mostWatches]; old != nil {
		go old.Stop()
		delete(ws.open, ws.last-mostWatches)
	}
	return ws.last, nil
}

func (d *daemon) endWatch(id int) (u environment.Usage, err error) {
	ws := &d.watches
	ws.mu.Lock()
	w := ws.open[id]
	delete(ws.open, id)
	ws.mu.Unlock()
	if w == nil {
		return u, fmt.Errorf("there is no watch %d", id)
	}
	return w.Stop(), nil
}

var errOneSite = errors.New("this lab is on one machine")

// spread returns the target of a lab that has other sites.
func (d *daemon) spread() (Spread, error) {
	if err := d.isUp(); err != nil {
		return nil, err
	}
	if s, ok := d.target().(Spread); ok {
		return s, nil
	}
	return nil, errOneSite
}

// PartCounters returns the State.Counters of a part; BeginPartWatch and EndPartWatch watch its
// machine.
func (c *Client) PartCounters(ctx context.Context) (map[string]counters.Port, error) {
	return call[map[string]counters.Port](ctx, c, "GET", "/v1/part/counters", nil)
}

func (c *Client) BeginPartWatch(ctx context.Context) (int, error) {
	return call[int](ctx, c, "POST", "/v1/part/watch", nil)
}

func (c *Client) EndPartWatch(ctx context.Context, id int) (environment.Usage, error) {
	return call[environment.Usage](ctx, c, "POST", fmt.Sprintf("/v1/part/watch/%d/end", id), nil)
}

// Counters returns the counters of all sites but the head.
func (c *Client) Counters(ctx context.Context) (map[string]counters.Port, error) {
	return call[map[string]counters.Port](ctx, c, "GET", "/v1/sites/counters", nil)
}

// BeginWatch has all sites but the head watch themselves until EndWatch.
func (c *Client) BeginWatch(ctx context.Context) (int, error) {
	return call[int](ctx, c, "POST", "/v1/sites/watch", nil)
}

// EndWatch returns what the machines of all sites but the head did since BeginWatch.
func (c *Client) EndWatch(ctx context.Context, id int) (map[string]environment.SiteUsage, error) {
	return call[map[string]environment.SiteUsage](ctx, c, "POST", fmt.Sprintf("/v1/sites/watch/%d/end", id), nil)
}

// raw is an answer whose type the API's description leaves open.
func raw[T any](v T, err error) (*body[json.RawMessage], error) {
	if err != nil {
		return nil, problem(err)
	}
	b, err := json.Marshal(v)
	return &body[json.RawMessage]{b}, err
}
