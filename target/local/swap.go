package local

import (
	"context"
	"fmt"
	"time"

	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// A link between two embedded switches changes from one without devices to one with, as when it is given a delay, and
// back, without losing a packet: what is to carry packets is there before what has carried them goes.

// cut takes virtual links away for which devices have been put behind the ports, once these run.
func (l *Lab) cut(ports []portID) error {
	if len(ports) == 0 {
		return nil
	}
	s := l.embedded
	var names []string
	for _, id := range ports {
		if b := s.ports[id]; b != nil && !b.down {
			names = append(names, b.device)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), carrierTime)
	defer cancel()
	if err := l.awaitRunning(ctx, "", names); err != nil {
		return err
	}
	s.fast.Barrier(nil) // takes note of the carriers
	for _, id := range ports {
		if a := s.agents[id.node]; a != nil {
			s.Network().Part(a.Switch(), id.number)
		}
	}
	return nil
}

// drainTime is how long packets may be under way between two devices of this machine, beyond the delay of their link.
const drainTime = 50 * time.Millisecond

// bypass joins ports by virtual links whose devices are about to go, and waits until what is under way there has arrived.
func (l *Lab) bypass(ctx context.Context, s plan.Steps) error {
	if l.embedded == nil {
		return nil
	}
	after, nodes := topology.LinksByKey(s.New), s.New.NodesByName()
	var wait time.Duration
	for _, k := range s.DropLinks {
		link := after[k.Key]
		if link == nil || link.Down || k.Down || l.wireOf(link, nodes) != Virtual {
			continue
		}
		var ids [2]portID
		for i, e := range k.Ends {
			if n := l.node(e.Node); isEmbedded(n) && l.embedded.agents[e.Node] != nil {
				ids[i] = portID{e.Node, n.OpenFlowPort(e)}
			}
			queue := k.Egress(i)
			wait = max(wait, drainTime+time.Duration(queue.Delay+4*queue.Jitter))
		}
		a, b := l.embedded.agents[ids[0].node], l.embedded.agents[ids[1].node]
		if a == nil || b == nil {
			continue
		}
		if err := l.embedded.Network().Join(a.Switch(), ids[0].number, b.Switch(), ids[1].number); err != nil {
			return fmt.Errorf("link %s: %w", k.Name(), err)
		}
	}
	if wait == 0 {
		return nil
	}
	l.embedded.fast.Barrier(nil)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return nil
}
