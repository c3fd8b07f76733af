package sites

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// The methods in this file act only on the part that is here, each for the reason that it gives.

// TakeOver ends Resume: parts take their switches over by themselves.
func (l *Lab) TakeOver() { l.here.TakeOver() }

// CheckSwitches checks only here: each part checks when it is to change.
func (l *Lab) CheckSwitches() error { return l.here.CheckSwitches() }

// WaitRoutes waits for routers here: those elsewhere are waited for by RunStarts.
func (l *Lab) WaitRoutes(ctx context.Context, knows func(router string, to netip.Addr) bool) error {
	return l.here.WaitRoutes(ctx, knows)
}

// RunStart runs the start command of a node that is here: see RunStarts.
func (l *Lab) RunStart(node string, cmd *exec.Cmd) error {
	if err := l.mustBeHere(node); err != nil {
		return err
	}
	return l.here.RunStart(node, cmd)
}

// HasStarted only knows nodes that are here.
func (l *Lab) HasStarted(node string) bool { return l.isHere(node) && l.here.HasStarted(node) }

// EndStart ends what the start command of a node that is here began.
func (l *Lab) EndStart(node string) error {
	if err := l.mustBeHere(node); err != nil {
		return err
	}
	return l.here.EndStart(node)
}

// Controllers that are programs run beside the switches here; switches elsewhere reach them through
// the head: see meet.

func (l *Lab) FreePort() (int, error)                        { return l.here.FreePort() }
func (l *Lab) StartProgram(name string, cmd *exec.Cmd) error { return l.here.StartProgram(name, cmd) }
func (l *Lab) Listens(name, address string)                  { l.here.Listens(name, address) }
func (l *Lab) ListenInside(port int) (net.Listener, error)   { return l.here.ListenInside(port) }
func (l *Lab) DialInside(ctx context.Context, port int) (net.Conn, error) {
	return l.here.DialInside(ctx, port)
}
func (l *Lab) ProgramProcesses(name string) []int { return l.here.ProgramProcesses(name) }
func (l *Lab) EndProgram(name string) error       { return l.here.EndProgram(name) }

// NamespaceOf and LineQueues serve processes and tools on this machine only.
func (l *Lab) NamespaceOf(number uint64, nodes []string) (machine, switches bool, node string) {
	return l.here.NamespaceOf(number, nodes)
}

func (l *Lab) LineQueues(of func(node string) bool) []lab.LineQueue { return l.here.LineQueues(of) }

// Note and Renew record the namespaces here: parts record theirs when they come up.
func (l *Lab) Note(resumed bool)                          { l.here.Note(resumed) }
func (l *Lab) Renew(nodes []string, f func() error) error { return l.here.Renew(nodes, f) }

// LoadAgain reloads configurations at all sites that have some.
func (l *Lab) LoadAgain(ctx context.Context) error {
	t := l.Topology()
	has := map[string]bool{}
	for _, n := range t.Nodes {
		if n.ConfigOf("flows") != "" && len(topology.ForeignControllers(t, n)) > 0 {
			has[n.Sited()] = true
		}
	}
	return errors.Join(l.here.LoadAgain(ctx), l.loadDevicesAgain(ctx), l.each(func(p *part) error {
		if !has[p.machine.Name] {
			return nil
		}
		err := p.client.LoadAgain(ctx)
		if errors.Is(err, errAway) {
			return nil
		}
		return p.wrong(err)
	}))
}

// LimitProgram limits a program beside the switches; such programs run only here.
func (l *Lab) LimitProgram(name string, cpu topology.CPU) error {
	return l.here.LimitProgram(name, cpu)
}
