package clab

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/google/shlex"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// inCommands returns the topology as a file for containerlab can express it: commands set the
// addresses and routes, including those that Resolve assigns, and all interfaces have names.
func inCommands(t *topology.Topology) *topology.Topology {
	out := t.Clone()
	resolved, _ := topology.Resolve(topology.Unadvertised(t),
		topology.Defaults{Datapath: topology.Bridge, Controlled: topology.Embedded,
			Controller: topology.ControllerNone})
	if resolved == nil {
		return out
	}
	ends := map[string][]topology.Endpoint{}
	for i, l := range resolved.Links {
		for j, e := range l.Ends {
			if !e.External() {
				ends[e.Node] = append(ends[e.Node], e)
				out.Links[i].Ends[j].Interface = e.Interface
			}
		}
	}
	commanded := map[string]bool{}
	for i, n := range resolved.Nodes {
		if n.Kind != topology.Host && n.Kind != topology.Router || n.RoutingNode() {
			continue
		}
		into := out.Nodes[i]
		commands, unheld := network(n, ends[n.Name], resolved.IPv6)
		if len(commands) > 0 {
			into.Start = startOf(append(commands, linesOf(into.Start)...))
		}
		for k := range into.Interfaces {
			if i := &into.Interfaces[k]; i.Dummy {
				i.Addresses, i.MPLS = nil, false
			}
		}
		commanded[n.Name] = true
		into.Addresses, into.Loopback, into.Gateways, into.Routes, into.Unaddressed = nil, nil, nil, unheld, true
		into.Rules, into.Neighbors, into.MPLS, into.Labels = nil, nil, false, nil
		slices.SortStableFunc(into.Dirs, func(a,
			b topology.PrivateDir) int {
			return strings.Compare(path.Clean(a.Path), path.Clean(b.Path))
		})
	}
	for _, l := range out.Links {
		for i := range l.Ends {
			if e := &l.Ends[i]; commanded[e.Node] {
				e.Addresses, e.Unaddressed, e.MPLS = nil, true, false
				l.MPLS = false
			}
		}
	}
	out.Routes = topology.RoutesAsWritten
	out.Subnet, out.Subnet6 = netip.Prefix{}, netip.Prefix{} // nothing is assigned any more
	return out
}

// network returns the commands that set a node's addresses and routes, and the routes that no
// command can set.
func network(n *topology.Node, ends []topology.Endpoint,
	ipv6 topology.IPv6) (commands [][]string, unheld []topology.Route) {
	for _, e := range ends {
		for _, a := range e.Addresses {
			if a.Addr().Is4() || ipv6.Addressed() {
				commands = append(commands, []string{"ip", "addr", "add", a.String(), "dev", e.Interface})
			}
		}
	}
	for _, i := range n.Interfaces {
		for _, a := range i.Addresses {
			if i.Dummy && (a.Addr().Is4() || ipv6.Addressed()) {
				commands = append(commands, []string{"ip", "addr", "add", a.String(), "dev", i.Name})
			}
		}
	}
	for _, a := range n.Loopback {
		commands = append(commands, []string{"ip", "addr", "add", a.String(), "dev", "lo"})
	}
	commands = append(commands, mpls(n, ends)...)
	for _, g := range n.Gateways { // replaces that of the management network
		commands = append(commands, []string{"ip", "route", "replace", "default", "via", g.String()})
	}
	for _, rt := range n.Routes {
		if rt.Distance > 0 || rt.Tag > 0 {
			unheld = append(unheld, rt)
			continue
		}
		c := []string{"ip", "route", "replace", rt.To.String()}
		if rt.Discard {
			c = []string{"ip", "route", "replace", "blackhole", rt.To.String()}
		}
		if rt.Labels != "" {
			c = append(c, "encap", "mpls", string(rt.Labels))
		}
		if rt.Via.IsValid() {
			c = append(c, "via", rt.Via.String())
		}
		if rt.Device != "" {
			c = append(c, "dev", rt.Device)
		}
		if rt.OnLink {
			c = append(c, "onlink")
		}
		if rt.Source.IsValid() {
			c = append(c, "src", rt.Source.String())
		}
		if rt.Table > 0 {
			c = append(c, "table", strconv.FormatUint(uint64(rt.Table), 10))
		}
		if rt.Metric > 0 {
			c = append(c, "metric", strconv.FormatUint(uint64(rt.Metric), 10))
		}
		commands = append(commands, c)
	}
	for _, x := range n.Neighbors {
		commands = append(commands,
			[]string{"ip", "neigh", "replace", x.Address.String(), "lladdr", x.MAC.String(), "dev", x.Device, "nud",
				"permanent"})
	}
	for _, rule := range n.Rules {
		v4, v6 := rule.Families(ipv6)
		words := strings.Fields(rule.String())
		if v4 {
			commands = append(commands, append([]string{"ip", "rule", "add"}, words...))
		}
		if v6 {
			commands = append(commands, append([]string{"ip", "-6", "rule", "add"}, words...))
		}
	}
	return commands, unheld
}

// mpls returns the commands that make a node accept labels and set its label routes.
func mpls(n *topology.Node, ends []topology.Endpoint) (commands [][]string) {
	set := func(key string, value int) {
		commands = append(commands, []string{"sysctl", "-qw", fmt.Sprintf("net/mpls/%s=%d", key, value)})
	}
	var at []*topology.Endpoint
	for i := range ends {
		at = append(at, &ends[i])
	}
	if most := n.PlatformLabels(at); most > 0 {
		set("platform_labels", most)
	}
	for _, e := range ends {
		if e.MPLS {
			set("conf/"+e.Interface+"/input", 1)
		}
	}
	if slices.ContainsFunc(n.Labels, func(l topology.LabelRoute) bool { return l.Device == "lo" }) {
		set("conf/lo/input", 1)
	}
	for _, i := range n.Interfaces {
		if i.Dummy && i.MPLS {
			set("conf/"+i.Name+"/input", 1)
		}
	}
	for _, l := range n.Labels {
		c := []string{"ip", "-f", "mpls", "route", "replace", strconv.Itoa(l.Label)}
		if l.Swap != "" {
			c = append(c, "as", string(l.Swap))
		}
		if l.Via.IsValid() {
			c = append(c, "via", map[bool]string{true: "inet", false: "inet6"}[l.Via.Is4()], l.Via.String())
		}
		commands = append(commands, append(c, "dev", l.Device))
	}
	return commands
}

// linesOf is the reverse of startOf: it returns the commands of which startOf would make the start
// command. If there are none, it returns one that runs start in a shell.
func linesOf(start string) (lines [][]string) {
	if start == "" {
		return nil
	}
	for line := range strings.SplitSeq(start, "\n") {
		list, err := shlex.Split(line)
		if err != nil || len(list) == 0 || words.Shell(list...) != line {
			return [][]string{{"sh", "-c", start}}
		}
		lines = append(lines, list)
	}
	if startOf(lines) != start {
		return [][]string{{"sh", "-c", start}}
	}
	return lines
}

// imageless lists the nodes that containerlab cannot make because they have no image.
func imageless(t *topology.Topology) (lost []formats.Loss) {
	for _, n := range t.Nodes {
		if (n.Kind == topology.Host || n.Kind == topology.Router) && n.Image == "" {
			lost = append(lost, formats.Loss{Subject: string(n.Kind) + " " + n.Name, Field: "image",
				Value: "unset; containerlab makes no node without one"})
		}
	}
	return lost
}
