package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// ovsGroup is the cgroup of the lab's Open vSwitch, beside those of the nodes (whose names start otherwise).
const ovsGroup = ".ovs"

// startSwitches starts Open vSwitch where the topology needs it and it does not run yet.
func (l *Lab) startSwitches(ctx context.Context) error {
	if l.ovs.Load() != nil || !slices.ContainsFunc(l.Topology().Nodes, isOVS) {
		return nil
	}
	if err := l.Cgroups.make(l.Name, &topology.Node{Name: ovsGroup}); err != nil {
		return err
	}
	var groups []*os.File // open until the daemons run
	var joinErr error
	cfg := ovs.Config{Dir: l.ovsDir(), NetNS: l.fabricPath(), Prepare: func(cmd *exec.Cmd) {
		dir, err := l.Cgroups.bear(cmd, l.Name, ovsGroup)
		groups, joinErr = append(groups, dir), errors.Join(joinErr, err)
	}}
	switches, err := ovs.Start(ctx, cfg)
	for _, g := range groups {
		g.Close()
	}
	l.ovs.Store(switches)
	if err = errors.Join(err, joinErr); err != nil {
		return err
	}
	l.watchSwitches()
	l.Record.OVS = switches.Datapath()
	return l.saveRecord()
}

// OpenVSwitch is what Dead calls it.
const OpenVSwitch = "Open vSwitch"

// ovsDead says whether one of the two programs of the lab's Open vSwitch has ended.
func (l *Lab) ovsDead() bool { return l.ovs.Load() != nil && len(l.ovs.Load().Pids()) < 2 }

// watchSwitches says it when Open vSwitch ends while the lab is up.
func (l *Lab) watchSwitches() {
	for _, pid := range l.ovs.Load().Pids() {
		cmd, err := process.Command(pid)
		if err != nil {
			continue
		}
		go func() {
			if process.Wait(cmd); l.OnEnd != nil && !l.closing.Load() {
				l.OnEnd("a program of " + OpenVSwitch + " has ended; its logs are in " + l.ovsDir())
			}
		}()
	}
}

// CheckSwitches says what is to be done where Open vSwitch has ended: it cannot be started again under what it carried.
func (l *Lab) CheckSwitches() error {
	if !l.ovsDead() {
		return nil
	}
	return fmt.Errorf("%s has ended (its logs are in %s): take the lab down, then bring it up again", OpenVSwitch, l.ovsDir())
}

func (l *Lab) ovsDir() string { return filepath.Join(l.Dir, "ovs") }

// applySwitches brings up the switches' side of the lab: devices, Open vSwitch's
// bridges and ports, relays to controllers, and what must not forward.
func (l *Lab) applySwitches(ctx context.Context, done func()) error {
	f := l.tree.Grow(l.Topology())
	if err := l.all(func(d datapath.Fabric) error { return d.Hold(ctx, f) }); err != nil {
		return err
	}
	if err := l.raiseDevices(); err != nil {
		return err
	}
	if err := l.all(func(d datapath.Fabric) error { return d.Apply(ctx, f) }); err != nil {
		return err
	}
	if err := l.applyEmbedded(f.Blocked); err != nil {
		return err
	}
	if l.ovs.Load() != nil {
		if err := l.relays.follow(controllerAddresses(l.Topology())); err != nil {
			return err
		}
		if f.Stale && l.learns() {
			if err := l.ovs.Load().Apply(ctx, l.ovsBridges(f.Held)); err != nil {
				return err
			}
			if err := l.ovs.Load().ForgetAddresses(ctx); err != nil {
				return err
			}
		}
		if err := l.handOver(ctx, f.Blocked); err != nil {
			return err
		}
		if err := l.ovs.Load().Apply(ctx, l.ovsBridges(f.Blocked)); err != nil {
			return err
		}
		if !f.First {
			if err := l.ovs.Load().Settle(ctx); err != nil {
				return err
			}
		}
	}
	if err := l.applyAgents(); err != nil { // last: one that was Open vSwitch's has left its controller by now
		return err
	}
	for _, n := range l.Topology().Nodes {
		if n.IsDatapath() {
			done()
		}
	}
	return nil
}

// handOver lets switches whose controllers change be without any for a moment: else Open vSwitch keeps
// the flow entries of the old ones, which the new know nothing of.
func (l *Lab) handOver(ctx context.Context, blocked map[*topology.Link]bool) error {
	before, change := l.decided, false
	l.decided = map[string]string{}
	bridges := l.ovsBridges(blocked)
	for i, b := range bridges {
		now := strings.Join(b.Controllers, " ")
		l.decided[b.Name] = now
		if was := before[b.Name]; was != "" && now != "" && was != now {
			bridges[i].Controllers, change = nil, true
		}
	}
	if !change {
		return nil
	}
	return l.ovs.Load().Apply(ctx, bridges)
}

// learns says whether a switch of Open vSwitch forwards by learning.
func (l *Lab) learns() bool {
	return slices.ContainsFunc(l.Topology().Nodes, func(n *topology.Node) bool {
		return isOVS(n) && slices.Contains(n.Controllers, topology.ControllerNone)
	})
}

// unplug takes ports whose devices are about to be made anew out of Open vSwitch, which
// would hold on to the old device for as long as there is a port of its name.
func (l *Lab) unplug(ctx context.Context, s plan.Steps) error {
	anew := map[string]bool{}
	for _, k := range s.DropLinks {
		for _, e := range k.Ends {
			anew[e.Interface] = isOVS(l.node(e.Node))
		}
	}
	again := func(k plan.Link) bool { return anew[k.Ends[0].Interface] || anew[k.Ends[1].Interface] }
	if l.ovs.Load() == nil || !slices.ContainsFunc(s.AddLinks, again) {
		return nil
	}
	bridges := l.ovsBridges(topology.Blocked(l.Topology()))
	for i := range bridges {
		bridges[i].Ports = slices.DeleteFunc(bridges[i].Ports, func(p ovs.Port) bool { return anew[p.Name] })
	}
	return l.ovs.Load().Apply(ctx, bridges)
}

// ovsBridges is what Open vSwitch is to be.
func (l *Lab) ovsBridges(blocked map[*topology.Link]bool) []ovs.Bridge {
	var bridges []ovs.Bridge
	at := map[string]int{}
	for _, n := range l.Topology().Nodes {
		if !isOVS(n) {
			continue
		}
		at[n.Name] = len(bridges)
		bridges = append(bridges, ovs.Bridge{Name: topology.DeviceName(n.Name), DPID: n.DPID, FailMode: n.FailMode,
			OpenFlow: n.OpenFlow, STP: n.STP, Controllers: l.targets(n)})
	}
	for _, link := range l.Topology().Links {
		wire := l.WireOf(link)
		if wire == Patch && link.Down {
			continue
		}
		for i, e := range link.Ends {
			if !isOVS(l.node(e.Node)) {
				continue
			}
			p := ovs.Port{Name: e.Interface, Number: int(l.node(e.Node).OpenFlowPort(e)), Blocked: blocked[link]}
			switch wire {
			case Patch:
				p.Patch = link.Ends[1-i].Interface
			case External:
				p.Name = link.Ends[1-i].Interface
			}
			b := &bridges[at[e.Node]]
			b.Ports = append(b.Ports, p)
		}
	}
	return bridges
}

// targets are the controllers of a switch as Open vSwitch is told them.
func (l *Lab) targets(n *topology.Node) []string {
	if slices.Contains(n.Controllers, topology.ControllerTrivet) {
		return []string{"unix:" + l.ControllerSocket}
	}
	out := ControllersOf(l.Topology(), n)
	for _, c := range n.Controllers {
		if address := l.Programs[c]; address != "" && l.Topology().IsControllerProgram(c) {
			out = append(out, address)
		}
	}
	return out
}

// ControllersOf returns the addresses of a switch's controllers outside the lab; none where it
// forwards by learning, or what the lab runs decides.
func ControllersOf(t *topology.Topology, n *topology.Node) []string {
	var out []string
	for _, c := range n.Controllers {
		if c == topology.ControllerNone || c == topology.ControllerTrivet || t.IsControllerProgram(c) {
			continue
		}
		if node := t.Node(c); node != nil {
			c = node.Address
		}
		if c != "" {
			out = append(out, c)
		}
	}
	return out
}

// called are the controllers of a switch: addresses, and names of programs.
func (l *Lab) called(n *topology.Node) []string {
	out := ControllersOf(l.Topology(), n)
	for _, c := range n.Controllers {
		if l.Topology().IsControllerProgram(c) {
			out = append(out, c)
		}
	}
	return out
}

func controllerAddresses(t *topology.Topology) []string {
	var out []string
	for _, n := range t.Nodes {
		if n.IsDatapath() {
			for _, c := range ControllersOf(t, n) {
				if !slices.Contains(out, c) {
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// Controllers says, for each switch that has one, whether it is connected. Only Open vSwitch has controllers.
// It may be called at any time.
func (l *Lab) Controllers(ctx context.Context) ([]ovs.BridgeStatus, error) {
	switches := l.ovs.Load()
	if switches == nil {
		return nil, nil
	}
	return switches.Status(ctx)
}

// refusedLong is how long a controller may refuse connections before it is taken not to run.
const refusedLong = 3 * time.Second

// WaitControllers waits until every switch with a controller is connected to one.
// The error, once ctx ends or a controller refuses, names those that are not and why.
func (l *Lab) WaitControllers(ctx context.Context) error {
	if l.embedded != nil {
		if err := l.waitEmbedded(ctx); err != nil {
			return err
		}
	}
	controllers := map[string][]string{} // of each bridge, as the topology calls them
	var bridges []string
	for _, n := range l.Topology().Nodes {
		if isOVS(n) && !slices.Contains(n.Controllers, topology.ControllerTrivet) && len(l.targets(n)) > 0 {
			name := topology.DeviceName(n.Name)
			bridges, controllers[name] = append(bridges, name), l.called(n)
		}
	}
	if len(bridges) == 0 {
		return nil
	}
	start := time.Now()
	wait, stop := context.WithCancel(ctx)
	defer stop()
	if len(l.Programs) == 0 { // those may take their time
		go l.relays.watch(wait, refusedLong, stop)
	}
	if l.ovs.Load().WaitConnected(wait, bridges) == nil {
		return l.ovs.Load().ForgetDecisions(ctx)
	}
	ask, done := still(ctx)
	defer done()
	status, err := l.ovs.Load().Status(ask)
	if err != nil {
		return err
	}
	missing := map[string][]string{} // switches without a controller, by the controllers they have
	for _, s := range status {
		if c := controllers[s.Name]; len(c) > 0 && !connected(s) {
			missing[strings.Join(c, " ")] = append(missing[strings.Join(c, " ")], s.Name)
		}
	}
	var lines []string
	for c, names := range missing {
		reason := "no answer"
		if err := l.relays.failure(strings.Fields(c)[0]); err != nil {
			reason = err.Error()
		}
		lines = append(lines, fmt.Sprintf("%s did not connect to %s within %.0f s: %s", listSwitches(names), listControllers(c), time.Since(start).Seconds(), reason))
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	return errors.New(strings.Join(lines, "\n"))
}

func connected(s ovs.BridgeStatus) bool {
	return slices.ContainsFunc(s.Controllers, func(c ovs.ControllerStatus) bool { return c.Connected })
}

func listControllers(c string) string {
	if strings.Contains(c, " ") {
		return "any of the controllers " + strings.ReplaceAll(c, " ", ", ")
	}
	return "the controller " + c
}

// listSwitches is a list of switches that stays short.
func listSwitches(names []string) string {
	switch n := len(names); {
	case n == 1:
		return "switch " + names[0]
	case n > 6:
		return fmt.Sprintf("switches %s and %d more", strings.Join(names[:5], ", "), n-5)
	}
	return "switches " + strings.Join(names, ", ")
}

// Settle waits until no packet goes by flow entries that a controller has taken back: Open vSwitch
// looks at what it has cached for running flows some time after a change.
func (l *Lab) Settle(ctx context.Context) error {
	if l.ovs.Load() == nil {
		return nil
	}
	return l.ovs.Load().Settle(ctx)
}
