package provision

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// Kinds of events.
const (
	Begin       = "begin" // with a task
	OK          = "ok"
	Changed     = "changed"
	Skipped     = "skipped"
	Failed      = "failed"
	Ignored     = "ignored"
	Unreachable = "unreachable"
	end         = "end"
)

// Gateway is the name of the machine that this runs on, among the devices.
const Gateway = "gateway"

// Event is a line of output of the collection's callback plugin
// (ansible/plugins/callback/lines.py).
type Event struct {
	Event  string `json:"event"`
	Device string `json:"device"`
	Role   string `json:"role"`
	Task   string `json:"task"`
	Why    string `json:"why"`
	Note   string `json:"note"`
}

// Outcome is the result for a device.
type Outcome struct {
	Device  string   `json:"device"`
	OK      int      `json:"ok"`      // tasks that had nothing to do
	Changed int      `json:"changed"` // tasks that changed something
	Failed  string   `json:"failed,omitempty"`
	Why     string   `json:"why,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// outcomes collects events by device.
type outcomes struct {
	of    []*Outcome
	ended bool
}

func (o *outcomes) device(name string) *Outcome {
	for _, x := range o.of {
		if x.Device == name {
			return x
		}
	}
	o.of = append(o.of, &Outcome{Device: name})
	return o.of[len(o.of)-1]
}

func (o *outcomes) add(e Event) {
	if e.Event == end {
		o.ended = true
		return
	}
	x := o.device(e.Device)
	switch e.Event {
	case OK:
		x.OK++
	case Changed:
		x.Changed++
	case Failed, Unreachable:
		x.Failed, x.Why = where(e), e.Why
	}
	if e.Note != "" && !slices.Contains(x.Notes, e.Note) {
		x.Notes = append(x.Notes, e.Note)
	}
}

// where says what a device was doing.
func where(e Event) string {
	switch {
	case e.Event == Unreachable:
		return Unreachable
	case e.Role == "":
		return e.Task
	}
	return e.Role + ": " + e.Task
}

// Limits on a playbook's output, part of which comes from devices: the length of a line, and the
// number and length of other lines that are kept.
const longestLine, mostOther, longestOther = 4 << 20, 50, 4096

// read collects the events of a playbook, and calls tell for each. Other lines are from Ansible
// itself: it returns the last of them.
func (o *outcomes) read(r io.Reader, tell func(Event)) (other []string, err error) {
	lines := bufio.NewReader(r)
	for {
		line, err := site.ReadLine(lines, longestLine)
		var e Event
		switch {
		case json.Unmarshal([]byte(line), &e) == nil && e.Event != "":
			if e.Device == topology.Head {
				e.Device = Gateway
			}
			e.Task = strings.TrimPrefix(e.Task, "trivet.rack."+e.Role+" : ")
			e.Task = strings.TrimPrefix(e.Task, e.Role+" : ")
			o.add(e)
			if e.Event != end {
				tell(e)
			}
		case strings.TrimSpace(line) != "":
			line = strings.TrimSpace(line)
			other = append(other[max(0, len(other)-mostOther+1):], strings.Clone(line[:min(len(line), longestOther)]))
		}
		if err == io.EOF {
			return other, nil
		}
		if err != nil {
			return other, err
		}
	}
}
