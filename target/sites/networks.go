package sites

import (
	"context"
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// PortsWanted lists the ports that the nodes of a topology need in networks of the list's provider;
// resolved is the same topology, resolved. It is an error if the provider cannot make one.
func PortsWanted(l *site.List, t, resolved *topology.Topology) ([]*site.Port, error) {
	placed := resolved.Clone() // close enough to its final form
	if l.Provided != nil {
		if err := Place(placed, l, nil, nil); err != nil {
			return nil, err
		}
		// Refused before machines are made. Unlike where other nodes go, which hosts are machines
		// themselves does not depend on cores; Spread checks the rest.
		if err := checkNatives(placed).Err(); err != nil {
			return nil, err
		}
	}
	want := l.PortsOf(t, placed)
	switch {
	case len(want) == 0:
		return nil, nil
	case l.Provided == nil && want[0].Network == "":
		return nil, fmt.Errorf("link %s: a router of Neutron is a cloud's, and the list of machines names none: write  openstack: {cloud: NAME, instances: 2}", want[0].Link)
	case l.Provided == nil:
		return nil, fmt.Errorf("link %s: %s is a network of a cloud, and the list of machines names none: write  openstack: {cloud: NAME, instances: 2}", want[0].Link, want[0].Network)
	}
	return want, nil
}

// Connect has the provider make the ports of a lab's nodes in its networks. The lab must have been
// spread; t is its topology as in the file. Afterwards the lab's own topology has the addresses
// that the provider has assigned.
func Connect(ctx context.Context, u *site.User, a site.Allocation, state *lab.State, t *topology.Topology,
	resolve func(*topology.Topology) (*topology.Topology, error), say func(string)) error {
	list, placed := state.Sites, state.Topology
	if err := list.Connect(ctx, u, a, list.PortsOf(t, placed), say); err != nil {
		return err
	}
	list.Fill(t)
	r, err := resolve(t)
	if err != nil {
		return err
	}
	state.Topology = r
	return Place(r, list, nil, placed)
}

// Await waits until packets pass the provider's ports and routers of a lab that is up. As providers
// do not report when their routes are in place, each host pings the next one until that answers.
// Hosts that get no answer within the limit of patience may not be meant to reach each other.
func Await(ctx context.Context, u *site.User, c *lab.Client, s *lab.State, say func(string)) error {
	if s.Sites == nil || s.Sites.Provided == nil || len(s.Sites.Provided.Ports) == 0 {
		return nil
	}
	if err := s.Sites.Provided.Await(ctx, u, say); err != nil {
		return err
	}
	t := s.Topology
	if t.Routes == topology.RoutesAsWritten ||
		!slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return n.Datapath.Provided() }) {
		return nil
	}
	hosts, wait := t.NodesOf(topology.Host), patience.Forwarding.Begin()
	for i := 1; i < len(hosts) && !wait.Over(); {
		r, err := c.Ping(ctx,
			lab.PingRequest{From: hosts[i-1].Name, To: hosts[i].Name, Timeout: topology.Duration(time.Second)})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && r.Received == 0 {
			say("routers to forward")
			continue
		}
		i++ // or it has no address
	}
	return nil
}
