package sites

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// Apply changes the parts that differ, those elsewhere first, and makes those again that are gone
// from their sites. If one fails, those that have changed are changed back. Machines that are newly
// needed are joined first; those no longer needed are left last.
func (l *Lab) Apply(ctx context.Context, t *topology.Topology, progress lab.Stage) error {
	done, err := l.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := errors.Join(l.state.Sites.CheckPorts(t), checkDevices(t, l.state.Sites),
		topology.CheckProvided(t).Err()); err != nil {
		return err
	}
	joined, err := l.join(ctx, t)
	if err = errors.Join(err, l.joinDevices(ctx, t)); err == nil {
		err = l.refuseForwarding()
	}
	if err == nil {
		err = l.apply(ctx, t, joined, progress)
	}
	if err != nil {
		return errors.Join(err, l.leave(joined), l.refuseForwarding())
	}
	used := Used(l.state.Sites, t)
	needless := lists.Filter(l.used(), func(p *part) bool { return !slices.Contains(used, p.machine) })
	if err := l.leave(needless); err != nil { // the lab is what it should be
		l.owner.OnLoop(fmt.Sprintf("%v; what is left there %s", err, stays(l.state)))
	}
	if err := l.refuseForwarding(); err != nil {
		l.owner.OnLoop(err.Error())
	}
	return nil
}

// join connects to the machines that a topology needs and that were not used so far.
func (l *Lab) join(ctx context.Context, t *topology.Topology) (joined []*part, err error) {
	for _, m := range Used(l.state.Sites, t) {
		if p := l.parts[m.Name]; p.idle.Load() {
			joined = append(joined, p)
		}
	}
	err = parallel.All(joined, func(p *part) error {
		if _, err := p.connect(ctx, l.user); err != nil {
			return err
		}
		return p.down(ctx, func(lab.Progress) {}) // there may be remains of an earlier part
	})
	for _, p := range joined {
		if err == nil {
			p.gone.Store(true) // it is to be made
			p.idle.Store(false)
			err = l.noteAddresses(p)
		}
	}
	return joined, err
}

// leave takes parts down, and stops using their machines.
func (l *Lab) leave(parts []*part) error {
	return parallel.All(parts, func(p *part) (err error) {
		if p.ended != nil {
			p.ended()
		}
		if !p.gone.Load() {
			err = p.down(context.WithoutCancel(l.ctx), func(lab.Progress) {})
		}
		p.idle.Store(true)
		p.gone.Store(false)
		p.unsure.Store(false)
		p.close()
		return p.wrong(err)
	})
}

func (l *Lab) apply(ctx context.Context, t *topology.Topology, joined []*part, progress lab.Stage) error {
	old, vnis, wires := l.Topology(), l.record.VNIs, l.record.Wires
	was := map[string]*topology.Topology{}
	for _, p := range l.used() {
		was[p.machine.Name] = l.partOf(old, p.machine.Name)
	}
	here := l.partOf(old, topology.Head)
	err := l.allocate(t)
	if err == nil {
		err = l.learnCarriers(ctx, t)
	}
	if err != nil {
		l.record.VNIs, l.record.Wires = vnis, wires
		return errors.Join(err, l.save())
	}
	changed, used := make(chan *part, len(l.parts)), Used(l.state.Sites, t)
	err = l.each(func(p *part) error {
		if !slices.Contains(used, p.machine) {
			return nil // it is left at the end, and may be away
		}
		is := l.partOf(t, p.machine.Name)
		alike := same(was[p.machine.Name], is)
		if p.gone.Load() {
			err := p.up(ctx, l.stateOf(t, p), func(step lab.Progress) { l.report(p, step) })
			if alike && errors.Is(err, errAway) {
				return nil
			}
			p.gone.Store(err != nil)
			p.unsure.Store(err != nil) // the site may have it when it is reached again
			switch {
			case err != nil:
			case slices.Contains(joined, p):
				l.leadPart(p)
			default:
				changed <- p
			}
			return err
		}
		if alike && !p.unsure.Load() {
			return nil
		}
		err := p.become(ctx, is)
		if alike && errors.Is(err, errAway) {
			return nil // settle does that when it answers again
		}
		if err == nil || p.unsure.Load() {
			changed <- p
		}
		return err
	})
	close(changed)
	if err == nil {
		if is := l.partOf(t, topology.Head); !same(here, is) {
			err = l.here.Apply(ctx, is, progress)
		}
	}
	if err == nil {
		if err = l.changeDevices(ctx, t); err != nil {
			if is := l.partOf(t, topology.Head); !same(here, is) {
				err = errors.Join(err, l.here.Apply(context.WithoutCancel(ctx), here, progress))
			}
		}
	}
	if err == nil {
		said := remarks(old, l.known())
		l.set(t)
		for _, what := range remarks(t, l.known()) {
			if !slices.Contains(said, what) {
				l.owner.OnLoop(what)
			}
		}
		return nil
	}
	if errors.Is(err, lab.ErrHalf) {
		return err
	}
	l.record.VNIs, l.record.Wires = vnis, wires
	undo := l.save()
	for p := range changed {
		failed := p.become(context.WithoutCancel(ctx), was[p.machine.Name])
		if failed != nil && p.unsure.Load() {
			l.owner.OnLoop(fmt.Sprintf("%v; it is changed back when it answers again", failed))
			failed = nil
		}
		undo = errors.Join(undo, failed)
	}
	if undo != nil {
		return fmt.Errorf("%w; %w: %w; take the lab down", err, lab.ErrHalf, undo)
	}
	return err
}

// same says whether a part need not change.
func same(a, b *topology.Topology) bool {
	return len(topology.Diff(a, b)) == 0 && slices.Equal(a.Elsewhere, b.Elsewhere)
}

// Again remakes a node that is here; parts remake their own.
func (l *Lab) Again(ctx context.Context, node string) error {
	done, err := l.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	return l.here.Again(ctx, node)
}

// SetLink changes one link, at the sites of its ends.
func (l *Lab) SetLink(ctx context.Context, index int, c topology.LinkChange) error {
	t := *l.Topology()
	t.Links = slices.Clone(t.Links)
	t.Links[index] = t.Links[index].Clone()
	c.Apply(t.Links[index])
	return l.Apply(ctx, &t, func(string, int, int) {})
}

// Replaced lists the nodes here whose commands the lab's daemon runs: those elsewhere run theirs.
func (l *Lab) Replaced(t *topology.Topology) (gone, made []*topology.Node) {
	return l.here.Replaced(l.partOf(t, topology.Head))
}

// RunStarts makes all parts run the start commands that have not run yet, and waits for their own
// routing daemons. One that is away has run its own, unless it is new or has just changed.
func (l *Lab) RunStarts(ctx context.Context) error {
	return l.each(func(p *part) error {
		if lab.ReadyWhenUp(l.partOf(l.Topology(), p.machine.Name)) {
			return nil
		}
		err := p.ready(ctx)
		if !p.fresh.Load() && errors.Is(err, errAway) {
			return nil
		}
		return err
	})
}

// Announce has the nodes of all sites that answer announce their addresses.
func (l *Lab) Announce(ctx context.Context, list []topology.OwnedAddress) error {
	at, t := map[string][]topology.OwnedAddress{}, l.Topology()
	for _, a := range list {
		if n := t.Node(a.Node); n != nil {
			at[n.Sited()] = append(at[n.Sited()], a)
		}
	}
	return errors.Join(l.here.Announce(ctx, at[topology.Head]), l.each(func(p *part) error {
		if len(at[p.machine.Name]) == 0 {
			return nil
		}
		err := p.client.Announce(ctx, at[p.machine.Name])
		if errors.Is(err, errAway) {
			return nil
		}
		return p.wrong(err)
	}))
}

// WaitAddresses waits at all sites that answer, at once: routers of one have hosts at others.
func (l *Lab) WaitAddresses(ctx context.Context) error {
	here := make(chan error, 1)
	go func() { here <- l.here.WaitAddresses(ctx) }()
	there := l.each(func(p *part) error {
		err := p.client.WaitAddresses(ctx)
		if errors.Is(err, errAway) {
			return nil
		}
		return p.wrong(err)
	})
	return errors.Join(<-here, there)
}

// Settle waits until packets at all sites that answer are forwarded by the current flow entries.
func (l *Lab) Settle(ctx context.Context) error {
	return errors.Join(l.here.Settle(ctx), l.each(func(p *part) error {
		err := p.client.Settle(ctx)
		if errors.Is(err, errAway) {
			return nil
		}
		return p.wrong(err)
	}))
}

// Away says whether there is no connection to a site now.
func (l *Lab) Away(name string) bool {
	var err error
	if p := l.parts[name]; p != nil {
		_, err = p.now()
	} else if i := slices.IndexFunc(l.devices, func(d *device) bool { return d.machine.Name == name }); i >= 0 {
		_, err = l.devices[i].now()
	}
	return err != nil
}

// Controllers says, for the switches of all sites, whether they are connected.
func (l *Lab) Controllers(ctx context.Context) ([]datapath.SwitchStatus, error) {
	out, err := gather(l, func(here *local.Lab) ([]datapath.SwitchStatus, error) { return here.Controllers(ctx) },
		func(c *lab.Client) ([]datapath.SwitchStatus, error) { return c.Controllers(ctx) })
	more, failed := l.deviceStatus(ctx)
	return append(out, more...), errors.Join(err, failed)
}

// Present reads the nodes of all sites. Of devices that run no part, it reads their switches.
func (l *Lab) Present(ctx context.Context, names []string) ([]lab.Present, error) {
	out, err := gather(l, func(here *local.Lab) ([]lab.Present, error) { return here.Present(ctx, names) },
		func(c *lab.Client) ([]lab.Present, error) { return c.Present(ctx, names) })
	l.nameDevices(out)
	for _, n := range l.Topology().Nodes {
		if d := l.deviceOf(n.Name); d != nil && (len(names) == 0 || slices.Contains(names, n.Name)) {
			p, failed := l.presentAt(ctx, n, d)
			out, err = append(out, p), errors.Join(err, failed)
		}
	}
	return out, err
}

// Addresses reads the addresses of the nodes of all sites, by the device names of the nodes'
// machines.
func (l *Lab) Addresses(ctx context.Context, names []string) ([]lab.Present, error) {
	var failed error
	out, err := gather(l, func(here *local.Lab) (list []lab.Present, _ error) {
		list, failed = here.Addresses(ctx, names)
		return list, nil
	}, func(c *lab.Client) ([]lab.Present, error) { return c.Addresses(ctx, names) })
	return out, errors.Join(failed, err)
}

// nameDevices renames devices in what parts report as the topology names them: at a wire, the
// host's device is the machine's own, under its own name.
func (l *Lab) nameDevices(present []lab.Present) {
	t := l.Topology()
	nodes, ends := t.NodesByName(), topology.EndsOf(t)
	parts := map[string]map[string][]*topology.Endpoint{}
	for i := range present {
		p := &present[i]
		n := nodes[p.Node]
		if n == nil || !p.Network {
			continue
		}
		if parts[n.Sited()] == nil {
			parts[n.Sited()] = topology.EndsOf(l.partOf(t, n.Sited()))
		}
		names := map[string]string{}
		for _, there := range parts[n.Sited()][n.Name] {
			for _, e := range ends[n.Name] {
				if e.Port != nil && there.Port != nil && *e.Port == *there.Port {
					names[there.Interface] = e.Interface
				}
			}
		}
		addresses := map[string][]netip.Prefix{}
		for device, list := range p.Addresses {
			addresses[cmp.Or(names[device], device)] = list
		}
		p.Addresses = addresses
		for k, r := range p.Routes {
			p.Routes[k].Device = cmp.Or(names[r.Device], r.Device)
		}
	}
}

// Changed lists what differs in the namespaces of all sites from when the lab came up. Devices that
// run no part are left out.
func (l *Lab) Changed(ctx context.Context) ([]lab.Changed, error) {
	return gather(l, func(here *local.Lab) ([]lab.Changed, error) { return here.Changed(ctx) },
		func(c *lab.Client) ([]lab.Changed, error) { return c.Changed(ctx) })
}

// Drops lists the drops at all sites.
func (l *Lab) Drops(ctx context.Context) ([]datapath.Drop, error) {
	return gather(l, func(here *local.Lab) ([]datapath.Drop, error) { return here.Drops(ctx) },
		func(c *lab.Client) ([]datapath.Drop, error) { return c.Drops(ctx) })
}

// Models returns the counters of the devices that the lab models, at all sites.
func (l *Lab) Models() ([]lab.ModelledNode, error) {
	if len(l.Topology().Modelled()) == 0 {
		return []lab.ModelledNode{}, nil // parts of an older version lack this request
	}
	out, err := gather(l, (*local.Lab).Models,
		func(c *lab.Client) ([]lab.ModelledNode, error) { return c.Models(context.Background()) })
	at := map[string]int{}
	for i, n := range l.Topology().Nodes {
		at[n.Name] = i
	}
	slices.SortStableFunc(out, func(a, b lab.ModelledNode) int { return cmp.Compare(at[a.Node], at[b.Node]) })
	return out, err
}

// gather concatenates the lists of all sites.
func gather[T any](l *Lab, here func(*local.Lab) ([]T, error), there func(*lab.Client) ([]T, error)) ([]T, error) {
	out, err := here(l.here)
	if err != nil {
		return nil, err
	}
	lists := make(chan []T, len(l.parts))
	err = l.each(func(p *part) error {
		list, err := there(p.client)
		lists <- list
		return p.wrong(err)
	})
	close(lists)
	for list := range lists {
		out = append(out, list...)
	}
	return out, err
}

// Dead lists what has ended, as last reported by parts, and the sites that do not answer.
func (l *Lab) Dead() []string {
	out := l.here.Dead()
	for _, p := range l.used() {
		switch _, err := p.now(); {
		case err != nil:
			out = append(out, "site "+p.machine.Name)
		case p.gone.Load(), p.unsure.Load():
			out = append(out, "the part at "+p.machine.Name)
		case p.lost.Load():
			out = append(out, "site "+p.machine.Name)
		default:
			out = append(out, p.dead()...)
		}
	}
	return append(out, l.deadDevices()...)
}

// Remarks are what the user should know of the lab that has come up.
func (l *Lab) Remarks() []string {
	return append(l.here.Remarks(), remarks(l.Topology(), l.known())...)
}

// known returns what is known of the sites without asking them.
func (l *Lab) known() lab.Sites {
	return lab.Sites{Carrier: l.state.Sites.Carrier, Others: []lab.SiteInfo{}, Carriers: *l.via.Load()}
}

// Sites reports on the other sites, and asks them for the time. It may be called at any time.
func (l *Lab) Sites(ctx context.Context) lab.Sites {
	out := l.known()
	for _, p := range l.used() {
		out.Others = append(out.Others, lab.SiteInfo{Name: p.machine.Name, Machine: p.machine.String()})
	}
	ctx, cancel := patience.Overview.Context(ctx)
	defer cancel()
	var group sync.WaitGroup
	for i := range out.Others {
		o := &out.Others[i]
		group.Go(func() {
			s, err := l.parts[o.Name].now()
			if err == nil {
				var x Examined
				if x, err = timed(ctx, s); err == nil {
					o.Clock = &lab.Clock{Offset: float64(x.Offset) / 1e6, Within: float64(x.Within) / 1e6}
				}
			}
			if err != nil {
				o.Problem = err.Error()
			}
		})
	}
	group.Wait()
	out.Others = append(out.Others, l.deviceInfo()...)
	return out
}

// WiresOf says how the links of a topology are made.
func (l *Lab) WiresOf(t *topology.Topology) []datapath.Wire {
	out, nodes, keys := l.here.WiresOf(t), t.NodesByName(), topology.LinkKeys(t)
	// A topology that the lab cannot become is of no interest here.
	wires, _ := wireLinks(t, l.state.Sites, l.record.Wires)
	for i, link := range t.Links {
		port := cmp.Or(l.state.Sites.PortOf(keys[i], link.Ends[0].Node),
			l.state.Sites.PortOf(keys[i], link.Ends[1].Node))
		switch _, wired := wires[keys[i]]; {
		case port != nil && !link.Ends[0].External() && !link.Ends[1].External():
			out[i] = datapath.Network
		case port != nil && port.Plugged():
			out[i] = datapath.Plugged
		case port != nil:
			out[i] = datapath.Attached
		case wired:
			out[i] = datapath.Cable
		case link.Crosses(nodes) && l.state.Sites.By().Tagged:
			out[i] = datapath.Tagged
		case link.Crosses(nodes):
			out[i] = datapath.Tunnel
		}
	}
	return out
}

// Ends returns the present state of the ends of all links. Those at a site that does not answer are
// unknown.
func (l *Lab) Ends() ([][2]lab.End, error) {
	t := l.Topology()
	out := make([][2]lab.End, len(t.Links))
	put := func(site string, end func(i, e int) lab.End) {
		for i, where := range indexesAt(t, site) {
			for e, is := range t.Links[where].Ends {
				if is.External() || t.Node(is.Node).Sited() == site {
					out[where][e] = end(i, e)
				}
			}
		}
	}
	here, err := l.here.Ends()
	if err != nil {
		return nil, err
	}
	put(topology.Head, func(i, e int) lab.End { return here[i][e] })
	for _, p := range l.used() {
		part := l.partOf(t, p.machine.Name)
		links, err := p.client.Links(l.ctx)
		if err == nil && len(links) != len(part.Links) {
			err = errors.New("its links are not those of the lab")
		}
		put(p.machine.Name, func(i, e int) lab.End {
			unknown := lab.End{Interface: part.Links[i].Ends[e].Interface, State: lab.EndUnknown}
			switch {
			case err != nil:
				unknown.Problem = p.wrong(err).Error()
			case len(links[i].Ends) != 2:
				unknown.Problem = p.wrong(errors.New("it does not say what its links are")).Error()
			default:
				return links[i].Ends[e]
			}
			return unknown
		})
	}
	l.deviceEnds(out)
	put(topology.AtProvider, func(i, e int) lab.End { // unknown to the lab; up when the lab came up
		return lab.End{Interface: t.Links[indexesAt(t, topology.AtProvider)[i]].Ends[e].Interface, State: lab.EndUp}
	})
	return out, nil
}

// Traffic returns what each link carries, what waits before it, and what was dropped: each
// direction as reported by the site of the sending node. The other sites are asked at the same
// time.
func (l *Lab) Traffic(ctx context.Context) ([][2]lab.LinkDirection, error) {
	t := l.Topology()
	nodes, out := t.NodesByName(), make([][2]lab.LinkDirection, len(t.Links))
	for i, link := range t.Links {
		for e := range link.Ends {
			out[i][e] = lab.LinkDirection{From: lab.PlaceOf(link.Ends[e]), To: lab.PlaceOf(link.Ends[1-e])}
			if l.deviceOf(link.Ends[e].Node) != nil {
				out[i][e].Problem = "devices are not asked"
			}
		}
	}
	put := func(site string, direction func(i, e int) lab.LinkDirection) {
		for i, where := range indexesAt(t, site) {
			for e, is := range t.Links[where].Ends {
				if n := nodes[is.Node]; n != nil && n.Sited() == site {
					d := direction(i, e)
					d.From, d.To = out[where][e].From, out[where][e].To
					out[where][e] = d
				}
			}
		}
	}
	here, err := l.here.Traffic(ctx)
	if err != nil {
		return nil, err
	}
	put(topology.Head, func(i, e int) lab.LinkDirection { return here[i][e] })
	var mu sync.Mutex
	_ = l.each(func(p *part) error {
		said, err := p.client.Traffic(ctx, 0)
		if n := len(indexesAt(t, p.machine.Name)); err == nil && len(said.Links) != n {
			err = errors.New("its links are not those of the lab")
		}
		mu.Lock()
		defer mu.Unlock()
		put(p.machine.Name, func(i, e int) lab.LinkDirection {
			if err != nil {
				return lab.LinkDirection{Problem: p.wrong(err).Error()}
			}
			return said.Links[i].Directions[e]
		})
		return nil
	})
	return out, nil
}

// indexesAt returns the indexes of a topology's links that have an end at a site: those of its
// part, in the part's order.
func indexesAt(t *topology.Topology, site string) (out []int) {
	nodes := t.NodesByName()
	for i, link := range t.Links {
		if slices.ContainsFunc(link.Ends[:],
			func(e topology.Endpoint) bool { return nodes[e.Node] != nil && nodes[e.Node].Sited() == site }) {
			out = append(out, i)
		}
	}
	return out
}

// indexHere returns the index, in the part that is here, of a link of the lab.
func (l *Lab) indexHere(index int) int {
	return slices.Index(indexesAt(l.Topology(), topology.Head), index)
}

// NeedsDevices says whether a link must be made anew for a capture.
func (l *Lab) NeedsDevices(link *topology.Link) bool {
	return l.isHere(link.Ends[0].Node) && l.isHere(link.Ends[1].Node) && l.here.NeedsDevices(link)
}

// Look shows the packets of a link to a capture, if it has an end here.
func (l *Lab) Look(index int, see func([]byte)) (mirrored bool, done func()) {
	if i := l.indexHere(index); i >= 0 {
		return l.here.Look(i, see)
	}
	return false, func() {}
}

// WaitControllers waits at all sites that have switches with foreign controllers.
func (l *Lab) WaitControllers(ctx context.Context) error {
	t := l.Topology()
	foreign := slices.DeleteFunc(slices.Clone(t.Nodes), func(n *topology.Node) bool {
		return !n.IsDatapath() || len(topology.ForeignControllers(t, n)) == 0
	})
	err := l.await(ctx, foreign, func(here []*topology.Node) error { return l.here.WaitControllers(ctx) },
		func([]string) lab.Await { return lab.Await{Controllers: true} })
	if err = errors.Join(err, l.awaitDevices(ctx, foreign, connectedDevice)); err == nil {
		return nil
	}
	for controller, why := range l.unreached.Range { // its switches only see the end
		err = errors.Join(err, fmt.Errorf("the head does not reach the controller %s: %w", controller, why.(error)))
	}
	return err
}

// WaitFlows waits for switches of all sites.
func (l *Lab) WaitFlows(ctx context.Context, switches []*topology.Node) error {
	return errors.Join(l.await(ctx, switches, func(here []*topology.Node) error { return l.here.WaitFlows(ctx, here) },
		func(there []string) lab.Await { return lab.Await{Flows: there} }),
		l.awaitDevices(ctx, switches, flowsAtDevice))
}

// WaitPorts waits for switches of all sites.
func (l *Lab) WaitPorts(ctx context.Context, switches []*topology.Node, links []*topology.Link) error {
	var keys []string
	for i, key := range topology.LinkKeys(l.Topology()) {
		if slices.Contains(links, l.Topology().Links[i]) {
			keys = append(keys, key)
		}
	}
	return l.await(ctx, switches, func(here []*topology.Node) error { return l.here.WaitPorts(ctx, here, links) },
		func(there []string) lab.Await { return lab.Await{Ports: there, Links: keys} })
}

// await waits concurrently at those sites that have some of the switches.
func (l *Lab) await(ctx context.Context, switches []*topology.Node, here func([]*topology.Node) error,
	there func([]string) lab.Await) error {
	at := map[string][]string{}
	var own []*topology.Node
	for _, n := range switches {
		if at[n.Sited()] = append(at[n.Sited()], n.Name); l.isHere(n.Name) {
			own = append(own, n)
		}
	}
	errs := make(chan error, 1)
	go func() {
		errs <- l.each(func(p *part) error {
			if names := at[p.machine.Name]; len(names) > 0 {
				return p.wrong(p.client.Await(ctx, there(names)))
			}
			return nil
		})
	}()
	var err error
	if len(own) > 0 {
		err = here(own)
	}
	return errors.Join(err, <-errs)
}
