package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/internal/patience"
)

// The events of all members are merged into one stream. An event about something that only one
// member sees (its own switches) is passed on as that member sends it, with the member's name. What
// all members know (links, hosts, members), or what may pass to another member (the routes of a
// router), is kept as facts: for each there is one authority at a time, and the reader is sent what
// the authority knows and the reader does not. So each change is sent once, and when the authority
// changes, because a member has failed or a router has another master, only the differences are
// sent. join_streams.go reads the members' streams, join_facts.go defines facts, and join_write.go
// writes to the reader.

// eventsPath is the path of the stream.
const eventsPath = "/v1/controller/events"

// Changes of a member that only a merged stream has.
const (
	memberSilent = "silent"
	memberHeard  = "heard"
)

// merger is the merged stream of one reader.
type merger struct {
	w       http.ResponseWriter
	streams []*memberStream
	begun   bool
	last    time.Time // last write

	told      facts
	authority *memberStream              // for what all members know
	from      time.Time                  // the authority is used from this time of its clock on; zero: it is in use
	of        map[string][]*memberStream // members that claim to be a router's master, the latest claim last
}

// serveEvents sends a reader the events of all members.
func (j *Joint) serveEvents(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c := &merger{w: w, told: facts{}, of: map[string][]*memberStream{}}
	events := make(chan received)
	for _, m := range j.Members() {
		v := &memberStream{name: m.Name, last: patience.MemberAlive.Begin(), facts: facts{}}
		c.streams = append(c.streams, v)
		go j.readStream(ctx, v, r.URL.RequestURI(), events)
	}
	ticker := time.NewTicker(markPeriod)
	defer ticker.Stop()
	for {
		select {
		case h := <-events:
			c.take(h)
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if err := c.flush(); err != nil {
			c.end(err)
			return
		}
	}
}

// flush handles what can be handled by now, the earliest first.
func (c *merger) flush() error {
	for v := c.next(); v != nil; v = c.next() {
		h := v.waiting[0]
		v.waiting = v.waiting[1:]
		if err := c.handle(v, h); err != nil {
			return err
		}
		if err := c.follow(); err != nil {
			return err
		}
	}
	if err := c.follow(); err != nil || time.Since(c.last) < alivePeriod || !c.begun {
		return err
	}
	return c.tell("alive", AliveEvent{time.Now()})
}

// next returns the member whose next waiting event is the earliest; nil: another member may still
// send an earlier one. Members that have stalled are not waited for, and no member for longer than
// it takes to detect its failure.
func (c *merger) next() (first *memberStream) {
	for _, v := range c.streams {
		if len(v.waiting) > 0 && (first == nil || v.waiting[0].at.Before(first.waiting[0].at)) {
			first = v
		}
	}
	if first == nil || len(first.waiting) > streamQueue {
		return first
	}
	h := first.waiting[0]
	for _, v := range c.streams {
		if len(v.waiting) == 0 && v.current() && v.told.Before(h.at) &&
			time.Since(h.came) < patience.MemberAlive.Duration() {
			return nil
		}
	}
	return first
}

// handle handles an event of a member: it is sent, or noted.
func (c *merger) handle(v *memberStream, h received) error {
	if h.over != nil {
		c.forget(v)
		if h.over == ended(tooSlow) && c.begun {
			return fmt.Errorf("member %s: %w", v.name, h.over)
		}
		return nil
	}
	switch h.name {
	case "ready":
		c.forget(v)
		v.ready, v.facts = h.data, facts{}
		return nil
	case "part":
		return c.mark(v, h)
	case "alive":
		return nil
	}
	scope, key, f, err := factOf(h.name, h.data)
	if err != nil {
		return fmt.Errorf("an event %q of member %s: %w", h.name, v.name, err)
	}
	switch {
	case key != "":
		v.facts.set(scope, key, f)
		if c.begun && c.authorityFor(scope) == v && (scope != "" || c.from.IsZero()) {
			return c.fact(scope, key, f)
		}
		return nil
	case !c.begun:
		return nil
	}
	return c.own(v, h)
}

// own sends an event that only one member sees, with its name.
func (c *merger) own(v *memberStream, h received) error {
	if h.name == "cluster" { // it has a member's name already
		return c.write(h.name, h.data)
	}
	name, err := json.Marshal(v.name)
	if err != nil {
		return err
	}
	object, ok := bytes.CutSuffix(bytes.TrimSpace(h.data), []byte("}"))
	if !ok {
		return fmt.Errorf("an event %q of member %s is no object", h.name, v.name)
	}
	return c.write(h.name, fmt.Appendf(nil, `%s,"member":%s}`, object, name))
}

// mark records up to when a member has sent everything, and for which routers it is the authority.
func (c *merger) mark(v *memberStream, h received) error {
	var e PartEvent
	if err := json.Unmarshal(h.data, &e); err != nil {
		return err
	}
	v.cutOff = e.CutOff
	if v.began.IsZero() {
		v.began = h.came
	}
	for _, name := range e.Given {
		c.of[name] = without(c.of[name], v)
	}
	for _, name := range e.Taken {
		c.of[name] = append(without(c.of[name], v), v)
		if c.begun {
			if err := c.change(name, v.facts[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

func without(list []*memberStream, v *memberStream) []*memberStream {
	return slices.DeleteFunc(list, func(x *memberStream) bool { return x == v })
}

// forget records that a member's stream has ended.
func (c *merger) forget(v *memberStream) {
	v.began, v.cutOff = time.Time{}, false
	if c.authority == v {
		c.authority = nil
	}
	for name := range c.of {
		c.of[name] = without(c.of[name], v)
	}
}

// authorityFor returns the authority for a router, or for what all members know.
func (c *merger) authorityFor(scope string) *memberStream {
	if scope == "" {
		return c.authority
	}
	if all := c.of[scope]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// none returns why the stream cannot begin: the reason that a member gives, or why none answers.
func (c *merger) none() error {
	var all []string
	for _, v := range c.streams {
		if errors.As(v.why, new(*refusal)) || errors.As(v.why, new(ended)) {
			return v.why
		}
		why := v.why
		if why == nil {
			why = v.last.Err()
		}
		all = append(all, fmt.Sprintf("member %s: %v", v.name, why))
	}
	return fmt.Errorf("no member of the cluster answers: %s", strings.Join(all, "; "))
}

// follow begins the stream once it is known which members answer, and updates the authority and who
// is silent.
func (c *merger) follow() error {
	if !c.begun {
		for _, v := range c.streams {
			if v.began.IsZero() && v.why == nil && !v.last.Over() {
				return nil
			}
		}
	}
	if err := c.elect(); err != nil {
		return err
	}
	if !c.begun {
		if c.authority == nil {
			return c.none()
		}
		if err := c.begin(); err != nil {
			return err
		}
	}
	for _, v := range c.streams {
		if v.silent == v.authoritative() {
			v.silent = !v.silent
			what := map[bool]string{true: memberSilent, false: memberHeard}[v.silent]
			if err := c.tell("cluster", ClusterEvent{Time: time.Now(), What: what, Member: v.name}); err != nil {
				return err
			}
		}
	}
	return nil
}

// elect chooses another authority for what all members know if the current one has failed: the
// member that has answered for longest, as one that has just joined may not know everything.
func (c *merger) elect() error {
	best := c.authority
	better := func(v *memberStream) bool {
		switch {
		case !v.authoritative():
			return false
		case best == nil || !best.authoritative():
			return true
		case v.cutOff != best.cutOff:
			return best.cutOff
		}
		return best != c.authority && v.began.Before(best.began)
	}
	for _, v := range c.streams {
		if better(v) {
			best = v
		}
	}
	if best != c.authority {
		if c.authority = best; best != nil {
			c.from = best.told.Add(catchUp)
		}
	}
	// The new authority may not have received yet what the previous one has sent.
	if !c.begun || best == nil || c.from.IsZero() || best.told.Before(c.from) || len(best.waiting) > 0 {
		return nil
	}
	c.from = time.Time{}
	return c.change("", best.facts[""])
}

// catchUp is how long after its election an authority must have run before facts that it lacks
// count as gone. The store notifies members within milliseconds.
const catchUp = time.Second
