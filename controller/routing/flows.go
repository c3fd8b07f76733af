package routing

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/openflow"
)

// Where traffic to a subnet is steered flow by flow, routers copy the headers of packets that match
// no flow's entry to the controller, besides forwarding them. So each TCP or UDP flow gets an entry
// when its first packet passes, which counts it until it has been idle for a while.

// Flow is a TCP connection, or the UDP packets between two ports.
type Flow struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
}

func (f Flow) String() string {
	return fmt.Sprintf("%v → %v", netip.AddrPortFrom(f.Src, f.SrcPort), netip.AddrPortFrom(f.Dst, f.DstPort))
}

func (f Flow) compare(o Flow) int {
	return cmp.Or(f.Src.Compare(o.Src), f.Dst.Compare(o.Dst), cmp.Compare(f.SrcPort, o.SrcPort),
		cmp.Compare(f.DstPort, o.DstPort))
}

const (
	// listenCookie marks packets from entries that copy: they have been forwarded already.
	listenCookie = Cookie | 1
	headers      = 128 // bytes that include the ports, whatever options precede them

	flowIdle = 10  // seconds without a packet, after which a flow has ended
	maxFlows = 512 // per router; further flows go as the rest does

	// Limits, per second and as a burst, on packets copied to the controller that reveal no new
	// flow. Above them the router stops copying for a while.
	vainRate, vainBurst = 200, 2000
	pauseTime           = 10 * time.Second
)

// listen makes an entry copy headers to the controller, too.
func (n *node) listen(m *openflow.FlowMod) {
	m.Cookie = listenCookie
	do := &m.Instructions[0] // the apply-actions, see ifItFits and hairpins
	do.Actions = append([]openflow.Action{openflow.OutputController(headers)}, do.Actions...)
}

// listening reports whether the router copies headers where traffic is steered by flow.
func (n *node) listening() bool { return !n.full && !n.paused }

// heard installs an entry for the flow of a packet that has passed. mu must be held.
func (n *node) heard(etherType uint16, b []byte) {
	if n.net == nil || n.rules == nil {
		return
	}
	part, ok := flowOf(etherType, b)
	if !ok {
		n.heardInVain()
		return
	}
	r := n.net.lookup(n.index, part.Flow.Dst)
	if r == nil || !n.net.listens(r.Prefix) {
		return
	}
	t := Traffic{r.Prefix, part}
	at, known := n.flows[t]
	if known && time.Since(at) < time.Second { // the packet was in transit before the entry was there
		n.heardInVain()
		return
	}
	if !known && !n.listening() {
		return
	}
	rest := n.rules.Flow(Traffic{r.Prefix, Part{Proto: part.Proto, Index: each}}.key())
	n.offerParts(t.To, []Traffic{t}, func(_ Traffic, _ *Route, w way) {
		if rest == nil || !sameWay(w.own(), rest) {
			return // ways are changing: the next packet will do
		}
		if known { // the switch lacks it
			for _, m := range w.flows {
				n.rules.Forget(controller.KeyOf(m))
			}
		}
		if n.put(w) == nil {
			n.flows[t] = time.Now()
		}
	})
	n.countFlows()
}

// heardInVain counts packets copied for nothing, such as fragments. If there are many, the router
// stops copying for a while.
func (n *node) heardInVain() {
	if n.paused || n.vain.allow(vainRate, vainBurst) {
		return
	}
	n.paused = true
	n.listenAgain()
	time.AfterFunc(pauseTime, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.paused = false; !n.gone {
			n.listenAgain()
		}
	})
}

// countFlows starts or stops copying, as there is room for flows.
func (n *node) countFlows() {
	was := n.full
	if n.full = n.isFull(); n.full != was {
		n.listenAgain()
	}
}

// isFull reports whether there is no room for flows: once full, only when a quarter is free again
// is there room.
func (n *node) isFull() bool {
	return len(n.flows) >= maxFlows || n.full && len(n.flows) > maxFlows*3/4
}

// unheard is the traffic to a subnet in flows without an entry.
func unheard(p netip.Prefix) []Traffic {
	return lists.Map(ported, func(proto uint8) Traffic { return Traffic{p, Part{Proto: proto, Index: each}} })
}

// listens reports whether traffic to a subnet is steered flow by flow.
func (n *network) listens(p netip.Prefix) bool {
	return len(n.divided[p]) > 0 && n.divided[p][0].Part.Index == each // the first one in order
}

// ended removes a flow whose last entry has timed out. mu must be held.
func (n *node) ended(k controller.RuleKey) {
	t, ok := trafficOf(&openflow.FlowMod{Table: k.Table, Priority: k.Priority, Match: k.Match})
	if !ok || t.Part.Flow == (Flow{}) {
		return
	}
	own := t.key()
	hairpin := controller.RuleKey{Table: own.Table, Priority: own.Priority + 1}
	for port := range n.itf {
		hairpin.Match = own.Match.With(openflow.InPort(port))
		if n.rules.Flow(own) != nil || n.rules.Flow(hairpin) != nil {
			return
		}
	}
	delete(n.flows, t)
	n.countFlows()
}

// listenAgain starts or stops copying, unless ways are changing.
func (n *node) listenAgain() {
	if n.net == nil || n.rules == nil {
		return
	}
	for p := range n.net.divided {
		if !n.net.listens(p) {
			continue
		}
		n.offerParts(p, unheard(p), func(t Traffic, _ *Route, w way) {
			if now := n.rules.Flow(t.key()); now != nil && sameWay(w.own(), now) {
				_ = n.put(w)
			}
		})
	}
}

// sameWay reports whether two entries do the same, except that one may copy headers.
func sameWay(a, b *openflow.FlowMod) bool {
	encoded := func(m *openflow.FlowMod) []byte {
		copied := openflow.FlowMod{Instructions: slices.Clone(m.Instructions)}
		if m.Cookie == listenCookie {
			copied.Instructions[0].Actions = copied.Instructions[0].Actions[1:]
		}
		return copied.AppendTo(nil)
	}
	return bytes.Equal(encoded(a), encoded(b))
}

// dropFlows removes flows to subnets that are no longer steered flow by flow.
func (n *node) dropFlows() {
	maps.DeleteFunc(n.flows, func(t Traffic, _ time.Time) bool { return !n.net.listens(t.To) })
	n.full = n.isFull()
}

// flowOf returns the flow that a packet belongs to, given at least its first bytes; false: none, as
// for fragments.
func flowOf(etherType uint16, b []byte) (p Part, ok bool) {
	at := 0
	switch {
	case etherType == openflow.EthTypeIPv4 && len(b) >= 20:
		h := header.IPv4(b)
		if at = int(h.HeaderLength()); at < 20 || h.FragmentOffset() != 0 || h.More() {
			return p, false
		}
		p = Part{Proto: b[9], Flow: Flow{Src: address(b[12:16]), Dst: address(b[16:20])}}
	case etherType == openflow.EthTypeIPv6 && len(b) >= 40:
		at = 40
		p = Part{Proto: b[6], Flow: Flow{Src: address(b[8:24]), Dst: address(b[24:40])}}
	default:
		return p, false
	}
	if p.Proto != openflow.IPProtoTCP && p.Proto != openflow.IPProtoUDP || len(b) < at+4 {
		return p, false
	}
	p.Flow.SrcPort, p.Flow.DstPort = binary.BigEndian.Uint16(b[at:]), binary.BigEndian.Uint16(b[at+2:])
	return p, true
}
