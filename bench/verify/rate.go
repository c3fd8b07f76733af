package verify

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// tries is the maximum number of looks at what is wrong, or could not be told because of the
// machine.
const tries = 3

// rates measures the rates and queues of directions with a bandwidth: all of them once, then again
// those that are not settled, over paths that are known by then to bring enough.
func (v *verifier) rates(ctx context.Context, p *plan) error {
	tasks := p.tasks
	for try := 0; try < tries && len(tasks) > 0 && !v.late(); try++ {
		readings, err := v.read(ctx, tasks, try)
		if err != nil {
			return err
		}
		for _, r := range readings {
			v.learn(r)
		}
		tasks = v.unsettled(v.planFor(v.more(p)).tasks)
	}
	for i := range v.t.Links {
		for out := range 2 {
			v.conclude(hop{i, out})
		}
	}
	return ctx.Err()
}

// more returns the flows of a plan, and those between other nodes, whose paths show once they are
// sent.
func (v *verifier) more(p *plan) []*flow {
	known := lists.Set(slices.Concat(p.flows, p.tried), (*flow).name)
	return append(slices.Clone(p.flows), slices.DeleteFunc(v.flows(), func(f *flow) bool { return known[f.name()] })...)
}

// reading is what was sent for a task, and what was observed.
type reading struct {
	*task
	load
	outs []outcome
	ways []seenWay // of the shares
	busy string    // why the machine may have brought less than the lab lets through; "": it was not so
	err  error
}

// read runs tasks, while taps at all devices on the paths count packets.
func (v *verifier) read(ctx context.Context, tasks []*task, try int) ([]*reading, error) {
	streams := 0
	for _, t := range tasks {
		streams += len(t.shares)
	}
	if streams > 1<<15 {
		return nil, fmt.Errorf("%d streams to send: the lab is too large to be verified", streams)
	}
	// Streams with many packets get the last numbers: those are sampled.
	slices.SortStableFunc(tasks, func(a, b *task) int { return boolToInt(v.fast(a)) - boolToInt(v.fast(b)) })
	next := uint16(1 + rand.IntN(1<<15))
	tap := packets.Tap{First: next, Count: uint16(streams), Counts: true, Thin: next + uint16(streams)}
	first := make([]uint16, len(tasks))
	for i, t := range tasks {
		if first[i] = next; v.fast(t) {
			tap.Thin = min(tap.Thin, next)
		}
		next += uint16(len(t.shares))
	}
	ends, err := v.taps(ctx, tap)
	if err != nil {
		return nil, err
	}
	v.tapped = slices.Collect(maps.Keys(ends))
	readings := make([]*reading, len(tasks))
	v.together(ctx, tasks, func(i int) {
		if !v.late() {
			readings[i] = v.readOne(ctx, tasks[i], first[i], try)
		}
	}, func(done int) { v.Progress("rates", done, len(tasks)) })
	sights, err := collect(ends)
	if err := firstOf(ctx.Err(), err); err != nil {
		return nil, err
	}
	for i, r := range readings {
		if r != nil && r.err == nil {
			for k := range r.shares {
				r.ways = append(r.ways, v.wayOf(r, k, sights[first[i]+uint16(k)]))
			}
		}
	}
	return slices.DeleteFunc(readings, func(r *reading) bool { return r == nil }), nil
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// fast says whether a task has so many packets that taps sample them.
func (v *verifier) fast(t *task) bool { return v.rate(t.hop) >= 200e6 }

// readOne runs one task.
func (v *verifier) readOne(ctx context.Context, t *task, first uint16, try int) *reading {
	r := &reading{task: t, load: v.load(t, try)}
	before := readProcessors()
	r.outs = v.sendAll(ctx, t, r.load, first)
	missed := 0
	for i, o := range r.outs {
		if o.err != nil {
			r.err = fmt.Errorf("%s: %w", t.shares[i].name(), o.err)
			return r
		}
		missed += o.got.Dropped
	}
	switch {
	case before.busySince():
		r.busy = "its processors were never idle"
	case missed > 0:
		r.busy = fmt.Sprintf("receivers missed %d packets", missed)
	}
	return r
}

// window returns for how long a rate is measured, in seconds: many times the duration of a full
// frame, and with no more data than necessary.
func (v *verifier) window(rate float64) float64 {
	much := rate > 300e6
	switch {
	case v.Quick && much:
		return 0.15
	case v.Quick:
		return 0.25
	case much:
		return 0.4
	}
	return 1
}

// load says how a task sends.
type load struct {
	payload  int     // bytes
	frame    int     // bytes of layer 2
	settle   float64 // initial seconds that do not count
	duration float64 // seconds of sending
	share    float64 // of the task's rate to send
	fills    float64 // seconds until the queue is full; 0: not waited for
}

// leastFrames is the minimum number of frames in a window.
const leastFrames = 80

// fullFrame returns the largest frame that passes all paths of a task, in bytes of layer 2.
func (v *verifier) fullFrame(t *task) int {
	frame := topology.MaxMTU + ethernet
	for _, s := range t.shares {
		frame = min(frame, v.frame(s.way))
		for _, h := range s.way {
			if takes := v.takes[h]; takes > 0 {
				frame = min(frame, takes)
			}
		}
	}
	return frame
}

// load returns how a task is sent at a try: later tries offer less, which burdens a busy machine
// less, and the last takes longer.
func (v *verifier) load(t *task, try int) load {
	asked := v.rate(t.hop)
	l := load{frame: v.fullFrame(t), share: 1}
	window := v.window(asked) * float64(1+try/2)
	over := overhead(v.address[t.shares[0].to])
	enters, enough := t.enters(), t.narrow.link < 0
	if try > 0 && enough {
		l.share = (asked + (enters-asked)*0.6) / enters
	}
	excess := max(enters*l.share, 1.05*asked) - asked
	queue := v.check(t.hop, Queue)
	full := l.frame
	if queue == nil || v.egress(t.hop).Managed() || !enough {
		queue = nil
		l.frame = min(l.frame, max(over+packets.HeaderLen, int(asked*window/8/leastFrames)))
	}
	// A token bucket lets 5 ms, or two frames, pass at once.
	l.settle = 1.2*8*max(2*float64(full), asked/8/200)/excess + 0.02
	if queue != nil { // until it is full
		l.settle += 8 * (v.queueBytes(t.hop, full) + float64(full)) / excess
		l.fills = l.settle
		l.settle = min(l.settle, v.mostSettling(queue))
	}
	window = max(window, 30*8*float64(l.frame)/asked)
	l.payload, l.duration = l.frame-over, l.settle+window
	return l
}

// outcome is the result of one flow.
type outcome struct {
	sent *packets.Sent
	got  *packets.Received
	err  error
}

// sendAll sends all flows of a task at once, as streams numbered from first on. They use the ports
// of the streams by which their paths were found: among equal paths, ports may decide.
func (v *verifier) sendAll(ctx context.Context, t *task, l load, first uint16) []outcome {
	outs := make([]outcome, len(t.shares))
	start := packets.NewStart(len(t.shares))
	var group sync.WaitGroup
	for i, s := range t.shares {
		group.Go(func() {
			rate := s.rate * l.share / 8 / float64(l.frame)
			send := packets.Send{To: netip.AddrPortFrom(v.address[s.to], 0), Stream: first + uint16(i), Size: l.payload,
				Rate: rate, With: start, Port: uint16(s.ports[0]),
				Count: max(1, int(rate*(l.duration+0.03*float64(len(t.shares)-1))))} // started one by one
			drained := inTime(4 * 8 * float64(l.frame) / v.rate(t.hop) * float64(len(t.shares)))
			quiet := 100*time.Millisecond + v.delayOf(s.way) + drained
			o := &outs[i]
			o.sent, o.got, o.err = v.measure(ctx, s.from, s.to, send,
				packets.Receive{Record: true, Port: uint16(s.ports[1])}, quiet)
			if o.err == nil && (o.got == nil || o.got.Record == nil) {
				o.err = fmt.Errorf("the receiver reported nothing")
			}
		})
	}
	group.Wait()
	return outs
}

// delayOf returns the total delay of the links of a path.
func (v *verifier) delayOf(way []hop) (sum time.Duration) {
	for _, h := range way {
		sum += inTime(v.takes80(h))
	}
	return sum
}

// comes returns the share of what crosses a direction that is seen behind it: receivers discard
// damaged packets, and duplicates count once.
func comes(e topology.Impairment) float64 {
	return e.Arrives() / (1 + float64(e.Duplicate))
}

func several(n int) string {
	if n == 1 {
		return "one sender"
	}
	return fmt.Sprintf("%d at once", n)
}

// bits formats a rate for users.
func bits(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.3g Gbit/s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.3g Mbit/s", v/1e6)
	}
	return fmt.Sprintf("%.3g kbit/s", v/1e3)
}

// downs tries whether packets come over links that should be down, if there is no path around them.
func (v *verifier) downs(ctx context.Context) error {
	for i, l := range v.t.Links {
		if !l.Down || l.Ends[0].External() || l.Ends[1].External() {
			continue
		}
		for out := range 2 {
			h := hop{i, out}
			c := v.check(h, Up)
			from, to := v.reach(v.near(h)), v.reach(v.far(h))
			if from == "" || to == "" || from == to || v.back(v.tree(from, nil), to) != nil {
				if c.Why == "" && c.Got == nil {
					c.untold("the link has no device, and separates no two hosts")
				}
				continue
			}
			got, err := v.client.Ping(ctx, lab.PingRequest{From: from, To: v.address[to].String(), Count: 2,
				Interval: topology.Duration(50 * time.Millisecond), Timeout: topology.Duration(300 * time.Millisecond)})
			if err == nil && got.Received > 0 {
				c.wrong(1, "%s gets an answer from %s", from, to)
			} else if c.Verdict != Wrong {
				c.set(0)
			}
			c.By = []string{from + " → " + to}
		}
	}
	return ctx.Err()
}

// reach returns the nearest node to another that can send and is connected to it.
func (v *verifier) reach(node string) string {
	if _, ok := v.address[node]; ok && own(v.nodes[node]) && v.closed[node] == "" {
		return node
	}
	came := v.tree(node, nil)
	for _, e := range v.ends {
		if _, ok := came[e]; ok {
			return e
		}
	}
	return ""
}
