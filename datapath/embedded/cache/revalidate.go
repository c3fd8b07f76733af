//go:build linux

package cache

import (
	"encoding/binary"
	"sync"
	"time"

	"trivet.dev/trivet/datapath/embedded/pipeline"
)

// changes collects the parts of switches that have changed and not been processed. It may be called
// within a change of the network, and does not call the network.
type changes struct {
	mu   sync.Mutex
	set  map[watchKey]struct{}
	some chan struct{}
	told chan struct{} // signals Engine.Changes
}

func (c *changes) start() {
	c.set, c.some, c.told = map[watchKey]struct{}{}, make(chan struct{}, 1), make(chan struct{}, 1)
}

func (c *changes) note(s *pipeline.Switch, what int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set[watchKey{s, what}] = struct{}{}
	c.poke()
	select {
	case c.told <- struct{}{}:
	default:
	}
}

func (c *changes) poke() {
	select {
	case c.some <- struct{}{}:
	default:
	}
}

// take returns and clears the changes of a switch (nil: of all).
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

// A watch is a part of a switch that entries depend on, and the version for which they are valid.
type watch struct {
	number  uint64
	version uint64
	paths   map[*path]struct{}
}

type watchKey struct {
	sw   *pipeline.Switch
	what int
}

// A path is the set of parts of switches that some entries depend on.
type path struct {
	key     string
	keys    []watchKey
	watches []*watch // of the keys
	entries []*entry
}

// holds reports whether a translation depends on the same parts, none of which has changed since.
func (p *path) holds(o *pipeline.Translation) bool {
	if len(o.Reads) != len(p.keys) {
		return false
	}
	for i, r := range o.Reads {
		if k := p.keys[i]; r.Switch != k.sw || r.What != k.what || r.Version < p.watches[i].version {
			return false
		}
	}
	return true
}

// follow records what an entry depends on; false: some of that has changed since.
func (e *Engine) follow(x *entry) bool {
	var room []byte
	keys := make([]watchKey, 0, len(x.translation.Reads))
	watches := make([]*watch, 0, len(x.translation.Reads))
	for _, r := range x.translation.Reads {
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
		keys, watches = append(keys, k), append(watches, w)
		room = binary.AppendUvarint(room, w.number)
	}
	p := e.paths[string(room)]
	if p == nil {
		p = &path{key: string(room), keys: keys, watches: watches}
		e.paths[p.key] = p
		for _, w := range watches {
			w.paths[p] = struct{}{}
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
	for i, w := range p.watches {
		if delete(w.paths, p); len(w.paths) == 0 {
			delete(e.watches, p.keys[i])
		}
	}
}

// Barrier returns when all further packets are forwarded by the current tables of a switch (nil: of
// all switches) and the current state of ports' devices; see embedded.Options.Barrier.
func (e *Engine) Barrier(s *pipeline.Switch) {
	e.keepUp(false)
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
	for _, x := range list {
		e.revalidate(x)
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

// fence waits for packets that are passing through user space by a previous state of an entry.
func (e *Engine) fence() {
	e.applying.Lock()
	defer e.applying.Unlock()
}

// staleAll makes the next Barrier revalidate all entries.
func (e *Engine) staleAll() { e.all = true }

// stale returns the entries that depend on something that has changed.
func (e *Engine) stale(s *pipeline.Switch) (list []*entry) {
	chosen := map[*path]struct{}{}
	for _, k := range e.changes.take(s) {
		w := e.watches[k]
		if w == nil {
			continue
		}
		// From now on, translations from an older version are not accepted.
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

// revalidate brings an entry up to date with the tables. It is called with revalidating held.
// Translation takes long if paths are long: meanwhile mu is released, so that packets of other
// flows do not wait.
func (e *Engine) revalidate(x *entry) {
	e.again.Translate(e.spare, x.port.port, &x.of, e.dp.Now())
	if e.spare.Loop != nil {
		e.dp.Loop(e.spare.Loop)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.list[x.id] != x {
		return
	}
	code, why := compile(e.spare, &x.of, e.deviceOf)
	if why == "" && code.equal(&x.code) && x.path != nil && x.path.holds(e.spare) && x.translation.Same(e.spare) {
		return // most entries that depend on a table are not affected by its changes
	}
	e.update(x, e.spare, code, why)
	e.spare = &pipeline.Translation{}
}

// update sets an entry to a translation, which it takes over; why says why there can be no entry.
func (e *Engine) update(x *entry, o *pipeline.Translation, code compiled, why string) {
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
	// Packets with several output devices are queued at each; with one, they may not be.
	if pending || len(x.code.outputs) > 1 && len(code.outputs) == 1 {
		e.remove(x)
		return
	}
	y := &entry{port: x.port, flow: x.flow, class: x.class, mask: x.mask, key: x.key, of: x.of, translation: o,
		code: code}
	if why := e.place(y, stateActive); why != "" {
		e.remove(x)
		return
	}
	x.port.flows[x.flow] = y
	e.retire(x)
}

// look processes changes that nobody waits for.
func (e *Engine) look() {
	tick := time.NewTicker(foldEvery)
	defer tick.Stop()
	var took time.Duration // of the last run
	for {
		select {
		case <-e.stop:
			return
		case <-tick.C:
			e.forget()
			e.mu.Lock()
			e.settleModes()
			e.mu.Unlock()
		case <-e.changes.some:
			// More changes, or a barrier, may follow; and packets need the processor, too.
			time.Sleep(max(settleFor, took))
		}
		start := time.Now()
		e.Barrier(nil)
		took = min(time.Since(start), foldEvery)
		e.mu.Lock()
		e.cool()
		e.mu.Unlock()
	}
}

// forget removes entries that have been idle for too long.
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
