//go:build linux

package cache

import (
	"encoding/binary"
	"sync"
	"time"

	"trivet.dev/trivet/datapath/embedded/pipeline"
)

// changes are the parts of switches that have changed and have not been looked at since. It may be called
// within a change of the network, and asks nothing of it.
type changes struct {
	mu   sync.Mutex
	set  map[watchKey]struct{}
	some chan struct{}
}

func (c *changes) start() {
	c.set, c.some = map[watchKey]struct{}{}, make(chan struct{}, 1)
}

func (c *changes) note(s *pipeline.Switch, what int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set[watchKey{s, what}] = struct{}{}
	c.poke()
}

func (c *changes) poke() {
	select {
	case c.some <- struct{}{}:
	default:
	}
}

// take returns those of a switch (nil: of all), which are none any more.
func (c *changes) take(s *pipeline.Switch) (list []watchKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.set {
		if s == nil || k.sw == s {
			list = append(list, k)
			delete(c.set, k)
		}
	}
	return list
}

// A watch is a part of a switch that entries follow from, and the version for which they are known to hold.
type watch struct {
	number  uint64
	version uint64
	paths   map[*path]struct{}
}

type watchKey struct {
	sw   *pipeline.Switch
	what int
}

// A path is the parts of switches that some entries follow from.
type path struct {
	key     string
	keys    []watchKey
	entries []*entry
}

// follow notes what an entry follows from; false: some of that has changed since.
func (e *Engine) follow(x *entry) bool {
	var room []byte
	keys := make([]watchKey, 0, len(x.outcome.Reads))
	for _, r := range x.outcome.Reads {
		k := watchKey{r.Switch, r.What}
		w := e.watches[k]
		if w == nil {
			e.watched++
			w = &watch{number: e.watched, version: r.Version, paths: map[*path]struct{}{}}
			e.watches[k] = w
		}
		if r.Version < w.version {
			return false
		}
		keys = append(keys, k)
		room = binary.AppendUvarint(room, w.number)
	}
	p := e.paths[string(room)]
	if p == nil {
		p = &path{key: string(room), keys: keys}
		e.paths[p.key] = p
		for _, k := range keys {
			e.watches[k].paths[p] = struct{}{}
		}
	}
	x.path, x.slot = p, len(p.entries)
	p.entries = append(p.entries, x)
	return true
}

func (e *Engine) unfollow(x *entry) {
	p := x.path
	if p == nil {
		return
	}
	x.path = nil
	last := len(p.entries) - 1
	p.entries[x.slot] = p.entries[last]
	p.entries[x.slot].slot = x.slot
	p.entries[last] = nil
	p.entries = p.entries[:last]
	if last > 0 {
		return
	}
	delete(e.paths, p.key)
	for _, k := range p.keys {
		if w := e.watches[k]; w != nil {
			if delete(w.paths, p); len(w.paths) == 0 {
				delete(e.watches, k)
			}
		}
	}
}

// Barrier makes all packets from now on go as the tables of a switch say (nil: of all switches); see
// embedded.Options.Barrier.
func (e *Engine) Barrier(s *pipeline.Switch) {
	if e.why != "" {
		return
	}
	e.revalidating.Lock()
	defer e.revalidating.Unlock()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	list := e.stale(s)
	e.mu.Unlock()
	some := len(list) > 0
	const batch = 64 // entries; between these, packets of new flows get their turn
	for len(list) > 0 {
		n := min(batch, len(list))
		e.mu.Lock()
		for _, x := range list[:n] {
			if e.list[x.id] == x {
				e.revalidate(x)
			}
		}
		e.mu.Unlock()
		list = list[n:]
	}
	e.mu.Lock()
	gone := e.retired
	e.retired = nil
	e.mu.Unlock()
	if some {
		e.fence()
	}
	if len(gone) > 0 {
		grace()
		e.collect(gone)
	}
}

// fence waits for a packet that is on its way through user space by an entry as it was.
func (e *Engine) fence() {
	e.applying.Lock()
	defer e.applying.Unlock()
}

// staleAll makes the next Barrier look at all entries again.
func (e *Engine) staleAll() { e.all = true }

// stale returns the entries that follow from something that has changed.
func (e *Engine) stale(s *pipeline.Switch) (list []*entry) {
	chosen := map[*path]struct{}{}
	for _, k := range e.changes.take(s) {
		w := e.watches[k]
		if w == nil {
			continue
		}
		// From now on, what follows from an older version is not taken any more.
		w.version = k.sw.Version(k.what)
		for p := range w.paths {
			chosen[p] = struct{}{}
		}
	}
	if e.all {
		e.all = false
		for _, p := range e.paths {
			chosen[p] = struct{}{}
		}
	}
	for p := range chosen {
		list = append(list, p.entries...)
	}
	return list
}

// revalidate makes an entry say what the tables say now.
func (e *Engine) revalidate(x *entry) {
	o := &pipeline.Outcome{}
	e.again.Translate(o, x.port.port, &x.of, e.dp.Now())
	code, why := compile(o, e.deviceOf)
	mask, ok := maskOf(&o.Mask, &x.of, x.class)
	if why != "" || !ok || !x.mask.covers(&mask) {
		e.remove(x)
		return
	}
	pending := load64(&e.entries[x.id].State)>>stateShift != stateActive
	if code.equal(&x.code) {
		e.unfollow(x)
		e.counts.replace(x, o)
		if !e.follow(x) {
			e.remove(x)
		}
		return
	}
	if pending {
		e.remove(x)
		return
	}
	y := &entry{port: x.port, flow: x.flow, class: x.class, mask: x.mask, key: x.key, of: x.of, outcome: o, code: code}
	if why := e.place(y, stateActive); why != "" {
		e.remove(x)
		return
	}
	x.port.flows[x.flow] = y
	e.retire(x)
}

// look keeps up with changes that nobody waits for.
func (e *Engine) look() {
	tick := time.NewTicker(foldEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-tick.C:
			e.forget()
		case <-e.changes.some:
			time.Sleep(settleFor) // more may come, and a barrier
		}
		e.Barrier(nil)
		e.mu.Lock()
		e.cool()
		e.mu.Unlock()
	}
}

// forget removes entries that have been idle for long.
func (e *Engine) forget() {
	idle := e.counts.idle(e.dp.Now() - e.opt.Idle)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range idle {
		if e.list[x.id] == x {
			e.remove(x)
		}
	}
}
