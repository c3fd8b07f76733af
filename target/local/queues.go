package local

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// LinkDirection is what one end of a link sends: what waits there, and what has become of the rest
// since the link was made, as far as the lab has not been resumed since.
type LinkDirection struct {
	From Place `json:"from"`
	To   Place `json:"to"`

	Sent    *delayline.Traffic `json:"sent,omitempty" doc:"What has passed; none for a link without devices, within a datapath"`
	Dropped uint64             `json:"dropped" doc:"Packets dropped by its devices: the receiver had no room, or was down; the machine was too busy"`
	Queue   *Backlog           `json:"queue,omitempty" doc:"None: nothing waits here, as no bandwidth limits the link and nothing delays it"`
	Problem string             `json:"problem,omitempty" doc:"Why nothing is known"`
}

// Place is an interface of a node.
type Place struct {
	Node      string `json:"node"`
	Interface string `json:"interface"`
}

// Backlog is what holds packets before a link.
type Backlog struct {
	Kind      string `json:"kind" doc:"line (a delay line), or the kernel's queueing disciplines, the outermost first: tbf, tbf netem, or whatever a user has put there"`
	Bandwidth int64  `json:"bandwidth,omitempty" doc:"bit/s; the link's"`
	Limit     int    `json:"limit,omitempty" doc:"Packets; the kernel's tbf takes as many bytes as these have at 1,514 each"`

	Packets uint64  `json:"packets" doc:"Waiting, or being sent; with netem also those on their way"`
	Bytes   uint64  `json:"bytes"`
	Delay   float64 `json:"delay" doc:"Seconds until these bytes are sent, at the bandwidth"`
	Flying  uint64  `json:"flying,omitempty" doc:"Packets on their way, where these are told from those that wait"`

	Dropped uint64  `json:"dropped" doc:"Packets, for whatever reason"`
	Full    *uint64 `json:"full,omitempty" doc:"Packets that found the queue full; none: the kernel counts them with others"`
	Lost    *uint64 `json:"lost,omitempty" doc:"Packets lost by the configured loss; none: the kernel counts them with others"`
	Managed *uint64 `json:"managed,omitempty" doc:"Packets dropped by active queue management before the queue was full; none: the kernel counts them with others, or there is none"`
	Marked  *uint64 `json:"marked,omitempty" doc:"Packets that it has marked (ECN)"`
}

// Queues returns for each of the lab's links, in the order of the topology's, what its first end
// sends and what its second does.
func (l *Lab) Queues() ([][2]LinkDirection, error) {
	return l.queues(func(string) bool { return true })
}

// queues are those of the links with keys for which of says so; nothing is known of the others.
func (l *Lab) queues(of func(key string) bool) ([][2]LinkDirection, error) {
	links, keys := l.Topology().Links, topology.LinkKeys(l.Topology())
	out := make([][2]LinkDirection, len(links))
	devices := map[string]kernelQueues{} // by namespace
	for i, k := range links {
		if wire := l.WireOf(k); (wire == datapath.Veth || wire == datapath.External) && of(keys[i]) {
			for _, e := range k.Ends {
				devices[l.netPath(e.Node)] = kernelQueues{}
			}
		}
	}
	var mu sync.Mutex
	err := parallel.Each(slices.Collect(maps.Keys(devices)), func(path string) error {
		var q kernelQueues
		err := inNamespaceFile(path, func() (err error) {
			q, err = readQueues()
			return err
		})
		mu.Lock()
		defer mu.Unlock()
		devices[path] = q
		return err
	})
	for i, k := range links {
		if !of(keys[i]) {
			continue
		}
		for e := range k.Ends {
			d := &out[i][e]
			d.From, d.To = PlaceOf(k.Ends[e]), PlaceOf(k.Ends[1-e])
			if line := l.lines[keys[i]]; line != nil {
				if e != carried(k) { // what comes from there waits there
					d.ofLine(line.Stats()[e], k.Egress(e))
				}
				continue
			}
			switch l.WireOf(k) {
			case datapath.Veth:
				d.ofVeth(devices[l.netPath(k.Ends[e].Node)], devices[l.netPath(k.Ends[1-e].Node)])
			case datapath.External:
				if far := k.Ends[1-e]; k.Ends[e].External() {
					d.fromInterface(devices[l.netPath(far.Node)], k.Ends[e].Interface)
				} else {
					d.toInterface(devices[l.netPath(k.Ends[e].Node)], far.Interface)
				}
			}
			if d.Queue != nil {
				d.Queue.limit(k.Egress(e))
				d.Queue.add(l.past[keys[i]][e])
			}
		}
	}
	return out, err
}

// PlaceOf is where an end of a link is.
func PlaceOf(e topology.Endpoint) Place { return Place{e.Label(), e.Interface} }

// ofLine takes what a delay line says.
func (d *LinkDirection) ofLine(s delayline.Direction, i topology.Impairment) {
	lost, full := s.Lost.Packets, s.Overflowed.Packets
	d.Sent, d.Dropped = &s.Out, s.Cleared.Packets+s.Refused.Packets+s.NoMemory.Packets+s.Overrun
	d.Queue = &Backlog{Kind: string(datapath.Line), Packets: s.Waiting.Packets, Bytes: s.Waiting.Bytes, Flying: s.Flying.Packets,
		Dropped: lost + full + s.Counters.Dropped.Packets, Full: &full, Lost: &lost}
	if i.Managed() {
		d.Queue.Kind += " " + string(i.Queue.Discipline)
		d.Queue.Managed, d.Queue.Marked = &s.Counters.Dropped.Packets, &s.Marked.Packets
	}
	d.Queue.limit(i)
}

// ofVeth takes what the device of the sending end says and that of the receiving end, which alone
// counts what a program in the kernel hands it directly.
func (d *LinkDirection) ofVeth(from, to kernelQueues) {
	a, b := from.devices[d.From.Interface], to.devices[d.To.Interface]
	if a == nil || b == nil {
		d.Problem = "a device is gone"
		return
	}
	d.Sent = &delayline.Traffic{Packets: b.RxPackets, Bytes: b.RxBytes}
	d.Dropped, d.Queue = a.TxDropped, from.queues[d.From.Interface].clone()
}

// toInterface takes what an interface of the machine says of what it sends.
func (d *LinkDirection) toInterface(q kernelQueues, name string) {
	a := q.devices[name]
	if a == nil {
		d.Problem = "the device is gone"
		return
	}
	d.Sent = &delayline.Traffic{Packets: a.TxPackets, Bytes: a.TxBytes}
	d.Dropped, d.Queue = a.TxDropped, q.queues[name].clone()
}

// fromInterface takes what it says of what it receives; that has waited elsewhere.
func (d *LinkDirection) fromInterface(q kernelQueues, name string) {
	if a := q.devices[name]; a != nil {
		d.Sent = &delayline.Traffic{Packets: a.RxPackets, Bytes: a.RxBytes}
	}
}

// limit says what the queue's link is to be.
func (q *Backlog) limit(i topology.Impairment) {
	if i.Bandwidth > 0 || delayed(i) {
		q.Bandwidth, q.Limit = int64(i.Bandwidth), i.QueueLimit()
	}
	if i.Bandwidth > 0 {
		q.Delay = float64(q.Bytes) * 8 / float64(i.Bandwidth)
	}
}

func (q *Backlog) clone() *Backlog {
	if q == nil {
		return nil
	}
	c := *q
	return &c
}

// add counts what an earlier queue of the same link has dropped; it may be nil.
func (q *Backlog) add(past *Backlog) {
	if past == nil {
		return
	}
	sum := func(a, b *uint64) *uint64 {
		if a == nil || b == nil {
			return nil
		}
		c := *a + *b
		return &c
	}
	q.Dropped, q.Full, q.Lost = q.Dropped+past.Dropped, sum(q.Full, past.Full), sum(q.Lost, past.Lost)
}

// keepCounts keeps what the kernel's queues of links have dropped before they are made anew. A
// change does not fail for want of it.
func (l *Lab) keepCounts(s plan.Steps) {
	if len(s.SetLinks) == 0 {
		return
	}
	again := func(key string) bool { return s.Impaired[key] && l.lines[key] == nil }
	all, _ := l.queues(again)
	for i, key := range topology.LinkKeys(l.Topology()) {
		if again(key) {
			l.past[key] = [2]*Backlog{cmp.Or(all[i][0].Queue, l.past[key][0]), cmp.Or(all[i][1].Queue, l.past[key][1])}
		}
	}
}

// kernelQueues are the devices of a namespace and their queues, by name.
type kernelQueues struct {
	devices map[string]*netlink.LinkStatistics
	queues  map[string]*Backlog
}

// readQueues reads those of the thread's namespace. The discipline at a device's root counts for
// all below it.
func readQueues() (out kernelQueues, err error) {
	out = kernelQueues{map[string]*netlink.LinkStatistics{}, map[string]*Backlog{}}
	links, err := netlink.LinkList()
	if err != nil {
		return out, err
	}
	names := map[int]string{}
	for _, dev := range links {
		a := dev.Attrs()
		names[a.Index], out.devices[a.Name] = a.Name, a.Statistics
	}
	all, err := netlink.QdiscList(nil)
	if err != nil {
		return out, err
	}
	for device, list := range byDevice(all) {
		if q := queueOf(list); q != nil {
			out.queues[names[device]] = q
		}
	}
	return out, nil
}

func byDevice(all []netlink.Qdisc) map[int][]netlink.Qdisc {
	out := map[int][]netlink.Qdisc{}
	for _, q := range all {
		out[q.Attrs().LinkIndex] = append(out[q.Attrs().LinkIndex], q)
	}
	return out
}

// queueOf is what the disciplines of a device hold and have dropped; nil if nothing can wait there.
// Netem counts what it loses with what finds it full, and disciplines of others drop for reasons of
// their own.
func queueOf(list []netlink.Qdisc) *Backlog {
	at := slices.IndexFunc(list, func(q netlink.Qdisc) bool { return q.Attrs().Parent == netlink.HANDLE_ROOT })
	if at < 0 || list[at].Type() == "noqueue" {
		return nil
	}
	out, told := &Backlog{}, true
	var kinds []string
	for root := list[at]; root != nil; root = below(list, root) {
		kinds = append(kinds, root.Type())
		netem, is := root.(*netlink.Netem)
		told = told && (is && netem.Loss == 0 || root.Type() == "tbf")
	}
	out.Kind = strings.Join(kinds, " ")
	if s := list[at].Attrs().Statistics; s != nil && s.Queue != nil {
		out.Packets, out.Bytes, out.Dropped = uint64(s.Queue.Qlen), uint64(s.Queue.Backlog), uint64(s.Queue.Drops)
	}
	if full, lost := out.Dropped, uint64(0); told {
		out.Full, out.Lost = &full, &lost
	}
	return out
}

// below is the discipline to which another hands its packets, if there is one alone.
func below(list []netlink.Qdisc, q netlink.Qdisc) netlink.Qdisc {
	var found netlink.Qdisc
	for _, c := range list {
		if parent, major := c.Attrs().Parent, q.Attrs().Handle; major != 0 && parent>>16 == major>>16 && parent != netlink.HANDLE_ROOT {
			if found != nil {
				return nil
			}
			found = c
		}
	}
	return found
}
