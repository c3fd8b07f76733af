package balance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
	engine "trivet.dev/trivet/routing/balance"
	"trivet.dev/trivet/topology"
)

// reading is the traffic in the network, and the counters from which the next reading is computed.
type reading[K comparable] struct {
	index   map[uint64]int32 // of datapaths
	order   []steer.Edge     // of the network's links
	edges   map[steer.Edge]int32
	network *engine.Network

	counts  map[uint64]counts[K]     // of datapaths that send anything
	carried map[uint64]map[K]float64 // by them to destinations, bit/s

	unheard  map[uint64]bool // datapaths that send something unknown
	complete bool            // the traffic of all datapaths with a busy link is known

	to map[K]*steer.Destination // see look; nil: no datapath has it
}

// counts are the bytes that a datapath has sent up to a time, by port and by destination. They are
// read together, so that both are of the same time.
type counts[K comparable] struct {
	at time.Time
	by map[uint32]uint64
	to map[K]uint64
}

const (
	// idle is the share of a link's bandwidth below which its traffic is ignored.
	idle = 0.001
	// askTime is the timeout for reading a datapath's entries, asking how many are read at a time.
	askTime = time.Second
	asking  = 16
	// keepCounts is for how many periods old counters remain useful: of a datapath that was slow,
	// or sent next to nothing.
	keepCounts = 4
)

// survey makes a reading of the links from monitor.
func (a *Balancer[K]) survey(c Config) *reading[K] {
	r := &reading[K]{index: map[uint64]int32{}, order: a.domain.Edges(), edges: map[steer.Edge]int32{},
		network: &engine.Network{},
		counts:  map[uint64]counts[K]{}, carried: map[uint64]map[K]float64{}, unheard: map[uint64]bool{},
		to: map[K]*steer.Destination{}}
	entries := a.monitor.FlowCounts()
	number := func(dpid uint64) int32 {
		i, ok := r.index[dpid]
		if !ok {
			i = int32(len(r.index))
			r.index[dpid] = i
			r.network.Entries = append(r.network.Entries, entries[dpid])
		}
		return i
	}
	for i, e := range r.order {
		r.edges[e] = int32(i)
		l := engine.Link{From: number(e.From), To: number(e.To)}
		l.Bandwidth, l.Used, l.Unknown = a.port(c, e)
		r.network.Links = append(r.network.Links, l)
	}
	return r
}

// read makes a reading. If a link is busy, or something has been moved, it reads datapaths'
// counters per destination; rates are since the previous reading.
func (a *Balancer[K]) read(c Config, before *reading[K]) *reading[K] {
	r := a.survey(c)
	r.complete = true
	a.mu.Lock()
	moved := len(a.moved) + len(a.divided) + len(a.chosen)
	a.mu.Unlock()
	if moved > 0 || len(r.busy(c)) > 0 {
		a.ask(c, r, before)
	}
	return r
}

// port returns the bandwidth of an edge, and its traffic in bit/s, which is unknown if the datapath
// has not been read yet or is disconnected.
func (a *Balancer[K]) port(c Config, e steer.Edge) (bandwidth, used float64, unknown bool) {
	p, ok := a.monitor.Port(e.From, e.FromPort)
	in := 0.0
	if c.Incoming != nil {
		in = c.Incoming(e.To, e.ToPort)
	}
	return engine.Bandwidth(p.Capacity, in), p.TxRate, !ok
}

// busy returns the datapaths with a link so busy that traffic might be moved.
func (r *reading[K]) busy(c Config) map[uint64]bool {
	out := map[uint64]bool{}
	for i, e := range r.order {
		if l := r.network.Links[i]; l.Bandwidth > 0 && l.Used > c.Hysteresis*l.Bandwidth {
			out[e.From] = true
		}
	}
	return out
}

// ask reads the counters, by destination, of datapaths that send anything to others.
func (a *Balancer[K]) ask(c Config, r, before *reading[K]) {
	var mu sync.Mutex
	var group sync.WaitGroup
	places := make(chan struct{}, asking)
	seen := map[uint64]bool{}
	for i, e := range r.order {
		l := r.network.Links[i]
		if seen[e.From] || l.Used <= idle*l.Bandwidth || l.Used == 0 {
			continue
		}
		seen[e.From] = true
		group.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			n, err := a.count(e.From)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				r.counts[e.From] = n
			}
		})
	}
	group.Wait()
	if before == nil {
		r.complete, r.unheard = false, seen
		return
	}
	busy, sent := r.busy(c), map[uint64]map[uint32]float64{}
	for dpid := range seen {
		n, ok := r.counts[dpid]
		was, had := before.counts[dpid]
		if took := n.at.Sub(was.at).Seconds(); ok && had && took > 0 {
			r.carried[dpid], sent[dpid] = rates(was.to, n.to, took), rates(was.by, n.by, took)
			continue
		}
		r.unheard[dpid] = true
		r.complete = r.complete && !busy[dpid]
	}
	for dpid, was := range before.counts {
		if _, ok := r.counts[dpid]; !ok && time.Since(was.at) < keepCounts*c.Period {
			r.counts[dpid] = was
		}
	}
	for i, e := range r.order {
		if by := sent[e.From]; by != nil {
			r.network.Links[i].Used = by[e.FromPort]
		}
	}
}

// count reads the counters of a datapath.
func (a *Balancer[K]) count(dpid uint64) (n counts[K], err error) {
	sw := a.switches(dpid)
	if sw == nil {
		return n, controller.ErrGone
	}
	ctx, cancel := context.WithTimeout(a.ctx, askTime)
	defer cancel()
	ports, err := controller.Ask[openflow.PortStatsList](ctx, sw, openflow.PortStatsRequest{Port: openflow.PortAny})
	if err != nil {
		return n, err
	}
	n.at, n.by = time.Now(), map[uint32]uint64{}
	for _, p := range ports {
		n.by[p.Port] = p.TxBytes
	}
	n.to, err = a.domain.Carried(ctx, dpid)
	return n, err
}

// rates returns the growth of counters over some seconds, in bit/s.
func rates[K comparable](was, is map[K]uint64, seconds float64) map[K]float64 {
	out := map[K]float64{}
	for k, n := range is {
		if n > was[k] {
			out[k] = 8 * float64(n-was[k]) / seconds
		}
	}
	return out
}

// sent returns the most that any datapath sends to a destination, bit/s.
func (r *reading[K]) sent(k K) (most float64) {
	for _, rates := range r.carried {
		most = max(most, rates[k])
	}
	return most
}

// why describes what a move avoids.
func (r *reading[K]) why(c Config, m engine.Move) string {
	e, by := r.order[m.Busy], " by others"
	if c.Choose == topology.ChooseAlways { // its own traffic counts
		by = ""
	}
	return fmt.Sprintf("%s–%s: %.0f %% used%s; load of the path %.2f instead of %.2f", c.name(e.From),
		c.name(e.To), 100*m.Used, by, m.Will, m.Was)
}

// name returns a datapath's name.
func (c Config) name(dpid uint64) string {
	if n, ok := c.Names[dpid]; ok {
		return n
	}
	return fmt.Sprintf("%016x", dpid)
}

func (c Config) names(datapaths []uint64) string {
	var out []string
	for _, dpid := range datapaths {
		out = append(out, c.name(dpid))
	}
	return strings.Join(out, ", ")
}
