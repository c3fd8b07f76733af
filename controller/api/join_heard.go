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
