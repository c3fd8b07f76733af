package local

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// fabric is what forwards for one kind of datapath in a lab.
type fabric struct {
	*datapath.Kind
	datapath.Fabric
}

// newFabrics returns a fabric of each registered kind.
func (l *Lab) newFabrics() (out []fabric) {
	kinds := datapath.Kinds()
	for i := range kinds {
		out = append(out, fabric{&kinds[i], kinds[i].New(site{l})})
	}
	return out
}

// each calls step for all fabrics that implement T, up to the first that fails.
func each[T any](l *Lab, step func(T) error) error {
	for _, f := range l.fabrics {
		if t, ok := f.Fabric.(T); ok {
			if err := step(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// programs returns how many nodes of a topology have programs, of their own or run by their
// fabrics.
func (l *Lab) programs(t *topology.Topology) (n int) {
	_ = each(l, func(r datapath.Runner) error { n += r.Running(t); return nil })
	return n + len(l.withPrograms(t))
}

// TakeOver ends a Resume: see datapath.Keeper.
func (l *Lab) TakeOver() {
	_ = each(l, func(k datapath.Keeper) error { k.TakeOver(); return nil })
}

// Remarks are the fabrics' remarks on how they forward here, and those on directories of nodes.
func (l *Lab) Remarks() []string {
	out := l.covered.remarks()
	for _, f := range l.fabrics {
		if r, ok := f.Fabric.(datapath.Remarker); ok && r.Remark() != "" {
			out = append(out, r.Remark())
		}
	}
	return out
}

// Look shows the packets on the index-th link to a capture: see datapath.Mirror.
func (l *Lab) Look(index int, see func(frame []byte)) (mirrored bool, done func()) {
	link := l.Topology().Links[index]
	var ends []func()
	seen := map[datapath.Mirror]bool{}
	for _, e := range link.Ends {
		m, ok := l.fabricOf(l.node(e.Node)).(datapath.Mirror)
		if !ok || seen[m] {
			continue
		}
		seen[m] = true
		here, end := m.Look(link, see)
		mirrored, ends = mirrored || here, append(ends, end)
	}
	return mirrored, func() {
		for _, end := range ends {
			end()
		}
	}
}

// port returns the state of the port at a link's end, as reported by its fabric.
func (l *Lab) port(e topology.Endpoint) (state datapath.PortState) {
	if p, ok := l.fabricOf(l.node(e.Node)).(datapath.Ported); ok {
		return p.Port(e)
	}
	return state
}

// CheckSwitches says what to do if a program has ended without which the lab cannot be changed.
func (l *Lab) CheckSwitches() error {
	return each(l, func(c datapath.Checker) error { return c.Check() })
}

// needChecksums says whether packets need complete checksums, for a fabric or for what the lab is
// plugged into: they may come from any node.
func (l *Lab) needChecksums() bool {
	for _, link := range l.Topology().Links {
		for _, e := range link.Ends {
			if e.Carrier != nil && e.Carrier.Port != nil && e.Carrier.Port.Whole {
				return true
			}
		}
	}
	return slices.ContainsFunc(l.fabrics, func(f fabric) bool { return needsChecksums(f.Fabric) })
}

func needsChecksums(f datapath.Fabric) bool {
	s, ok := f.(datapath.Summing)
	return ok && s.NeedsChecksums()
}

func (l *Lab) runPrograms(ctx context.Context, done func()) error {
	if err := l.runWifi(); err != nil {
		return err
	}
	if err := each(l, func(r datapath.Runner) error { return r.Run(ctx, done) }); err != nil {
		return err
	}
	begin := func(ctx context.Context, n *topology.Node) error { return l.nodesOf(n).(Program).Begin(ctx, n) }
	nodes := slices.DeleteFunc(l.withPrograms(l.Topology()), func(n *topology.Node) bool { return !l.begins(n) })
	return beginInOrder(ctx, nodes, begin, done)
}

// Heal restarts the programs that Dead lists, where possible.
func (l *Lab) Heal(ctx context.Context) error { return l.runPrograms(ctx, func() {}) }

// Dead lists what should be running but is not: "zebra of router r1", "Open vSwitch". It may be
// called at any time.
func (l *Lab) Dead() (out []string) {
	for _, f := range l.fabrics {
		out = append(out, f.Dead()...)
	}
	for _, n := range l.Topology().Nodes {
		if what := l.endedOf(n); what != "" {
			out = append(out, what)
		}
	}
	return append(out, l.deadWifi()...)
}

// WaitRoutes waits until routers know their routes: see datapath.Converger.
func (l *Lab) WaitRoutes(ctx context.Context, knows func(router string, to netip.Addr) bool) error {
	return each(l, func(c datapath.Converger) error { return c.WaitRoutes(ctx, knows) })
}

// fabricOf returns the fabric of a node, or nil if it has none.
func (l *Lab) fabricOf(n *topology.Node) datapath.Fabric {
	if n == nil {
		return nil
	}
	for _, f := range l.fabrics {
		if slices.Contains(f.Names, n.Datapath) {
			return f.Fabric
		}
	}
	return nil
}

// site is a lab as fabrics see it.
type site struct{ *Lab }

func (s site) Dir() string                         { return s.Lab.Dir }
func (s site) Wire(k *topology.Link) datapath.Wire { return s.WireOf(k) }
func (s site) Node(name string) *topology.Node     { return s.node(name) }
func (s site) Namespace() *os.File                 { return s.fabric }
func (s site) NewDevice(name string) int           { return s.newIndex(name) }
func (s site) Device(name string) int              { return s.index[name] }
func (s site) ForgetDevice(name string)            { s.forgetDevice(name) }

func (s site) NodeDir(node string) string  { return filepath.Join(s.Lab.Dir, "routers", node) }
func (s site) Processes(node string) []int { return s.Cgroups.Processes(s.Name, node) }

func (s site) Start(node string, cmd *exec.Cmd, before func() error) error {
	return s.StartAround(s.node(node), cmd, before)
}

func (s site) Ended(what string) {
	if !s.closing.Load() {
		s.owner.OnEnd(what)
	}
}

// Ended reports to the lab's owner that something of the lab has ended by itself.
func (l *Lab) Ended(what string) { site{l}.Ended(what) }

// Group makes a cgroup next to those of the nodes.
func (s site) Group(name string) (prepare func(*exec.Cmd), started func() error, err error) {
	if err := s.Cgroups.Make(s.Name, &topology.Node{Name: name}); err != nil {
		return nil, nil, err
	}
	var groups []*os.File // kept open until everything has been started
	var errs []error
	prepare = func(cmd *exec.Cmd) {
		dir, err := s.Cgroups.Bear(cmd, s.Name, name)
		groups, errs = append(groups, dir), append(errs, err)
	}
	return prepare, func() error {
		for _, g := range groups {
			g.Close()
		}
		return errors.Join(errs...)
	}, nil
}

// Limit limits the CPU time of a group.
func (s site) Limit(group string, cpu topology.CPU) error {
	if err := s.Cgroups.Limit(s.Name, group, cpu); err != nil {
		return fmt.Errorf("limit the CPU of %s: %w", strings.TrimPrefix(group, "."), err)
	}
	return nil
}

func (s site) AwaitRunning(names []string) error {
	ctx, cancel := patience.Carrier.Context(context.Background())
	defer cancel()
	return s.awaitRunning(ctx, "", names)
}

func (s site) Looped(what string) { s.owner.OnLoop(what) }
