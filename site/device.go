package site

import (
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Sites lists the machines that run this program.
func (l *List) Sites() []*Machine {
	return slices.DeleteFunc(slices.Clone(l.Machines), (*Machine).Configured)
}

// Devices lists the machines that do not run this program.
func (l *List) Devices() []*Machine {
	return slices.DeleteFunc(slices.Clone(l.Machines), func(m *Machine) bool { return !m.Configured() })
}

func (m *Machine) readDevice(o yamlfile.Pair, p *topology.Problems) {
	kinds, _, agents := deviceWords()
	switch o.Key.Text {
	case "kind":
		if m.Kind = text(o.Value, p); DeviceKindOf(m.Kind) == nil {
			hint := "choose " + choice(kinds)
			if len(kinds) == 1 {
				hint = "the only kind to name is " + kinds[0]
			}
			p.Add(o.Value.Pos, hint+"; leave it out for a machine with Linux", "there is no kind %s", o.Value)
		}
	case "agent":
		if m.Agent = text(o.Value, p); !slices.Contains(agents, m.Agent) {
			p.Add(o.Value.Pos, "choose "+choice(agents), "there is no agent %s", o.Value)
		}
	case "ports":
		list := []*yamlfile.Value{o.Value}
		if o.Value.Shape == yamlfile.List {
			list = o.Value.Items
		}
		for _, v := range list {
			if port := nic(v, p); slices.Contains(m.Ports, port) {
				p.Add(v.Pos, "name each once", "port %s is there twice", port)
			} else {
				m.Ports = append(m.Ports, port)
			}
		}
	}
}

// checkDevice reports options of a machine that do not fit its kind.
func (m *Machine) checkDevice(p *topology.Problems) {
	kinds, titles, agents := deviceWords()
	switch k := m.Device(); {
	case k == nil && (m.Agent != "" || m.Ports != nil):
		p.Add(m.Pos, "add  kind: "+choice(kinds), "%s has an agent, or ports, but is no %s", m.Name, choice(titles))
	case k == nil:
	case m.Hosts > 0:
		p.Add(m.Pos, "leave hosts out", "%s is %s, which is a switch and takes no hosts", m.Name, k.A())
	case slices.Contains(m.Ports, m.NIC) && m.NIC != "":
		p.Add(m.Pos, "leave it out of ports", "%s of %s leads to the gateway, so it is no port of the switch", m.NIC,
			m.Name)
	case m.Agent == "" && len(k.Agents) > 0:
		m.Agent = k.Agents[0].Word
	case m.Agent != "" && len(k.Agents) == 0 && DeviceKindOf(m.Kind) != nil:
		p.Add(m.Pos, "leave agent out", "%s is %s, which is a switch by nothing but itself", m.Name, k.A())
	case slices.Contains(agents, m.Agent) && k.agent(m.Agent) == nil && DeviceKindOf(m.Kind) != nil:
		p.Add(m.Pos, "choose "+choice(k.agentWords()), "%s is %s, which cannot have the agent %s", m.Name, k.A(),
			m.Agent)
	}
}

// Wire is a cable between interfaces of two machines.
type Wire struct {
	Ends [2]Plug           `json:"ends"`
	Pos  topology.Position `json:"-"`
}

// Plug is an end of a wire: an interface of a site, by its name there.
type Plug struct {
	Site string `json:"site"`
	NIC  string `json:"nic"`
}

func (w Wire) String() string { return w.Ends[0].String() + " -- " + w.Ends[1].String() }

func (p Plug) String() string {
	if p.Site == topology.Head {
		return "gateway/" + p.NIC
	}
	return p.Site + "/" + p.NIC
}

// At returns the interface at near's end of the wire; joins is false if the wire does not join near
// and far.
func (w Wire) At(near, far string) (nic string, joins bool) {
	for i, e := range w.Ends {
		if e.Site == near && w.Ends[1-i].Site == far {
			return e.NIC, true
		}
	}
	return "", false
}

// readWires reads the list of cables. It must be called after all machines have been read.
func (l *List) readWires(v *yamlfile.Value, p *topology.Problems) {
	if v == nil {
		return
	}
	if v.Shape != yamlfile.List {
		p.Add(v.Pos, "write  wires: [wrt-1/lan1 -- wrt-2/lan3]", "wires is a list, not %s", v)
		return
	}
	taken := map[Plug]topology.Position{}
	for _, item := range v.Items {
		a, b, ok := strings.Cut(item.Text, "--")
		if item.Shape != yamlfile.Scalar || !ok {
			p.Add(item.Pos, "write  wrt-1/lan1 -- wrt-2/lan3", "%s is not a wire", item)
			continue
		}
		w := Wire{Pos: item.Pos}
		sound := true
		for i, end := range []string{a, b} {
			var err error
			if w.Ends[i], err = l.plug(strings.TrimSpace(end)); err != nil {
				text, hint := topology.TextAndHint(err)
				p.Add(item.Pos, hint, "wire %s: %s", item, text)
				sound = false
			} else if first, ok := taken[w.Ends[i]]; ok {
				p.Add(item.Pos, fmt.Sprintf("the other one is in line %d", first.Line), "%s has two wires", w.Ends[i])
				sound = false
			}
			taken[w.Ends[i]] = item.Pos
		}
		if sound && w.Ends[0].Site == w.Ends[1].Site {
			p.Add(item.Pos, "wires join two machines", "wire %s: both ends are at one", item)
		} else if sound {
			l.Wires = append(l.Wires, w)
		}
	}
}

// plug reads an end of a wire.
func (l *List) plug(s string) (Plug, error) {
	name, port, _ := strings.Cut(s, "/")
	if !nicPattern.MatchString(port) {
		return Plug{}, topology.Mistaken("write  wrt-1/lan1  or  gateway/eth1",
			"%q is not a machine and its interface", s)
	}
	m := l.Machine(name)
	switch {
	case name == "gateway" || name == topology.Head:
		return Plug{topology.Head, port}, nil
	case m == nil:
		return Plug{}, topology.Mistaken("the machines are those of the list, and gateway",
			"there is no machine %q", name)
	case m.Configured() && !slices.Contains(m.Ports, port):
		return Plug{}, topology.Mistaken(fmt.Sprintf("add it:  %s: {ports: [%s]}", name,
			strings.Join(append(slices.Clone(m.Ports), port), ", ")), "%s is not among the ports of %s", port, name)
	}
	return Plug{name, port}, nil
}
