package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2/sse"

	"trivet.dev/trivet/internal/patience"
)

// begin starts the stream, with the routes that the reader has asked to follow.
func (c *merger) begin() error {
	var ready []*part
	for _, v := range c.streams {
		if v.authoritative() {
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
	if all := c.authority.facts[""]; all != nil {
		c.told[""] = maps.Clone(all)
	}
	for _, name := range slices.Sorted(maps.Keys(c.of)) {
		if v := c.authorityFor(name); v != nil {
			if err := c.change(name, v.facts[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// change sends the differences between the facts of a scope and what the reader knows.
func (c *merger) change(scope string, now map[string]fact) error {
	for _, key := range slices.Sorted(maps.Keys(c.told[scope])) {
		if _, ok := now[key]; !ok {
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

// fact sends a fact if it is new to the reader.
func (c *merger) fact(scope, key string, f fact) error {
	known := c.told[scope][key]
	if known.holds == f.holds && known.same == f.same {
		return nil
	}
	c.told.set(scope, key, f)
	return c.tell(f.name, f.event)
}

// tell sends an event.
func (c *merger) tell(name string, e event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return c.write(name, data)
}

// errReader means that the reader has disconnected, or does not read.
var errReader = errors.New("the reader is gone")

func (c *merger) write(name string, data []byte) error {
	c.last = time.Now()
	out := http.NewResponseController(c.w)
	// Where there is none, the reader's end is seen by the next write.
	_ = out.SetWriteDeadline(c.last.Add(sse.WriteTimeout))
	_, err := fmt.Fprintf(c.w, "event: %s\ndata: %s\n\n", name, bytes.TrimSpace(data))
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return errors.Join(errReader, err)
	}
	if time.Since(c.last) > markPeriod { // no member was read meanwhile
		for _, v := range c.streams {
			v.last = patience.MemberAlive.Begin()
		}
	}
	return nil
}

// end ends the stream with a reason.
func (c *merger) end(why error) {
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
