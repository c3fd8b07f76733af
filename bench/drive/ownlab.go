package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// ownLab is one of Trivet's labs, on this machine or with sites elsewhere.
type ownLab struct {
	client  *lab.Client
	state   lab.State
	cgroups cgroup.Hierarchies
	made    *portsOf // what a provider has made for it

	accelerators map[string]string // nil: not known yet
}

func newOwnLab(c *lab.Client, s lab.State) (*ownLab, error) {
	groups, err := cgroup.Find()
	return &ownLab{client: c, state: s, cgroups: groups}, err
}

func (l *ownLab) run(ctx context.Context, node string, argv []string, in io.Reader, out, errOut io.Writer) error {
	return l.exec(ctx, lab.ExecRequest{Node: node, Command: argv, Network: true},
		lab.Streams{In: in, Out: out, Err: errOut})
}

func (l *ownLab) command(ctx context.Context, node, script string, out, errOut io.Writer) error {
	return l.exec(ctx, lab.ExecRequest{Node: node, Command: []string{"/bin/sh", "-c", script}},
		lab.Streams{Out: out, Err: errOut})
}

func (l *ownLab) exec(ctx context.Context, r lab.ExecRequest, s lab.Streams) error {
	r.Env, r.Dir = os.Environ(), "/"
	code, err := l.client.Exec(ctx, r, s)
	if err != nil {
		return err
	}
	return exit(code)
}

func (l *ownLab) ping(ctx context.Context, r lab.PingRequest) (lab.PingResult, error) {
	got, err := l.client.Ping(ctx, r)
	if err == nil && len(got.Without) > 0 { // what was measured would not be what was asked for
		err = fmt.Errorf("%s has no %s address", got.Without[0], lab.Family(r.IPv6))
	}
	return got, err
}

func (l *ownLab) down(ctx context.Context) error {
	return errors.Join(l.state.Stop(ctx, func(lab.Progress) {}), l.made.release(ctx))
}

// ports counts at the devices of the lab's namespaces, at all sites.
func (l *ownLab) ports() map[string]counters.Port {
	out := l.state.Counters()
	if l.state.Sites != nil {
		ctx, cancel := context.WithTimeout(context.Background(), askingDrops)
		defer cancel()
		there, _ := l.client.Counters(ctx) // what is missing is told as counters that have disappeared
		maps.Copy(out, there)
	}
	return out
}

// watch names what is the lab's here, and lets the other sites watch themselves.
func (l *ownLab) watch() environment.WatchOptions {
	o := l.state.Watched(l.cgroups)
	o.Accelerators = l.accelerated()
	for _, n := range l.state.Topology.Modelled() {
		if o.Models == nil {
			o.Models = map[string]string{}
		}
		o.Models[n.Name] = n.Model.String() + "; source: " + n.Model.Source
	}
	if l.state.Sites != nil {
		o.Elsewhere, o.Devices = l.watchSites, devices(l.state.Topology, l.state.Sites)
	}
	return o
}

// devices are the nodes of a placed topology that are devices which are only configured, with their
// kinds.
func devices(t *topology.Topology, list *site.List) (out map[string]string) {
	for _, n := range t.Nodes {
		if m := list.Machine(n.Sited()); m != nil && m.Configured() {
			if out == nil {
				out = map[string]string{}
			}
			out[n.Name] = m.Kind
		}
	}
	return out
}

// accelerated says what emulates the processors of virtual machines of the lab's here.
func (l *ownLab) accelerated() map[string]string {
	machine := func(n *topology.Node) bool { return n.Guest != nil || n.Datapath == topology.VM }
	if l.accelerators != nil || !slices.ContainsFunc(l.state.Topology.Nodes, machine) {
		return l.accelerators
	}
	ctx, cancel := context.WithTimeout(context.Background(), askingDrops)
	defer cancel()
	if info, err := l.client.Info(ctx); err == nil { // else the next probe asks
		l.accelerators = info.Accelerators
	}
	return l.accelerators
}

func (l *ownLab) watchSites() (end func() (map[string]environment.SiteUsage, error), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askingDrops)
	defer cancel()
	id, err := l.client.BeginWatch(ctx)
	return func() (map[string]environment.SiteUsage, error) {
		ctx, cancel := context.WithTimeout(context.Background(), askingDrops)
		defer cancel()
		return l.client.EndWatch(ctx, id)
	}, err
}

// do makes an event happen.
func (l *ownLab) do(ctx context.Context, e experiment.Event) error {
	switch {
	case e.Kill == "controller":
		return l.killControllers()
	case e.Kill != "":
		return l.killNode(ctx, l.state.Topology.Node(e.Kill))
	case e.Action.Node != "":
		var said strings.Builder
		err := l.command(ctx, e.Action.Node, e.Action.Run, io.Discard, &said)
		if err != nil && said.Len() > 0 {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
		}
		return err
	}
	return l.client.SetLink(ctx,
		lab.LinkRequest{A: e.Action.Ends[0], B: e.Action.Ends[1], Change: strings.Fields(e.Action.Change.String())})
}

// killNode ends all processes of a node at once, as by a crash: programs of a host, daemons of a
// router, whose kernel goes on with the routes it has. What has none and forwards (a switch, a
// routing node, a router of the kernel) crashes with its links.
func (l *ownLab) killNode(ctx context.Context, n *topology.Node) error {
	if n == nil {
		return errors.New("there is no such node")
	}
	if n.Kind == topology.Host || n.Kind == topology.Router && routerd.Of(n.Datapath) != nil {
		return l.client.Kill(ctx, n.Name)
	}
	var errs []error
	for _, link := range l.state.Topology.Links {
		a, b := link.Ends[0].Node, link.Ends[1].Node
		if a == n.Name || b == n.Name {
			errs = append(errs, l.client.SetLink(ctx, lab.LinkRequest{A: a, B: b, Change: []string{"down"}}))
		}
	}
	return errors.Join(errs...)
}

// killControllers ends the controllers of others that the lab runs. Trivet's own is part of the
// lab's daemon.
func (l *ownLab) killControllers() error {
	groups, err := os.ReadDir(l.cgroups.Of(l.state.Name))
	if err != nil {
		return err
	}
	groups = slices.DeleteFunc(groups, func(g os.DirEntry) bool { return !strings.HasPrefix(g.Name(), ".controller-") })
	if len(groups) == 0 {
		return errors.New("the lab runs no controller that is a process of its own; write controller: " +
			strings.Join(topology.ControllerPrograms, ", "))
	}
	var errs []error
	for _, g := range groups {
		errs = append(errs, l.cgroups.Kill(l.state.Name, g.Name()))
	}
	return errors.Join(errs...)
}
