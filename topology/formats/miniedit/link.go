package miniedit

import (
	"encoding/json"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
)

func (r *reader) link(_ int, at *value, record *object) {
	r.known(record, "link", "src", "dest", "opts")
	src, _ := r.text(record, "src", "link")
	dest, _ := r.text(record, "dest", "link")
	if src == "" || dest == "" {
		r.bad(at, `write "src": "h1", "dest": "s1"`, "the link is missing an end")
		return
	}
	l := r.t.AddLink(src, dest)
	l.Pos = r.pos(at)
	subject := "link " + l.Name()
	opts := r.object(record, "opts", subject)
	if opts == nil {
		return
	}
	r.known(opts, subject, "bw", "delay", "loss", "max_queue_size", "jitter", "speedup")
	if mbit, v := r.number(opts, "bw", subject, 0, 1e9); v != nil && mbit > 0 {
		text, _ := r.text(opts, "bw", subject)
		rate, err := topology.ParseRate(decimal(text) + "mbit")
		if err != nil {
			r.bad(v, "write a number of Mbit/s", "%s: bw %s is out of range", subject, kindOf(v))
		}
		l.Bandwidth = rate
	}
	if percent, v := r.number(opts, "loss", subject, 0, 100); v != nil {
		l.Loss = topology.FromPercent(percent)
	}
	l.Queue.Limit, _ = r.integer(opts, "max_queue_size", subject, 0, 10_000_000)
	l.Delay = r.duration(opts, "delay", subject)
	l.Jitter = r.duration(opts, "jitter", subject)
	if v := opts.get("speedup"); v != nil {
		r.warn(v, "set bw", "%s: speedup has no effect", subject)
	}
}

// duration reads a time as tc does: a number without a unit is in microseconds.
func (r *reader) duration(opts *object, key, subject string) topology.Duration {
	s, v := r.text(opts, key, subject)
	s = strings.ToLower(strings.TrimSpace(s))
	if s == "" {
		return 0
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		s = decimal(s) + "us"
		if f > 0 {
			r.warn(v, `write "`+decimal(s[:len(s)-2])+`ms" if milliseconds are meant`,
				"%s: %s %s has no unit: it is in microseconds, as in MiniEdit", subject, key, kindOf(v))
		}
	}
	if unit, ok := strings.CutSuffix(s, "secs"); ok { // tc accepts msecs and usecs
		s = unit + "sec"
	}
	d, err := topology.ParseDuration(s)
	if err != nil {
		r.bad(v, "write 10ms, 250us, 1.5s", "%s: %s %s is not a time span", subject, key, kindOf(v))
	}
	return d
}

// decimal formats a number without an exponent.
func decimal(s string) string {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return s
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// link adds a link, or records that a node has a real interface.
func (d *document) link(l *topology.Link) {
	for i, e := range l.Ends {
		if !e.External() {
			continue
		}
		n := d.nodes[l.Ends[1-i].Node]
		if n != nil && (n.Kind == topology.Host || n.Kind == topology.Switch && !d.learns(n)) && e.Interface != "" {
			d.devices[n.Name] = append(d.devices[n.Name], e.Interface)
		}
		return
	}
	opts := map[string]any{}
	im := l.Impairment
	if l.Ends[0].Egress != nil && l.Ends[1].Egress != nil {
		im = *l.Ends[0].Egress
	}
	if im.Bandwidth > 0 {
		opts["bw"] = number(float64(im.Bandwidth) / 1e6)
	}
	if im.Delay > 0 {
		opts["delay"] = im.Delay.String()
	}
	if im.Jitter > 0 {
		opts["jitter"] = im.Jitter.String()
		if im.Delay <= 0 {
			opts["delay"] = "0ms" // tc refuses a jitter without a delay
		}
	}
	if im.Loss > 0 {
		opts["loss"] = number(im.Loss.Percent())
	}
	if im.Queue.Limit > 0 && !im.Queue.Managed() {
		opts["max_queue_size"] = im.Queue.Limit
	}
	d.links = append(d.links,
		record{map[string]any{"src": l.Ends[0].Node, "dest": l.Ends[1].Node, "opts": opts}, &l.Foreign})
}

// number returns an int if the value is a whole number, as MiniEdit's dialogs do.
func number(f float64) any {
	if f == float64(int64(f)) {
		return int64(f)
	}
	return json.Number(strconv.FormatFloat(f, 'f', -1, 64))
}
