package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
)

// The kinds of configuration that routing daemons read.
const (
	ConfigFRR     = "frr"
	ConfigDaemons = "daemons" // beside ConfigFRR
	ConfigBIRD    = "bird"
)

// runs says whether a node is a router with one of these datapaths.
func runs(those ...Datapath) func(*Node) bool {
	return func(n *Node) bool { return n.Kind == Router && slices.Contains(those, n.Datapath) }
}

// OwnRouting returns the datapath whose routing daemons have a configuration of the router's own in
// place of Trivet's, unless the router names another datapath with these daemons; "" if it has
// none.
func (n *Node) OwnRouting() Datapath {
	for _, c := range n.Config {
		switch c.Kind {
		case ConfigFRR:
			return FRR
		case ConfigBIRD:
			return BIRD
		}
	}
	return ""
}

// runsOwn returns the datapath of a router with a configuration of its own if the user asks for one
// datapath for all routers: that one, if it has the daemons that read the configuration.
func (n *Node) runsOwn(asked Datapath) Datapath {
	own := n.OwnRouting()
	if own == FRR && asked == VM {
		return VM
	}
	return own
}

// ownRouting checks what a router's own configuration is incompatible with.
func (n *Node) ownRouting(bad func(hint, format string, args ...any)) {
	own := n.OwnRouting()
	if own == "" {
		if slices.ContainsFunc(n.Config, func(c ConfigFile) bool { return c.Kind == ConfigDaemons }) {
			bad("add frr: FILE to config", "config: daemons is for routers that have an FRR configuration of their own")
		}
		return
	}
	if n.Datapath == "" && n.Kind == Switch { // the check of datapaths refuses other nodes
		bad("make it a router", "config: %s is for routers", own)
	}
	for _, p := range n.Speaks() {
		bad("keep one of them", "config: %s says what the router runs, and so does %s", own, p.Name)
	}
}

// An interfaceConfig is an interface and its addresses in FRR's configuration.
type interfaceConfig struct {
	name      string
	addresses []netip.Prefix
	lines     []int // of the addresses
}

// frrAddresses returns the addresses that a configuration of FRR sets on interfaces, in its order,
// without 127.0.0.1 (FRR's manual, chapter Zebra, Interface Commands).
func frrAddresses(text string) (out []interfaceConfig) {
	index := map[string]int{}
	at := -1 // index of the interface whose lines these are
	number := 0
	for line := range strings.Lines(text) {
		number++
		words := strings.Fields(line)
		switch {
		case len(words) < 2:
			if len(words) == 1 && (words[0] == "exit" || words[0] == "end") {
				at = -1
			}
		case abbreviates(words[0], "interface"):
			known := false
			if at, known = index[words[1]]; !known {
				at = len(out)
				index[words[1]] = at
				out = append(out, interfaceConfig{name: words[1]})
			}
		case words[0] == "router":
			at = -1
		case at >= 0 && len(words) >= 3 && (words[0] == "ip" || words[0] == "ipv6") && abbreviates(words[1], "address"):
			p, err := netip.ParsePrefix(words[2])
			if err == nil && !p.Addr().IsLoopback() {
				out[at].addresses, out[at].lines = append(out[at].addresses, p), append(out[at].lines, number)
			}
		}
	}
	return out
}

// abbreviates says whether a word is an abbreviation of a command's word.
func abbreviates(word, command string) bool {
	return len(word) >= 3 && strings.HasPrefix(command, word)
}

// ownInterfaces adds to a router's interfaces the addresses that its own configuration of FRR sets.
// If there are any, its other interfaces have only those that the topology gives.
func (r *resolver) ownInterfaces(n *Node) {
	i := slices.IndexFunc(n.Config, func(c ConfigFile) bool { return c.Kind == ConfigFRR })
	if i < 0 {
		return
	}
	config := n.Config[i]
	any, passedOn, beside := false, n.PassedOn(), n.interfacesByName()
	ends := lists.Index(r.ends[n.Name], func(e *Endpoint) string { return e.Interface })
	for _, c := range frrAddresses(config.Text) {
		var addresses []netip.Prefix
		for k, p := range c.addresses {
			switch what, hint := misplaced(p); {
			case what != "": // FRR may take it
				r.problems.Warn(config.Position(c.lines[k]), hint, "router %s: %s", n.Name, what)
			case !slices.Contains(addresses, p):
				addresses = append(addresses, p)
			}
		}
		switch e, own, up := ends[c.name], beside[c.name], passedOn[c.name]; {
		case len(addresses) == 0:
		case c.name == "lo":
			n.Loopback = union(n.Loopback, addresses)
		case up != nil && up.VLAN == 0:
			r.problems.Warn(config.Position(c.lines[0]), "give "+up.Name+" the address",
				"router %s: %s is a member of %s, where an address has no effect", n.Name, c.name, up.Name)
		case own != nil:
			own.Addresses, any = union(own.Addresses, addresses), true
		case e != nil:
			e.Addresses, e.Unaddressed, any = union(e.Addresses, addresses), false, true
		default:
			r.problems.Warn(config.Position(c.lines[0]), r.interfaceHint(n), "router %s: there is no interface %s",
				n.Name, c.name)
		}
	}
	if !any {
		return
	}
	for _, e := range r.ends[n.Name] {
		if len(e.Addresses) == 0 {
			e.Unaddressed = true
		}
	}
}

// DaemonAddresses returns the addresses that a router's own configuration of FRR sets on
// interfaces, by name.
func (n *Node) DaemonAddresses() map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for _, c := range frrAddresses(n.ConfigOf(ConfigFRR)) {
		out[c.name] = union(nil, c.addresses)
	}
	return out
}

// daemonsAddress caches the addresses that nodes' own configurations set on interfaces.
type daemonsAddress map[*Node]map[string][]netip.Prefix

func (d daemonsAddress) of(n *Node) map[string][]netip.Prefix {
	if _, known := d[n]; !known {
		d[n] = n.DaemonAddresses()
	}
	return d[n]
}

// at returns the addresses of an end whose interface may not have its name yet.
func (d daemonsAddress) at(n *Node, e *Endpoint) []netip.Prefix {
	if e.Interface == "" && e.Port != nil {
		return d.of(n)[DeviceName(fmt.Sprintf("%s-eth%d", n.Name, *e.Port))]
	}
	return d.of(n)[e.Interface]
}

// any says whether a node's interfaces get addresses that way, apart from its loopback device.
func (d daemonsAddress) any(n *Node) bool {
	for name, addresses := range d.of(n) {
		if name != "lo" && len(addresses) > 0 {
			return true
		}
	}
	return false
}

// interfaceHint says how to give an interface the name in a configuration.
func (r *resolver) interfaceHint(n *Node) string {
	names := lists.Map(r.ends[n.Name], func(e *Endpoint) string { return e.Interface })
	for _, i := range n.Interfaces {
		names = append(names, i.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return "there are " + strings.Join(names, ", ") + "; name one at its link: " + n.Name +
		" -- s1: {from: {interface: eth1}}"
}

func union(a, b []netip.Prefix) []netip.Prefix {
	out := slices.Clone(a)
	for _, p := range b {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
