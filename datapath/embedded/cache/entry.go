//go:build linux

package cache

import (
	"sync/atomic"
	"time"

	"trivet.dev/trivet/datapath/embedded/bpf"
	"trivet.dev/trivet/datapath/embedded/pipeline"
)

// The state of an entry: the highest bits of a word whose other bits count packets, see
// bpf/forward.h.
const (
	stateShift   = 62
	statePending = 1
	stateActive  = 2
	stateDrain   = 3
	stateCount   = uint64(1)<<stateShift - 1

	manyGone   = 1024 // entries, whose ids will be needed soon
	drainTries = 5    // at intervals of a fifth of a second
	drainAfter = 1024 // packets without a moment in which none was in transit
)

// entry is the user-space state of an entry of the program.
type entry struct {
	id    uint32
	port  *port
	flow  bpf.ForwardFlowKey
	class int
	mask  words
	key   words // masked

	of          pipeline.Key // of a packet that matches
	translation *pipeline.Translation
	code        compiled
	clones      []uint32
	path        *path
	slot        int // in the path
	done        uint64
	tries       int // attempts to activate it while its packets are dropped

	tally // of counts
}

// cooling is an id that messages in the miss channel may still contain.
type cooling struct {
	entry  uint32
	clones []uint32
	until  time.Time
}

// find returns the entry of a packet, or nil.
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

// install makes a pending entry for packets like one, or returns why it cannot. It takes over the
// translation.
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
	if !o.Fresh() { // it has changed meanwhile
		e.remove(x)
		return nil, "the tables change"
	}
	return x, ""
}

// place writes an entry, then the flow that leads to it.
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

// placeClones writes and links the outputs after the first one.
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

// remove removes an entry; its id is freed some time later.
func (e *Engine) remove(x *entry) {
	if x.port.flows[x.flow] == x {
		delete(x.port.flows, x.flow)
		_ = e.objs.Flows.Delete(x.flow)
	}
	e.stats.Removed++
	e.retire(x)
}

// retire forgets an entry. Its state stays: a packet that has just found it must not go through
// user space, where later ones would overtake it by the new entry.
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

// collect credits the counts of removed entries, and later frees their ids. The program must have
// been waited for.
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

// cool frees ids that are no longer in use.
func (e *Engine) cool() {
	now, n := time.Now(), 0
	for ; n < len(e.cooling) && e.cooling[n].until.Before(now); n++ {
		e.release(&entry{id: e.cooling[n].entry, clones: e.cooling[n].clones})
	}
	e.cooling = e.cooling[n:]
}

// widen extends a port's mask, which makes entries under the old one useless. Of a field that is
// included, all bits that may matter to the switches on the path are included at once: the next
// packet would need more of them.
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

// setMask sets a port's mask; false: there are too many masks.
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

// evict makes room for another entry of the port, by removing the one of some idle entries that has
// been idle longest. After a search in vain it does not search again for a while.
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

// forwarded records that a packet which matched the pending entry has left. If it was the last, the
// entry becomes active: by the program if asked, as soon as the packet has arrived there.
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

// drained activates an entry whose packets are dropped until the earlier ones have left, if they
// have: no further packet asks the program to, and the last request may have been dropped. If they
// never leave, the entry is removed. It reports whether nothing is left to do.
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
