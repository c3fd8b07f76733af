package topology

import "errors"

// MakeRouters turns the switches of a topology into routers of the same names. Each link to a host
// is then a subnet of its own, so addresses are left for Resolve to assign.
func (t *Topology) MakeRouters() error {
	if len(t.NodesOf(Router)) > 0 {
		return errors.New("there are routers already; --nodes router is for topologies of hosts and switches")
	}
	for _, n := range t.Nodes {
		n.Addresses, n.Gateways, n.Routes = nil, nil, nil
		if n.Kind == Switch {
			n.Kind, n.FailMode, n.OpenFlow, n.STP = Router, "", nil, false
		}
	}
	for _, l := range t.Links {
		for i := range l.Ends {
			l.Ends[i].Addresses = nil
		}
	}
	return nil
}
