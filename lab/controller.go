package lab

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// ownController is the built-in controller of a lab's switches and routing nodes, which reach
// it over a Unix socket of the lab.
type ownController struct {
	*builtin.Controller
	listener net.Listener
}

// databaseRows is how many rows each time series of a lab's database has at most: the run
// directory is in memory, and of port_load they take 24 MB.
const databaseRows = 200_000

// ControllerSocket is where the built-in controller of a lab listens for switches. Open vSwitch
// connects to sockets in its own directory only.
func ControllerSocket(name string) string { return filepath.Join(Dir(name), "ovs", "controller.sock") }

// startController starts the built-in controller, if a node has it, and tells one that runs what is
// new.
func (d *daemon) startController(t *topology.Topology) error {
	if d.own != nil {
		return d.own.Configure(t)
	}
	if !slices.ContainsFunc(t.Nodes, controlled) {
		return nil
	}
	socket := ControllerSocket(d.state().Name)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return err
	}
	_ = os.Remove(socket) // of a daemon that has died
	mask := unix.Umask(0o177)
	listener, err := net.Listen("unix", socket)
	unix.Umask(mask)
	if err != nil {
		return fmt.Errorf("listen for switches: %w", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)) // the daemon's log
	c, err := builtin.New(builtin.Options{Log: log, Topology: t, Wired: true, Database: filepath.Join(Dir(d.state().Name), "controller.db"), DatabaseRows: databaseRows})
	if err != nil {
		listener.Close()
		return err
	}
	own := &ownController{c, listener}
	d.ask.Settle = func(ctx context.Context) error {
		d.changing.Lock()
		defer d.changing.Unlock()
		return d.target().Settle(ctx)
	}
	d.ask.Use(c)
	go func() { _ = own.Serve(listener) }()
	d.own = own
	d.target().Control(socket, own.meet)
	return nil
}

// meet lets the controller meet an embedded switch in memory.
func (o *ownController) meet(name string, join func(datapath.Peer) datapath.Session) error {
	m := o.NewMemory(name)
	s := join(m)
	if s == nil {
		return fmt.Errorf("%s: the switch is gone", name)
	}
	return m.Join(s)
}

// trust takes links as they are while switches are taken over: see discovery.App.Trust.
func (o *ownController) trust(on bool) {
	if o != nil {
		o.Discovery.Trust(on)
	}
}

// controlled says whether the built-in controller decides for a switch or routing node.
func controlled(n *topology.Node) bool {
	return n.IsDatapath() && slices.Contains(n.Controllers, topology.ControllerTrivet)
}

func (o *ownController) close() {
	o.listener.Close()
	o.Close()
}

// wait waits until every controlled switch is connected, every link between two of them is
// found, and the ports of hosts forward. The error, once ctx ends, says what is missing.
func (o *ownController) wait(ctx context.Context, t *topology.Topology) error {
	if o == nil {
		return nil
	}
	for {
		missing := o.missing(t)
		if len(missing) == 0 {
			return o.barriers(ctx)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the controller is waiting for %s", strings.Join(missing[:min(5, len(missing))], ", "))
		}
	}
}

// catchUp waits until the controller has followed a change of the lab.
func (o *ownController) catchUp(ctx context.Context, t *topology.Topology) error {
	if o == nil {
		return nil
	}
	if err := o.barriers(ctx); err != nil { // what switches have to say of the change comes before their answers
		return err
	}
	return o.wait(ctx, t)
}

// missing lists what the controller has yet to learn of a topology.
func (o *ownController) missing(t *topology.Topology) (out []string) {
	nodes := map[string]*topology.Node{}
	for _, n := range t.Nodes {
		if nodes[n.Name] = n; controlled(n) && o.Switch(uint64(n.DPID)) == nil {
			out = append(out, string(n.Kind)+" "+n.Name)
		}
	}
	for _, l := range t.Links {
		inner := isControlled(nodes[l.Ends[0].Node]) && isControlled(nodes[l.Ends[1].Node])
		for _, e := range l.Ends {
			n := nodes[e.Node]
			if !isControlled(n) || l.Down {
				continue
			}
			dpid, port := uint64(n.DPID), n.OpenFlowPort(e)
			kind := o.Discovery.Kind(dpid, port)
			forwards := inner && kind == discovery.Inner || !inner && kind == discovery.Edge
			if !inner && n.Kind == topology.Switch {
				forwards = o.Learning.TakesPart(dpid, port)
			}
			if !forwards && !o.seesDown(n, port) {
				out = append(out, "link "+l.Name())
			}
		}
	}
	if !o.Learning.Settled() {
		out = append(out, "the spanning tree")
	}
	out = append(out, o.OSPF.Missing()...)
	return append(out, o.Routing.Missing()...)
}

// seesDown says whether an embedded switch has told the controller that a port is down: as somebody
// has set a device down, there is nothing to wait for. (Open vSwitch tells of a carrier some time
// after it has come.)
func (o *ownController) seesDown(n *topology.Node, port uint32) bool {
	s := o.Switch(uint64(n.DPID))
	return n.Datapath == topology.Embedded && s != nil && slices.ContainsFunc(s.Ports(), func(p openflow.Port) bool {
		return p.Number == port && !p.Works()
	})
}

func isControlled(n *topology.Node) bool { return n != nil && controlled(n) }

// barriers waits until the switches have done all that they were told.
func (o *ownController) barriers(ctx context.Context) error {
	for _, s := range o.Switches() {
		err := s.Barrier(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("the controller is waiting for an answer from switch %s", s.Name())
		}
		if err != nil {
			return fmt.Errorf("switch %s: %w", s.Name(), err)
		}
	}
	return nil
}
