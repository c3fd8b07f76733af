package local

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// Apply changes a running lab to a resolved topology, touching only what differs, and nodes that
// have ended by themselves. If that fails, the change is undone; the error ErrHalf says that this
// failed, too.
func (l *Lab) Apply(ctx context.Context, t *topology.Topology, progress lab.Stage) error {
	return l.turnInto(ctx, t, l.planAnew, progress)
}

func (l *Lab) turnInto(ctx context.Context, t *topology.Topology, way func(from, to *topology.Topology) plan.Steps,
	progress lab.Stage) error {
	if err := errors.Join(NoNetworks(t), l.CheckSwitches()); err != nil {
		return err
	}
	if err := hurry(l.Dir); err != nil {
		return err
	}
	defer func() { _ = relax(l.Dir) }()
	s := way(l.Topology(), t)
	if err := l.prepare(ctx, s.AddNodes, progress); err != nil {
		return fmt.Errorf("%w\nthe lab is as it was", err)
	}
	return l.Renew(l.concerned(s), func() error { return l.applySteps(ctx, s, progress) })
}

// applySteps carries out steps, or undoes them.
func (l *Lab) applySteps(ctx context.Context, s plan.Steps, progress lab.Stage) error {
	old, byHand := l.Topology(), l.lookByHand(s)
	ended := l.endedBefore(s)
	err := l.take(ctx, s, progress)
	if err == nil {
		l.giveByHand(byHand)
		return nil
	}
	l.owner.OnUndo()
	l.bare = ended // left as they were: their failure must not stop the undoing
	defer func() { l.bare = nil }()
	undo := ctx.Err()
	if undo == nil {
		undo = l.undo(ctx, old, s, progress)
	}
	l.setTopology(old)
	l.giveByHand(byHand)
	if undo != nil {
		return fmt.Errorf("%w; %w: %w; take the lab down", err, lab.ErrHalf, undo)
	}
	return fmt.Errorf("%w\nthe lab is as it was", err)
}

// take carries out steps.
func (l *Lab) take(ctx context.Context, s plan.Steps, progress lab.Stage) error {
	if err := each(l, func(f datapath.Fabric) error { return f.Leave(ctx, s) }); err != nil {
		return err
	}
	l.cease(s.New)
	if err := l.takeAway(s); err != nil {
		return err
	}
	l.setTopology(s.New)
	if err := errors.Join(l.raiseLimits(), l.writeHosts()); err != nil {
		return err
	}
	return l.change(ctx, s, progress)
}

// takeAway removes links and nodes that steps drop or make anew.
func (l *Lab) takeAway(s plan.Steps) error {
	if err := l.dropLinks(s.DropLinks); err != nil {
		return err
	}
	if err := l.leaveManagement(s.DropNodes); err != nil {
		return err
	}
	l.closeAdvertisers(s.DropNodes)
	for _, n := range s.DropNodes {
		if n.NAT {
			if err := l.dropUplink(n.Name); err != nil {
				return err
			}
		}
		if f := l.fabricOf(n); f != nil {
			if err := f.Drop(n); err != nil {
				return err
			}
		}
		if d, ok := l.nodesOf(n).(Dropping); ok {
			d.Drop(n)
		}
		if err := l.Cgroups.Remove(l.Name, n.Name); err != nil {
			return err
		}
		if err := l.nodesOf(n).Remove(n); err != nil {
			return err
		}
		if l.again == "" && !l.bare[n.Name] {
			if err := l.forgetUnfinished(n.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// change makes what is new and sets what differs.
func (l *Lab) change(ctx context.Context, s plan.Steps, progress lab.Stage) error {
	if err := l.publish(s.New, s.DropNodes); err != nil {
		return err
	}
	if err := l.guardTunnels(s.New); err != nil {
		return err
	}
	if err := l.beNative(s.New); err != nil {
		return err
	}
	if err := l.planManagement(s.New); err != nil {
		return err
	}
	if err := l.setModels(s.New); err != nil {
		return err
	}
	if err := each(l, func(f datapath.Fabric) error { return f.Make(ctx, s) }); err != nil {
		return err
	}
	hosts := lists.Filter(s.AddNodes, ownsNamespaces)
	stages := []struct {
		name  string
		total int
		run   func(done func()) error
	}{
		{"nodes", len(s.AddNodes), func(done func()) error { return l.addNodes(s.AddNodes, hosts, done) }},
		{"links", len(s.AddLinks), func(done func()) error { return l.addLinks(s, done) }},
		{"addresses", len(hosts), func(done func()) error {
			if err := l.configure(s, done); err != nil {
				return err
			}
			return l.joinManagement(s)
		}},
		{"switches", countDatapaths(s.New), func(done func()) error { return l.applySwitches(ctx, done) }},
		{"shaping", shaped(s), func(done func()) error { return l.shapeLinks(s, done) }},
		{"daemons", l.programs(s.New), func(done func()) error { return l.runPrograms(ctx, done) }},
		{"configurations", configs(s), func(done func()) error { return l.loadConfigs(ctx, s, done) }},
		{"carriers", len(s.AddLinks) + len(s.SetLinks),
			func(done func()) error { return l.awaitCarriers(ctx, s, done) }},
	}
	for _, stage := range stages {
		if err := ctx.Err(); err != nil {
			return err
		}
		var count atomic.Int64
		progress(stage.name, 0, stage.total)
		err := stage.run(func() { progress(stage.name, int(count.Add(1)), stage.total) })
		if err != nil {
			return err
		}
		progress(stage.name, stage.total, stage.total)
	}
	if err := l.advertise(s); err != nil {
		return err
	}
	return l.Settle(ctx) // the devices are now as they will stay
}

func countDatapaths(t *topology.Topology) int {
	return lists.Count(t.Nodes, (*topology.Node).IsDatapath)
}

func shaped(s plan.Steps) (n int) {
	for _, k := range s.AddLinks {
		if k.Impaired() || k.Down {
			n++
		}
	}
	return n + len(s.SetLinks)
}

// withoutProcesses says whether a node starts without a cgroup, as it runs no processes.
func withoutProcesses(n *topology.Node) bool { return n.Kind == topology.Controller || n.RoutingNode() }

func (l *Lab) addNodes(all, hosts []*topology.Node, done func()) error {
	for _, n := range all {
		if withoutProcesses(n) {
			continue
		}
		if err := l.Cgroups.Make(l.Name, n); err != nil {
			return err
		}
	}
	if err := l.makeSources(hosts); err != nil {
		return err
	}
	for name, k := range l.kinds {
		of := slices.DeleteFunc(slices.Clone(hosts),
			func(n *topology.Node) bool { return n.Made().Name != name || l.bare[n.Name] })
		if err := k.Make(of, func(*topology.Node) { done() }); err != nil {
			return err
		}
	}
	for _, n := range hosts {
		if l.bare[n.Name] {
			if err := l.nodesOf(n).(Restarted).Bare(n); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
			done()
		}
		if len(n.Isolate) > 0 {
			if err := l.startInit(n); err != nil {
				return err
			}
		}
		if n.NAT {
			if err := l.addUplink(n); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
	}
	return nil
}

// configure sets the addresses and routes of nodes that are new, changed, or have a new link.
func (l *Lab) configure(s plan.Steps, done func()) error {
	old := map[string]*topology.Node{}
	touched := lists.Set(s.AddNodes, func(n *topology.Node) string { return n.Name })
	for _, c := range s.SetNodes {
		touched[c.New.Name] = true
		old[c.New.Name] = c.Old
		if withoutProcesses(c.New) {
			continue
		}
		if err := l.Cgroups.Set(l.Name, c.Old, c.New); err != nil {
			return err
		}
	}
	for _, k := range s.AddLinks {
		touched[k.Ends[0].Node], touched[k.Ends[1].Node] = true, true
	}
	unlabelled := map[string][]sysctl{} // by node
	for _, k := range s.SetLinks {
		for i, e := range k.Ends {
			if !s.Labelled[k.Key][i] {
				continue
			}
			if touched[e.Node] = true; !e.MPLS {
				unlabelled[e.Node] = append(unlabelled[e.Node], takesLabels(e.Interface, false))
			}
		}
	}
	ends := topology.EndsOf(s.New)
	nodes := lists.Filter(s.New.Nodes, func(n *topology.Node) bool { return touched[n.Name] && ownsNamespaces(n) })
	return parallel.Each(nodes, func(n *topology.Node) error {
		defer done()
		if err := l.configureNode(n, old[n.Name], ends[n.Name], unlabelled[n.Name]); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		return nil
	})
}

func (l *Lab) configureNode(n, old *topology.Node, ends []*topology.Endpoint, more []sysctl) error {
	return l.inNet(n.Name, func() error {
		if err := l.nodesOf(n).Configure(n, old, ends); err != nil || !n.Made().Open() {
			return err
		}
		return writeSysctls(append(more, askedSysctls(n)...))
	})
}

// Configure sets a node's addresses and routes, and sets those devices up whose links are up.
func (k Namespaces) Configure(n, old *topology.Node, ends []*topology.Endpoint) error {
	if err := makeInterfaces(n, old, k.is.Load().pulled[n.Name]); err != nil {
		return err
	}
	b, err := netbatch.New()
	if err != nil {
		return err
	}
	defer b.Close()
	indices, static, err := k.address(b, b.AddAddress, n, old, ends)
	if err != nil {
		return err
	}
	if err := setMPLS(n, old, ends); err != nil {
		return err
	}
	if err := setRoutes(b, n, old, ends, indices, static); err != nil {
		return err
	}
	if err := setLabels(b, n, old, indices); err != nil {
		return err
	}
	is := k.is.Load()
	if err := setNeighbors(b, n, old, indices, is.pulled[n.Name]); err != nil {
		return err
	}
	if err := setRules(b, n, old, k.Topology().IPv6); err != nil {
		return err
	}
	return setMasquerade(n, old)
}

// setRoutes replaces, in the thread's namespace, the static routes of an old node, which may be
// nil, by those of a node. A route with the same destination, metric and table is replaced in
// place, so it is never missing. Other old routes are deleted first: when the kernel is asked to
// delete one without a metric, it deletes one with any metric.
func setRoutes(b *netbatch.Batch, n, old *topology.Node, ends []*topology.Endpoint, indices map[string]int,
	static []topology.Route) error {
	type place struct { // which one route of a table has
		to     netip.Prefix
		metric uint32
		table  int
	}
	placeOf := func(n *topology.Node, r topology.Route) place {
		p := place{r.To.Masked(), r.KernelMetric(), n.TableOf(r, ends)}
		if p.metric == 0 && r.To.Addr().Is6() {
			p.metric = metric6
		}
		return p
	}
	taken := lists.Set(static, func(r topology.Route) place { return placeOf(n, r) })
	if old != nil {
		for _, r := range old.StaticRoutes() {
			// If the device is gone, so is the route.
			if index := indices[r.Device]; (index > 0 || r.Device == "") && !taken[placeOf(old, r)] {
				b.DelRoute(r, index, old.TableOf(r, ends))
			}
		}
		_ = b.Flush() // fails for routes that the user has deleted already
	}
	for _, r := range static {
		b.AddRoute(r, indices[r.Device], n.TableOf(r, ends))
	}
	return explainRoute(besides(unix.EEXIST, b.Flush())) // somebody has added another one
}

// metric6 is the metric of IPv6 routes that are added without one (IP6_RT_PRIO_USER).
const metric6 = 1024

// besides returns the errors of a batch except for a harmless one.
func besides(harmless, err error) error {
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	return errors.Join(slices.DeleteFunc(slices.Clone(all.Unwrap()),
		func(e error) bool { return errors.Is(e, harmless) })...)
}

// address adds a node's addresses by add, and sets those devices up whose links are up. It returns
// the devices' indexes, and the static routes that do not depend on a link that is down.
func (l *Lab) address(b *netbatch.Batch, add func(int, netip.Prefix), n, old *topology.Node,
	ends []*topology.Endpoint) (indices map[string]int, static []topology.Route, err error) {
	b.SetUp("lo", 1, true)
	for _, p := range n.Loopback {
		b.AddAddress(1, p)
	}
	if old != nil {
		theirs := daemonsTake(n, old)["lo"]
		for _, p := range old.Loopback {
			if !slices.Contains(n.Loopback, p) && !slices.Contains(theirs, p) {
				b.DelAddress(1, p)
			}
		}
	}
	down := l.is.Load().pulled[n.Name]
	var unreachable []netip.Prefix
	indices = map[string]int{}
	for _, e := range ends {
		index, err := indexOf(e.Interface)
		if err != nil {
			return nil, nil, fmt.Errorf("find %s: %w", e.Interface, err)
		}
		indices[e.Interface] = index
		if e.AcceptsRA() {
			if err := writeSysctls(acceptSysctls(e.Interface)); err != nil {
				return nil, nil, err
			}
		}
		for _, p := range e.Given() {
			add(index, p)
		}
		if down[e.Interface] {
			unreachable = append(unreachable, e.Addresses...)
			continue
		}
		b.SetUp(e.Interface, index, true)
	}
	for _, i := range n.InterfacesInOrder() {
		index, err := indexOf(i.Name)
		if err != nil {
			return nil, nil, fmt.Errorf("find %s: %w", i.Name, err)
		}
		indices[i.Name] = index
		for _, p := range i.Addresses {
			add(index, p)
		}
		b.SetUp(i.Name, index, true)
	}
	// They are added once their link is up.
	static = slices.DeleteFunc(slices.Clone(n.StaticRoutes()), func(r topology.Route) bool {
		return down[r.Device] ||
			slices.ContainsFunc(unreachable, func(p netip.Prefix) bool { return p.Contains(r.Via) })
	})
	return indices, static, b.Flush()
}

// daemonsTake returns the addresses that a router's routing daemons have set on devices and remove
// by themselves: FRR complains if they are gone already.
func daemonsTake(n, old *topology.Node) map[string][]netip.Prefix {
	if n.OwnRouting() != old.OwnRouting() {
		return nil
	}
	return old.DaemonAddresses()
}

func explainRoute(err error) error {
	if errors.Is(err, unix.ENETUNREACH) {
		return fmt.Errorf("%w: a gateway must be in a subnet of the node", err)
	}
	return err
}
