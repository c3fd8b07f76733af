package drive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/bench/tune"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/topology"
)

// instance is a lab that is up.
type instance struct {
	driver   *Driver
	cell     *experiment.Cell
	topology *topology.Topology
	name     string
	dir      string // of the experiment, from the root
	lab      madeLab
	doubts   []environment.Reason         // what the lab does not hold of its topology
	restore  func() error                 // undoes what was tuned; may be nil
	listens  sync.Mutex                   // over south: probes of a group run together
	south    *southbound                  // nil: nobody has asked for it
	devices  map[string]map[string]string // see offloads; nil: not looked at
}

// madeLab is the nodes of a lab that is up and can be taken down.
type madeLab interface {
	nodes
	watch() environment.WatchOptions
	do(ctx context.Context, e experiment.Event) error
	down(ctx context.Context) error
}

// Run runs a probe.
func (i *instance) Run(ctx context.Context, p experiment.Probe, began time.Time,
	looking func()) (experiment.Measured, error) {
	k := kinds[p.Kind]
	b := &bed{topology: i.topology, cell: i.cell, options: p.Options, name: i.name, dir: i.dir, nodes: i.lab,
		began: began, looking: looking, alone: i.alone(p), drops: i.drops, fresh: i.fresh, south: i.listen}
	if own, ok := i.lab.(*ownLab); ok {
		b.lab, b.captures = own.client, i.driver.Captures
	} else if k.own {
		return experiment.Measured{}, fmt.Errorf("%s needs a lab of Trivet's", p.Kind)
	}
	o, err := k.run(ctx, b)
	o.Reasons = slices.Concat(i.doubts, o.Reasons, i.clocks(ctx, o.Measurements))
	return o, err
}

// clocks says of one-way delays between different sites how far the clocks that they were read from
// are apart: by so much they are wrong.
func (i *instance) clocks(ctx context.Context, list []result.Measurement) (out []environment.Reason) {
	own, ok := i.lab.(*ownLab)
	if !ok || own.state.Sites == nil {
		return nil
	}
	var known *lab.Sites
	nodes := own.state.Topology.NodesByName()
	for _, m := range list {
		from, to := nodes[m.Labels["from"]], nodes[m.Labels["to"]]
		if m.Metric != "delay" || len(m.Values) == 0 || from == nil || to == nil || from.Sited() == to.Sited() {
			continue
		}
		if known == nil {
			s, err := own.client.Sites(ctx)
			if err != nil {
				return append(out,
					environment.Reason{Level: environment.Doubtful, Code: "clocks",
						Text: "how far the clocks of the sites are apart is not known: " + err.Error()})
			}
			known = &s
		}
		out = append(out, apart(known, from.Sited(), to.Sited(), stats.Quantile(m.Values, 0.5))...)
	}
	return out
}

// apart judges a delay in seconds that was read from the clocks of two sites.
func apart(s *lab.Sites, from, to string, delay float64) []environment.Reason {
	c, known := s.ClocksApart(from, to)
	if !known {
		return []environment.Reason{{Level: environment.Doubtful, Code: "clocks",
			Text: fmt.Sprintf("one-way delays from %s to %s are by two clocks, and how far apart those are is not known", from, to)}}
	}
	ahead, within := c.Offset/1e3, c.Within/1e3
	// Doubtful at worst: the probe's other figures do not depend on clocks.
	if math.Abs(ahead)+within <= environment.DefaultLimits.Delay[0]*delay {
		return nil
	}
	return []environment.Reason{{Level: environment.Doubtful, Code: "clocks",
		Text: fmt.Sprintf("one-way delays from %s to %s are by two clocks, %+.3g ms ± %.2g ms apart, beside a delay of %.3g ms", from, to, 1e3*ahead, 1e3*within, 1e3*delay)}}
}

// alone says whether a probe has the lab for itself.
func (i *instance) alone(p experiment.Probe) bool {
	for _, group := range i.cell.Groups {
		for _, other := range group {
			if other.Name == p.Name {
				return len(group) == 1 && len(i.cell.Schedule) == 0
			}
		}
	}
	return false
}

// fresh brings up another lab of the same cell, and down again. Mininet is timed by its own clock:
// without the start of Python, nor of the Open vSwitch that its users have running.
func (i *instance) fresh(ctx context.Context) (up, down time.Duration, err error) {
	began := time.Now()
	other, err := i.driver.up(ctx, i.cell)
	if err != nil {
		return 0, 0, err
	}
	up, began = time.Since(began), time.Now()
	err = other.Down(context.WithoutCancel(ctx))
	if m, ok := other.lab.(*mininetLab); ok {
		return m.up, m.took, err
	}
	return up, time.Since(began), err
}

// Do makes an event happen.
func (i *instance) Do(ctx context.Context, e experiment.Event) error { return i.lab.do(ctx, e) }

// Watch names the processes and cgroups of the lab, and counts what is dropped in it.
func (i *instance) Watch() environment.WatchOptions {
	o := i.lab.watch()
	if i.devices == nil {
		i.devices = i.offloads()
	}
	o.Drops, o.Offloads, o.Own = i.drops, i.devices, []string{"/" + i.name}
	if i.cell.Lab.Options.Truth("awake") {
		o.Awake = tune.AwakeBy()
	}
	return o
}

// Down takes the lab down.
func (i *instance) Down(ctx context.Context) error {
	var err error
	if i.restore != nil {
		err = i.restore()
	}
	return errors.Join(err, i.south.close(), i.lab.down(ctx), clearScratch(i.name))
}

// listen makes sure that the lab's connections to controllers of others are listened to.
func (i *instance) listen() (*southbound, error) {
	i.listens.Lock()
	defer i.listens.Unlock()
	if i.south == nil { // another cell has brought the lab up
		spots, err := i.spots()
		if err != nil {
			return nil, err
		}
		i.south = seekSpots(context.Background(), i.name, spots, false)
	}
	return i.south, i.south.settled()
}

// exitError says that a program has ended with another code than 0.
type exitError int

func (e *exitError) Error() string { return fmt.Sprintf("exit %d", int(*e)) }

func exit(code int) error {
	if code == 0 {
		return nil
	}
	e := exitError(code)
	return &e
}

// notInstalled is the exit code of a shell for a program that is not there (POSIX, section 2.8.2).
func notInstalled(err error) bool {
	var e *exitError
	return errors.As(err, &e) && *e == 127
}

// v6 says whether the probe measures over IPv6.
func (b *bed) v6() bool { return b.options.Truth("ipv6") }

// destination is the address of the node that the probe sends to.
func (b *bed) destination() (netip.Addr, error) {
	return addressOf(b.topology, b.options.Text("to"), b.v6())
}

// addressOf returns a node's first address of a family, of its links before that of its loopback.
func addressOf(t *topology.Topology, node string, v6 bool) (netip.Addr, error) {
	var all []netip.Prefix
	for _, l := range t.Links {
		for _, e := range l.Ends {
			if e.Node == node {
				all = append(all, e.Addresses...)
			}
		}
	}
	if n := t.Node(node); n != nil {
		all = append(all, n.Loopback...)
	}
	for _, a := range all {
		if a.Addr().Is6() == v6 {
			return a.Addr(), nil
		}
	}
	switch {
	case v6 && !t.IPv6.Addressed():
		return netip.Addr{}, fmt.Errorf("%s has no IPv6 address, as the lab assigns none; write lab: {ipv6: assigned}", node)
	case v6:
		return netip.Addr{}, fmt.Errorf("%s has no IPv6 address", node)
	}
	return netip.Addr{}, fmt.Errorf("%s has no IPv4 address", node)
}
