package losses

import (
	"cmp"
	"fmt"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// meaning returns a copy of t in which things that can be written in several ways are written in
// one.
func meaning(t *topology.Topology) *topology.Topology {
	m := t.Clone()
	addresses := map[string]string{}
	for _, n := range m.NodesOf(topology.Controller) {
		addresses[n.Name] = cmp.Or(n.Address, n.Name)
	}
	for _, n := range m.Nodes {
		inherit(n, m, addresses)
		n.StartMayFail = false // readers of a format may or may not check how commands end
	}
	number(m)
	for _, l := range m.Links {
		for i := range l.Ends {
			egress := l.Egress(i)
			l.Ends[i].Egress = &egress
		}
		l.Impairment = topology.Impairment{}
	}
	return m
}

// inherit gives a switch or router what the topology says for all of them.
func inherit(n *topology.Node, t *topology.Topology, addresses map[string]string) {
	switch n.Kind {
	case topology.Switch:
		n.Datapath = cmp.Or(n.Datapath, t.Datapath, topology.Embedded)
		if len(n.Controllers) == 0 {
			n.Controllers = append(n.Controllers, t.Controllers...)
		}
		if len(n.Controllers) == 0 {
			n.Controllers = []string{topology.ControllerTrivet}
		}
	case topology.Router:
		inherited := t.Datapath
		if !inherited.Serves(topology.Router) {
			inherited = ""
		}
		open := topology.Embedded
		if n.RunsPrograms() || len(t.Controllers) > 0 && t.Controllers[0] != topology.ControllerTrivet {
			if open = topology.Kernel; !inherited.Linux() {
				inherited = ""
			}
		}
		if n.Inside() != "" {
			inherited = ""
		}
		n.Datapath = cmp.Or(n.Datapath, inherited, open)
	}
	for i, c := range n.Controllers {
		n.Controllers[i] = cmp.Or(addresses[c], c)
	}
}

// number numbers the ports and moves what a host or router says about its first end to that end,
// both as topology.Resolve does.
func number(t *topology.Topology) {
	nodes := lists.Index(t.Nodes, func(n *topology.Node) string { return n.Name })
	type portKey struct {
		node string
		port int
	}
	next, given := map[string]int{}, map[portKey]bool{}
	first := map[string]*topology.Endpoint{}
	each := func(f func(*topology.Endpoint)) {
		for _, l := range t.Links {
			for i := range l.Ends {
				if e := &l.Ends[i]; !e.External() {
					f(e)
				}
			}
		}
	}
	each(func(e *topology.Endpoint) {
		if e.Port != nil {
			given[portKey{e.Node, *e.Port}] = true
		}
	})
	each(func(e *topology.Endpoint) {
		n := nodes[e.Node]
		if e.Port == nil {
			port := next[e.Node]
			if port == 0 && n != nil && n.Kind == topology.Switch {
				port = 1
			}
			for given[portKey{e.Node, port}] {
				port++
			}
			e.Port = &port
		}
		next[e.Node] = max(next[e.Node], *e.Port+1)
		if first[e.Node] == nil || *e.Port < *first[e.Node].Port {
			first[e.Node] = e
		}
		if e.Interface == topology.DeviceName(fmt.Sprintf("%s-eth%d", e.Node, *e.Port)) {
			e.Interface = ""
		}
	})
	each(func(e *topology.Endpoint) {
		if n := nodes[e.Node]; n != nil && n.Unaddressed && len(e.Addresses) == 0 {
			e.Unaddressed = true
		}
	})
	for name, e := range first {
		n := nodes[name]
		if n == nil || n.Kind == topology.Switch || n.Kind == topology.Controller {
			continue
		}
		n.Addresses = append(e.Addresses, n.Addresses...)
		n.Unaddressed = e.Unaddressed
		e.Addresses, e.Unaddressed = nil, false
		if e.MAC != (topology.MAC{}) {
			n.MAC = e.MAC
		}
		e.MAC = topology.MAC{}
	}
}
