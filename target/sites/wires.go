package sites

import (
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/configured"
	"trivet.dev/trivet/topology"
)

// placeSwitches places switches at the devices of a list that are switches: those that the file
// puts there, by the device's name or a label that only devices have, and those with a device's
// name. Each device takes one. All other switches are placed like any node.
func placeSwitches(t *topology.Topology, list *site.List, old *topology.Topology) error {
	var p topology.Problems
	was, has := map[string]*topology.Node{}, map[string]string{}
	if old != nil {
		was = old.NodesByName()
	}
	put := func(n *topology.Node, m *site.Machine) {
		n.On = m.Name
		switch {
		case n.Kind != topology.Switch:
			p.Add(n.Pos, "place it elsewhere", "%s: %s is %s, which can be a switch and nothing else",
				n.Name, m.Name, m.Device().A())
		case has[m.Name] != "":
			p.Add(n.Pos, "place one elsewhere", "%s: %s is %s already", n.Name, m.Name, has[m.Name])
		}
		if has[m.Name] = n.Name; m.Datapath() != "" {
			n.Datapath = m.Datapath()
		}
	}
	var open []*topology.Node
	for _, n := range t.Nodes {
		on := n.On
		if before := was[n.Name]; before != nil && on == "" {
			on = before.Sited()
		} else if m := list.Machine(n.Name); on == "" && m != nil && m.Configured() {
			on = n.Name
		}
		if m := list.Machine(on); m != nil && m.Configured() {
			put(n, m)
		} else if m == nil && n.Kind == topology.Switch && onlyDevicesHave(list, on) {
			open = append(open, n)
		}
	}
	open = stay(open, was, list, func(m *site.Machine) bool { return m.Configured() && has[m.Name] == "" }, put)
	for _, n := range open {
		fit := slices.DeleteFunc(list.Devices(),
			func(m *site.Machine) bool { return !slices.Contains(m.Labels, n.On) || has[m.Name] != "" })
		if len(fit) == 0 {
			p.Add(n.Pos, "give it to more devices", "%s: all devices with the label %s are switches already",
				n.Name, n.On)
			continue
		}
		put(n, fit[0])
	}
	return p.Err()
}

// onlyDevicesHave says whether a word is a label that only devices have.
func onlyDevicesHave(list *site.List, label string) bool {
	with := func(m *site.Machine) bool { return slices.Contains(m.Labels, label) }
	return label != "" && slices.ContainsFunc(list.Devices(), with) && !slices.ContainsFunc(list.Sites(), with) &&
		!slices.Contains(list.Head.Labels, label)
}

// wireLinks assigns each link between machines that wires join one of those wires; a link keeps the
// wire that it had. Links that are networks of the machines' provider get the zero Wire, which
// joins nothing. All others become VLANs, if the machines have any.
func wireLinks(t *topology.Topology, list *site.List, had map[string]site.Wire) (map[string]site.Wire, error) {
	out, nodes, keys := map[string]site.Wire{}, t.NodesByName(), topology.LinkKeys(t)
	taken := map[[2]site.Plug]bool{}
	sited := func(l *topology.Link) (a, b string) {
		return nodes[l.Ends[0].Node].Sited(), nodes[l.Ends[1].Node].Sited()
	}
	for i, l := range t.Links {
		if w, ok := had[keys[i]]; ok && l.Crosses(nodes) {
			if _, joins := w.At(sited(l)); joins {
				out[keys[i]], taken[w.Ends] = w, true
			}
		}
	}
	var p topology.Problems
	for i, l := range t.Links {
		if _, ok := out[keys[i]]; ok || !l.Crosses(nodes) {
			continue
		}
		if list.PortOf(keys[i], l.Ends[0].Node) != nil {
			out[keys[i]] = site.Wire{}
			continue
		}
		a, b := sited(l)
		for _, w := range list.Wires {
			// The interfaces of a host that is a machine itself are not moved.
			if _, joins := w.At(a, b); joins && !taken[w.Ends] && !l.OfMachine(nodes) {
				out[keys[i]], taken[w.Ends] = w, true
				break
			}
		}
		if _, ok := out[keys[i]]; !ok {
			checkUnwired(l, list, []string{a, b}, &p)
		}
	}
	return out, p.Err()
}

// Wired counts the links of a placed topology that get a wire, and those that are networks of their
// own.
func Wired(t *topology.Topology, list *site.List) (wired, networks int) {
	wires, _ := wireLinks(t, list, nil)
	for _, w := range wires {
		if w == (site.Wire{}) {
			networks++
		}
	}
	return len(wires) - networks, networks
}

// Devices says how many devices of a list are switches of a placed topology: "2 OpenWrt devices".
// It is empty if there are none.
func Devices(t *topology.Topology, list *site.List) string {
	var titles, out []string
	count := map[string]int{}
	for _, m := range list.Devices() {
		if n, _ := portsAt(t, m, nil, nil); n != nil {
			title := m.Device().Title
			if count[title]++; count[title] == 1 {
				titles = append(titles, title)
			}
		}
	}
	for _, title := range titles {
		out = append(out, words.Plural(count[title], title))
	}
	return strings.Join(out, ", ")
}

// checkUnwired says why a link without a wire cannot be made in another way.
func checkUnwired(l *topology.Link, list *site.List, between []string, p *topology.Problems) {
	for i, name := range between {
		m := list.Machine(name)
		if m == nil || !m.Configured() {
			continue
		}
		far := strings.Replace(between[1-i], topology.Head, "gateway", 1)
		port := "lan1"
		if len(m.Ports) > 0 {
			port = m.Ports[0]
		}
		hint := fmt.Sprintf("list one:  wires: [%s/%s -- %s/eth1]", name, port, far)
		switch {
		case !list.By().Tagged:
			p.Add(l.Pos, hint, "link %s: no wire that is still free joins %s and %s, and what carries links between these machines is not VLANs", l.Name(), name, far)
			return
		case m.NIC == "":
			p.Add(l.Pos, hint+", or say which interface of "+name+" takes VLANs:  nic: lan4",
				"link %s: no wire that is still free joins %s and %s", l.Name(), name, far)
			return
		}
	}
}

// checkDevices says what of a placed topology its devices cannot implement. The numbers of links do
// not matter.
func checkDevices(t *topology.Topology, list *site.List) error {
	wires, err := wireLinks(t, list, nil)
	if err != nil {
		return err
	}
	var p topology.Problems
	for _, m := range list.Devices() {
		n, ports := portsAt(t, m, wires, nil)
		if n == nil {
			continue
		}
		kind, err := configured.Of(m)
		if err != nil {
			return err
		}
		if !m.Device().Controllers && len(controllersOf(t, n)) > 0 {
			p.Add(n.Pos, "write  controller: none,  or place it elsewhere", "%s: %s is %s, which takes no controller",
				n.Name, m.Name, m.Device().A())
		}
		kind.Refuse(&configured.Switch{Machine: m, Topology: t, Node: n, Ports: ports}, &p)
	}
	nodes, keys := t.NodesByName(), topology.LinkKeys(t)
	isDevice := func(n *topology.Node) bool {
		return slices.ContainsFunc(list.Devices(), func(m *site.Machine) bool { return m.Name == n.On })
	}
	for _, n := range t.Modelled() {
		if isDevice(n) {
			p.Add(n.Pos, "leave its model out, or place it elsewhere",
				"%s stands for a slow device, as a model, and %s is a device itself", n.Name, n.On)
		}
	}
	for i, l := range t.Links { // what uses a wire passes nothing of the lab's
		if _, wired := wires[keys[i]]; !wired {
			continue
		}
		for _, e := range l.Ends {
			if n := nodes[e.Node]; n != nil && n.Model != nil && !isDevice(n) {
				p.Add(l.Pos, "leave its model out, or put a switch without one between them",
					"link %s is a wire or a network between machines, whose packets do not pass the model of %s",
					l.Name(), n.Name)
			}
		}
	}
	return p.Err()
}

// portsAt returns the switch that is placed at a device, or nil, and its ports by number.
func portsAt(t *topology.Topology, m *site.Machine, wires map[string]site.Wire,
	numbers map[string]uint32) (n *topology.Node, ports []configured.Port) {
	i := slices.IndexFunc(t.Nodes, func(n *topology.Node) bool { return n.On == m.Name && n.Kind == topology.Switch })
	if i < 0 {
		return nil, nil
	}
	n = t.Nodes[i]
	keys, nodes, blocked := topology.LinkKeys(t), t.NodesByName(), topology.Blocked(t)
	for i, l := range t.Links {
		for j, e := range l.Ends {
			if e.Node != n.Name || l.Ends[1-j].External() {
				continue
			}
			port := configured.Port{Number: int(n.OpenFlowPort(e)), Down: l.Down, Blocked: blocked[l]}
			if nic, ok := wires[keys[i]].At(m.Name, nodes[l.Ends[1-j].Node].Sited()); ok {
				port.Device = nic
			} else {
				port.Device, port.VLAN, port.On = e.Interface, uint16(numbers[keys[i]]), m.NIC
			}
			ports = append(ports, port)
		}
	}
	slices.SortFunc(ports, func(a, b configured.Port) int { return a.Number - b.Number })
	return n, ports
}
