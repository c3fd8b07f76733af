package sites

import (
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// placeHosts places hosts at the machines of a list that take only hosts, if there are any: it sets
// On of each, and Native of those that are a machine. A host goes to the machine that the file
// names for it; else it stays where it was in old, if that has the label that it asks for; else it
// goes to the machine with its own name; else, of the machines with that label and room, to the
// first of those with the fewest hosts. If a provider makes machines of both sorts, hosts that ask
// for no place are left to the machines that take any node.
func placeHosts(t *topology.Topology, list *site.List, old *topology.Topology) error {
	if !list.TakesHosts() {
		return nil
	}
	var p topology.Problems
	room, has := map[string]int{}, map[string]int{}
	var names []string
	total := 0
	for _, m := range list.Machines {
		if m.Hosts > 0 {
			room[m.Name], names, total = m.Hosts, append(names, m.Name), total+m.Hosts
		}
	}
	mixed := list.Provided != nil && len(names) < len(list.Machines)
	was := map[string]*topology.Node{}
	if old != nil {
		was = old.NodesByName()
	}
	put := func(n *topology.Node, m *site.Machine) {
		n.On = m.Name
		if m.Hosts == 0 {
			return
		}
		n.Native = m.Hosts == 1
		has[m.Name]++
		if room[m.Name]--; room[m.Name] == -1 {
			more := fmt.Sprintf("%s: {ssh: %s, hosts: %d}", m.Name, m, m.Hosts+1)
			if list.Provided != nil {
				more = fmt.Sprintf("%s: {hosts: %d}", m.Name, m.Hosts+1)
			}
			p.Add(n.Pos, "place one elsewhere, or let it hold more, as namespaces:  "+more,
				"%s: %s takes no more than %d of the hosts that are to be there", n.Name, m.Name, m.Hosts)
		}
	}
	var open []*topology.Node
	for _, n := range t.Nodes {
		if n.Native = false; n.Kind != topology.Host {
			continue
		}
		on := n.On
		if before := was[n.Name]; before != nil && on == "" {
			on = before.Sited()
		} else if on == "" && fits(list, n.Device) {
			on = n.Device
		} else if m := list.Machine(n.Name); on == "" && m != nil && m.Hosts > 0 {
			on = n.Name
		}
		switch m := list.Machine(on); {
		case m != nil:
			put(n, m)
		case on != topology.Head && (on != "" || !mixed):
			n.On = on // a label, or none
			open = append(open, n)
		}
	}
	open = stay(open, was, list, func(m *site.Machine) bool { return room[m.Name] > 0 }, put)
	// Those with a label first.
	slices.SortStableFunc(open, func(a, b *topology.Node) int { return strings.Compare(b.On, a.On) })
	for _, n := range open {
		best := ""
		for _, name := range names {
			m := list.Machine(name)
			if n.On != "" && !slices.Contains(m.Labels, n.On) {
				continue
			}
			if best == "" || room[name] > 0 && (room[best] <= 0 || has[name] < has[best]) {
				best = name
			}
		}
		switch {
		case best == "" && fits(list, n.On): // other machines, or the head, have the label
		case best == "":
			p.Add(n.Pos, "the machines for hosts are "+strings.Join(names, ", "), "%s: no machine has the label %s",
				n.Name, n.On)
		case room[best] <= 0 && n.On != "":
			p.Add(n.Pos, "give it to more machines, or let some hold several hosts, as namespaces (hosts: 4)",
				"%s: there is no room at the machines with the label %s", n.Name, n.On)
		case room[best] <= 0:
			p.Add(n.Pos, "add machines, or let some hold several hosts, as namespaces (hosts: 4)",
				"%s: the %d machines take %d hosts, which are there already", n.Name, len(names), total)
		default:
			put(n, list.Machine(best))
		}
	}
	return p.Err()
}

// stay keeps those nodes where they were whose machine still has their label, if it is free for
// them, and returns the others.
func stay(nodes []*topology.Node, was map[string]*topology.Node, list *site.List, free func(*site.Machine) bool,
	put func(*topology.Node, *site.Machine)) []*topology.Node {
	return slices.DeleteFunc(nodes, func(n *topology.Node) bool {
		before := was[n.Name]
		if before == nil {
			return false
		}
		m := list.Machine(before.Sited())
		if m == nil || !slices.Contains(m.Labels, n.On) || !free(m) {
			return false
		}
		put(n, m)
		return true
	})
}

// addressMACs gives the interfaces of hosts that are machines the MAC addresses that C3-Edge uses,
// unless the file sets others: this makes them easy to tell apart in captures and flow tables.
func addressMACs(t *topology.Topology) {
	nodes := t.NodesByName()
	for _, l := range t.Links {
		for i := range l.Ends {
			e := &l.Ends[i]
			if n := nodes[e.Node]; n == nil || !n.Native || !topology.HasOwnMAC(t, e) {
				continue
			}
			for _, p := range e.Addresses {
				if p.Addr().Is4() {
					e.MAC = topology.AddressMAC(p.Addr())
					break
				}
			}
		}
	}
}

// fits says whether a word names a site, or a label of one.
func fits(list *site.List, on string) bool {
	return on == topology.Head || list.Machine(on) != nil || slices.Contains(list.Head.Labels, on) ||
		slices.ContainsFunc(list.Machines, func(m *site.Machine) bool { return slices.Contains(m.Labels, on) })
}

// checkNative says which settings a host that is a machine itself cannot have.
func checkNative(n *topology.Node, ends []*topology.Endpoint, p *topology.Problems) {
	for what, has := range map[string]bool{
		"isolate:": len(n.Isolate) > 0, "dirs:": len(n.Dirs) > 0,
		"cpu:": n.CPU != (topology.CPU{}), "cores:": len(n.Cores) > 0, "loopback:": len(n.Loopback) > 0,
		"interfaces:": len(n.Interfaces) > 0, "rules:": len(n.Rules) > 0, "neighbors:": len(n.Neighbors) > 0,
		"mpls:": n.MPLS ||
			slices.ContainsFunc(ends, func(e *topology.Endpoint) bool { return e.MPLS }),
		"labels:": len(n.Labels) > 0,
		"labels in a route of routes:": slices.ContainsFunc(n.Routes,
			func(r topology.Route) bool { return r.Labels != "" }),
		"table in a route of routes:": slices.ContainsFunc(n.Routes,
			func(r topology.Route) bool { return !r.InMain() }), "vm:": n.Guest != nil,
	} {
		if has {
			p.Add(n.Pos, fmt.Sprintf("leave it out, or make the host namespaces there:  %s: {hosts: 2, …}", n.On),
				"%s %s is not for a host that is a machine itself, as at %s", n.Name, what, n.On)
		}
	}
}
