package discovery

import (
	"slices"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/topology"
)

func init() {
	apps.Register(apps.Spec{Name: "discovery", Cookie: Cookie, Order: 20, Always: true,
		New: func(f apps.Facilities) (controller.App, error) {
			a := New()
			a.configure(f)
			if f.Member != "" {
				a.Share(f.Store)
				return a, nil
			}
			if f.Database == nil {
				return a, nil
			}
			links, err := former(f.Database)
			a.Remember(links)
			return a, err
		},
		Configure: func(a controller.App, f apps.Facilities) error {
			a.(*App).configure(f)
			return nil
		},
	})
}

// configure applies the topology's ports, if the cabling is known to match it.
func (a *App) configure(f apps.Facilities) {
	if f.Wired {
		a.Expect(cables(f.Topology))
	}
}

// former returns the links of the previous run.
func former(db *database.DB) (links []Link, err error) {
	rows, err := db.Links()
	for _, l := range rows {
		if l.Up {
			links = append(links, Link{From: l.From, FromPort: l.FromPort, To: l.To, ToPort: l.ToPort})
		}
	}
	return links, err
}

// cables lists the controller's datapaths in a topology, their ports that lead to hosts and
// routers, those of them whose host has no other link, and the links between datapaths. Links to
// other switches and to devices of the machine are left out: what is behind them is unknown.
func cables(t *topology.Topology) (switches []uint64, hosts, lone []Port, links []Link) {
	nodes := map[string]*topology.Node{}
	of := map[string]int{} // number of links
	for _, l := range t.Links {
		of[l.Ends[0].Node]++
		of[l.Ends[1].Node]++
	}
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
				links = append(links, Link{From: uint64(x.DPID), FromPort: x.OpenFlowPort(l.Ends[0]),
					To: uint64(y.DPID), ToPort: y.OpenFlowPort(l.Ends[1])})
			}
			continue
		}
		for i, n := range []*topology.Node{x, y} {
			if far := nodes[l.Ends[1-i].Node]; ours(n) && far != nil && far.Kind != topology.Switch &&
				!far.IsDatapath() {
				p := Port{Switch: uint64(n.DPID), Number: n.OpenFlowPort(l.Ends[i])}
				if far.Kind == topology.Host && of[far.Name] == 1 && !far.Made().Whole && !far.Management.IsValid() {
					lone = append(lone, p)
				} else {
					hosts = append(hosts, p)
				}
			}
		}
	}
	return switches, hosts, lone, links
}
