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

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// ownController is the built-in controller of a lab's switches and routing nodes, which reach
// it over a Unix socket of the lab.
type ownController struct {
	*builtin.Controller
	listener net.Listener
}

// databaseRows is the maximum number of rows of each time series in a lab's database: the run
// directory is in memory, where port_load takes 24 MB at this size.
const databaseRows = 200_000

// ControllerSocket is where a lab's built-in controller listens for switches. Open vSwitch connects
// only to sockets in its own directory.
func ControllerSocket(name string) string { return filepath.Join(Dir(name), "ovs", "controller.sock") }

// startController starts the built-in controller if any node uses it; one that is already running
// is given the new topology.
func (d *daemon) startController(t *topology.Topology) error {
	if d.state().Part != nil {
		return d.startRelay(t)
	}
	if d.own != nil {
		return d.own.Configure(t)
	}
	if t.Cluster != nil {
		d.ask.Settle = d.settle
		return d.configureCluster(t)
	}
	if !slices.ContainsFunc(t.Nodes, controlled) {
		return nil
	}
	listener, err := listenForSwitches(ControllerSocket(d.state().Name))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)) // the daemon's log
	c, err := builtin.New(builtin.Options{Log: log, Topology: t, Wired: true,
		Database: filepath.Join(Dir(d.state().Name), "controller.db"), DatabaseRows: databaseRows})
	if err != nil {
		listener.Close()
		return err
	}
	own := &ownController{c, listener}
	d.ask.Settle = d.settle
	d.ask.Use(c)
	go func() { _ = own.Serve(listener) }()
	d.own = own
	d.target().Control(ControllerSocket(d.state().Name), own.meet)
	return nil
}

// settle waits until packets are forwarded by the current flow entries.
func (d *daemon) settle(ctx context.Context) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	return d.target().Settle(ctx)
}

// meet connects an embedded switch to the controller within this process.
func (o *ownController) meet(name string, join func(datapath.Peer) datapath.Session) error {
	m := o.NewMemory(name)
	s := join(m)
	if s == nil {
		return fmt.Errorf("%s: the switch is gone", name)
	}
	return m.Join(s)
}

// trust makes the controller believe in links without probes while switches are taken over: see
// discovery.App.Trust.
func (o *ownController) trust(on bool) {
	if o != nil {
		o.Discovery.Trust(on)
	}
}

// controlled says whether a switch or routing node belongs to the built-in controller.
func controlled(n *topology.Node) bool {
	return n.IsDatapath() && slices.Contains(n.Controllers, topology.ControllerTrivet)
}

func (o *ownController) close() {
	o.listener.Close()
	o.Close()
}

// wait waits until every controlled switch is connected, every link between two of them has been
// discovered, and the ports of hosts forward. If ctx ends first, the error says what is missing.
func (o *ownController) wait(ctx context.Context, t *topology.Topology) error {
	if o == nil {
		return nil
	}
	for {
		missing := o.missing(t)
		if len(missing) == 0 {
			return o.Barriers(ctx)
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
	if err := o.Barriers(ctx); err != nil { // switches report the change before they answer the barrier
		return err
	}
	return o.wait(ctx, t)
}

// missing lists what the controller has yet to learn about a topology, or to do.
func (o *ownController) missing(t *topology.Topology) []string {
	away, links, undone := o.Missing(t)
	return slices.Concat(away, linksUp(t, links), undone)
}

// linksUp names those of the given links of a topology that are not down.
func linksUp(t *topology.Topology, links []int) (out []string) {
	for _, i := range links {
		if i < len(t.Links) && !t.Links[i].Down {
			out = append(out, "link "+t.Links[i].Name())
		}
	}
	return out
}
