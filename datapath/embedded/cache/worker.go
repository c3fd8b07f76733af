//go:build linux

package cache

import (
	"slices"
	"time"

	"trivet.dev/trivet/datapath/embedded/bpf"
	"trivet.dev/trivet/datapath/embedded/pipeline"
)

// waiting is a packet in the queue of its port.
type waiting struct {
	missed
	room []byte
}

// worker takes packets from the miss channel into a queue per port, and forwards them round-robin.
// The eBPF program limits how many packets of a port may wait, in the channel and here.
type worker struct {
	*Engine
	busy  []*port // whose queues are not empty
	small [][]byte
	large []byte
	proc  *pipeline.Processor
	trans *pipeline.Translator
	spare *pipeline.Translation // reused for the next translation
}

const (
	smallRoom = 2048
	readAhead = 64 // packets, before one is forwarded
	burst     = 2048

	settleEvery = 200 * time.Millisecond
)

func (e *Engine) work() {
	w := &worker{
		Engine: e, large: make([]byte, maxFrame), proc: pipeline.NewProcessor(e.net),
		trans: pipeline.NewTranslator(e.net), spare: &pipeline.Translation{},
	}
	checked := time.Now()
	for {
		select {
		case <-e.stop:
			return
		default:
		}
		w.fill()
		if !w.turn() {
			wait := time.Until(checked.Add(settleEvery))
			if len(w.busy) > 0 {
				wait = time.Millisecond // the other ports have used their share
			}
			e.tap.wait(int(max(0, wait).Milliseconds()) + 1)
		}
		if now := time.Now(); now.Sub(checked) > settleEvery {
			checked = now
			w.settle()
		}
	}
}

// fill reads packets into the queues.
func (w *worker) fill() {
	for range readAhead {
		m, ok := w.tap.read(w.large)
		if !ok {
			return
		}
		if int(m.port) >= len(w.byID) {
			continue
		}
		w.mu.Lock()
		p := w.byID[m.port]
		w.mu.Unlock()
		if p == nil {
			continue
		}
		var room []byte
		if n := len(w.small); len(m.pkt.Data) <= smallRoom && n > 0 {
			room, w.small = w.small[n-1], w.small[:n-1]
		} else {
			room = make([]byte, 0, max(len(m.pkt.Data), smallRoom))
		}
		m.pkt.Data = append(room[:0], m.pkt.Data...)
		if len(p.queue) == 0 {
			w.busy = append(w.busy, p)
		}
		p.queue = append(p.queue, waiting{m, room})
	}
}

// turn forwards one packet of each port; false: no port had one that may be forwarded.
func (w *worker) turn() (some bool) {
	now := w.dp.Now()
	left := w.busy[:0]
	for _, p := range w.busy {
		if p.allowed(now, w.opt.MissRate) {
			if w.gone(p) {
				p.queue = nil
				continue
			}
			some = true
			m := p.queue[0]
			p.queue[0] = waiting{}
			p.queue = p.queue[1:]
			last := p.whole(&m.missed)
			w.take(p, &m.missed, last, now)
			if len(m.room) == 0 && cap(m.room) == smallRoom && len(w.small) < 1024 {
				w.small = append(w.small, m.room)
			}
			if last {
				done := &w.ports[p.id].Done
				store64(done, load64(done)+1)
			}
		}
		if len(p.queue) > 0 {
			left = append(left, p)
		} else {
			p.queue = nil
		}
	}
	clear(w.busy[len(left):])
	w.busy = left
	return some
}

// gone reports whether a port no longer has a device.
func (w *worker) gone(p *port) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attached[p.port] != p
}

// whole reports whether a packet, alone or with those before it, is complete as the program has
// counted it: a packet whose segmentation the tap cannot leave to a device, such as one in a
// tunnel, arrives in parts.
func (p *port) whole(m *missed) bool {
	if m.parts < 2 {
		return true
	}
	if p.parts == 0 {
		p.parts = m.parts
	}
	p.parts--
	return p.parts == 0
}

// allowed reports whether the port's rate permits another packet now.
func (p *port) allowed(now time.Duration, rate float64) bool {
	p.tokens = min(p.tokens+(now-p.filled).Seconds()*rate, burst)
	p.filled = now
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}

// take forwards a packet, or a part of one, possibly the last.
func (w *worker) take(p *port, m *missed, last bool, now time.Duration) {
	var k pipeline.Key
	w.mu.Lock()
	w.stats.Missed++
	w.mu.Unlock()
	why := ""
	switch {
	case !pipeline.ParseKey(&k, m.pkt.Data, p.port.Number()):
		why = "too short for a frame"
	case m.reason != missFlow:
		why = reasons[m.reason]
	default:
		why = w.quick(p, m, last, &k, now)
	}
	if why != "" {
		w.mu.Lock()
		w.stats.Slow[why]++
		w.mu.Unlock()
		w.dp.Receive(p.port, &m.pkt)
	}
}

// quick forwards a packet by its entry, which it creates if necessary, or by its translation; why
// says why neither exists.
func (w *worker) quick(p *port, m *missed, last bool, k *pipeline.Key, now time.Duration) (why string) {
	w.applying.Lock()
	defer w.applying.Unlock()
	w.mu.Lock()
	var o *pipeline.Translation
	x := p.find(w.Engine, k)
	counted := x != nil && m.entry == x.id && last
	if counted {
		w.activate[0] = bpf.ForwardActivation{Entry: x.id, Left: uint32(x.done + 1)}
	}
	if x != nil {
		o = x.translation
	}
	w.mu.Unlock()
	if x == nil {
		if o, why = w.translate(p, k, now); why != "" {
			return why
		}
	}
	if m.pkt.Longest() > o.Largest {
		return reasons[missGuard]
	}
	r := w.proc.Apply(o, &m.pkt, now)
	w.dp.Mirrored(r.Mirrored)
	asked := false
	for i := range r.Sent {
		asked = w.send(&r.Sent[i], &m.pkt, counted && i == len(r.Sent)-1)
	}
	if counted {
		w.mu.Lock()
		if w.list[x.id] == x {
			w.forwarded(x, asked)
		}
		w.mu.Unlock()
	}
	return ""
}

// translate returns the translation of a packet, and makes an entry if possible; why says why there
// is no translation.
func (w *worker) translate(p *port, k *pipeline.Key, now time.Duration) (o *pipeline.Translation, why string) {
	o = w.spare
	w.trans.Translate(o, p.port, k, now)
	if o.Loop != nil {
		w.dp.Loop(o.Loop)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x, why := w.install(p, k, o)
	switch {
	case x != nil:
		w.spare = &pipeline.Translation{}
		return o, ""
	case o.Slow != "" || o.ToController() || o.Metered():
		return nil, why
	}
	w.stats.Slow[why]++
	return o, ""
}

var reasons = map[uint8]string{missOdd: "headers that the program does not read",
	missGuard: "TTL or size out of an entry's range"}

// settle accounts for packets that the channel has lost: packets counted as sent to it that have
// not arrived although the count no longer changes.
func (w *worker) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = slices.DeleteFunc(w.draining, func(x *entry) bool {
		return w.list[x.id] != x || w.drained(x)
	})
	for id, p := range w.byID {
		if p == nil {
			continue
		}
		sent, done := load64(&w.ports[id].Sent), load64(&w.ports[id].Done)
		if sent == done || w.attached[p.port] != p {
			continue // nearly all ports, of thousands: skip them early
		}
		if len(p.queue) > 0 || sent != p.seen {
			p.seen = sent
			continue
		}
		store64(&w.ports[p.id].Done, sent)
		p.parts = 0
		for _, x := range p.flows {
			if load64(&w.entries[x.id].State)>>stateShift != stateActive {
				w.remove(x)
			}
		}
	}
}
