package api

import (
	"encoding/json"
	"fmt"
	"time"

	"trivet.dev/trivet/cluster"
)

// facts are what is known, by scope (a router; "": what all members know) and key.
type facts map[string]map[string]fact

// fact is the event that reported it.
type fact struct {
	name  string
	event any
	same  string                   // equal for events that say the same
	gone  func(at time.Time) event // the event for when it no longer holds
	holds bool
}

type event any

// set adds a fact, or removes one that no longer holds.
func (x facts) set(scope, key string, f fact) {
	if x[scope] == nil {
		x[scope] = map[string]fact{}
	}
	if x[scope][key] = f; !f.holds {
		delete(x[scope], key)
	}
}

// factOf returns the fact that an event reports, with its scope and key; no key: the event reports
// none.
func factOf(name string, data []byte) (scope, key string, f fact, err error) {
	f.name = name
	switch name {
	case "link":
		var e LinkEvent
		err = json.Unmarshal(data, &e)
		key = fmt.Sprint("link ", e.From.Node, " ", e.From.Port, " ", e.To.Node, " ", e.To.Port)
		f.event, f.holds, f.same = e, e.Up, fmt.Sprint(e.Up, e.Remembered)
		f.gone = func(at time.Time) event { e.Time, e.Up, e.Remembered = at, false, false; return e }
	case "host":
		var e HostEvent
		err = json.Unmarshal(data, &e)
		key = "host " + e.MAC
		f.event, f.holds, f.same = e, !e.Gone, fmt.Sprint(e.Host, e.At, e.Addresses, e.Gone)
		f.gone = func(at time.Time) event { e.Time, e.Gone = at, true; return e }
	case "cluster":
		var e ClusterEvent
		err = json.Unmarshal(data, &e)
		switch e.What {
		case cluster.ChangeJoined, cluster.ChangeDead, cluster.ChangeLeft:
			key = "member " + e.Member
			f.event, f.holds, f.same = e, e.What != cluster.ChangeLeft, e.What
			f.gone = func(at time.Time) event { e.Time, e.What = at, cluster.ChangeLeft; return e }
		case cluster.ChangeCentre:
			key = "centre"
			f.event, f.holds, f.same = e, e.Member != "", e.Member
			f.gone = func(at time.Time) event { e.Time, e.Member = at, ""; return e }
		}
	case "route":
		var e RouteEvent
		err = json.Unmarshal(data, &e)
		scope, key = e.Router, fmt.Sprint(e.Into, " ", e.Prefix)
		x := e
		x.Time = time.Time{}
		text, _ := json.Marshal(x) // it was JSON
		f.event, f.holds, f.same = e, !e.Gone, string(text)
		f.gone = func(at time.Time) event {
			return RouteEvent{Time: at, Gone: true, Into: e.Into,
				Route: Route{Router: e.Router, Prefix: e.Prefix, Hops: []Hop{}}}
		}
	}
	if !f.holds {
		f.same = ""
	}
	return scope, key, f, err
}
