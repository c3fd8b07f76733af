package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/ospf"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/lab"
	engine "trivet.dev/trivet/routing/ospf"
	"trivet.dev/trivet/topology"
)

// ospfNeighbors is the only query that all routers of a lab answer in the same form: routing nodes
// by the controller, others by FRR or BIRD.
func (a *app) ospfNeighbors() *cobra.Command {
	cmd := &cobra.Command{Use: "neighbors [ROUTER]", Aliases: []string{"neighbours"}, Args: cobra.MaximumNArgs(1),
		Short: "Neighbours, and the state of each adjacency"}
	k := controllerFlags(cmd)
	cmd.ValidArgsFunction = a.completeSwitches(k, "router")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := bounded(cmd.Context())
		defer cancel()
		list, err := a.neighborsOf(ctx, k, first(args))
		if list == nil && err != nil {
			return err
		}
		if a.json {
			return errors.Join(err, a.printJSON(list))
		}
		a.showNeighbors(list)
		return err
	}
	return cmd
}

// neighborsOf asks whatever knows the neighbours of a router, or of all routers if none is named.
// Routers that do not answer are reported in the error, along with the answers of the others.
func (a *app) neighborsOf(ctx context.Context, k *asking, router string) ([]ospf.Neighbor, error) {
	var daemons []topology.OSPFRouter
	nodes := true // whether to ask the controller
	if k.address == "" {
		c, _, err := a.client()
		if err != nil {
			return nil, err
		}
		info, err := c.Info(ctx)
		if err != nil {
			return nil, err
		}
		if daemons, nodes, err = ospfSpeakers(info.Topology, router); err != nil {
			return nil, err
		}
		if !nodes {
			return askDaemons(ctx, c, info.Topology, daemons)
		}
		list, err := a.controllerNeighbors(ctx, k, router)
		if err != nil || len(daemons) == 0 {
			return list, err
		}
		more, err := askDaemons(ctx, c, info.Topology, daemons)
		return append(list, more...), err
	}
	return a.controllerNeighbors(ctx, k, router)
}

func (a *app) controllerNeighbors(ctx context.Context, k *asking, router string) ([]ospf.Neighbor, error) {
	c, err := a.controllerClient(k)
	if err != nil {
		return nil, err
	}
	list, err := c.OSPFNeighbors(ctx, router)
	if err == nil && k.address != "" {
		a.warnOfPart(ctx, c)
	}
	return list, err
}

// ospfSpeakers returns the routers to ask, the one named or all: those that run FRR or BIRD, and
// whether the controller has any.
func ospfSpeakers(t *topology.Topology, router string) (daemons []topology.OSPFRouter, nodes bool, err error) {
	var names []string
	found := false
	for _, r := range topology.OSPFOf(t) {
		names = append(names, r.Node.Name)
		if router != "" && router != r.Node.Name {
			continue
		}
		found = true
		if routerd.Of(r.Node.Datapath) != nil {
			daemons = append(daemons, r)
		} else {
			nodes = true
		}
	}
	switch {
	case found:
		return daemons, nodes, nil
	case len(names) == 0:
		return nil, false, errors.New("no router of this lab speaks OSPF; give one  ospf: {area: 0}  in the topology")
	case t.Node(router) != nil:
		return nil, false, fmt.Errorf("%s does not speak OSPF; %s", router, thoseThatDo(names))
	}
	if near := topology.DidYouMean(router, names); near != "" {
		return nil, false, fmt.Errorf("there is no router %q that speaks OSPF; %s", router, near)
	}
	return nil, false, fmt.Errorf("there is no router %q that speaks OSPF; %s", router, thoseThatDo(names))
}

func thoseThatDo(names []string) string {
	slices.SortFunc(names, builtin.CompareNames)
	return "those that do are " + strings.Join(names[:min(len(names), 10)], ", ")
}

// askAtOnce is how many routers are asked at the same time.
const askAtOnce = 8

// askDaemons asks routers through their own programs.
func askDaemons(ctx context.Context, c *lab.Client, t *topology.Topology,
	routers []topology.OSPFRouter) ([]ospf.Neighbor, error) {
	owners := map[netip.Addr]string{}
	for _, l := range t.Links {
		for _, e := range l.Ends {
			for _, p := range e.Addresses {
				owners[p.Addr()] = e.Node
			}
		}
	}
	lists, errs := make([][]ospf.Neighbor, len(routers)), make([]error, len(routers))
	var done sync.WaitGroup
	tokens := make(chan struct{}, askAtOnce)
	for i := range routers {
		done.Go(func() {
			tokens <- struct{}{}
			defer func() { <-tokens }()
			lists[i], errs[i] = askDaemon(ctx, c, &routers[i], owners)
		})
	}
	done.Wait()
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b ospf.Neighbor) int {
		return cmp.Or(builtin.CompareNames(a.Router, b.Router), builtin.CompareNames(a.Interface, b.Interface),
			cmp.Compare(a.RouterID, b.RouterID))
	})
	return all, errors.Join(errs...)
}

func askDaemon(ctx context.Context, c *lab.Client, r *topology.OSPFRouter,
	owners map[netip.Addr]string) ([]ospf.Neighbor, error) {
	name := r.Node.Name
	found, err := routerd.OSPFNeighbors(r.Node.Datapath, func(command ...string) (string, error) {
		var out, problem bytes.Buffer
		code, err := c.Exec(ctx, lab.ExecRequest{Node: name, Command: command, Env: os.Environ(), Dir: "/"},
			lab.Streams{Out: &out, Err: &problem})
		if err == nil && code != 0 {
			err = fmt.Errorf("%s exited with %d: %s", command[0], code,
				strings.TrimSpace(problem.String()+out.String()))
		}
		return out.String(), err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	list := make([]ospf.Neighbor, 0, len(found))
	for _, x := range found {
		n := ospf.Neighbor{Router: name, Interface: x.Interface, Neighbor: owners[x.Address],
			RouterID: engine.IDOf(x.RouterID), Address: x.Address,
			State: x.State, DR: x.DR}
		if x.Dead >= 0 {
			n.Dead = &x.Dead
		}
		for _, f := range r.Interfaces {
			if f.Name == x.Interface {
				n.Area = engine.ID(f.Area)
			}
		}
		list = append(list, n)
	}
	return list, nil
}
