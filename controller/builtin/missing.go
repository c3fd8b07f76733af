package builtin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// Topology returns the latest topology given to the controller; nil: none.
func (c *Controller) Topology() *topology.Topology { return c.told.Load() }

// Missing lists what the controller has yet to learn of a topology: nodes, and links by their
// index, also those that are down; and what its apps have yet to do.
func (c *Controller) Missing(t *topology.Topology) (away []string, links []int, undone []string) {
	nodes := map[string]*topology.Node{}
	for _, n := range t.Nodes {
		if nodes[n.Name] = n; controlled(n) && c.Switch(uint64(n.DPID)) == nil {
			away = append(away, string(n.Kind)+" "+n.Name)
		}
	}
	for i, l := range t.Links {
		inner := controlled(nodes[l.Ends[0].Node]) && controlled(nodes[l.Ends[1].Node])
		for j, e := range l.Ends {
			n, far := nodes[e.Node], nodes[l.Ends[1-j].Node]
			if !controlled(n) || c.isOthers(n) {
				continue
			}
			dpid, port := uint64(n.DPID), n.OpenFlowPort(e)
			kind := c.Discovery.Kind(dpid, port)
			// Where switches learn reactively, an entry of a user's may keep the probes of a link.
			forwards := ((kind == discovery.Inner) == inner || !inner && leadsOn(l.Ends[1-j],
				far)) && kind != discovery.Open || t.Learning == topology.Reactive && kind == discovery.Edge
			if !inner && n.Kind == topology.Switch && c.Learning != nil {
				forwards = c.Learning.TakesPart(dpid, port)
			}
			if !forwards && !c.seesDown(n, port) {
				links = append(links, i)
				break
			}
		}
	}
	if c.Learning != nil && !c.Learning.Settled() {
		undone = append(undone, "the spanning tree")
	}
	each(c, func(a apps.Unfinished) { undone = append(undone, a.Missing()...) })
	return away, links, undone
}

// Finding reports whether an app has yet to find routes, which the app routing would install.
func (c *Controller) Finding() (finding bool) {
	each(c, func(a apps.Unfinished) { finding = finding || a != apps.Unfinished(c.Routing) && len(a.Missing()) > 0 })
	return finding
}

// leadsOn reports whether controlled nodes may be behind an end of a link that is not controlled:
// external networks and uncontrolled switches join them, too.
func leadsOn(end topology.Endpoint, n *topology.Node) bool {
	return end.Beyond() || n != nil && n.Kind == topology.Switch
}

// isOthers reports whether another member of the cluster is responsible for a node, and knows what
// is missing there.
func (c *Controller) isOthers(n *topology.Node) bool {
	return c.facilities.Member != "" && c.Switch(uint64(n.DPID)) == nil
}

// controlled reports whether Trivet's controller is responsible for a node, which may be nil.
func controlled(n *topology.Node) bool {
	return n != nil && n.IsDatapath() && slices.Contains(n.Controllers, topology.ControllerTrivet)
}

// seesDown reports whether an embedded switch has reported a port as down: someone set the device
// down, so there is nothing to wait for. (Open vSwitch is not asked: it reports a carrier only some
// time after it is there.)
func (c *Controller) seesDown(n *topology.Node, port uint32) bool {
	s := c.Switch(uint64(n.DPID))
	return n.Datapath == topology.Embedded && s != nil && slices.ContainsFunc(s.Ports(), func(p openflow.Port) bool {
		return p.Number == port && !p.Works()
	})
}

// Barriers waits until the switches have carried out everything sent so far.
func (c *Controller) Barriers(ctx context.Context) error {
	for _, s := range c.Switches() {
		err := s.Barrier(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("the controller is waiting for an answer from switch %s", c.Map().Switch(s.DPID()).Name)
		}
		if err != nil && !errors.Is(err, controller.ErrGone) { // one that a change has removed; of others see Missing
			return fmt.Errorf("switch %s: %w", c.Map().Switch(s.DPID()).Name, err)
		}
	}
	return nil
}
