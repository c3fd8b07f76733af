package drive

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// A stall is a time in which nothing came although it should have: the sender, the receiver or what
// is between them stood still. The throughput of the whole is less then, and that of nothing in
// particular.

// stretch is a time of a probe and whether anything came in it.
type stretch struct {
	from, to float64 // seconds
	came     bool
}

// lookEvery is how often probes that report on themselves are to do so.
const lookEvery = 100 * time.Millisecond

// Bounds on what counts as standing still: longer than processes wait for a busy processor, and
// than three packets are apart.
const (
	leastStall  = 300 * time.Millisecond
	sharedStall = time.Second // where others use the same narrow link: TCP may back off as long
	badStall    = 0.1         // share of the time
)

// stood is for how long nothing came in sum, in seconds, counting what is longer than a least time.
// A stretch that is itself far longer than it was to be is one in which who reports stood still.
func stood(all []stretch, least time.Duration) (sum float64) {
	still := 0.0
	end := func() {
		if still >= least.Seconds() {
			sum += still
		}
		still = 0
	}
	for _, s := range all {
		if !s.came {
			still += s.to - s.from
			continue
		}
		if late := s.to - s.from - lookEvery.Seconds(); late >= least.Seconds() {
			still += late
		}
		end()
	}
	end()
	return sum
}

// leastStill is how long nothing must come to count, for packets that are so far apart; 0 where
// that may be as the lab was asked for: packets are lost, queues are short, something happens. A
// window of TCP may take its time to come back.
func (b *bed) leastStill(apart time.Duration) time.Duration {
	if len(b.cell.Schedule) > 0 || b.topology == nil {
		return 0
	}
	limited := false
	for _, l := range b.topology.Links {
		for i := range 2 {
			e := l.Egress(i)
			if e.Loss > 0 || e.Queue != (topology.Queue{}) {
				return 0
			}
			limited = limited || e.Bandwidth > 0
		}
	}
	least := leastStall
	if limited && !b.alone {
		least = sharedStall
	}
	var round time.Duration
	way := search(b.topology, b.options.Text("from"), b.options.Text("to"), nil)
	for _, h := range append(there(way), way...) {
		i := h.impairment()
		round += time.Duration(i.Delay + 4*i.Jitter)
	}
	return max(least, 3*apart, 3*round)
}

// stalls says what it has against a figure that nothing came for some seconds of its time.
func stalls(still, of float64) []environment.Reason {
	if still <= 0 || of <= 0 {
		return nil
	}
	r := environment.Reason{Level: environment.Doubtful, Code: "stall",
		Text: fmt.Sprintf("nothing arrived for %.1f of %.1f s: the sender, the receiver or the network stalled",
			still, of)}
	if still > badStall*of {
		r.Level = environment.Bad
	}
	return []environment.Reason{r}
}

// iperfLine is what iperf3's server says of a stream and an interval.
var iperfLine = regexp.MustCompile(`^\[ *\d+\](?:\[(RX|TX)-S\])? +([0-9.]+)-([0-9.]+) +sec +([0-9.]+) +[KMGT]?Bytes`)

// iperfIntervals reads what a server of iperf3 prints while it receives, line by line.
type iperfIntervals struct {
	rest []byte
	all  []stretch
}

// mostIntervals bounds what is kept of a server that says a lot: days.
const mostIntervals = 1 << 20

func (r *iperfIntervals) Write(p []byte) (int, error) {
	r.rest = append(r.rest, p...)
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			break
		}
		r.take(bytes.TrimSpace(line))
		r.rest = rest
	}
	if len(r.rest) > mostKept {
		r.rest = nil
	}
	return len(p), nil
}

func (r *iperfIntervals) take(line []byte) {
	m := iperfLine.FindSubmatch(line)
	if m == nil || string(m[1]) == "TX" || bytes.HasSuffix(line, []byte("receiver")) ||
		bytes.HasSuffix(line, []byte("sender")) || len(r.all) >= mostIntervals {
		return
	}
	from, _ := strconv.ParseFloat(string(m[2]), 64)
	to, _ := strconv.ParseFloat(string(m[3]), 64)
	amount, _ := strconv.ParseFloat(string(m[4]), 64)
	s := stretch{from, to, amount > 0}
	if last := len(r.all) - 1; last >= 0 && r.all[last].from == from { // another stream
		r.all[last].came = r.all[last].came || s.came
		return
	}
	r.all = append(r.all, s)
}

// narrowest is the bandwidth of the narrowest link that all ways between two nodes have in common,
// with its name; 0 where none is limited, or the schedule may change what they carry.
func (b *bed) narrowest(from, to string) (rate topology.Rate, link string) {
	if b.topology == nil || slices.ContainsFunc(b.cell.Schedule, func(e experiment.Event) bool {
		return e.Action.Change.Bandwidth != nil
	}) {
		return 0, ""
	}
	for _, h := range search(b.topology, from, to, nil) {
		if w := h.impairment().Bandwidth; w > 0 && (rate == 0 || w < rate) &&
			search(b.topology, from, to, h.link) == nil {
			rate, link = w, nameOf([]hop{h})
		}
	}
	return rate, link
}

// tooMuch holds a rate at a receiver, in bit/s of frames, against the narrowest link on its way:
// more than that cannot have come over it, whatever else went on.
func (b *bed) tooMuch(from, to string, given float64) []environment.LinkCheck {
	rate, link := b.narrowest(from, to)
	if rate == 0 || given <= float64(rate) {
		return nil
	}
	return []environment.LinkCheck{{Link: link, AskedRate: float64(rate), GivenRate: given}}
}
