package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2/sse"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/internal/patience"
)

// Events of all members become one stream. What a member knows of its own switches is told as it
// tells it, with its name. What all of them know (links, hosts, members), or what another may have
// to go on telling (routes), is a fact: one member at a time speaks for it, and what is told is
// what that one knows and the reader does not. So each change is told once, and when another member
// speaks, because the one before has died or has given the router away, only what differs is.

// eventsPath is that of the stream.
const eventsPath = "/v1/controller/events"

// What is told of a member beside what members tell of each other.
const (
	memberSilent = "silent"
	memberHeard  = "heard"
)

// heard is what a member has told.
type heard struct {
	voice *voice
	name  string
	data  []byte
	over  error     // in place of an event: why the stream has ended
	came  time.Time // by this machine's clock
	at    time.Time // by the member's clock, and not before what it has told before
}

// voice is a member, as its stream tells it.
type voice struct {
	name    string
	waiting []heard   // has not been told yet
	told    time.Time // until when it has told all
	last    *patience.Wait
	open    bool  // there is a stream, and all that has come of it
	why     error // there was one, or there is none, as

	// By what has been told to the reader:
	ready  json.RawMessage
	began  time.Time // when it had told what it knew; zero: it has not
	cutOff bool
	facts  facts
	silent bool
}

// speaks says whether the voice can speak for what all members know.
func (v *voice) speaks() bool { return !v.began.IsZero() && v.current() }

// current says whether what it tells is new: the member does not stand still.
func (v *voice) current() bool { return v.open && !v.last.Over() }

// facts are what is known, by what it is of (a router; "": what all members know) and which it is.
type facts map[string]map[string]fact

// fact is the event that has told it.
type fact struct {
	name  string
	event any
	same  string                   // the same for events that say the same
	gone  func(at time.Time) event // that it holds no more
	is    bool                     // it holds
}

type event any

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

// hear passes on what a member tells, whenever it is there to tell something, until ctx ends.
func (j *Joint) hear(ctx context.Context, v *voice, path string, to chan<- heard) {
	send := func(h heard) bool {
		h.voice, h.came = v, time.Now()
		select {
		case to <- h:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for {
		err := j.hearOnce(ctx, v.name, path, func(name string, data []byte) error {
			if name == "end" {
				var e EndEvent
				_ = json.Unmarshal(data, &e) // without a reason it is an end as well
				return ended(e.Reason)
			}
			if !send(heard{name: name, data: data}) {
				return ctx.Err()
			}
			return nil
		})
		if !send(heard{over: err}) {
			return
		}
		select {
		case <-time.After(askJointly):
		case <-ctx.Done():
			return
		}
	}
}

// ended is the reason that a member gives for the end of its stream.
type ended string

func (e ended) Error() string { return string(e) }

// hearOnce reads a member's stream to its end.
func (j *Joint) hearOnce(ctx context.Context, name, path string, each func(name string, data []byte) error) error {
	members := j.Members()
	i := slices.IndexFunc(members, func(m JointMember) bool { return m.Name == name })
	if i < 0 {
		return errors.New("it is none of the members any more")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://member"+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set(partHeader, "true")
	resp, err := members[i].RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, err := io.ReadAll(io.LimitReader(resp.Body, largestPart))
		if err != nil {
			return err
		}
		return &refusal{resp.StatusCode, resp.Header.Get("Content-Type"), text}
	}
	if err := readEvents(resp.Body, each); err != nil {
		return err
	}
	return errors.New("it has ended")
}

// readEvents calls each with the name and the JSON of every event, until the stream ends or each
// fails.
func readEvents(from io.Reader, each func(name string, data []byte) error) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	name := ""
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "data":
			if err := each(name, []byte(value)); err != nil {
				return err
			}
			name = ""
		}
	}
	return lines.Err()
}

// take queues what a member has told.
func (c *chorus) take(h heard) {
	v := h.voice
	v.open, v.why, v.last = h.over == nil, h.over, patience.MemberAlive.Begin()
	var when struct{ Time time.Time }
	if h.over == nil && json.Unmarshal(h.data, &when) == nil && when.Time.After(v.told) {
		v.told = when.Time
	}
	h.at = v.told
	v.waiting = append(v.waiting, h)
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
	object, is := bytes.CutSuffix(bytes.TrimSpace(h.data), []byte("}"))
	if !is {
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

// begin tells the reader that the stream has begun, and the routes that it wants to follow.
func (c *chorus) begin() error {
	var ready []*part
	for _, v := range c.voices {
		if v.speaks() {
			ready = append(ready, &part{body: v.ready})
		}
	}
	o, err := joinOverview(&parts{all: ready})
	if err != nil {
		return err
	}
	c.begun, c.from = true, time.Time{}
	c.w.Header().Set("Content-Type", "text/event-stream")
	if err := c.tell("ready", o); err != nil {
		return err
	}
	if all := c.speaker.facts[""]; all != nil {
		c.told[""] = maps.Clone(all)
	}
	for _, name := range slices.Sorted(maps.Keys(c.of)) {
		if v := c.speakerOf(name); v != nil {
			if err := c.change(name, v.facts[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// change tells in what the facts of a scope differ from what the reader knows.
func (c *chorus) change(scope string, now map[string]fact) error {
	for _, key := range slices.Sorted(maps.Keys(c.told[scope])) {
		if _, is := now[key]; !is {
			f := c.told[scope][key]
			if err := c.fact(scope, key, fact{name: f.name, event: f.gone(time.Now())}); err != nil {
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if err := c.fact(scope, key, now[key]); err != nil {
			return err
		}
	}
	return nil
}

// fact tells a fact, if it is news to the reader.
func (c *chorus) fact(scope, key string, f fact) error {
	known := c.told[scope][key]
	if known.is == f.is && known.same == f.same {
		return nil
	}
	c.told.set(scope, key, f)
	return c.tell(f.name, f.event)
}

// set keeps a fact while it holds.
func (x facts) set(scope, key string, f fact) {
	if x[scope] == nil {
		x[scope] = map[string]fact{}
	}
	if x[scope][key] = f; !f.is {
		delete(x[scope], key)
	}
}

// factOf says which fact an event tells, and of what; without a key it tells none.
func factOf(name string, data []byte) (scope, key string, f fact, err error) {
	f.name = name
	switch name {
	case "link":
		var e LinkEvent
		err = json.Unmarshal(data, &e)
		key = fmt.Sprint("link ", e.From.Node, " ", e.From.Port, " ", e.To.Node, " ", e.To.Port)
		f.event, f.is, f.same = e, e.Up, fmt.Sprint(e.Up, e.Remembered)
		f.gone = func(at time.Time) event { e.Time, e.Up, e.Remembered = at, false, false; return e }
	case "host":
		var e HostEvent
		err = json.Unmarshal(data, &e)
		key = "host " + e.MAC
		f.event, f.is, f.same = e, !e.Gone, fmt.Sprint(e.Host, e.At, e.Addresses, e.Gone)
		f.gone = func(at time.Time) event { e.Time, e.Gone = at, true; return e }
	case "cluster":
		var e ClusterEvent
		err = json.Unmarshal(data, &e)
		switch e.What {
		case cluster.ChangeJoined, cluster.ChangeDead, cluster.ChangeLeft:
			key = "member " + e.Member
			f.event, f.is, f.same = e, e.What != cluster.ChangeLeft, e.What
			f.gone = func(at time.Time) event { e.Time, e.What = at, cluster.ChangeLeft; return e }
		case cluster.ChangeCentre:
			key = "centre"
			f.event, f.is, f.same = e, e.Member != "", e.Member
			f.gone = func(at time.Time) event { e.Time, e.Member = at, ""; return e }
		}
	case "route":
		var e RouteEvent
		err = json.Unmarshal(data, &e)
		scope, key = e.Router, fmt.Sprint(e.Into, " ", e.Prefix)
		x := e
		x.Time = time.Time{}
		text, _ := json.Marshal(x) // it was JSON
		f.event, f.is, f.same = e, !e.Gone, string(text)
		f.gone = func(at time.Time) event {
			return RouteEvent{Time: at, Gone: true, Into: e.Into, Route: Route{Router: e.Router, Prefix: e.Prefix, Hops: []Hop{}}}
		}
	}
	if !f.is {
		f.same = ""
	}
	return scope, key, f, err
}

// tell sends the reader an event.
func (c *chorus) tell(name string, e event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return c.write(name, data)
}

// errReader is that the reader is gone, or does not read.
var errReader = errors.New("the reader is gone")

func (c *chorus) write(name string, data []byte) error {
	c.last = time.Now()
	out := http.NewResponseController(c.w)
	_ = out.SetWriteDeadline(c.last.Add(sse.WriteTimeout)) // where there is none, the reader's end is seen by the next write
	_, err := fmt.Fprintf(c.w, "event: %s\ndata: %s\n\n", name, bytes.TrimSpace(data))
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return errors.Join(errReader, err)
	}
	if time.Since(c.last) > markPeriod { // nobody was listened to meanwhile
		for _, v := range c.voices {
			v.last = patience.MemberAlive.Begin()
		}
	}
	return nil
}

// end says why the stream ends.
func (c *chorus) end(why error) {
	var refused *refusal
	switch {
	case errors.Is(why, errReader):
	case !c.begun && errors.As(why, &refused):
		c.w.Header().Set("Content-Type", refused.contentType)
		c.w.WriteHeader(refused.status)
		_, _ = c.w.Write(refused.body) // an error: the client is gone
	default:
		c.w.Header().Set("Content-Type", "text/event-stream")
		_ = c.tell("end", EndEvent{time.Now(), why.Error()}) // an error: the reader is gone
	}
}
