package flowload

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/openflow"
)

// Ports of a switch in a line. Further ports are edges.
const (
	portBack    = 1 // to the switch before; of the first one an edge
	portForward = 2 // to the next switch; of the last one an edge
)

const etherTypeBDDP = 0x8942 // LLDP that switches forward, as several controllers send it

// line carries frames between the switches.
type line struct {
	run     *run
	cables  []direction  // that of switch i forward is 2i, that of switch i+1 back is 2i+1
	crossed atomic.Int64 // directions that a probe has crossed
	all     atomic.Int64 // when the last of them was, by clock
	probes  atomic.Uint64
}

// allCrossed is passed to Progress when a probe has crossed the last direction.
const allCrossed = "watching: all links have been probed"

// direction is one of a link.
type direction struct {
	last int64         // when the last probe crossed it, by clock; 0: never
	gap  time.Duration // the longest between two
}

// next returns where a port's link leads; nil for an edge.
func (l *line) next(n *node, port uint32) (to *node, toPort uint32, d *direction) {
	switch {
	case port == portBack && n.index > 0:
		return l.run.nodes[n.index-1], portForward, &l.cables[2*(n.index-1)+1]
	case port == portForward && n.index < len(l.run.nodes)-1:
		return l.run.nodes[n.index+1], portBack, &l.cables[2*n.index]
	}
	return nil, 0, nil
}

// carry takes the frame of a PACKET_OUT over the links of the ports that it names, and to the
// controller if an entry of the switch at the other end says so.
func (l *line) carry(from *node, v *said) {
	head, ok := readPacket(0, v.frame)
	if !ok {
		return
	}
	probe := head.etherType == openflow.EthTypeLLDP || head.etherType == etherTypeBDDP
	if probe {
		l.probes.Add(1)
	}
	for port := range from.targets() {
		to, toPort, d := l.next(from, port)
		if to == nil || !to.up.Load() {
			continue
		}
		p := head
		p.inPort = toPort
		s := sends(to.store.senders, &p)
		if s == nil && l.run.Version != version10 {
			continue
		}
		to.deliver(toPort, s, v.frame)
		if probe {
			l.cross(d, from.now)
		}
	}
}

// deliver sends a frame that came in by a port to the controller.
func (n *node) deliver(port uint32, s *sender, frame []byte) {
	n.received[port]++
	n.tx = append(n.tx, n.packetIn(port, s, frame)...)
	n.run.loop.touch(n)
}

func (l *line) cross(d *direction, now int64) {
	if d.last == 0 {
		if l.crossed.Add(1) == int64(len(l.cables)) {
			l.all.Store(now)
		}
	} else {
		d.gap = max(d.gap, time.Duration(now-d.last))
	}
	d.last = now
}

// line runs line mode: connect all switches at once, and observe.
func (r *run) line(ctx context.Context) (*Result, error) {
	l := r.wire
	whole, err := startMeter(r.PID)
	if err != nil {
		return nil, err
	}
	result := r.result()
	began := r.clock()
	r.say("connecting %d switches", r.Switches)
	if err := r.dial(ctx); err != nil {
		return nil, err
	}
	r.say("watching for %v", r.Duration)
	steady, probes, err := l.watch(ctx, began)
	if err != nil {
		return nil, err
	}
	ended := r.clock()
	if err := whole.stop(); err != nil {
		return nil, fmt.Errorf("the controller has ended: %w", err)
	}
	whole.usage(result)
	result.Seconds = float64(ended-began) / 1e9
	if ctx.Err() != nil {
		result.Notes = append(result.Notes, "interrupted")
	}
	r.loop.end()
	l.count(result, began, ended)
	result.Line.Steady, result.Line.Probes = steady.seconds, float64(probes)/steady.seconds
	result.Line.SteadyCPU = steady.controllerUsed / steady.seconds
	return result, l.lost(result)
}

// watch waits for the duration and measures its steady part: from 2 s after all directions were
// crossed, or the second half.
func (l *line) watch(ctx context.Context, began int64) (steady *meter, probes uint64, err error) {
	half := began + int64(l.run.Duration)/2
	for told := false; ctx.Err() == nil; {
		now := l.run.clock()
		all := l.all.Load()
		if all != 0 && !told {
			told = true
			l.run.say(allCrossed)
		}
		if now >= half || all != 0 && now >= all+int64(2*time.Second) {
			break
		}
		_ = sleep(ctx, 20*time.Millisecond)
	}
	if steady, err = startMeter(l.run.PID); err != nil {
		return nil, 0, fmt.Errorf("the controller has ended: %w", err)
	}
	before := l.probes.Load()
	_ = sleep(ctx, time.Duration(began+int64(l.run.Duration)-l.run.clock()))
	err = steady.stop()
	return steady, l.probes.Load() - before, err
}

// count writes down what has happened. The loop has ended.
func (l *line) count(result *Result, began, ended int64) {
	found := &LineFound{Directions: len(l.cables), Crossed: int(l.crossed.Load()), Handshakes: int(l.run.ups.Load())}
	if found.Handshakes == l.run.Switches {
		found.AllUp = float64(l.run.lastUp.Load()-began) / 1e9
	}
	if all := l.all.Load(); all != 0 {
		found.AllCrossed = float64(all-began) / 1e9
	}
	var gap time.Duration
	for _, d := range l.cables {
		if d.last != 0 {
			gap = max(gap, d.gap, time.Duration(ended-d.last))
		}
	}
	found.LongestGap = gap.Seconds()
	result.Line = found
	result.Dropped = int(l.run.dropped.Load())
	if first := l.run.first.Load(); first != nil {
		result.Notes = append(result.Notes, fmt.Sprintf("the controller ended %d connections, the first: %v",
			result.Dropped, *first))
	}
	result.Limited = l.run.limited(result)
}

// lost counts the links that the controller considered lost, if it can be asked.
func (l *line) lost(result *Result) error {
	if l.run.LinksLost == nil {
		return nil
	}
	n, err := l.run.LinksLost()
	if err != nil {
		return fmt.Errorf("links lost: %w", err)
	}
	result.Line.LinksLost = &n
	return nil
}
