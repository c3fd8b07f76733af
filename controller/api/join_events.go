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

// Events of all members become one stream. What a member knows of its own switches is told as it
// tells it, with its name. What all of them know (links, hosts, members), or what another may have
// to go on telling (routes), is a fact: one member at a time speaks for it, and what is told is
// what that one knows and the reader does not. So each change is told once, and when another member
// speaks, because the one before has died or has given the router away, only what differs is. What
// members are asked and tell is in join_heard.go, facts in join_facts.go, and what the reader is
// told in join_told.go.

// eventsPath is that of the stream.
const eventsPath = "/v1/controller/events"

// What is told of a member beside what members tell of each other.
const (
	memberSilent = "silent"
	memberHeard  = "heard"
)

// chorus is the stream of one reader.
type chorus struct {
	w      http.ResponseWriter
	voices []*voice
	begun  bool
	last   time.Time // something was told

	told    facts
	speaker *voice              // for what all members know
	from    time.Time           // by its clock it begins then; zero: the reader knows what it knows
	of      map[string][]*voice // members that say they are a router's master; the last has said so last
}

// serveEvents tells a reader what all members tell.
func (j *Joint) serveEvents(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c := &chorus{w: w, told: facts{}, of: map[string][]*voice{}}
	came := make(chan heard)
	for _, m := range j.Members() {
		v := &voice{name: m.Name, last: patience.MemberAlive.Begin(), facts: facts{}}
		c.voices = append(c.voices, v)
		go j.hear(ctx, v, r.URL.RequestURI(), came)
	}
	looks := time.NewTicker(markPeriod)
	defer looks.Stop()
	for {
		select {
		case h := <-came:
			c.take(h)
		case <-looks.C:
		case <-ctx.Done():
			return
		}
		if err := c.sing(); err != nil {
			c.end(err)
			return
		}
	}
}

// sing tells what is to be told by now, the earliest first.
func (c *chorus) sing() error {
	for v := c.next(); v != nil; v = c.next() {
		h := v.waiting[0]
		v.waiting = v.waiting[1:]
		if err := c.hear(v, h); err != nil {
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

// next is the member that has told the earliest of what waits; nil: another one may yet tell
// something earlier. Who stands still is not waited for, nor, for whatever reason, anybody for
// longer than a member takes to show a sign of life.
func (c *chorus) next() (first *voice) {
	for _, v := range c.voices {
		if len(v.waiting) > 0 && (first == nil || v.waiting[0].at.Before(first.waiting[0].at)) {
			first = v
		}
	}
	if first == nil || len(first.waiting) > streamQueue {
		return first
	}
	h := first.waiting[0]
	for _, v := range c.voices {
		if len(v.waiting) == 0 && v.current() && v.told.Before(h.at) && time.Since(h.came) < patience.MemberAlive.Duration() {
			return nil
		}
	}
	return first
}

// hear tells what a member has told, or notes it.
func (c *chorus) hear(v *voice, h heard) error {
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
		if c.begun && c.speakerOf(scope) == v && (scope != "" || c.from.IsZero()) {
			return c.fact(scope, key, f)
		}
		return nil
	case !c.begun:
		return nil
	}
	return c.own(v, h)
}

// own tells what only one member knows, with its name.
func (c *chorus) own(v *voice, h heard) error {
	if h.name == "cluster" { // it says whose it is
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

// mark notes how far a member has told, and for which routers it speaks.
func (c *chorus) mark(v *voice, h heard) error {
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

func without(list []*voice, v *voice) []*voice {
	return slices.DeleteFunc(list, func(x *voice) bool { return x == v })
}

// forget notes that a member tells nothing more.
func (c *chorus) forget(v *voice) {
	v.began, v.cutOff = time.Time{}, false
	if c.speaker == v {
		c.speaker = nil
	}
	for name := range c.of {
		c.of[name] = without(c.of[name], v)
	}
}

// speakerOf is the member that speaks for what is known of a router, or by all.
func (c *chorus) speakerOf(scope string) *voice {
	if scope == "" {
		return c.speaker
	}
	if all := c.of[scope]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// none says why the stream does not begin: what a member gives as a reason, or else why none
// answers.
func (c *chorus) none() error {
	var all []string
	for _, v := range c.voices {
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

// follow begins, once it is known who is there, and minds who speaks and who is silent.
func (c *chorus) follow() error {
	if !c.begun {
		for _, v := range c.voices {
			if v.began.IsZero() && v.why == nil && !v.last.Over() {
				return nil
			}
		}
	}
	if err := c.elect(); err != nil {
		return err
	}
	if !c.begun {
		if c.speaker == nil {
			return c.none()
		}
		if err := c.begin(); err != nil {
			return err
		}
	}
	for _, v := range c.voices {
		if v.silent == v.speaks() {
			v.silent = !v.silent
			what := map[bool]string{true: memberSilent, false: memberHeard}[v.silent]
			if err := c.tell("cluster", ClusterEvent{Time: time.Now(), What: what, Member: v.name}); err != nil {
				return err
			}
		}
	}
	return nil
}

// elect has another member speak for what all know, where the one before cannot any more: the one
// that has been there for longest, as who has just come may not know all.
func (c *chorus) elect() error {
	best := c.speaker
	better := func(v *voice) bool {
		switch {
		case !v.speaks():
			return false
		case best == nil || !best.speaks():
			return true
		case v.cutOff != best.cutOff:
			return best.cutOff
		}
		return best != c.speaker && v.began.Before(best.began)
	}
	for _, v := range c.voices {
		if better(v) {
			best = v
		}
	}
	if best != c.speaker {
		if c.speaker = best; best != nil {
			c.from = best.told.Add(catchUp)
		}
	}
	// It may not have heard yet what the one before has told.
	if !c.begun || best == nil || c.from.IsZero() || best.told.Before(c.from) || len(best.waiting) > 0 {
		return nil
	}
	c.from = time.Time{}
	return c.change("", best.facts[""])
}

// catchUp is for how long a member must have run, since it was to speak, before what it does not
// know counts as gone. The store tells members within milliseconds.
const catchUp = time.Second
