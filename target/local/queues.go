package local

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// Traffic returns for each of the lab's links, in the order of the topology's, what its first end
// sends and what its second does: as its devices count it, or the fabric that has made it without.
func (l *Lab) Traffic(ctx context.Context) ([][2]lab.LinkDirection, error) {
	out, err := l.queues(func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	inner, wrong := map[*topology.Link][2]datapath.Carried{}, error(nil)
	for _, f := range l.fabrics {
		carried, err := f.Carried(ctx)
		maps.Copy(inner, carried)
		wrong = errors.Join(wrong, err)
	}
	for i, link := range l.Topology().Links {
		both, known := inner[link]
		for e := range both {
			if d := &out[i][e]; known {
				d.Sent, d.Dropped = &delayline.Traffic{Packets: both[e].Packets, Bytes: both[e].Bytes}, both[e].Dropped
			} else if wrong != nil && l.WireOf(link).Inner() {
				d.Problem = wrong.Error()
			}
		}
	}
	return out, nil
}

// queues are those of the links with keys for which of says so; nothing is known of the others.
func (l *Lab) queues(of func(key string) bool) ([][2]lab.LinkDirection, error) {
	links, keys := l.Topology().Links, topology.LinkKeys(l.Topology())
	out := make([][2]lab.LinkDirection, len(links))
	devices := map[string]kernelQueues{} // by namespace
	for i, k := range links {
		if wire := l.WireOf(k); (wire == datapath.Veth || wire == datapath.External) && of(keys[i]) {
			for _, e := range k.Ends {
				devices[l.netPath(e.Node)] = kernelQueues{}
			}
		}
	}
	var mu sync.Mutex
	some := slices.Collect(slices.Chunk(slices.Collect(maps.Keys(devices)), 32))
	err := parallel.Each(some, func(paths []string) error { // a thread for each would cost more than to look
		return inNamespaceFiles(paths, func(path string) error {
			q, err := readQueues()
			mu.Lock()
			defer mu.Unlock()
			devices[path] = q
			return err
		})
	})
	for i, k := range links {
		if !of(keys[i]) {
			continue
		}
		for e := range k.Ends {
			d := &out[i][e]
			d.From, d.To = lab.PlaceOf(k.Ends[e]), lab.PlaceOf(k.Ends[1-e])
			if line := l.lines[keys[i]]; line != nil {
				if e != carried(k) { // what comes from there waits there
					ofLine(d, line.Stats()[e], k.Egress(e))
				}
				continue
			}
			switch l.WireOf(k) {
			case datapath.Veth:
				ofVeth(d, devices[l.netPath(k.Ends[e].Node)], devices[l.netPath(k.Ends[1-e].Node)])
			case datapath.External:
				if far := k.Ends[1-e]; k.Ends[e].External() {
					fromInterface(d, devices[l.netPath(far.Node)], k.Ends[e].Interface)
				} else {
					toInterface(d, devices[l.netPath(k.Ends[e].Node)], far.Interface)
				}
			}
			if d.Queue != nil {
				limitOf(d.Queue, k.Egress(e))
				addPast(d.Queue, l.past[keys[i]][e])
			}
		}
	}
	return out, err
}

// ofLine takes what a delay line says.
func ofLine(d *lab.LinkDirection, s delayline.Direction, i topology.Impairment) {
	lost, full := s.Lost.Packets, s.Overflowed.Packets
	d.Sent, d.Dropped = &s.Out, s.Cleared.Packets+s.Refused.Packets+s.NoMemory.Packets+s.Overrun
	d.Queue = &lab.Backlog{Kind: string(datapath.Line), Packets: s.Waiting.Packets, Bytes: s.Waiting.Bytes,
		Flying:  s.Flying.Packets,
		Dropped: lost + full + s.Counters.Dropped.Packets, Full: &full, Lost: &lost}
	if i.Managed() {
		d.Queue.Kind += " " + string(i.Queue.Discipline)
		d.Queue.Managed, d.Queue.Marked = &s.Counters.Dropped.Packets, &s.Marked.Packets
	}
	limitOf(d.Queue, i)
}

// ofVeth takes what the device of the sending end says and that of the receiving end, which alone
// counts what a program in the kernel hands it directly.
func ofVeth(d *lab.LinkDirection, from, to kernelQueues) {
	a, b := from.devices[d.From.Interface], to.devices[d.To.Interface]
	if a == nil || b == nil {
		d.Problem = "a device is gone"
		return
	}
	d.Sent = &delayline.Traffic{Packets: b.RxPackets, Bytes: b.RxBytes}
	d.Dropped, d.Queue = a.TxDropped, cloneOf(from.queues[d.From.Interface])
}

// toInterface takes what an interface of the machine says of what it sends.
func toInterface(d *lab.LinkDirection, q kernelQueues, name string) {
	a := q.devices[name]
	if a == nil {
		d.Problem = "the device is gone"
		return
	}
	d.Sent = &delayline.Traffic{Packets: a.TxPackets, Bytes: a.TxBytes}
	d.Dropped, d.Queue = a.TxDropped, cloneOf(q.queues[name])
}

// fromInterface takes what it says of what it receives; that has waited elsewhere.
func fromInterface(d *lab.LinkDirection, q kernelQueues, name string) {
	if a := q.devices[name]; a != nil {
		d.Sent = &delayline.Traffic{Packets: a.RxPackets, Bytes: a.RxBytes}
	}
}

// limitOf says what the queue's link is to be.
func limitOf(q *lab.Backlog, i topology.Impairment) {
	if i.Bandwidth > 0 || delayed(i) {
		q.Bandwidth, q.Limit = int64(i.Bandwidth), i.QueueLimit()
	}
	if i.Bandwidth > 0 {
		q.Delay = float64(q.Bytes) * 8 / float64(i.Bandwidth)
	}
}

func cloneOf(q *lab.Backlog) *lab.Backlog {
	if q == nil {
		return nil
	}
	c := *q
	return &c
}

// addPast counts what an earlier queue of the same link has dropped; it may be nil.
func addPast(q, past *lab.Backlog) {
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
			l.past[key] = [2]*lab.Backlog{cmp.Or(all[i][0].Queue, l.past[key][0]),
				cmp.Or(all[i][1].Queue, l.past[key][1])}
		}
	}
}

// kernelQueues are the devices of a namespace and their queues, by name.
type kernelQueues struct {
	devices map[string]*netlink.LinkStatistics
	queues  map[string]*lab.Backlog
}

// readQueues reads those of the thread's namespace. The discipline at a device's root counts for
// all below it.
func readQueues() (out kernelQueues, err error) {
	out = kernelQueues{map[string]*netlink.LinkStatistics{}, map[string]*lab.Backlog{}}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return out, err
	}
	defer h.Close()
	links, err := dumped(h.LinkList)
	if err != nil {
		return out, err
	}
	names := map[int]string{}
	for _, dev := range links {
		a := dev.Attrs()
		names[a.Index], out.devices[a.Name] = a.Name, a.Statistics
	}
	all, err := dumped(func() ([]netlink.Qdisc, error) { return h.QdiscList(nil) })
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

// dumped returns a list of the kernel's, which may change while it is read. If it goes on changing
// it is taken as it is: what has come or gone meanwhile may be missing.
func dumped[T any](list func() ([]T, error)) (out []T, err error) {
	if out, err = uninterrupted(10, list); errors.Is(err, nl.ErrDumpInterrupted) {
		err = nil
	}
	return out, err
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
func queueOf(list []netlink.Qdisc) *lab.Backlog {
	at := slices.IndexFunc(list, func(q netlink.Qdisc) bool { return q.Attrs().Parent == netlink.HANDLE_ROOT })
	if at < 0 || list[at].Type() == "noqueue" {
		return nil
	}
	out, told := &lab.Backlog{}, true
	var kinds []string
	for root := list[at]; root != nil; root = below(list, root) {
		kinds = append(kinds, root.Type())
		netem, ok := root.(*netlink.Netem)
		told = told && (ok && netem.Loss == 0 || root.Type() == "tbf")
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
		if parent, major := c.Attrs().Parent, q.Attrs().Handle; major != 0 && parent>>16 == major>>16 &&
			parent != netlink.HANDLE_ROOT {
			if found != nil {
				return nil
			}
			found = c
		}
	}
	return found
}
