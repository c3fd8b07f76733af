package builtin

import (
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/routing"
)

const (
	recordRest = time.Second // between two writes of what has changed
	seenPeriod = time.Minute // between two writes of when hosts were last seen
	maxRecords = 50_000      // routes, or hosts, beyond which none are written
)

// recorder writes to the database what discovery and routing find out; monitor writes the rest.
type recorder struct {
	c      *Controller
	db     *database.DB
	wake   chan struct{}
	stop   chan struct{}
	done   sync.WaitGroup
	cancel func()

	routes atomic.Bool // have changed
	told   bool        // that there are too many routes
	all    bool        // links have been written once
	names  map[uint64]string

	mu    sync.Mutex
	ports map[linkPort]bool // whose links have changed
}

type linkPort struct {
	dpid uint64
	port uint32
}

func record(c *Controller) *recorder {
	r := &recorder{c: c, db: c.Database, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		names: map[uint64]string{}, ports: map[linkPort]bool{}}
	r.cancel = c.Watch(r.hear)
	r.name()
	r.done.Go(r.run)
	return r
}

func (r *recorder) close() {
	r.cancel()
	close(r.stop)
	r.done.Wait()
}

// name writes the names of new nodes.
func (r *recorder) name() {
	for dpid, name := range r.c.Map().Switches() {
		if r.names[dpid] != name {
			r.names[dpid] = name
			r.db.NameSwitch(dpid, name)
		}
	}
	r.routes.Store(true)
}

// hear takes note of an event. Apps hold locks when it is called, so it does nothing else.
func (r *recorder) hear(e Event) {
	switch x := e.What.(type) {
	case discovery.HostChange:
		if x.Gone {
			r.db.DeleteHost(x.Host.MAC.String())
		} else {
			r.put(x.Host)
		}
		return
	case discovery.LinkChange:
		r.mu.Lock()
		r.ports[linkPort{x.Link.From, x.Link.FromPort}] = true
		r.mu.Unlock()
	case SwitchChange, routing.Rerouted:
		r.routes.Store(true)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *recorder) put(h discovery.Host) {
	row := database.Host{MAC: h.MAC.String(), Switch: h.Switch, Port: h.Port, LastSeen: h.Seen}
	for _, a := range h.Addresses {
		row.Addresses = append(row.Addresses, a.String())
	}
	r.db.PutHost(row)
}

func (r *recorder) run() {
	seen := time.NewTicker(seenPeriod)
	defer seen.Stop()
	for {
		select {
		case <-r.wake:
			r.write()
		case <-seen.C:
			r.see()
		case <-r.stop:
			r.write()
			return
		}
		select {
		case <-time.After(recordRest):
		case <-r.stop:
			r.write()
			return
		}
	}
}

// write writes what has changed.
func (r *recorder) write() {
	r.mu.Lock()
	ports := r.ports
	r.ports = map[linkPort]bool{}
	r.mu.Unlock()
	switch {
	case len(ports) > 0 && !r.all:
		r.writeLinks()
	default:
		for p := range ports {
			row := database.Link{From: p.dpid, FromPort: p.port}
			for _, l := range r.c.Discovery.LinksFrom(p.dpid, p.port) {
				row.To, row.ToPort = l.To, l.ToPort
			}
			r.db.SetLink(row)
		}
	}
	if r.c.Routing != nil && r.routes.Swap(false) {
		r.writeRoutes()
	}
}

// writeLinks writes all links, once, replacing those that an earlier run left.
func (r *recorder) writeLinks() {
	var rows []database.Link
	for _, l := range r.c.Discovery.Links() {
		rows = append(rows, database.Link{From: l.From, FromPort: l.FromPort, To: l.To, ToPort: l.ToPort})
	}
	r.db.ReplaceLinks(rows)
	r.all = true
}

// writeRoutes writes the routes of all routers, unless there are too many: for ten thousand
// routers, computing them takes longer than forwarding by them.
func (r *recorder) writeRoutes() {
	if n := r.c.Routing.Size(); n > maxRecords {
		if !r.told {
			r.log("the routers' routes are not in the database: there are too many", "routes", n, "most", maxRecords)
		}
		r.told = true
		return
	}
	for _, router := range r.c.Routers() {
		var rows []database.Route
		for _, x := range r.c.Routing.RoutesOf(router.DPID) {
			row := database.Route{Prefix: x.Prefix.String(), Source: SourceOf(x), Metric: x.Metric}
			if x.Drop {
				row.NextHops = []string{"drop"}
			}
			for _, h := range x.Hops {
				to := h.Interface
				if h.Via.IsValid() {
					to = h.Via.String()
				}
				row.NextHops = append(row.NextHops, to)
			}
			rows = append(rows, row)
		}
		r.db.ReplaceRoutes(router.Name, rows)
	}
}

func (r *recorder) log(text string, args ...any) { r.c.log.Warn(text, args...) }

// see writes when hosts were seen.
func (r *recorder) see() {
	hosts := r.c.Discovery.Hosts()
	for _, h := range hosts[:min(len(hosts), maxRecords)] {
		r.put(h)
	}
}
