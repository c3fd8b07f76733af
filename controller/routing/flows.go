package routing

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// Where what goes to a subnet is led flow by flow, its routers send the controller the headers of
// what has no entry of its own yet, beside forwarding it. So each flow of TCP or UDP has an entry
// as soon as its first packet has come by, which counts it until nothing of it has come for a
// while.

// Flow is a connection of TCP, or what UDP sends between two ports.
type Flow struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
}

func (f Flow) String() string {
	return fmt.Sprintf("%v → %v", netip.AddrPortFrom(f.Src, f.SrcPort), netip.AddrPortFrom(f.Dst, f.DstPort))
}

func (f Flow) compare(o Flow) int {
	return cmp.Or(f.Src.Compare(o.Src), f.Dst.Compare(o.Dst), cmp.Compare(f.SrcPort, o.SrcPort), cmp.Compare(f.DstPort, o.DstPort))
}

const (
	// listenCookie marks what comes from entries that listen: it has been forwarded already.
	listenCookie = Cookie | 1
	headers      = 128 // bytes that have the ports, whatever options there are before them

	flowIdle = 10  // seconds without a packet after which a flow has ended
	maxFlows = 512 // that a router has entries for; further ones go as the rest does

	// As many packets a second, and at once, may come to the controller that make no flow known, or
	// else the router pauses.
	vainRate, vainBurst = 200, 2000
	pauseTime           = 10 * time.Second
)

// listen makes an entry send headers to the controller, too.
func (n *node) listen(m *openflow.FlowMod) {
	m.Cookie = listenCookie
	do := &m.Instructions[0] // the actions that are applied, see ifItFits and hairpins
	do.Actions = append([]openflow.Action{openflow.OutputController(headers)}, do.Actions...)
}

// listening says whether the router listens where flows are led.
func (n *node) listening() bool { return !n.full && !n.paused }

// heard gives a flow an entry of its own, of which a packet has come by. mu must be held.
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
	if known && time.Since(at) < time.Second { // it was on its way before the entry
		n.heardInVain()
		return
	}
	if !known && !n.listening() {
		return
	}
	rest := n.rules.Flow(Traffic{r.Prefix, Part{Proto: part.Proto, Index: each}}.key())
	n.offerParts(t.To, []Traffic{t}, func(_ Traffic, _ *Route, w way) {
		if rest == nil || !sameWay(w.own(), rest) {
			return // ways are changing: another packet will come
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

// heardInVain counts packets that were sent to the controller for nothing, as fragments are. When
// there are many of them, the router does not listen for a while.
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

// countFlows begins or ends to listen as there is room for flows.
func (n *node) countFlows() {
	was := n.full
	if n.full = n.isFull(); n.full != was {
		n.listenAgain()
	}
}

// isFull says whether there is no room for flows: once there is none, not before a quarter is free.
func (n *node) isFull() bool {
	return len(n.flows) >= maxFlows || n.full && len(n.flows) > maxFlows*3/4
}

// unheard is what goes to a subnet in flows that have no entry of their own.
func unheard(p netip.Prefix) (out []Traffic) {
	for _, proto := range ported {
		out = append(out, Traffic{p, Part{Proto: proto, Index: each}})
	}
	return out
}

// listens says whether what goes to a subnet is led flow by flow.
func (n *network) listens(p netip.Prefix) bool {
	return len(n.divided[p]) > 0 && n.divided[p][0].Part.Index == each // the first one in order
}

// ended forgets a flow of which the last entry has timed out. mu must be held.
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

// listenAgain begins or ends to listen, where ways are not changing just now.
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

// sameWay says whether two entries do the same, but that one may listen.
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

// dropFlows forgets flows to subnets that are not led to flow by flow any more.
func (n *node) dropFlows() {
	for t := range n.flows {
		if !n.net.listens(t.To) {
			delete(n.flows, t)
		}
	}
	n.full = n.isFull()
}

// flowOf reads which flow a packet belongs to, of which the beginning suffices; false: to none, as
// fragments do.
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
