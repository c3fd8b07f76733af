//go:build linux

package cache

import (
	"sync/atomic"
	"time"

	"trivet.dev/trivet/datapath/embedded/bpf"
	"trivet.dev/trivet/datapath/embedded/pipeline"
)

// The state of an entry, in the highest bits of a word of which the others count: bpf/forward.h.
const (
	stateShift   = 62
	statePending = 1
	stateActive  = 2
	stateDrain   = 3
	stateCount   = uint64(1)<<stateShift - 1

	manyGone   = 1024 // entries, whose ids somebody will want soon
	drainTries = 5    // a fifth of a second between them
	drainAfter = 1024 // packets, in which the moment has not come that nothing is on its way
)

// entry is what is known here of one in the program.
type entry struct {
	id    uint32
	port  *port
	flow  bpf.ForwardFlowKey
	class int
	mask  words
	key   words // masked

	of          pipeline.Key // a packet that it is for
	translation *pipeline.Translation
	code        compiled
	clones      []uint32
	path        *path
	slot        int // in the path
	done        uint64
	tries       int // to make it active, when its packets are dropped

	tally // of counts
}

// cooling is an id that the miss channel may still name.
type cooling struct {
	entry  uint32
	clones []uint32
	until  time.Time
}

// find returns the entry that a packet belongs to, or nil.
func (p *port) find(e *Engine, k *pipeline.Key) *entry {
	class := classOf(k)
	if p.maskIDs[class] == 0 {
		return nil
	}
	w := wordsOf((*[pipeline.Words]uint64)(k), class)
	key := w.and(&p.masks[class])
	x := p.flows[bpf.ForwardFlowKey{Port: p.id, Mask: p.maskIDs[class], Hash: key.hash(e.seed, class)}]
	if x == nil || x.key != key || !x.translation.Holds(&x.of, k) {
		return nil
	}
	return x
}

// install makes a pending entry for packets like one, or says why there cannot be one. The
// translation becomes that of the entry.
func (e *Engine) install(p *port, k *pipeline.Key, o *pipeline.Translation) (x *entry, why string) {
	class := classOf(k)
	code, why := compile(o, k, e.deviceOf)
	if why != "" {
		return nil, why
	}
	mask, ok := maskOf(&o.Mask, k, class)
	if !ok {
		return nil, "the match needs fields that the program does not read"
	}
	if (p.maskIDs[class] == 0 || !p.masks[class].covers(&mask)) && !e.widen(p, class, &mask, o) {
		return nil, "there are too many masks"
	}
	w := wordsOf((*[pipeline.Words]uint64)(k), class)
	x = &entry{port: p, class: class, mask: p.masks[class], of: *k, translation: o, code: code}
	x.key = w.and(&x.mask)
	x.flow = bpf.ForwardFlowKey{Port: p.id, Mask: p.maskIDs[class], Hash: x.key.hash(e.seed, class)}
	if p.flows[x.flow] != nil {
		return nil, "another entry has the same hash"
	}
	if len(p.flows) >= e.opt.PerPort && !e.evict(p) {
		return nil, "the budget of the port is used up"
	}
	if why := e.place(x, statePending); why != "" {
		return nil, why
	}
	p.flows[x.flow] = x
	e.stats.Installed++
	if !o.Fresh() { // it has changed while we were at it
		e.remove(x)
		return nil, "the tables change"
	}
	return x, ""
}

// place writes an entry and lets the flow lead to it.
func (e *Engine) place(x *entry, state uint64) (why string) {
	var ok bool
	if x.id, ok = e.ids.get(); !ok {
		return "there are no entries left"
	}
	if !e.placeClones(x) {
		e.ids.put(x.id)
		return "there are no outputs left"
	}
	if !e.follow(x) {
		e.release(x)
		return "the tables change"
	}
	s := &e.entries[x.id]
	*s = bpf.ForwardEntry{
		Port: x.port.id, Mask: x.flow.Mask, W: x.key, TtlMin: x.code.ttlMin, TtlMax: x.code.ttlMax,
		Mtu: x.code.mtu, Outputs: uint16(len(x.code.outputs)),
	}
	if len(x.code.outputs) > 0 {
		s.First = x.code.outputs[0]
	}
	store64(&s.State, state<<stateShift)
	e.list[x.id] = x
	e.counts.add(x)
	if err := e.objs.Flows.Put(x.flow, x.id); err != nil {
		e.unfollow(x)
		e.list[x.id] = nil
		e.retired = append(e.retired, x)
		return "the map is full: " + err.Error()
	}
	return ""
}

// placeClones writes the outputs after the first one, and links them.
func (e *Engine) placeClones(x *entry) bool {
	for range max(len(x.code.outputs), 1) - 1 {
		id, ok := e.clones.get()
		if !ok {
			for _, id := range x.clones {
				e.clones.put(id)
			}
			return false
		}
		x.clones = append(x.clones, id)
	}
	for i, id := range x.clones {
		x.code.outputs[i].Next = id
	}
	for i, id := range x.clones {
		e.outputs[id] = x.code.outputs[i+1]
	}
	return true
}

// remove takes an entry away; its id is free some time later.
func (e *Engine) remove(x *entry) {
	if x.port.flows[x.flow] == x {
		delete(x.port.flows, x.flow)
		_ = e.objs.Flows.Delete(x.flow)
	}
	e.stats.Removed++
	e.retire(x)
}

// retire forgets an entry. Its state stays as it is: a packet that has just found it is not to go
// through user space, where those after it would overtake it by the entry that there is now.
func (e *Engine) retire(x *entry) {
	e.list[x.id] = nil
	e.unfollow(x)
	if e.retired = append(e.retired, x); len(e.retired) == manyGone {
		e.changes.poke()
	}
}

func (e *Engine) release(x *entry) {
	e.ids.put(x.id)
	for _, id := range x.clones {
		e.clones.put(id)
	}
}

// collect counts what has met entries that are gone, and gives their ids back in a while. The
// program must have been waited for.
func (e *Engine) collect(gone []*entry) {
	for _, x := range gone {
		store64(&e.entries[x.id].State, 0)
		e.counts.last(x)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	until := time.Now().Add(coolFor)
	for _, x := range gone {
		e.cooling = append(e.cooling, cooling{x.id, x.clones, until})
	}
}

// cool gives ids back whose time has come.
func (e *Engine) cool() {
	now, n := time.Now(), 0
	for ; n < len(e.cooling) && e.cooling[n].until.Before(now); n++ {
		e.release(&entry{id: e.cooling[n].entry, clones: e.cooling[n].clones})
	}
	e.cooling = e.cooling[n:]
}

// widen makes the mask of a port look at more; entries under the old one are of no use any more. Of
// a field that counts, all bits that can matter to the switches on the way count from now on: the
// next packet will need some more of them.
func (e *Engine) widen(p *port, class int, mask *words, o *pipeline.Translation) bool {
	wide := p.masks[class].or(mask)
	var interest pipeline.Mask
	for i, r := range o.Reads {
		if r.What == pipeline.ReadPorts && (i == 0 || o.Reads[i-1].Switch != r.Switch) {
			m := r.Switch.Interest()
			interest.Union(&m)
		}
	}
	wide.extend(wordsOf((*[pipeline.Words]uint64)(&interest), class), class)
	if !e.setMask(p, class, &wide) {
		return false
	}
	for _, x := range p.flows {
		if x.class == class {
			e.remove(x)
		}
	}
	return true
}

// setMask makes a mask that of a port; false: there are too many.
func (e *Engine) setMask(p *port, class int, mask *words) bool {
	id, ok := e.maskIDs[*mask]
	if !ok {
		if len(e.maskIDs) >= maxMasks-1 {
			return false
		}
		id = uint32(len(e.maskIDs) + 1)
		e.maskIDs[*mask] = id
		e.masks[id].W = *mask
	}
	p.masks[class], p.maskIDs[class] = *mask, id
	store32(&e.ports[p.id].Masks[class], id)
	return true
}

// evict makes room for another entry of the port: of some that have been idle, the one that has
// been so longest goes. Where it has just looked in vain it does not look again.
func (e *Engine) evict(p *port) bool {
	now := e.dp.Now()
	if now < p.fullUntil {
		return false
	}
	var oldest *entry
	n := 0
	for _, x := range p.flows {
		if oldest == nil || e.counts.used(x) < e.counts.used(oldest) {
			oldest = x
		}
		if n++; n == 16 {
			break
		}
	}
	if oldest == nil || now-e.counts.used(oldest) < idleAtLeast {
		p.fullUntil = now + idleAtLeast/50
		return false
	}
	e.remove(oldest)
	return true
}

// forwarded notes that a packet which met the entry while it was pending has left. When it was the
// last one, the entry becomes active: the program sees to that if it was asked to, as soon as the
// packet has arrived.
func (e *Engine) forwarded(x *entry, asked bool) {
	x.done++
	state := &e.entries[x.id].State
	for {
		now := load64(state)
		switch {
		case now>>stateShift != statePending && now>>stateShift != stateDrain:
			return
		case now&stateCount == x.done:
			if asked || atomic.CompareAndSwapUint64(state, now, stateActive<<stateShift) {
				return
			}
		case now>>stateShift == statePending && x.done > drainAfter:
			if atomic.CompareAndSwapUint64(state, now, stateDrain<<stateShift|now&stateCount) {
				e.draining = append(e.draining, x)
				return
			}
		default:
			return
		}
	}
}

// drained makes an entry active whose packets are dropped until those before them have left, if
// they have: no further one asks the program, which may have had no room for the last request.
// Where they do not come, it goes. It says whether there is nothing left to do.
func (e *Engine) drained(x *entry) bool {
	state := &e.entries[x.id].State
	now := load64(state)
	if now>>stateShift != stateDrain ||
		now&stateCount == x.done && atomic.CompareAndSwapUint64(state, now, stateActive<<stateShift) {
		return true
	}
	if x.tries++; x.tries < drainTries {
		return false
	}
	e.remove(x)
	return true
}
