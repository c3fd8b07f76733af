package drive

import (
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/topology"
)

// hop is a link in one direction: from end out.
type hop struct {
	link *topology.Link
	out  int
}

func (h hop) impairment() topology.Impairment { return h.link.Egress(h.out) }

// wayBetween returns the links from one node to another where there is but one way, so that what is
// seen at its ends is what its links do; else nil. Hosts forward nothing.
func wayBetween(t *topology.Topology, from, to string) []hop {
	way := search(t, from, to, nil)
	for _, h := range way {
		if search(t, from, to, h.link) != nil {
			return nil
		}
	}
	return way
}

// search finds a shortest way that does not use one of the links.
func search(t *topology.Topology, from, to string, without *topology.Link) []hop {
	links := map[string][]hop{}
	for _, l := range t.Links {
		for i := range 2 {
			if !l.Down && l != without && !l.Ends[i].External() && !l.Ends[1-i].External() {
				links[l.Ends[i].Node] = append(links[l.Ends[i].Node], hop{l, i})
			}
		}
	}
	hosts := map[string]bool{}
	for _, n := range t.NodesOf(topology.Host) {
		hosts[n.Name] = true
	}
	came := map[string]hop{from: {}}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to {
			return wayBack(came, from, to)
		}
		if at != from && hosts[at] {
			continue
		}
		for _, h := range links[at] {
			next := h.link.Ends[1-h.out].Node
			if _, seen := came[next]; !seen {
				came[next] = h
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func wayBack(came map[string]hop, from, to string) (way []hop) {
	for at := to; at != from; {
		h := came[at]
		way = append(way, h)
		at = h.link.Ends[h.out].Node
	}
	slices.Reverse(way)
	return way
}

// nameOf calls a way by its nodes: h1-s1-h2.
func nameOf(way []hop) string {
	names := []string{way[0].link.Ends[way[0].out].Node}
	for _, h := range way {
		names = append(names, h.link.Ends[1-h.out].Node)
	}
	if len(names) > 5 {
		names = append(append(names[:2:2], "…"), names[len(names)-2:]...)
	}
	return strings.Join(names, "-")
}

func there(way []hop) (back []hop) {
	for _, h := range slices.Backward(way) {
		back = append(back, hop{h.link, 1 - h.out})
	}
	return back
}

// losses are the share of packets that some links are asked to lose in sum, and the most that a
// receiver may miss: of those that are damaged it drops most, of those that come twice it may lose
// one. Losses that depend on each other are of no share that could be told: then it is false.
func losses(way []hop) (least, most float64, told bool) {
	kept, atLeast := 1.0, 1.0
	for _, h := range way {
		i := h.impairment()
		if i.Loss > 0 && i.LossCorrelation > 0 {
			return 0, 0, false
		}
		kept *= 1 - float64(i.Loss)*(1-float64(i.Duplicate))
		atLeast *= i.Arrives()
	}
	return 1 - kept, 1 - atLeast, true
}

// asksLoss puts into a check how many of what was sent were lost, and how many were to be.
func asksLoss(c *environment.LinkCheck, way []hop, lost, sent int) {
	if least, most, told := losses(way); told {
		c.AskedLoss, c.MostLoss, c.Lost, c.Sent = least, most, max(0, lost), sent
	}
}

// calm is the share of a link's bandwidth up to which what is sent evenly waits for nothing, and
// calmBursts where it comes in bursts that a short queue may not hold.
const calm, calmBursts = 0.9, 0.5

// overloads says whether so many bits of frames a second may find a queue full on a way.
func overloads(way []hop, rate float64, bursts bool) bool {
	for _, h := range way {
		i := h.impairment()
		most := calm
		if bursts && i.Queue != (topology.Queue{}) {
			most = calmBursts
		}
		if i.Bandwidth > 0 && rate > most*float64(i.Bandwidth) {
			return true
		}
	}
	return false
}

// lateBy is how much longer than the fastest a packet takes that is late: what a busy machine adds
// to some is less on one that has time.
const lateBy = time.Millisecond

// leastLate is how often packets must begin to be late to count: a machine that stalls once delays
// many, one after the other.
const leastLate = 5

// late says how many of the packets on a way were late, of delays in ms in the order of time; 0 of
// 0 where delays may differ, as links vary them or let packets overtake, or a controller of
// somebody else's has a hand in them.
func (b *bed) late(way []hop, ms []float64) (count, of int) {
	if !b.steady(way) || len(ms) == 0 {
		return 0, 0
	}
	asked := 0.0
	for _, h := range way {
		asked += 1e3 * time.Duration(h.impairment().Delay).Seconds()
	}
	limit := slices.Min(ms) + 1e3*lateBy.Seconds() + environment.DefaultLimits.Delay[0]*asked
	begun := 0
	for i, d := range ms {
		if d > limit {
			count++
			if i == 0 || ms[i-1] <= limit {
				begun++
			}
		}
	}
	if begun < leastLate {
		count = 0
	}
	return count, len(ms)
}

// steady says whether all packets on a way should take the same time.
func (b *bed) steady(way []hop) bool {
	for _, h := range way {
		i := h.impairment()
		if i.Jitter > 0 || i.Reorder > 0 {
			return false
		}
		n := b.topology.Node(h.link.Ends[h.out].Node)
		if n != nil && n.IsDatapath() && slices.ContainsFunc(n.Controllers, func(c string) bool {
			return c != topology.ControllerNone && !b.topology.IsBuiltin(c)
		}) {
			return false
		}
	}
	return true
}

// Headers in bytes. That of UDP is as long as that of an ICMP echo.
const (
	ethernetHeader = 14
	udpHeader      = 8
)

// ipHeader is the length of a header of IPv4, or of IPv6.
func ipHeader(v6 bool) int {
	if v6 {
		return 40
	}
	return 20
}

// frame is the length of a frame that carries a payload of the probe, by UDP or as an echo, in
// bytes.
func (b *bed) frame(payload int) int {
	return ethernetHeader + ipHeader(b.v6()) + udpHeader + payload
}

// checkPing holds what the links between two nodes were asked to do against what pings saw. Round
// trip times in ms; a size of payload in bytes.
func (b *bed) checkPing(from, to string, size int, ms []float64, sent int) []environment.LinkCheck {
	way := wayBetween(b.topology, from, to)
	if way == nil {
		return nil
	}
	round := append(slices.Clone(way), there(way)...)
	c := environment.LinkCheck{Link: nameOf(way) + " there and back"}
	asksLoss(&c, round, sent-len(ms), sent)
	c.Late, c.Timed = b.late(round, ms)
	c.AskedDelay, c.GivenDelay = delays(round, b.frame(size), ms)
	if c.AskedDelay == 0 { // what a network without delays takes is its own affair
		c.GivenDelay = 0
	}
	return []environment.LinkCheck{c}
}

// delays returns the delay that links were asked for in sum, and the one that they gave to frames
// of a length in bytes. Where there is no jitter that is the shortest seen; with jitter the mean,
// as far as that is more off than its own spread explains.
func delays(way []hop, frame int, ms []float64) (asked, given time.Duration) {
	jitter, serial := false, time.Duration(0)
	for _, h := range way {
		i := h.impairment()
		asked += time.Duration(i.Delay)
		jitter = jitter || i.Jitter > 0
		if i.Bandwidth > 0 {
			serial += time.Duration(float64(8*frame) / float64(i.Bandwidth) * 1e9)
		}
	}
	s, err := stats.Summarize(ms, stats.Options{Resamples: 1000})
	if err != nil {
		return asked, 0
	}
	if !jitter {
		return asked, max(1, inTime(s.Min)-serial)
	}
	given = inTime(s.Mean) - serial
	if i := s.MeanInterval; i == nil || inTime(i.Low)-serial <= asked && asked <= inTime(i.High)-serial {
		given = asked
	}
	return asked, max(1, given)
}

func inTime(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
