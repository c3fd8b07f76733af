package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/topology"
)

// qdiscs answers "tc qdisc show" for devices at delay lines, whose queues are in a process and
// unknown to tc. It shows what Mininet shapes links with, in tc's own format.
type qdiscs struct {
	dev         string // "" of all devices
	stats, json bool
	queues      []lab.LineQueue
}

// readQdiscs parses the arguments of tc; nil if they ask for anything but root queueing
// disciplines.
func readQdiscs(args []string) *qdiscs {
	options, words := cutOptions(args)
	q := &qdiscs{}
	for _, o := range options { // may be abbreviated
		name := strings.TrimLeft(o, "-")
		switch is := func(words ...string) bool {
			return name != "" && slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, name) })
		}; {
		case is("statistics", "stats"):
			q.stats = true
		case is("json"):
			q.json = true
		case is("pretty", "details", "raw", "iec", "timestamp", "oneline", "color"):
		default:
			return nil
		}
	}
	if len(words) == 0 || !strings.HasPrefix("qdisc", words[0]) || len(words) > 1 && !isShow(words[1]) {
		return nil
	}
	for words = words[min(2, len(words)):]; len(words) > 0; words = words[1:] {
		switch {
		case words[0] == "dev" && len(words) > 1 && q.dev == "":
			q.dev, words = words[1], words[1:]
		case words[0] != "root":
			return nil
		}
	}
	return q
}

// A qdisc is a discipline as tc shows it, with fields in tc's order.
type qdisc struct {
	Kind    string `json:"kind"`
	Handle  string `json:"handle"`
	Dev     string `json:"dev,omitempty"`
	Root    bool   `json:"root,omitempty"`
	Parent  string `json:"parent,omitempty"`
	RefCnt  int    `json:"refcnt,omitempty"`
	Options any    `json:"options"`
	*qdiscStats

	words string // its options
	more  string // counters that only it has
}

type qdiscStats struct {
	Bytes      uint64 `json:"bytes"`
	Packets    uint64 `json:"packets"`
	Drops      uint64 `json:"drops"`
	Overlimits uint64 `json:"overlimits"`
	Requeues   uint64 `json:"requeues"`
	Backlog    uint64 `json:"backlog"`
	Qlen       uint64 `json:"qlen"`
}

type htbOptions struct {
	R2Q     int    `json:"r2q"`
	Default string `json:"default"`
	Direct  uint64 `json:"direct_packets_stat"`
	Qlen    int    `json:"direct_qlen"`
}

type netemOptions struct {
	Limit int          `json:"limit"`
	Delay *netemDelay  `json:"delay,omitempty"`
	Loss  *netemRandom `json:"loss-random,omitempty"`
	ECN   bool         `json:"ecn"`
	Gap   int          `json:"gap"`
}

type netemDelay struct {
	Delay       float64 `json:"delay"` // in seconds
	Jitter      float64 `json:"jitter"`
	Correlation float64 `json:"correlation"`
}

type netemRandom struct {
	Loss        float64 `json:"loss"` // of 1
	Correlation float64 `json:"correlation"`
}

// ofQueue returns the disciplines that shape what leaves a device: htb if it has a bandwidth, below
// it the active queue management, if any, and netem.
func (q *qdiscs) ofQueue(queue lab.LineQueue) []qdisc {
	i, held := queue.Impairment, queue.Direction.Queue
	backlog := counters.Traffic{Packets: held.Packets, Bytes: held.Bytes}
	if i.Bandwidth == 0 { // what the queue's limit counts
		backlog = queue.Flying
	}
	var out []qdisc
	add := func(kind, handle, words string, options any, drops uint64) {
		d := qdisc{Kind: kind, Handle: handle, Options: options, words: words}
		if q.dev == "" {
			d.Dev = queue.Direction.From.Interface
		}
		if q.stats {
			d.qdiscStats = &qdiscStats{Bytes: queue.Direction.Sent.Bytes, Packets: queue.Direction.Sent.Packets,
				Drops:   drops,
				Backlog: backlog.Bytes, Qlen: backlog.Packets}
		}
		if len(out) > 0 {
			d.Parent = out[len(out)-1].Handle + "1"
		} else {
			d.Root, d.RefCnt = true, 2
		}
		out = append(out, d)
	}
	early := uint64(0)
	if held.Managed != nil {
		early = *held.Managed
	}
	if i.Bandwidth > 0 {
		add("htb", "5:", "r2q 10 default 0x1 direct_packets_stat 0 direct_qlen 1000", htbOptions{10, "0x1", 0, 1000},
			*held.Full+early)
	}
	if i.Managed() {
		words, options := tcManaged(i.Queue)
		add(string(i.Queue.Discipline), "6:", words, options, *held.Full+early)
		out[len(out)-1].more = tcManagedStats(i.Queue.Discipline, *held.Full, early, *held.Marked)
	}
	limit := i.QueueLimit()
	o, words := netemOptions{Limit: limit}, fmt.Sprintf("limit %d", limit)
	if delay, jitter := time.Duration(i.Delay), time.Duration(i.Jitter); delay > 0 || jitter > 0 {
		o.Delay = &netemDelay{Delay: delay.Seconds(), Jitter: jitter.Seconds()}
		if words += " delay " + tcTime(delay); jitter > 0 {
			words += "  " + tcTime(jitter)
		}
	}
	share := func(name string, f topology.Fraction) {
		if f > 0 {
			words += " " + name + " " + strconv.FormatFloat(f.Percent(), 'g', 6, 64) + "%"
		}
	}
	if share("loss", i.Loss); i.Loss > 0 {
		o.Loss = &netemRandom{Loss: float64(i.Loss)}
	}
	share("duplicate", i.Duplicate)
	share("reorder", i.Reorder)
	share("corrupt", i.Corrupt)
	add("netem", "10:", words, o, *held.Full+*held.Lost)
	return out
}

// tcManaged returns tc's description of active queue management.
func tcManaged(q topology.Queue) (words string, options map[string]any) {
	options = map[string]any{}
	add := func(name, word string, value any) { words, options[name] = words+name+" "+word+" ", value }
	number := func(name, unit string, n int) { add(name, strconv.Itoa(n)+unit, n) }
	span := func(name string, d topology.Duration) {
		add(name, tcTime(time.Duration(d)), time.Duration(d).Microseconds())
	}
	if q.Discipline == topology.RED {
		number("limit", "b", q.Limit)
		number("min", "b", q.Min)
		number("max", "b", q.Max)
	} else {
		number("limit", "p", q.Limit)
	}
	if q.Discipline == topology.FQCoDel {
		number("flows", "", q.Flows)
		number("quantum", "", q.Quantum)
	}
	if q.Target > 0 {
		span("target", q.Target)
	}
	if q.Interval > 0 {
		span("interval", q.Interval)
	}
	if q.Discipline == topology.PIE {
		span("tupdate", q.TUpdate)
		number("alpha", "", q.Alpha)
		number("beta", "", q.Beta)
	}
	if options["ecn"] = q.ECN; q.ECN {
		words += "ecn "
	}
	return words, options
}

// tcManagedStats returns the line of tc with counters that only such a discipline has, as far as
// they are known.
func tcManagedStats(d topology.Discipline, full, early, marked uint64) string {
	switch d {
	case topology.RED:
		return fmt.Sprintf("  marked %d early %d pdrop %d other 0\n", marked, early, full)
	case topology.PIE:
		return fmt.Sprintf("  overlimit %d dropped %d ecn_mark %d\n", full, early, marked)
	}
	return fmt.Sprintf("  drop_overlimit %d ecn_mark %d\n", full, marked)
}

// tcTime formats a time as tc does.
func tcTime(d time.Duration) string {
	switch {
	case d >= time.Second:
		return strconv.FormatFloat(d.Seconds(), 'g', 3, 64) + "s"
	case d >= time.Millisecond:
		return strconv.FormatFloat(d.Seconds()*1e3, 'g', 3, 64) + "ms"
	}
	return strconv.FormatInt(d.Microseconds(), 10) + "us"
}

// text returns tc's output for a qdisc.
func (d qdisc) text() string {
	s := "qdisc " + d.Kind + " " + d.Handle + " "
	if d.Dev != "" {
		s += "dev " + d.Dev + " "
	}
	if d.Root {
		s += fmt.Sprintf("root refcnt %d ", d.RefCnt)
	} else {
		s += "parent " + d.Parent + " "
	}
	s += d.words + "\n"
	if c := d.qdiscStats; c != nil {
		s += fmt.Sprintf(" Sent %d bytes %d pkt (dropped %d, overlimits %d requeues %d) \n backlog %s %dp requeues %d\n",
			c.Bytes, c.Packets, c.Drops, c.Overlimits, c.Requeues, tcSize(c.Backlog), c.Qlen, c.Requeues)
		s += d.more
	}
	return s
}

// tcSize formats a number of bytes as tc does; it is approximate.
func tcSize(n uint64) string {
	for _, unit := range []struct {
		size, error uint64
		name        string
	}{{1 << 20, 1 << 10, "Mb"}, {1 << 10, 16, "Kb"}} {
		whole := (n + unit.size/2) / unit.size
		if n >= unit.size && max(n, whole*unit.size)-min(n, whole*unit.size) < unit.error {
			return fmt.Sprint(whole, unit.name)
		}
	}
	return fmt.Sprint(n, "b")
}

// show returns tc's output with the queues of delay lines in place of the kernel's default
// disciplines; disciplines that the device was given follow.
func (q *qdiscs) show(printed []byte) []byte {
	left := map[string]lab.LineQueue{}
	for _, queue := range q.queues {
		left[queue.Direction.From.Interface] = queue
	}
	ours := func(dev string) (list []qdisc) {
		if queue, ok := left[dev]; ok {
			delete(left, dev)
			list = q.ofQueue(queue)
		}
		return list
	}
	if q.json {
		return q.showJSON(printed, ours)
	}
	var out bytes.Buffer
	write := func(dev string) {
		for _, d := range ours(dev) {
			out.WriteString(d.text())
		}
	}
	if q.dev != "" {
		write(q.dev)
	}
	skip := false
	for line := range bytes.Lines(printed) {
		if words := strings.Fields(string(line)); len(words) > 2 && words[0] == "qdisc" {
			dev := q.dev
			if words[3] == "dev" && len(words) > 4 {
				dev = words[4]
			}
			write(dev)
			skip = q.hides(dev, words[1], words[2])
		}
		if !skip {
			out.Write(line)
		}
	}
	return out.Bytes()
}

// hides says whether a queueing discipline of a device is not the user's: the kernel's default
// (only that has the number 0), one through which packets only pass, or Trivet's own.
func (q *qdiscs) hides(dev, kind, handle string) bool {
	return slices.ContainsFunc(q.queues, func(queue lab.LineQueue) bool {
		return queue.Direction.From.Interface == dev && (handle == "0:" || queue.Hooked && kind == "clsact")
	})
}

func (q *qdiscs) showJSON(printed []byte, ours func(dev string) []qdisc) []byte {
	var list []json.RawMessage
	if json.Unmarshal(printed, &list) != nil {
		return printed
	}
	all := []any{}
	add := func(dev string) {
		for _, d := range ours(dev) {
			all = append(all, d)
		}
	}
	if q.dev != "" {
		add(q.dev)
	}
	for _, one := range list {
		var d struct{ Kind, Handle, Dev string }
		if json.Unmarshal(one, &d) != nil {
			return printed
		}
		if q.dev != "" {
			d.Dev = q.dev
		}
		if add(d.Dev); !q.hides(d.Dev, d.Kind, d.Handle) {
			all = append(all, one)
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		return printed
	}
	return append(b, '\n')
}
