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

// Gateway is the name of the machine on which this runs, among the devices.
const Gateway = "gateway"

// Event is a line of the collection's callback plugin (ansible/plugins/callback/lines.py).
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
	OK      int      `json:"ok"`      // tasks of which nothing was to be done
	Changed int      `json:"changed"` // tasks that changed something
	Failed  string   `json:"failed,omitempty"`
	Why     string   `json:"why,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// outcomes adds up events.
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

// where is what a device was doing.
func where(e Event) string {
	switch {
	case e.Event == Unreachable:
		return Unreachable
	case e.Role == "":
		return e.Task
	}
	return e.Role + ": " + e.Task
}

// Limits on a playbook's output, part of which comes from devices: the length of a line, and how
// many lines that are no events are kept, and of which length.
const longestLine, mostOther, longestOther = 4 << 20, 50, 4096

// read adds up the events of a playbook, and calls tell for each. Other lines are Ansible's own:
// the last of them are returned.
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
