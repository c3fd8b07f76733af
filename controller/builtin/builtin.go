// Package builtin puts Trivet's own controller together: the apps that a lab's controller has, and
// those that `trivet controller` is told to have, in the order in which they are asked; the database
// that keeps what they know; and the names by which people know the network.
package builtin

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/controller/monitor"
	"trivet.dev/trivet/controller/ospf"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/controller/user"
	"trivet.dev/trivet/topology"
)

// Names are the apps that there are, as the command line calls them. Monitor, discovery and user
// are always there: the others, and the API, stand on them.
var Names = []string{"monitor", "discovery", "user", "ospf", "routing", "learning"}

// Options say what the controller does.
type Options struct {
	Log  *slog.Logger
	Apps []string // by name, with those that are always there; nil: all

	// Topology, which is resolved, says which datapaths are routers (all others are layer-2
	// switches), what nodes and ports are called, and what links carry. It may be nil.
	Topology *topology.Topology

	// Wired says that the cables are as the topology has them, because who made it laid them: ports need not
	// be looked at for long before they forward.
	Wired bool

	// Database is the file that keeps what the controller knows, and what users have added, for its
	// next run; empty: nothing is kept. Its time series have at most DatabaseRows rows each (0:
	// the database's default).
	Database     string
	DatabaseRows int
}

// Controller is Trivet's own controller with its apps. Of Routing, OSPF, Learning and Database those
// that it was not told to have are nil; OSPF is there with Routing only.
type Controller struct {
	*controller.Controller
	Monitor   *monitor.App
	Discovery *discovery.App
	User      *user.App
	Routing   *routing.App
	OSPF      *ospf.App
	Learning  *learning.App
	Database  *database.DB
	Apps      []string // that it has, in their order
	Started   time.Time

	log      *slog.Logger
	wired    bool
	names    atomic.Pointer[Map]
	routes   routes
	hub      hub
	recorder *recorder
	close    sync.Once
	closed   chan struct{}
}

// New starts it.
func New(o Options) (*Controller, error) {
	for _, n := range o.Apps {
		if !slices.Contains(Names, n) {
			return nil, NoSuch("app", n, slices.Clone(Names))
		}
	}
	if slices.Contains(o.Apps, "ospf") && !slices.Contains(o.Apps, "routing") {
		return nil, errors.New("the app ospf needs the app routing, which installs its routes: --apps ospf,routing")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := &Controller{log: o.Log, wired: o.Wired, Started: time.Now(), closed: make(chan struct{})}
	c.names.Store(NewMap(o.Topology))
	if err := c.open(o); err != nil {
		return nil, err
	}
	err := c.start(o)
	if err != nil && c.Database != nil {
		c.Database.Close()
	}
	return c, err
}

// open opens the database, and takes from it what users have asked for.
func (c *Controller) open(o Options) (err error) {
	if o.Database == "" {
		c.User, err = user.New(nil)
		return err
	}
	if c.Database, err = database.Open(o.Database, database.Options{Log: o.Log, MaxRows: o.DatabaseRows}); err != nil {
		return err
	}
	c.User, err = user.New(c.Database)
	if err == nil {
		err = c.routes.load(c.Database)
	}
	if err != nil {
		c.Database.Close()
	}
	return err
}

// start makes the apps and starts them.
func (c *Controller) start(o Options) error {
	has := func(name string) bool { return len(o.Apps) == 0 || slices.Contains(o.Apps, name) }
	measure := monitor.Options{Capacity: c.capacity, AppOf: AppOf}
	if c.Database != nil {
		measure.Store = c.Database
	}
	c.Monitor, c.Discovery = monitor.New(measure), discovery.New()
	apps := []controller.App{c.Monitor, c.Discovery, c.User}
	layer2 := func(uint64) bool { return true }
	if has("routing") {
		var err error
		if c.Routing, err = routing.New(c.Discovery, c.routes.configure(o.Topology)); err != nil {
			return err
		}
		if has("ospf") { // before routing, which asks it for routes when a port changes
			if c.OSPF, err = ospf.New(c.Discovery, c.Routing, ospfOf(o.Topology)); err != nil {
				return err
			}
			apps = append(apps, c.OSPF)
		}
		apps = append(apps, c.Routing)
		layer2 = func(dpid uint64) bool { return !c.Routing.Routes(dpid) }
	}
	if has("learning") {
		c.Learning = learning.New(c.Discovery, layer2)
		apps = append(apps, c.Learning)
	}
	for _, a := range apps {
		c.Apps = append(c.Apps, a.Name())
	}
	c.expect(o.Topology)
	c.hub.follow(c)
	if c.Database != nil {
		if err := c.remember(); err != nil {
			return err
		}
		c.recorder = record(c)
	}
	var err error
	c.Controller, err = controller.New(o.Log, append(apps, &c.hub)...)
	if err != nil {
		if c.recorder != nil {
			c.recorder.close()
		}
		return err
	}
	c.Controller.Named(func(dpid uint64) bool { return c.Map().Has(dpid) })
	return nil
}

// remember tells discovery the links of the run before.
func (c *Controller) remember() error {
	rows, err := c.Database.Links()
	if err != nil {
		return err
	}
	var links []discovery.Link
	for _, l := range rows {
		if l.Up {
			links = append(links, discovery.Link{From: l.From, FromPort: l.FromPort, To: l.To, ToPort: l.ToPort})
		}
	}
	c.Discovery.Remember(links)
	return nil
}

// Configure makes the topology another.
func (c *Controller) Configure(t *topology.Topology) error {
	c.expect(t)
	config := c.routes.configure(t)
	if c.Routing != nil {
		if err := c.Routing.Configure(config); err != nil {
			return err
		}
	}
	if c.OSPF != nil {
		if err := c.OSPF.Configure(ospfOf(t)); err != nil {
			return err
		}
	}
	c.SetMap(t)
	return nil
}

// ospfOf returns the routers that speak OSPF.
func ospfOf(t *topology.Topology) ospf.Config {
	if t == nil {
		return ospf.Config{}
	}
	return ospf.ConfigOf(t)
}

// SetMap takes names, and what links carry, from a topology that has the same routers as before.
func (c *Controller) SetMap(t *topology.Topology) {
	c.names.Store(NewMap(t))
	if c.recorder != nil {
		c.recorder.name()
	}
}

// Map says how people call the network, as of now.
func (c *Controller) Map() *Map { return c.names.Load() }

func (c *Controller) capacity(dpid uint64, port uint32) float64 {
	return c.Map().Port(dpid, port).Capacity
}

// Close ends all connections, stops the apps and closes the database.
func (c *Controller) Close() {
	c.close.Do(func() {
		close(c.closed)
		c.Controller.Close()
		if c.recorder != nil {
			c.recorder.close()
			if err := c.Database.Close(); err != nil {
				c.log.Error("the database is not closed well", "error", err)
			}
		}
	})
}

// Closed is closed when Close begins.
func (c *Controller) Closed() <-chan struct{} { return c.closed }

// AppOf names the app that a flow entry with that cookie is of; "" is none of them.
func AppOf(cookie uint64) string {
	switch cookie >> 32 {
	case 0x7472_0001:
		return "discovery"
	case 0x7472_0002:
		return "learning"
	case 0x7472_0003:
		return "routing"
	case user.Cookie >> 32:
		return "user"
	}
	return ""
}
