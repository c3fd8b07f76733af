package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

func (a *app) inspect() *cobra.Command {
	var s source
	var ansible, ssh bool
	cmd := &cobra.Command{
		Use:   "inspect [LAB|FILE [ARGUMENT...]|GENERATOR]",
		Short: "Show a lab, or what a file would become: addresses, ports, links",
		Long: "Show a lab that is up, or what a file or a generator would become: addresses, ports, links. The name of a lab that is\n" +
			"up is that lab, also where a generator is called so.\n\n" +
			"--ansible and --ssh print what these programs need to reach the nodes by their management addresses.",
		Args: scriptArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			args = a.theLab(&s, args)
			info, sites := lab.Info{State: "not up"}, lab.Sites{}
			if len(args) > 0 {
				t, warnings, err := s.load(args[0], args[1:]...)
				if err != nil {
					return err
				}
				r, more, err := s.resolve(t)
				if err != nil {
					return err
				}
				for _, w := range append(warnings, more...) {
					a.warn(w)
				}
				info.Name, info.Topology, info.Source = r.Name, r.WithoutKeys(), args[0]
			} else {
				c, _, err := a.client()
				if err != nil {
					return err
				}
				if info, err = c.Info(cmd.Context()); err != nil {
					return err
				}
				if info.Wires, err = c.Links(cmd.Context()); err != nil {
					return err
				}
				if sites, err = c.Sites(cmd.Context()); err != nil {
					return err
				}
			}
			if ansible || ssh {
				return a.sayReached(info, ansible)
			}
			if a.json {
				return a.printJSON(struct {
					lab.Info
					Sites      lab.Sites    `json:"sites"`
					RunsAsRoot []errandView `json:"runs_as_root"`
				}{info, sites, errandViews(info.Topology.Errands(nil))})
			}
			a.showInfo(info, sites)
			return nil
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&ansible, "ansible", false,
		"print an inventory for Ansible: groups hosts and routers, by management address")
	cmd.Flags().BoolVar(&ssh, "ssh", false, "print a configuration for ssh -F, by management address")
	cmd.MarkFlagsMutuallyExclusive("ansible", "ssh")
	cmd.ValidArgsFunction = a.completeLabsAndSources
	return cmd
}

func (a *app) showInfo(info lab.Info, sites lab.Sites) {
	a.say("%s  %s · %s", words.Printable(info.Name), info.State, describe(info.Topology, info.Target))
	if len(info.Dead) > 0 {
		a.say("%s: %s; %s", a.paint(red, "have ended"), strings.Join(info.Dead, ", "), lab.CureDead(info.Dead))
	}
	if len(info.Cluster) > 0 {
		a.say("")
		a.table(a.clusterRows(info.Cluster))
		a.say("")
	}
	if how := info.Devices["impairment"]; how != "" {
		a.say("impairments by %s", how)
	}
	if how := info.Devices["queues"]; how != "" {
		a.say("queues: %s", how)
	}
	if how := info.Devices[qemu.Machines]; how != "" {
		a.say("virtual machines by %s", how)
	}
	if how := info.Devices["ovs"]; how != "" {
		a.say("Open vSwitch forwards in %s",
			strings.NewReplacer("system", "the kernel", "netdev", "user space").Replace(how))
	}
	a.say("")
	if len(sites.Others) > 0 {
		a.showSites(info.Topology, sites)
		a.say("")
	}
	a.table(nodeRows(info.Topology))
	a.say("")
	rows := linkRows(info, sites)
	for _, r := range rows[1:] {
		if state := &r[len(r)-1]; *state == "down" {
			*state = a.paint(red, *state)
		}
	}
	a.table(rows)
	a.showErrands(info.Topology.Errands(nil))
}

func (a *app) clusterRows(programs []lab.ClusterProgram) [][]string {
	rows := [][]string{{"CLUSTER", "STATE", "SINCE", "RESTARTS", "LISTENS AT", "CPU"}}
	for _, p := range programs {
		state := "runs"
		if !p.Running {
			state = a.paint(red, "ended")
		}
		name := p.Name
		if p.Site != "" {
			name += " at " + p.Site
		}
		rows = append(rows, []string{name, state, ago(p.Since), strconv.Itoa(p.Restarts), p.Address, p.CPU})
	}
	return rows
}

func nodeRows(t *topology.Topology) [][]string {
	rows := [][]string{{"NODE", "KIND", "DATAPATH", "ADDRESSES", "GATEWAY", "MORE"}}
	sited := slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return n.On != "" })
	for _, n := range t.Nodes {
		var addresses []string
		for _, l := range t.Links {
			for _, e := range l.Ends {
				if e.Node == n.Name {
					addresses = append(addresses, join(e.Addresses))
				}
				if e.Node == n.Name && e.Unaddressed {
					addresses = append(addresses, topology.NoAddress)
				}
			}
		}
		more := []string{}
		for _, i := range n.Interfaces {
			addresses, more = append(addresses, join(i.Addresses)), append(more, i.Name+" "+i.What())
		}
		if sited && n.Kind != topology.Controller {
			where := "on " + n.Sited()
			if n.On == topology.AtProvider {
				where = "of the provider's"
			}
			more = append(more, where)
		}
		if n.Kind == topology.Switch {
			more = append(more, "dpid "+strings.TrimLeft(n.DPID.String(), "0"),
				"controller "+strings.Join(n.Controllers, " "))
			if n.FailMode == topology.Secure {
				more = append(more, "secure")
			}
		}
		if n.CPU != (topology.CPU{}) {
			more = append(more, "cpu "+n.CPU.String())
		}
		if n.Model != nil {
			more = append(more, "model "+n.Model.String())
		}
		if len(n.Routes) > 0 {
			more = append(more, words.Plural(len(n.Routes), "route"))
		}
		if len(n.Rules) > 0 {
			more = append(more, words.Plural(len(n.Rules), "rule"))
		}
		if len(n.Neighbors) > 0 {
			more = append(more, words.Plural(len(n.Neighbors), "permanent neighbour"))
		}
		if n.MPLS {
			more = append(more, "takes labels")
		}
		if len(n.Labels) > 0 {
			more = append(more, words.Plural(len(n.Labels), "label"))
		}
		if n.Management.IsValid() {
			more = append(more, "management "+n.Management.String())
		}
		if n.NAT {
			more = append(more, "NAT")
		}
		for _, m := range n.Masquerade {
			more = append(more, "masquerade "+m.String())
		}
		if n.Address != "" {
			more = append(more, n.Address)
		}
		rows = append(rows,
			[]string{n.Name, string(n.Kind), string(n.Datapath), strings.Join(written(addresses), " "),
				join(n.Gateways), strings.Join(more, ", ")})
	}
	return rows
}

// written returns the texts that are not empty.
func written(in []string) (out []string) {
	for _, s := range in {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

func join[T interface{ String() string }](values []T) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = v.String()
	}
	return strings.Join(out, " ")
}

func linkRows(info lab.Info, sites lab.Sites) [][]string {
	nodes, vlans := info.Topology.NodesByName(), topology.VLANPorts(info.Topology)
	rows := [][]string{{"LINK", "ENDS", "AS", "BANDWIDTH", "DELAY", "JITTER", "LOSS", "QUEUE", "STATE"}}
	if len(vlans) > 0 {
		rows[0] = slices.Insert(rows[0], 8, "VLANS")
	}
	for i, l := range info.Topology.Links {
		row := []string{l.Name(), l.Ends[0].Interface + " – " + l.Ends[1].Interface, ""}
		state := "up"
		if i < len(info.Wires) {
			row[2] = string(info.Wires[i].Wire)
			if info.Wires[i].Blocked {
				state = "blocked (no loops)"
			}
		}
		if l.Wifi != nil {
			row[2] = l.Wifi.String()
		}
		if l.Down {
			state = "down"
		} else if i < len(info.Wires) {
			state = stateOf(info.Wires[i].Ends, state)
		}
		cells := impairmentRow(l)
		if l.Crosses(nodes) {
			if c := sites.Between(nodes[l.Ends[0].Node].Sited(), nodes[l.Ends[1].Node].Sited()); c != nil {
				cells[1] += " + " + c.OneWay().String() // the carrier's own
				if !c.Full {
					state += fmt.Sprintf(", packets of at most %d bytes", c.Whole)
				}
			}
		}
		if len(vlans) > 0 {
			cells = append(cells, vlanCell(vlans[l]))
		}
		rows = append(rows, append(append(row, cells...), state))
	}
	return rows
}

// vlanCell returns the VLANs of the ports at both ends; only once if they are equal.
func vlanCell(ports [2]topology.PortVLANs) string {
	a, b := ports[0].String(), ports[1].String()
	if a == b || b == "" {
		return dash(a)
	}
	return dash(a) + "/" + b
}

// stateOf describes how the state of a link's ends differs from the topology.
func stateOf(ends []lab.End, state string) string {
	var more []string
	for _, e := range ends {
		switch e.State {
		case lab.EndDown, lab.EndAbsent:
			more = append(more, fmt.Sprintf("%s is %s", e.Interface, e.State))
		case lab.EndUnknown:
			more = append(more, fmt.Sprintf("%s is not known (%s)", e.Interface, e.Problem))
		}
	}
	if len(more) == 0 {
		for _, e := range ends {
			if e.State != lab.EndUp {
				more = append(more, fmt.Sprintf("%s has %s", e.Interface, e.State))
			}
		}
	}
	if len(more) > 0 {
		return strings.Join(more, ", ")
	}
	var mtu []string
	for _, e := range ends {
		if e.MTU != 0 && e.MTU != local.MTU {
			mtu = append(mtu, fmt.Sprintf("%s %d", e.Interface, e.MTU))
		}
	}
	if len(mtu) > 0 {
		state += ", MTU of " + strings.Join(mtu, ", ")
	}
	return state
}

// impairmentRow shows both directions if they differ: "10ms/20ms".
func impairmentRow(l *topology.Link) []string {
	a, b := cells(l.Egress(0)), cells(l.Egress(1))
	for i := range a {
		if a[i] != b[i] {
			a[i] = dash(a[i]) + "/" + dash(b[i])
		}
		a[i] = dash(a[i])
	}
	return a
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func cells(i topology.Impairment) []string {
	out := make([]string, 5)
	for k, v := range []fmt.Stringer{i.Bandwidth, i.Delay, i.Jitter, i.Loss} {
		if !reflect.ValueOf(v).IsZero() {
			out[k] = v.String()
		}
	}
	if rarer := i.Rarer(); len(rarer) > 0 {
		out[3] = strings.Join(append(written([]string{out[3]}), rarer...), ", ")
	}
	switch {
	case i.Queue.Managed():
		out[4] = i.Queue.String()
	case i != (topology.Impairment{MTU: i.MTU}):
		out[4] = fmt.Sprint(i.QueueLimit())
	}
	return out
}
