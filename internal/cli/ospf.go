package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/controller/ospf"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
)

func init() {
	addProtocol(protocol{name: topology.SourceOSPF, letter: "O", commands: (*app).ospf,
		elsewhere: map[string]string{"neighbors": "ospf neighbors", "neighbours": "ospf neighbors"}})
}

func (a *app) ospf() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ospf", Short: "OSPF: neighbours, database, routes, calculations",
		Long: "What the routers that speak OSPF know (ospf: in the topology). neighbors covers all routers, also\n" +
			"those that run FRR or BIRD. The other commands cover routing nodes; a router that runs FRR or BIRD, if you name it,\n" +
			"is asked through its own program, and answers in that program's format.",
		Example: "  trivet ospf neighbors\n  trivet ospf database r1 --json\n  trivet ospf capture r1 -w ospf.pcap && wireshark ospf.pcap",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.ospfNeighbors(),
		ask(a, "interfaces", "Interfaces on which OSPF runs: cost, state, designated routers, packets",
			(*api.Client).OSPFInterfaces, a.showInterfaces),
		ask(a, "database", "LSAs: one database for each area, which all routers of the controller share",
			(*api.Client).OSPFDatabase, a.showDatabase),
		ask(a, "routes", "Routes that OSPF has found; trivet routes shows those in use", (*api.Client).OSPFRoutes,
			a.showOSPFRoutes),
		ask(a, "spf-log", "The last calculations of routes: when, why, how long", (*api.Client).OSPFLog, a.showLog),
		a.ospfCapture(),
	)
	return cmd
}

// ask makes the command for one query about one router, or all.
func ask[T any](a *app, name, what string, get func(*api.Client, context.Context, string) (T, error),
	show func(T)) *cobra.Command {
	cmd := &cobra.Command{Use: name + " [ROUTER]", Short: what, Args: cobra.MaximumNArgs(1)}
	k := controllerFlags(cmd)
	cmd.ValidArgsFunction = a.completeSwitches(k, "router")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := bounded(cmd.Context())
		defer cancel()
		if k.address == "" {
			if command, err := a.daemonCommand(ctx, first(args), name); command != nil || err != nil {
				return errors.Join(err, a.runIf(ctx, first(args), command))
			}
		}
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		answer, err := get(c, ctx, first(args))
		if err != nil {
			return err
		}
		if k.address != "" {
			a.warnOfPart(ctx, c)
		}
		if a.json {
			return a.printJSON(answer)
		}
		show(answer)
		return nil
	}
	return cmd
}

// daemonQuestions are the corresponding commands of FRR and BIRD.
var daemonQuestions = map[string][2]string{
	"interfaces": {"show ip ospf interface", "show ospf interface"},
	"database":   {"show ip ospf database", "show ospf lsadb"},
	"routes":     {"show ip ospf route", "show route"},
	"spf-log":    {"show ip ospf", "show ospf"},
}

// daemonCommand is the command that queries a node that runs FRR or BIRD; nil if it runs neither.
func (a *app) daemonCommand(ctx context.Context, node, question string) ([]string, error) {
	c, _, err := a.client()
	if err != nil {
		return nil, err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	if daemons, nodes, err := ospfSpeakers(info.Topology, node); err != nil {
		return nil, err
	} else if node == "" && !nodes {
		return nil, fmt.Errorf("no routing node speaks OSPF; name one of the routers that do:  trivet ospf %s %s",
			question, daemons[0].Node.Name)
	}
	n := info.Topology.Node(node)
	switch {
	case n == nil:
		return nil, nil
	case n.Datapath == topology.FRR || n.Datapath == topology.VM:
		command := daemonQuestions[question][0]
		if a.json {
			command += " json"
		}
		return []string{"vtysh", "-c", command}, nil
	case n.Datapath == topology.BIRD && a.json:
		return nil, fmt.Errorf("%s runs BIRD, which does not answer in JSON", node)
	case n.Datapath == topology.BIRD:
		return append([]string{"birdc"}, strings.Fields(daemonQuestions[question][1])...), nil
	}
	return nil, nil
}

// runIf runs a command in a node, unless the command is nil.
func (a *app) runIf(ctx context.Context, node string, command []string) error {
	if command == nil {
		return nil
	}
	return a.run(ctx, node, command, false, false)
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func (a *app) showNeighbors(list []ospf.Neighbor) {
	rows := [][]string{{"ROUTER", "NEIGHBOR", "ROUTER ID", "STATE", "DR", "DEAD", "ADDRESS", "INTERFACE", "AREA"}}
	for _, x := range list {
		dead := "–"
		if x.Dead != nil {
			dead = fmt.Sprintf("%.0f s", *x.Dead)
		}
		state := x.State
		if x.Helped != nil {
			state += fmt.Sprintf(", restarts: %.0f s", *x.Helped)
		}
		rows = append(rows,
			[]string{x.Router, dash(x.Neighbor), x.RouterID.String(), state, shown(x.DR), dead, shown(x.Address),
				x.Interface, x.Area.String()})
	}
	if len(list) == 0 {
		a.say("no neighbours")
		return
	}
	a.table(rows)
	for _, x := range list {
		for _, m := range x.Mismatches {
			a.say("%s", m.Text)
		}
	}
}

func shown(x netip.Addr) string {
	if !x.IsValid() {
		return "–"
	}
	return x.String()
}

func (a *app) showInterfaces(list []ospf.Attachment) {
	rows := [][]string{{"ROUTER", "INTERFACE", "ADDRESS", "AREA", "COST", "TYPE", "STATE", "DR", "BDR", "FULL", "SENT",
		"RECEIVED", "REFUSED"}}
	for _, x := range list {
		kind := x.Type
		switch {
		case x.Passive:
			kind += ", passive"
		case x.Inside:
			kind += ", inside"
		}
		state := x.State
		if x.Restart != nil {
			state += fmt.Sprintf(", restarts: %.0f s", *x.Restart)
		}
		refused := strconv.FormatUint(x.Refused, 10)
		if x.Reason != "" {
			refused += ": " + x.Reason
		}
		rows = append(rows,
			[]string{x.Router, x.Interface, x.Address.String(), x.Area.String(), strconv.Itoa(int(x.Cost)), kind, state,
				shown(x.DR), shown(x.BDR), fmt.Sprintf("%d of %d", x.Full, x.Neighbors), sumOf(x.Sent),
				sumOf(x.Received), refused})
	}
	a.table(rows)
}

func sumOf(counts map[string]uint64) string {
	n := uint64(0)
	for _, c := range counts {
		n += c
	}
	return strconv.FormatUint(n, 10)
}

func (a *app) showDatabase(list []ospf.LSA) {
	rows := [][]string{{"AREA", "TYPE", "ID", "ROUTER", "AGE", "SEQUENCE", "CONTENT"}}
	for _, x := range list {
		area := "AS"
		if x.Area != nil {
			area = x.Area.String()
		}
		if x.Interface != "" {
			area = x.Interface
		}
		router := x.AdvRtr.String()
		if x.Router != "" {
			router += " " + x.Router
		}
		rows = append(rows,
			[]string{area, x.Type, x.ID.String(), router, fmt.Sprintf("%d s", x.Age), x.Sequence, x.Content})
	}
	a.table(rows)
}

func (a *app) showOSPFRoutes(list []ospf.Route) {
	rows := [][]string{{"ROUTER", "PREFIX", "TYPE", "AREA", "COST", "NEXT HOP", "INTERFACE"}}
	for _, x := range list {
		area, cost := "–", strconv.FormatUint(uint64(x.Cost), 10)
		if x.Area != nil {
			area = x.Area.String()
		}
		if x.Type2 != nil {
			cost += "/" + strconv.FormatUint(uint64(*x.Type2), 10)
		}
		first := []string{x.Router, x.Prefix.String(), x.Type, area, cost}
		if x.Drop {
			rows = append(rows, append(first, "drop", "–"))
		}
		for _, h := range x.Hops {
			rows = append(rows, append(first, shown(h.Via), h.Interface))
			first = []string{"", "", "", "", ""}
		}
	}
	a.table(rows)
}

func (a *app) showLog(l ospf.Log) {
	rows := [][]string{{"WHEN", "TOOK", "AREAS", "ROUTERS", "LSAS", "AFTER"}}
	for _, x := range l.Runs {
		var areas []string
		for _, id := range x.Areas {
			areas = append(areas, id.String())
		}
		if x.External {
			areas = append(areas, "external")
		}
		rows = append(rows,
			[]string{ago(x.Time) + " ago", took(x.Seconds), strings.Join(areas, ", "), strconv.Itoa(x.Routers),
				strconv.Itoa(x.LSAs), x.Cause})
	}
	a.table(rows)
	slowest, sum := ospf.RunTree{}, 0.0
	for _, x := range l.Routers {
		if sum += x.Seconds; x.Seconds > slowest.Seconds {
			slowest = x
		}
	}
	if len(l.Routers) > 0 {
		a.say("the routers' own routes, last time: %s in total for %s, at most %s (%s)", took(sum),
			words.Plural(len(l.Routers), "router"), took(slowest.Seconds), slowest.Router)
	}
}

func took(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond).String()
}

func (a *app) ospfCapture() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "capture [ROUTER] -w FILE", Short: "Save the last OSPF packets as a pcap file",
		Args: cobra.MaximumNArgs(1),
		Long: "Save the OSPF packets that routing nodes have sent and received, at most the last 2048 of all, as a pcap\n" +
			"file for Wireshark. Between routing nodes there are none.",
	}
	k := controllerFlags(cmd)
	cmd.Flags().StringVarP(&file, "write", "w", "", "file to write; - is standard output")
	cmd.ValidArgsFunction = a.completeSwitches(k, "router")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if file == "" {
			return errors.New("name a file:  trivet ospf capture -w ospf.pcap   (or  -w - | wireshark -k -i -)")
		}
		c, err := a.controllerClient(k)
		if err != nil {
			return err
		}
		pcap, err := c.OSPFCapture(cmd.Context(), first(args))
		if err != nil {
			return err
		}
		if file == "-" {
			_, err = a.out.Write(pcap)
			return err
		}
		return os.WriteFile(file, pcap, 0o644)
	}
	return cmd
}
