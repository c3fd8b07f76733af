package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/internal/patience"
)

// received is an event of a member's stream.
type received struct {
	stream *memberStream
	name   string
	data   []byte
	over   error     // if not nil, the stream has ended
	came   time.Time // by this machine's clock
	at     time.Time // by the member's clock, but never before the preceding event
}

// memberStream is a member's stream.
type memberStream struct {
	name    string
	waiting []received // not handled yet
	told    time.Time  // it has sent everything up to then
	last    *patience.Wait
	open    bool  // it is connected, and what it has sent so far has been read
	why     error // the last stream ended for this reason, or could not be opened

	// As of the events handled:
	ready  json.RawMessage
	began  time.Time // when its initial state was complete; zero: not yet
	cutOff bool
	facts  facts
	silent bool
}

// authoritative reports whether the member can be the authority for what all members know.
func (v *memberStream) authoritative() bool { return !v.began.IsZero() && v.current() }

// current reports whether the stream is up to date: the member has not stalled.
func (v *memberStream) current() bool { return v.open && !v.last.Over() }

// readStream passes on a member's events, reconnecting as needed, until ctx ends.
func (j *Joint) readStream(ctx context.Context, v *memberStream, path string, to chan<- received) {
	send := func(h received) bool {
		h.stream, h.came = v, time.Now()
		select {
		case to <- h:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for {
		err := j.readOnce(ctx, v.name, path, func(name string, data []byte) error {
			if name == "end" {
				var e EndEvent
				_ = json.Unmarshal(data, &e) // without a reason it ends as well
				return ended(e.Reason)
			}
			if !send(received{name: name, data: data}) {
				return ctx.Err()
			}
			return nil
		})
		if !send(received{over: err}) {
			return
		}
		select {
		case <-time.After(askJointly):
		case <-ctx.Done():
			return
		}
	}
}

// ended is the reason that a member gives for ending its stream.
type ended string

func (e ended) Error() string { return string(e) }

// readOnce reads a member's stream to its end.
func (j *Joint) readOnce(ctx context.Context, name, path string, each func(name string, data []byte) error) error {
	members := j.Members()
	i := slices.IndexFunc(members, func(m JointMember) bool { return m.Name == name })
	if i < 0 {
		return errors.New("it is no longer a member")
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
	return errors.New("the stream has ended")
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

// take queues an event.
func (c *merger) take(h received) {
	v := h.stream
	v.open, v.why, v.last = h.over == nil, h.over, patience.MemberAlive.Begin()
	var when struct{ Time time.Time }
	if h.over == nil && json.Unmarshal(h.data, &when) == nil && when.Time.After(v.told) {
		v.told = when.Time
	}
	h.at = v.told
	v.waiting = append(v.waiting, h)
}
