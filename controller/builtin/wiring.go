package builtin

import (
	"slices"

	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/topology"
)

// expect tells discovery what a topology says of its ports, where the cables are known to be laid so.
func (c *Controller) expect(t *topology.Topology) {
	if c.wired && t != nil {
		c.Discovery.Expect(wiring(t))
	}
}

// wiring lists the controller's datapaths in a topology, their ports that lead to hosts and routers, and the links between
// datapaths. What is behind other switches and devices of the machine, nobody knows.
func wiring(t *topology.Topology) (switches []uint64, hosts []discovery.Port, links []discovery.Link) {
	nodes := map[string]*topology.Node{}
	ours := func(n *topology.Node) bool {
		return n != nil && n.IsDatapath() && slices.Contains(n.Controllers, topology.ControllerTrivet)
	}
	for _, n := range t.Nodes {
		if nodes[n.Name] = n; ours(n) {
			switches = append(switches, uint64(n.DPID))
		}
	}
	for _, l := range t.Links {
		x, y := nodes[l.Ends[0].Node], nodes[l.Ends[1].Node]
		if ours(x) && ours(y) {
			if !l.Down {
				links = append(links, discovery.Link{From: uint64(x.DPID), FromPort: x.OpenFlowPort(l.Ends[0]),
					To: uint64(y.DPID), ToPort: y.OpenFlowPort(l.Ends[1])})
			}
			continue
		}
		for i, n := range []*topology.Node{x, y} {
			if far := nodes[l.Ends[1-i].Node]; ours(n) && far != nil && far.Kind != topology.Switch && !far.IsDatapath() {
				hosts = append(hosts, discovery.Port{Switch: uint64(n.DPID), Number: n.OpenFlowPort(l.Ends[i])})
			}
		}
	}
	return switches, hosts, links
}
