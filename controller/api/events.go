package api

import (
	"context"
	"net/netip"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2/sse"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/monitor"
	"trivet.dev/trivet/controller/routing"
)

// eventTypes are the types of the events, by name. Protocols add theirs: see addProtocol.
var eventTypes = map[string]any{
	"ready": Overview{}, "switch": SwitchEvent{}, "link": LinkEvent{}, "host": HostEvent{}, "rerouted": RerouteEvent{},
	"cluster": ClusterEvent{}, "route": RouteEvent{}, "part": PartEvent{}, "sample": SampleEvent{},
	"alive": AliveEvent{}, "end": EndEvent{},
}

// SwitchEvent reports that a switch has connected or disconnected; in a cluster, that a member has
// become its master, or no longer is.
type SwitchEvent struct {
	Time   time.Time `json:"time"`
	Switch string    `json:"switch"`
	Up     bool      `json:"up"`
	Member string    `json:"member,omitempty" doc:"In a lab's cluster: the member that reports it"`
}

// LinkEvent reports that one direction of a link between switches was added, changed or removed.
type LinkEvent struct {
	Time       time.Time `json:"time"`
	From       End       `json:"from"`
	To         End       `json:"to"`
	Up         bool      `json:"up"`
	Remembered bool      `json:"remembered,omitempty" doc:"It is up, but one of its switches is disconnected"`
}

// HostEvent reports that a host was found, has moved, has changed its addresses, or is gone.
type HostEvent struct {
	Time      time.Time    `json:"time"`
	Host      string       `json:"host" doc:"Name, or MAC"`
	MAC       string       `json:"mac"`
	Addresses []netip.Addr `json:"addresses"`
	At        End          `json:"at"`
	Gone      bool         `json:"gone,omitempty"`
}

// RerouteEvent reports that the routes have followed a change.
type RerouteEvent struct {
	Time    time.Time `json:"time" doc:"Of the change"`
	Cause   string    `json:"cause"`
	Seconds float64   `json:"seconds" doc:"From the change to the last switch's confirmation"`
	Changed int       `json:"changed" doc:"Flow entries"`
	Member  string    `json:"member,omitempty" doc:"In a lab's cluster: the master of the routers"`
}

// RouteEvent reports which route a router now uses for a prefix.
type RouteEvent struct {
	Time time.Time `json:"time"`
	Gone bool      `json:"gone,omitempty" doc:"There is none any more; only router and prefix of route are set"`
	Into string    `json:"into,omitempty" doc:"The program or protocol that the router redistributes it into, with this metric and tag"`
	Route
}

// ClusterEvent reports a change in the cluster of controllers, as seen by the member that reports
// it.
type ClusterEvent struct {
	Time   time.Time `json:"time"`
	What   string    `json:"what" doc:"joined, left, dead: a member; taken, given: a switch, by the member that tells it; centre: the member is the scheduling centre, and without one none is; store lost, store back; silent: from here on it is not told what the member alone knows, heard: it is again, both of a lab's cluster"`
	Member string    `json:"member,omitempty"`
	Switch string    `json:"switch,omitempty"`
}

// SampleEvent is a reading of a switch's port counters.
type SampleEvent struct {
	Time   time.Time        `json:"time"`
	Switch string           `json:"switch"`
	Ports  []PortStatistics `json:"ports"`
	Member string           `json:"member,omitempty" doc:"In a lab's cluster: the member that has read it"`
}

// AliveEvent is sent when nothing has happened for a while, to show that the stream is alive.
type AliveEvent struct {
	Time time.Time `json:"time"`
}

// EndEvent is the last event of a stream.
type EndEvent struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
}

const (
	maxStreams  = 64               // open at the same time
	streamQueue = 1024             // events waiting for a reader
	alivePeriod = 15 * time.Second // without events
)

// EventQuery asks for events.
type EventQuery struct {
	Samples bool     `query:"samples" doc:"Also every reading of ports"`
	Routes  []string `query:"routes" maxItems:"100" doc:"Also the routes that these routers use, and what changes of them"`
	Into    string   `query:"into" doc:"Also the routes that routers redistribute into this program, or protocol of an app, by their rules, and what changes of them"`
	Part    string   `header:"Trivet-Part" hidden:"true"`
}

// tooSlow is the reason given when a reader does not keep up.
const tooSlow = "events came faster than they were read; some are lost"

// serveEvents sends events until the reader or the controller is gone. If a reader is too slow, its
// stream ends with that reason: it must query the current state again.
func (s *Server) serveEvents(ctx context.Context, in *EventQuery, send sse.Sender) {
	end := func(reason string) { _ = send.Data(EndEvent{time.Now(), reason}) }
	c, err := s.get()
	if err != nil {
		end(err.Error())
		return
	}
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxStreams {
		end("too many clients are reading events")
		return
	}
	queue := newQueue()
	defer c.Watch(func(e builtin.Event) { queue.put(e) })()
	if in.Samples {
		defer c.Monitor.Watch(func(x monitor.Sample) { queue.put(builtin.Event{Time: x.Time, What: x}) })()
	}
	if send.Data(newView(c).overview()) != nil {
		return
	}
	feeds, routes, err := followRoutes(c, in)
	if err != nil {
		end(err.Error())
		return
	}
	for _, feed := range feeds {
		defer feed.Close()
	}
	t := &teller{c: c, send: send, queue: queue, feeds: feeds}
	var marks <-chan time.Time
	if in.Part != "" && c.Owner != nil {
		t.part = newPartOfEvents(c, in, len(feeds) > 0)
		ticker := time.NewTicker(markPeriod)
		defer ticker.Stop()
		marks = ticker.C
		if t.all() != nil || t.mark() != nil {
			return
		}
	}
	for {
		var err error
		select {
		case <-routes:
			err = t.routes()
		case e := <-queue.events:
			err = t.event(e)
		case <-marks:
			err = t.mark()
		case <-queue.full:
			end(tooSlow)
			return
		case <-time.After(alivePeriod):
			err = send.Data(AliveEvent{time.Now()})
		case <-c.Closed():
			end("the controller is stopping")
			return
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// teller sends events to one reader.
type teller struct {
	c     *builtin.Controller
	send  sse.Sender
	queue *queue
	feeds []*routing.Feed
	part  *partOfEvents // nil: the reader has not asked for a member's part
}

// event sends an event.
func (t *teller) event(e builtin.Event) error {
	if t.part != nil {
		t.part.note(e)
	}
	return t.send.Data(newEventView(t.c).event(e))
}

// waiting sends all queued events.
func (t *teller) waiting() error {
	for {
		select {
		case e := <-t.queue.events:
			if err := t.event(e); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// followRoutes returns feeds of the requested routes, and a channel that signals changes.
func followRoutes(c *builtin.Controller, in *EventQuery) (feeds []*routing.Feed, told <-chan struct{}, err error) {
	if len(in.Routes) == 0 && in.Into == "" {
		return nil, nil, nil
	}
	if c.Routing == nil {
		return nil, nil, c.NoRouting()
	}
	v := newView(c)
	var routers []uint64
	for _, name := range in.Routes {
		r, err := v.routingNode(name)
		if err != nil {
			return nil, nil, err
		}
		routers = append(routers, r.DPID)
	}
	news := make(chan struct{}, 1)
	wake := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	if len(routers) > 0 {
		feed := c.Routing.Subscribe("", wake)
		feed.Of(routers)
		feeds = append(feeds, feed)
	}
	if in.Into != "" {
		feeds = append(feeds, c.Routing.Redistributed(in.Into, wake))
	}
	return feeds, news, nil
}

// routes sends the changes of the feeds.
func (t *teller) routes() error {
	taken, news := make([][]routing.Update, len(t.feeds)), 0
	for i, feed := range t.feeds {
		taken[i] = feed.Take()
		news += len(taken[i])
	}
	if t.part != nil {
		if err := t.giveUp(); err != nil {
			return err
		}
	}
	if news == 0 {
		return nil
	}
	v, now := newView(t.c), time.Now()
	users := usersOf(t.c.UserRoutes())
	for i, feed := range t.feeds {
		into := feed.Into()
		for _, u := range taken[i] {
			r, ok := t.c.Router(u.Key.Router)
			if !ok {
				r.Name = v.switchName(u.Key.Router)
			}
			e := RouteEvent{Time: now, Gone: u.Gone, Route: Route{Router: r.Name, Prefix: u.Key.Prefix, Hops: []Hop{}}}
			if !u.Gone {
				e.Route = v.route(r, routing.Candidate{Route: u.Value, Used: true}, users)
			}
			e.Into = into
			if err := t.send.Data(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// queue holds events for one reader.
type queue struct {
	events chan builtin.Event
	full   chan struct{} // closed when an event has been lost
	lost   atomic.Bool
}

func newQueue() *queue {
	return &queue{events: make(chan builtin.Event, streamQueue), full: make(chan struct{})}
}

// put never blocks: it is called while apps hold locks.
func (q *queue) put(e builtin.Event) {
	select {
	case q.events <- e:
	default:
		if !q.lost.Swap(true) {
			close(q.full)
		}
	}
}

// event converts e to the event that is sent.
func (v *view) event(e builtin.Event) any {
	switch x := e.What.(type) {
	case builtin.SwitchChange:
		return SwitchEvent{Time: e.Time, Switch: v.switchName(x.Switch), Up: x.Up}
	case discovery.LinkChange:
		l := x.Link
		return LinkEvent{Time: e.Time, From: v.end(place{l.From, l.FromPort}), To: v.end(place{l.To, l.ToPort}),
			Up: !x.Gone, Remembered: l.Remembered}
	case discovery.HostChange:
		h := x.Host
		name := v.nameOf(h)
		if name == "" {
			name = h.MAC.String()
		}
		if h.Addresses == nil {
			h.Addresses = []netip.Addr{}
		}
		return HostEvent{Time: e.Time, Host: name, MAC: h.MAC.String(), Addresses: h.Addresses,
			At: v.end(place{h.Switch, h.Port}), Gone: x.Gone}
	case routing.Rerouted:
		return RerouteEvent{Time: x.At, Cause: x.Cause, Seconds: x.Took.Seconds(), Changed: x.Changed}
	case cluster.Change:
		out := ClusterEvent{Time: e.Time, What: x.What, Member: x.Member}
		if x.Switch != 0 {
			out.Switch = v.switchName(x.Switch)
		}
		return out
	case monitor.Sample:
		out := SampleEvent{Time: e.Time, Switch: v.switchName(x.Switch), Ports: []PortStatistics{}}
		for _, p := range x.Ports {
			at := place{p.Switch, p.Number}
			v.ports[at] = p
			out.Ports = append(out.Ports, PortStatistics{Switch: out.Switch, Port: p.Number,
				Name: v.portName(at.dpid, at.port), Traffic: v.traffic(at)})
		}
		return out
	}
	if protocolEvents[reflect.TypeOf(e.What)] {
		return e.What
	}
	return AliveEvent{e.Time}
}
