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

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/topology"
)

// ownController is the built-in controller of a lab's switches, which reach it over
// a Unix socket of the lab.
type ownController struct {
	*controller.Controller
	listener  net.Listener
	discovery *discovery.App
	learning  *learning.App
}

// startController starts the built-in controller, if a switch has it and it does not run yet.
func (d *daemon) startController(t *topology.Topology) error {
	if d.own != nil || !slices.ContainsFunc(t.Nodes, controlled) {
		return nil
	}
	// Open vSwitch connects to sockets in its own directory only.
	dir := filepath.Join(Dir(d.state.Name), "ovs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	socket := filepath.Join(dir, "controller.sock")
	mask := unix.Umask(0o177)
	listener, err := net.Listen("unix", socket)
	unix.Umask(mask)
	if err != nil {
		return fmt.Errorf("listen for switches: %w", err)
	}
	own := &ownController{listener: listener, discovery: discovery.New()}
	own.learning = learning.New(own.discovery)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)) // the daemon's log
	if own.Controller, err = controller.New(log, own.discovery, own.learning); err != nil {
		listener.Close()
		return err
	}
	go func() { _ = own.Serve(listener) }()
	d.own, d.local.ControllerSocket = own, socket
	return nil
}

// controlled says whether the built-in controller decides for a switch.
func controlled(n *topology.Node) bool {
	return n.Kind == topology.Switch && slices.Contains(n.Controllers, topology.ControllerTrivet)
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
			return o.barriers(ctx, t)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the controller waits for %s", strings.Join(missing[:min(5, len(missing))], ", "))
		}
	}
}

// missing lists what the controller has yet to learn of a topology.
func (o *ownController) missing(t *topology.Topology) (out []string) {
	nodes := map[string]*topology.Node{}
	for _, n := range t.Nodes {
		if nodes[n.Name] = n; controlled(n) && o.Switch(uint64(n.DPID)) == nil {
			out = append(out, "switch "+n.Name)
		}
	}
	for _, l := range t.Links {
		inner := isControlled(nodes[l.Ends[0].Node]) && isControlled(nodes[l.Ends[1].Node])
		for _, e := range l.Ends {
			n := nodes[e.Node]
			if !isControlled(n) || l.Down {
				continue
			}
			dpid, port := uint64(n.DPID), uint32(*e.Port)
			if inner && o.discovery.Kind(dpid, port) != discovery.Inner || !inner && !o.learning.TakesPart(dpid, port) {
				out = append(out, "link "+l.Name())
			}
		}
	}
	return out
}

func isControlled(n *topology.Node) bool { return n != nil && controlled(n) }

// barriers waits until the switches have done all that they were told.
func (o *ownController) barriers(ctx context.Context, t *topology.Topology) error {
	for _, s := range o.Switches() {
		if err := s.Barrier(ctx); err != nil {
			return fmt.Errorf("switch %s: %w", s.Name(), err)
		}
	}
	return nil
}
