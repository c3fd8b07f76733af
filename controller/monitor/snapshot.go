package monitor

import (
	"cmp"
	"slices"
	"time"

	"trivet.dev/trivet/openflow"
)

// Sample is one reading of a switch's ports.
type Sample struct {
	Switch uint64
	Time   time.Time
	Ports  []Port // in no order
}

// FlowTable is a switch's flow entries, of all tables together.
type FlowTable struct {
	Time           time.Time // zero: not read yet
	Count          int       // entries
	Packets, Bytes uint64    // of all entries; or NoCounter
	Entries        []openflow.FlowStats
	Complete       bool // Entries has all; otherwise there were too many (Options.MaxFlows), and it is empty
}

// Group is a group of a switch with its counters.
type Group struct {
	openflow.GroupDesc
	Stats openflow.GroupStats
}

// Ports returns all ports of connected switches that have been read, by switch and number.
func (a *App) Ports() []Port {
	a.mu.Lock()
	var out []Port
	for _, n := range a.nodes {
		for _, p := range n.ports {
			if !p.Time.IsZero() {
				out = append(out, p.Port)
			}
		}
	}
	a.mu.Unlock()
	slices.SortFunc(out, func(x, y Port) int {
		return cmp.Or(cmp.Compare(x.Switch, y.Switch), cmp.Compare(x.Number, y.Number))
	})
	return out
}

// Port returns a port, and whether it has been read.
func (a *App) Port(dpid uint64, number uint32) (Port, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.nodes[dpid]; n != nil {
		if p := n.ports[number]; p != nil && !p.Time.IsZero() {
			return p.Port, true
		}
	}
	return Port{}, false
}

// Flows returns the flow entries of a switch as last read, and whether it is connected. The entries
// must not be changed.
func (a *App) Flows(dpid uint64) (FlowTable, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[dpid]
	if n == nil {
		return FlowTable{}, false
	}
	return n.flows, true
}

// FlowCounts returns the number of flow entries of each connected switch that has been read.
func (a *App) FlowCounts() map[uint64]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[uint64]int, len(a.nodes))
	for dpid, n := range a.nodes {
		if !n.flows.Time.IsZero() {
			out[dpid] = n.flows.Count
		}
	}
	return out
}

// Tables returns the tables of a switch as last read, which must not be changed; nil: not read yet.
func (a *App) Tables(dpid uint64) []openflow.TableStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.nodes[dpid]; n != nil {
		return n.tables
	}
	return nil
}

// Groups returns the groups of a switch as last read, which must not be changed.
func (a *App) Groups(dpid uint64) []Group {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.nodes[dpid]; n != nil {
		return n.groups
	}
	return nil
}

// Period is the time between two readings of a switch's ports: Options.Period, or more if there are
// too many switches to read in that time.
func (a *App) Period() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.poller.switches == 0 {
		return a.o.Period
	}
	return max(time.Duration(float64(a.o.Period)*a.poller.stretch(a.o)), a.poller.period)
}

// Requests counts the readings by outcome.
func (a *App) Requests() Requests {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests
}

type watcher struct{ f func(Sample) }

// Watch calls f for each reading of a switch's ports from now on, one after the other, until cancel
// is called. f must be quick and may call the app, but not Watch or cancel.
func (a *App) Watch(f func(Sample)) (cancel func()) {
	w := &watcher{f}
	a.watching.Lock()
	defer a.watching.Unlock()
	a.watchers[w] = true
	return func() {
		a.watching.Lock()
		defer a.watching.Unlock()
		delete(a.watchers, w)
	}
}

func (a *App) watched() bool {
	a.watching.Lock()
	defer a.watching.Unlock()
	return len(a.watchers) > 0
}

func (a *App) tell(s Sample) {
	a.watching.Lock()
	defer a.watching.Unlock()
	for w := range a.watchers {
		w.f(s)
	}
}
