// Package builtin assembles Trivet's own controller, for labs and for `trivet controller`: its apps
// in their order, the database that keeps their state, and the names that people use for parts of
// the network.
package builtin

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/balance"
	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/controller/monitor"
	_ "trivet.dev/trivet/controller/ospf"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/controller/user"
	"trivet.dev/trivet/topology"
)

// Options configure a Controller.
type Options struct {
	Log  *slog.Logger
	Apps []string // by name, besides those always included; nil: all

	// Topology, which is resolved, says which datapaths are routers (all others are layer-2
	// switches), what nodes and ports are called, and the rates of links. It may be nil.
	Topology *topology.Topology

	// Wired says that the cabling is known to match the topology, because the caller has laid it:
	// ports forward without waiting for discovery.
	Wired bool

	// Database is the file that keeps the controller's state, and what users have added, across
	// runs; empty: nothing is kept. Each of its time series has at most DatabaseRows rows (0: the
	// database's default).
	Database     string
	DatabaseRows int

	// Store keeps what must outlive the controller; nil: it is in Database, or in memory if there
	// is none. Close does not close it.
	Store store.Store

	// Member is this controller's name among those that share a network and the Store; empty: there
	// is no cluster.
	Member string
}

// Controller is Trivet's own controller with its apps. Routing, Balance, Learning and Database are
// nil if they were not chosen; Balance requires Routing.
type Controller struct {
	*controller.Controller
	Monitor   *monitor.App
	Discovery *discovery.App
	User      *user.App
	Routing   *routing.App
	Balance   *balance.App
	Learning  *learning.App
	Database  *database.DB
	Member    *cluster.Member // nil: no cluster
	Apps      []string        // that it has, in their order
	Started   time.Time

	log        *slog.Logger
	specs      []*apps.Spec // of the apps, as they were made
	facilities apps.Facilities
	names      atomic.Pointer[Map]
	told       atomic.Pointer[topology.Topology] // the latest topology given to it
	routes     routes
	hub        hub
	recorder   *recorder
	close      sync.Once
	closed     chan struct{}
}

// New makes and starts a controller.
func New(o Options) (*Controller, error) {
	chosen, err := choose(o.Apps)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := &Controller{log: o.Log, Started: time.Now(), closed: make(chan struct{}),
		routes: routes{changing: semaphore.NewWeighted(1), programs: map[string]ProgramRoutes{}}}
	if o.Database != "" {
		if c.Database, err = database.Open(o.Database,
			database.Options{Log: o.Log, MaxRows: o.DatabaseRows}); err != nil {
			return nil, err
		}
	}
	err = c.routes.load(c.keepIn(o.Store))
	c.names.Store(NewMap(o.Topology))
	c.know(o.Topology)
	c.facilities.Wired, c.facilities.Database, c.facilities.Store = o.Wired, c.Database, c.routes.users.Store
	c.facilities.Member = o.Member
	c.facilities.Capacity, c.facilities.CapacityIn, c.facilities.Routes = c.capacity, c.capacityIn, c.routes.of
	if err == nil {
		err = c.start(chosen)
	}
	if err != nil && c.Database != nil {
		c.Database.Close()
	}
	return c, err
}

// keepIn returns the store to use.
func (c *Controller) keepIn(given store.Store) store.Store {
	switch {
	case given != nil:
		return given
	case c.Database != nil:
		return c.Database.Store()
	}
	return store.NewMemory(nil, nil)
}

// choose returns the named apps and those always included, in their order; all apps if no names are
// given.
func choose(names []string) (chosen []*apps.Spec, err error) {
	for _, n := range names {
		if all := apps.Names(); !slices.Contains(all, n) {
			return nil, NoSuch("app", n, all)
		}
	}
	for _, s := range apps.All() {
		if s.Always || len(names) == 0 || slices.Contains(names, s.Name) {
			chosen = append(chosen, s)
		}
	}
	for _, s := range chosen {
		for _, n := range s.Needs {
			if find(chosen, n.App) == nil {
				return nil, fmt.Errorf("the app %s needs the app %s, which %s: --apps %[1]s,%[2]s", s.Name, n.App,
					n.For)
			}
		}
	}
	for _, s := range chosen {
		if err := checkNeeds(chosen, s); err != nil {
			return nil, err
		}
	}
	return chosen, nil
}

// checkNeeds reports apps that need each other, so that none of them could be made first. before
// are the apps that led to s.
func checkNeeds(chosen []*apps.Spec, s *apps.Spec, before ...string) error {
	before = append(before, s.Name)
	for _, n := range s.Needs {
		if slices.Contains(before, n.App) {
			return fmt.Errorf("the apps %s need each other", strings.Join(before, ", "))
		}
		if err := checkNeeds(chosen, find(chosen, n.App), before...); err != nil {
			return err
		}
	}
	return nil
}

// find returns the app of a name, or nil.
func find(list []*apps.Spec, name string) *apps.Spec {
	if i := slices.IndexFunc(list, func(s *apps.Spec) bool { return s.Name == name }); i >= 0 {
		return list[i]
	}
	return nil
}

// start makes the apps and starts them.
func (c *Controller) start(chosen []*apps.Spec) error {
	for _, s := range chosen {
		if err := c.make(s, chosen); err != nil {
			return err
		}
	}
	var inOrder []controller.App
	for _, s := range chosen {
		c.Apps, inOrder = append(c.Apps, s.Name), append(inOrder, c.App(s.Name))
	}
	f := c.facilities
	c.Monitor, c.Discovery, c.User = apps.Get[*monitor.App](f), apps.Get[*discovery.App](f), apps.Get[*user.App](f)
	c.Routing, c.Learning = apps.Get[*routing.App](f), apps.Get[*learning.App](f)
	c.Balance = apps.Get[*balance.App](f)
	c.givePrograms()
	c.hub.follow(c)
	if c.Database != nil {
		c.recorder = record(c)
	}
	var err error
	c.Controller, err = controller.New(c.log, append(inOrder, &c.hub)...)
	if err != nil {
		if c.recorder != nil {
			c.recorder.close()
		}
		return err
	}
	if c.facilities.Member != "" {
		c.followRoutes()
	}
	c.Controller.Named(func(dpid uint64) bool { return c.Map().Has(dpid) })
	return nil
}

// make makes an app, after those that it needs.
func (c *Controller) make(s *apps.Spec, chosen []*apps.Spec) error {
	if slices.Contains(c.specs, s) {
		return nil
	}
	for _, n := range s.Needs {
		if err := c.make(find(chosen, n.App), chosen); err != nil {
			return err
		}
	}
	a, err := s.New(c.facilities)
	c.specs, c.facilities.Apps = append(c.specs, s), append(c.facilities.Apps, a)
	return err
}

// App returns the app of a name; nil: the controller does not have it.
func (c *Controller) App(name string) controller.App {
	for i, s := range c.specs {
		if s.Name == name {
			return c.facilities.Apps[i]
		}
	}
	return nil
}

// each calls f for the apps of a kind, in the order of apps.
func each[A any](c *Controller, f func(A)) {
	for _, name := range c.Apps {
		if a, ok := c.App(name).(A); ok {
			f(a)
		}
	}
}

// know applies a topology, which may be nil: its routers, and what apps are to know of it.
func (c *Controller) know(t *topology.Topology) {
	c.told.Store(t)
	if t == nil {
		t = &topology.Topology{}
	}
	c.facilities.Topology = t
	c.routes.configure(t)
}

// Configure replaces the topology.
func (c *Controller) Configure(t *topology.Topology) error {
	c.know(t)
	for i, s := range c.specs {
		if s.Configure != nil {
			if err := s.Configure(c.facilities.Apps[i], c.facilities); err != nil {
				return err
			}
		}
	}
	c.givePrograms()
	c.SetMap(t)
	return nil
}

// SetMap replaces the names and the rates of links; the routers must be the same as before.
func (c *Controller) SetMap(t *topology.Topology) {
	c.told.Store(t)
	c.names.Store(NewMap(t))
	if c.recorder != nil {
		c.recorder.name()
	}
}

// Map returns the current names of nodes and ports.
func (c *Controller) Map() *Map { return c.names.Load() }

func (c *Controller) capacity(dpid uint64, port uint32) float64 {
	return c.Map().Port(dpid, port).Capacity
}

func (c *Controller) capacityIn(dpid uint64, port uint32) float64 {
	return c.Map().Port(dpid, port).CapacityIn
}

// Close ends all connections, stops the apps and closes the database.
func (c *Controller) Close() {
	c.close.Do(func() {
		close(c.closed)
		c.Controller.Close()
		if c.recorder != nil {
			c.recorder.close()
			if err := c.Database.Close(); err != nil {
				c.log.Error("the database could not be closed properly", "error", err)
			}
		}
	})
}

// Closed is closed when Close begins.
func (c *Controller) Closed() <-chan struct{} { return c.closed }
