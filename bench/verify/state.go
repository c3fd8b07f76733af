package verify

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/netfacts"
	limits "trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// Changes in a lab that nobody asked for: the lab's daemon reports what has changed since it came
// up, and this file judges it. What contradicts the topology is wrong; anything else may be
// intended, and is noted.

// Glance reports what differs in a lab from when it came up, from the lab's daemon alone.
func Glance(ctx context.Context, client *lab.Client) ([]string, error) {
	info, err := client.Info(ctx)
	if err != nil {
		return nil, err
	}
	all, err := client.Changed(ctx)
	if err != nil {
		return nil, err
	}
	links, err := client.Links(ctx)
	if err != nil {
		return nil, err
	}
	j := newJudge(newNetwork(info), nil, all)
	for i, l := range links {
		for end, e := range l.Ends {
			if e.State == lab.EndDown && !info.Topology.Links[i].Down {
				j.wrong = append(j.wrong,
					fmt.Sprintf("%s of %s is down", e.Interface, info.Topology.Links[i].Ends[end].Label()))
			}
		}
	}
	j.all()
	return slices.Concat(j.wrong, j.notes), nil
}

// judge collects findings about the state of one lab.
type judge struct {
	*network
	wrong, notes []string
	there        map[string]*seen // nil: only changes are known
	changed      map[string][]netfacts.Change

	addresses []netip.Prefix                  // of all nodes
	owners    map[netip.Addr][]string         // who should have an address
	macs      map[netip.Addr][]topology.MAC   // of the devices that should have it
	ends      map[[2]string]topology.Endpoint // by node and device
	devices   map[string][][2]string          // by node: the keys of its ends
	ports     map[string]bool                 // devices of switches at links
	// By node and name: what was added to routing tables other than main.
	tables map[string]map[string][]netfacts.Path
}

// lookAtState judges what has changed.
func (v *verifier) lookAtState(ctx context.Context, there map[string]*seen) error {
	all, err := v.client.Changed(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		v.result.Notes = append(v.result.Notes,
			"what somebody has changed since the lab came up is not known: "+err.Error())
	}
	j := newJudge(v.network, there, all)
	j.all()
	for _, w := range j.wrong {
		v.result.State.add(w)
	}
	for range max(0, len(there)-len(j.wrong)) {
		v.result.State.add("")
	}
	v.result.Notes = append(v.result.Notes, j.notes...)
	return v.lookAtControllers(ctx)
}

// lookAtControllers reports switches that have lost Trivet's controller: they keep forwarding what
// they know, and learn nothing new.
func (v *verifier) lookAtControllers(ctx context.Context) error {
	var lost []string
	for n := range tries {
		if n > 0 { // it may be just reconnecting
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(n) * time.Second):
			}
		}
		within, cancel := limits.SwitchSays.Context(ctx)
		all, err := v.client.Controllers(within)
		cancel()
		if err != nil { // switches that hang report nothing, and forward nothing, which shows elsewhere
			return ctx.Err()
		}
		lost = nil
		for _, s := range all {
			n := v.nodes[s.Switch]
			if n == nil || v.foreign(n) || len(s.Controllers) == 0 ||
				slices.ContainsFunc(s.Controllers, func(c datapath.ControllerStatus) bool { return c.Connected }) {
				continue
			}
			lost = append(lost,
				fmt.Sprintf("%s is not connected to Trivet's controller: at %s, %s", s.Switch, s.Controllers[0].Address,
					cmp.Or(s.Controllers[0].Error, "no answer")))
		}
		if len(lost) == 0 {
			return nil
		}
	}
	for _, w := range lost {
		v.result.State.add(w)
	}
	return nil
}

func newJudge(n *network, there map[string]*seen, all []lab.Changed) *judge {
	j := &judge{network: n, there: there, changed: map[string][]netfacts.Change{}, owners: map[netip.Addr][]string{},
		macs: map[netip.Addr][]topology.MAC{},
		ends: map[[2]string]topology.Endpoint{}, devices: map[string][][2]string{}, ports: map[string]bool{},
		tables: map[string]map[string][]netfacts.Path{}}
	for _, l := range n.t.Links {
		for i, e := range l.Ends {
			node := n.nodes[e.Node]
			if node == nil {
				continue
			}
			if j.add(e, l.DeviceAt(i)); !own(node) {
				j.ports[l.DeviceAt(i)] = true
			}
		}
	}
	for _, node := range n.t.Nodes {
		for _, i := range node.Interfaces {
			j.add(topology.Endpoint{Node: node.Name, Interface: i.Name, MAC: i.MAC, Addresses: i.Addresses}, i.Name)
		}
		for _, a := range node.Loopback {
			j.addresses = append(j.addresses, a)
			j.owners[a.Addr()] = append(j.owners[a.Addr()], node.Name)
		}
	}
	for _, c := range all {
		j.changed[c.Node] = append(j.changed[c.Node], c.Changes...)
		for _, x := range c.Changes {
			if x.Kind == netfacts.Route && x.Device != netfacts.Main && !x.Gone {
				if j.tables[c.Node] == nil {
					j.tables[c.Node] = map[string][]netfacts.Path{}
				}
				j.tables[c.Node][x.Device] = append(j.tables[c.Node][x.Device], netfacts.Paths(x.Key, x.Is)...)
			}
		}
	}
	return j
}

// add records what an interface of a node should be. A MAC address that is left to the kernel is
// unknown.
func (j *judge) add(e topology.Endpoint, device string) {
	at := [2]string{e.Node, device}
	j.ends[at], j.devices[e.Node] = e, append(j.devices[e.Node], at)
	for _, a := range e.Addresses {
		j.addresses = append(j.addresses, a)
		j.owners[a.Addr()] = append(j.owners[a.Addr()], e.Node)
		if e.MAC != (topology.MAC{}) {
			j.macs[a.Addr()] = append(j.macs[a.Addr()], e.MAC)
		}
	}
}

// all judges the nodes in the order of the topology, and then the switches.
func (j *judge) all() {
	for _, n := range j.t.Nodes {
		if !own(n) || n.Made().Whole {
			continue
		}
		j.promised(n, j.there[n.Name])
		j.each(n.Name, n)
	}
	j.each("", nil)
}

func (j *judge) each(place string, n *topology.Node) {
	changes := j.changed[place]
	where := place
	if n == nil {
		where = "the switches' namespace"
	}
	j.firewalls(where, changes)
	for _, c := range changes {
		switch c.Kind {
		case netfacts.NFT, netfacts.Xtables:
		case netfacts.Flow:
			j.say(false, c.Device, c, "flow entry", c.Is+c.Was)
		default:
			j.one(where, n, c)
		}
	}
}

// say adds a line about something that is new, gone or different; name precedes its current value.
func (j *judge) say(wrong bool, where string, c netfacts.Change, what, name string) {
	var text string
	switch {
	case c.New && strings.ContainsAny(what[:1], "aio"):
		text = fmt.Sprintf("%s has an %s nobody asked for: %s", where, what, name)
	case c.New:
		text = fmt.Sprintf("%s has a %s nobody asked for: %s", where, what, name)
	case c.Gone:
		text = fmt.Sprintf("%s no longer has the %s %s", where, what, name)
	default:
		text = fmt.Sprintf("%s has another %s than when it came up: %s", where, what, name)
	}
	if wrong {
		j.wrong = append(j.wrong, text)
		return
	}
	j.notes = append(j.notes, text)
}

// one judges a change in a namespace; n is nil for the switches' namespace.
func (j *judge) one(where string, n *topology.Node, c netfacts.Change) {
	named := strings.TrimSpace(c.Name + " " + c.Said())
	_, atLink := j.ends[[2]string{where, c.Device}]
	if n == nil {
		atLink = j.ports[c.Device]
	}
	switch c.Kind {
	case netfacts.Device:
		j.device(where, n, c, atLink)
	case netfacts.MAC:
		given := false
		if e, ok := j.ends[[2]string{where, c.Device}]; ok && n != nil {
			given = e.MAC != (topology.MAC{}) && !topology.HasOwnMAC(j.t, &e) && e.MAC.String() != c.Is
		}
		j.say(given, where, c, "MAC address", "of "+c.Device+": "+c.Said())
	case netfacts.MTU:
		j.say(false, where, c, "MTU", "of "+c.Device+": "+c.Said())
	case netfacts.XDP:
		j.say(false, where, c, "program (XDP)", "at "+c.Device)
	case netfacts.Address:
		j.address(where, n, c)
	case netfacts.Route:
		j.route(where, n, c)
	case netfacts.Label:
		promised := n != nil && !c.New &&
			slices.ContainsFunc(n.Labels, func(l topology.LabelRoute) bool { return strconv.Itoa(l.Label) == c.Name })
		j.say(promised, where, c, "label", named)
	case netfacts.Rule:
		j.rule(where, n, c)
	case netfacts.Neighbour:
		j.neighbour(where, n, c)
	case netfacts.Port:
		j.say(false, where, c, "setting of a port", fmt.Sprintf("at %s: %s", c.Device, named))
	case netfacts.FDB:
		j.say(false, where, c, "static bridge entry", c.Name+" at "+c.Device)
	case netfacts.Sysctl:
		j.setting(where, n, c)
	case netfacts.Qdisc:
		ours := made(c.Was) || made(c.Name) || n == nil && c.Was != ""
		j.say(ours, where, c, "queueing discipline", fmt.Sprintf("at %s %s", c.Device, named))
	case netfacts.Class:
		j.say(false, where, c, "traffic class", fmt.Sprintf("at %s %s", c.Device, named))
	case netfacts.Filter:
		j.say(strings.HasSuffix(c.Is, " drop") ||
			n == nil && c.Was != "", where, c, "traffic filter", fmt.Sprintf("at %s %s", c.Device, named))
	case netfacts.Offload:
		j.notes = append(j.notes,
			fmt.Sprintf("%s has other offloads at %s than when it came up: %s", where, c.Device, c.Is))
	}
}

// made says whether a queueing discipline has one of Trivet's numbers (target/local/shape.go).
func made(words string) bool {
	for _, w := range strings.Fields(words) {
		if major, _, ok := strings.Cut(w, ":"); ok && (major == "7472" || major == "7473" || major == "7474") {
			return true
		}
	}
	return false
}

func (j *judge) device(where string, n *topology.Node, c netfacts.Change, atLink bool) {
	switch {
	case c.New && n != nil && j.there != nil && slices.ContainsFunc(j.there[n.Name].Devices, func(d device) bool {
		return d.Name == c.Device && !inert(d, false)
	}):
		// that it leads out of the lab is said elsewhere
	case c.New && slices.Contains(modules, c.Device): // nobody in the lab has made it
	case c.New:
		j.say(false, where, c, "device", strings.TrimSpace(c.Device+" "+c.Is))
	case c.Gone && n == nil && !atLink:
		j.say(false, where, c, "device", c.Device)
	case c.Gone:
		j.say(atLink, where, c, "device", c.Device)
	default:
		member := n != nil && slices.ContainsFunc(n.Interfaces, func(i topology.Interface) bool {
			return slices.Contains(i.Members(), c.Device)
		})
		j.say(n == nil && atLink || member, where, c, "place for "+c.Device, c.Said())
	}
}

func (j *judge) address(where string, n *topology.Node, c netfacts.Change) {
	p, err := netip.ParsePrefix(c.Name)
	known := err == nil && n != nil && len(j.owners[p.Addr()]) > 0
	if known && j.there != nil {
		return // promised judges it
	}
	wrong := known && c.Gone == slices.Contains(j.owners[p.Addr()], n.Name)
	j.say(wrong, where, c, "address", c.Name+" at "+c.Device)
}

// nextHop is FRR's placeholder for IPv6 next hops of IPv4 routes (RFC 8950).
var nextHop = netip.MustParseAddr("169.254.0.1")

func (j *judge) neighbour(where string, n *topology.Node, c netfacts.Change) {
	a, _ := netip.ParseAddr(c.Name)
	if a == nextHop && n != nil && n.OwnRouting() == topology.FRR {
		return
	}
	known := j.macs[a]
	right := slices.ContainsFunc(known, func(m topology.MAC) bool { return m.String() == c.Is })
	name := fmt.Sprintf("%s at %s with %s", c.Name, c.Device, c.Said())
	if len(known) > 0 && !right && !c.Gone {
		name += fmt.Sprintf("; %s has %s", j.owners[a][0], known[0])
	}
	promised := n != nil && !c.New && slices.ContainsFunc(n.Neighbors, func(x topology.Neighbor) bool {
		return x.Device == c.Device && x.Address == a
	})
	j.say(promised || len(known) > 0 && !right && !c.Gone, where, c, "permanent neighbour", name)
}

// setting judges a sysctl.
func (j *judge) setting(where string, n *topology.Node, c netfacts.Change) {
	is, was := c.Is, c.Was
	if c.New {
		was = "0"
	}
	if c.Gone {
		is = "0"
	}
	of := ""
	if c.Device != "" {
		of = " of " + c.Device
	}
	family, name, _ := strings.Cut(c.Name, ".")
	addressed := n != nil && j.addressed(n, family == "ipv6")
	text := fmt.Sprintf("%s has another setting than when it came up: %s%s is %s, was %s", where, c.Name, of, is, was)
	switch {
	case n == nil:
	case j.there != nil && name == "forwarding" && c.Device == "" && n.Kind == topology.Router && is == "0":
		return // promised judges it
	case name == "forwarding" && addressed && n.Kind == topology.Router && is == "0":
		j.wrong = append(j.wrong, fmt.Sprintf("%s is a router and does not forward: %s%s is 0", where, c.Name, of))
		return
	case name == "forwarding" && addressed && n.Kind == topology.Host && is != "0":
		j.wrong = append(j.wrong, fmt.Sprintf("%s is a host and forwards: %s%s is %s", where, c.Name, of, is))
		return
	case name == "disable_ipv6" && is != "0" && addressed:
		j.wrong = append(j.wrong, text)
		return
	}
	j.notes = append(j.notes, text)
}

// addressed says whether a node has addresses of a family.
func (j *judge) addressed(n *topology.Node, v6 bool) bool {
	of := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Addr().Is6() == v6 })
	}
	return of(n.Loopback) ||
		slices.ContainsFunc(j.devices[n.Name], func(at [2]string) bool { return of(j.ends[at].Addresses) })
}

// firewalls judges firewall rules of both kinds; a table that is new as a whole is judged at once.
func (j *judge) firewalls(where string, changes []netfacts.Change) {
	whole := map[string]*netfacts.Change{}
	for i, c := range changes {
		if c.Kind == netfacts.NFT && c.New && c.Is == "table" {
			whole[c.Name] = &changes[i]
		}
	}
	tables := map[string][]string{}
	for _, c := range changes {
		table := strings.Join(strings.SplitN(c.Name, " ", 3)[:min(2, strings.Count(c.Name, " ")+1)], " ")
		switch {
		case c.Kind == netfacts.NFT && whole[table] != nil:
			if rule := ruleOf(c); c.Name != table && rule != "" {
				tables[table] = append(tables[table], rule)
			}
		case c.Kind == netfacts.NFT:
			j.say(drops(c.Is) ||
				c.Gone && strings.Contains(table, "trivet"), where, c, "rule of nftables", c.Name+": "+c.Said())
		case c.Kind == netfacts.Xtables && (c.Gone || plain(c.Is)):
		case c.Kind == netfacts.Xtables:
			j.say(drops(c.Is), where, c, "rule of iptables", ruleOf(c)+", in the table "+table)
		}
	}
	for _, c := range changes {
		if c.Kind == netfacts.NFT && whole[c.Name] != nil {
			rules := tables[c.Name]
			j.say(slices.ContainsFunc(rules, drops), where, c, "table of nftables",
				strings.TrimSuffix(c.Name+": "+strings.Join(rules, "; "), ": "))
		}
	}
}

// ruleOf returns what a rule does, without the digest of its conditions.
func ruleOf(c netfacts.Change) string {
	words := lists.Filter(strings.Fields(c.Is), func(w string) bool { return !strings.HasPrefix(w, "#") })
	return strings.Join(words, " ")
}

func drops(rule string) bool {
	return slices.ContainsFunc(strings.Fields(strings.ToLower(rule)),
		func(w string) bool { return w == "drop" || w == "reject" })
}

// plain says whether a rule is a default one of an iptables table, or its end marker.
func plain(rule string) bool {
	return strings.HasPrefix(rule, "ACCEPT") || strings.HasPrefix(rule, "ERROR") || strings.HasPrefix(rule, "RETURN")
}

// promised checks what a node should have: no one else's address, the subnets of its own, and
// forwarding if it is a router.
func (j *judge) promised(n *topology.Node, s *seen) {
	if s == nil {
		return
	}
	vrf := slices.ContainsFunc(s.Devices, func(d device) bool { return d.Kind == "vrf" }) // routes are elsewhere
	for _, d := range s.Devices {
		if d.Name == "lo" && !d.Carries && !n.Made().Whole {
			j.wrong = append(j.wrong, n.Name+" does not reach its own addresses: its loopback device (lo) is down")
		}
		for _, p := range d.Addresses {
			if owners := j.owners[p.Addr()]; len(owners) > 0 && !slices.Contains(owners, n.Name) {
				j.wrong = append(j.wrong,
					fmt.Sprintf("%s has the address %s of %s at %s", n.Name, p.Addr(), owners[0], d.Name))
			}
		}
		for _, p := range j.ends[[2]string{n.Name, d.Name}].Addresses {
			connected := slices.ContainsFunc(s.Routes, func(r routeThere) bool { return r.To == p.Masked() })
			if !connected && d.Carries && !p.IsSingleIP() && !vrf && slices.Contains(d.Addresses, p) {
				j.wrong = append(j.wrong,
					fmt.Sprintf("%s has no route to %s, the subnet of %s", n.Name, p.Masked(), d.Name))
			}
		}
	}
	if n.Kind != topology.Router {
		return
	}
	for v6, forwards := range map[bool]string{false: s.Forwards4, true: s.Forwards6} {
		name := map[bool]string{false: "ipv4.forwarding", true: "ipv6.forwarding"}[v6]
		// Its start command has set it.
		asked := n.Start != "" && !slices.ContainsFunc(j.changed[n.Name], func(c netfacts.Change) bool {
			return c.Name == name && c.Device == ""
		})
		if forwards == "0" && j.addressed(n, v6) && !asked {
			j.wrong = append(j.wrong, fmt.Sprintf("%s is a router and does not forward: %s is 0", n.Name, name))
		}
	}
}
