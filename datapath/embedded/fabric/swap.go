package fabric

import (
	"context"
	"fmt"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// A link between two embedded switches changes from one without devices to one with, as when it is
// given a delay, and back, without losing a packet: the new path is ready before the old one is
// removed.

// cut removes virtual links that devices have replaced, once these are running.
func (f *fabric) cut(ports []portID) error {
	if len(ports) == 0 {
		return nil
	}
	s := f.now.Load()
	var names []string
	for _, id := range ports {
		if b := s.ports[id]; b != nil && !b.down {
			names = append(names, b.device)
		}
	}
	if err := f.site.AwaitRunning(names); err != nil {
		return err
	}
	s.fast.Barrier(nil) // notices the carriers
	for _, id := range ports {
		if a := s.agents[id.node]; a != nil {
			s.Network().Part(a.Switch(), id.number)
		}
	}
	return nil
}

// drainTime is the maximum time that packets are in transit between two devices of this machine,
// beyond the delay of their link.
const drainTime = 50 * time.Millisecond

// Leave joins ports by virtual links whose devices are about to be removed, and waits until packets
// in transit there have arrived.
func (f *fabric) Leave(ctx context.Context, steps plan.Steps) error {
	s := f.now.Load()
	if s == nil {
		return nil
	}
	after, wires := topology.LinksByKey(steps.New), map[*topology.Link]datapath.Wire{}
	for i, w := range f.site.WiresOf(steps.New) {
		wires[steps.New.Links[i]] = w
	}
	var wait time.Duration
	for _, k := range steps.DropLinks {
		link := after[k.Key]
		if link == nil || link.Down || k.Down || wires[link] != Virtual || f.site.Wire(k.Link) == Virtual {
			continue
		}
		var ids [2]portID
		for i, e := range k.Ends {
			if n := f.site.Node(e.Node); is(n) && s.agents[e.Node] != nil {
				ids[i] = portID{e.Node, n.OpenFlowPort(e)}
			}
			queue := k.Egress(i)
			wait = max(wait, drainTime+time.Duration(queue.Delay+4*queue.Jitter))
		}
		a, b := s.agents[ids[0].node], s.agents[ids[1].node]
		if a == nil || b == nil {
			continue
		}
		if err := s.Network().Join(a.Switch(), ids[0].number, b.Switch(), ids[1].number); err != nil {
			return fmt.Errorf("link %s: %w", k.Name(), err)
		}
	}
	if wait == 0 {
		return nil
	}
	s.fast.Barrier(nil)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return nil
}
