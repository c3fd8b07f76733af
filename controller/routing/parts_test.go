package routing

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// Proves that the entry of each traffic tells which it is; that a packet finds that of its flow
// before that of its part, that before the subnet's, and that of a longer prefix before them all;
// and that each pair of ports is in one part.
func TestEntriesOfTraffic(t *testing.T) {
	for _, c := range []struct{ to, from string }{{"10.0.2.0/24", "10.0.1.2"}, {"0.0.0.0/0", "10.0.1.2"}, {"fd00:2::/64", "fd00:1::2"}, {"::/0", "fd00:1::2"}} {
		p := netip.MustParsePrefix(c.to)
		to := p.Addr().Next()
		app := &App{}
		all := append(app.Parts(Traffic{To: p}, false), Traffic{To: p})
		flow := Traffic{p, Part{Proto: openflow.IPProtoUDP, Flow: Flow{netip.MustParseAddr(c.from), to, 40000, 53}}}
		all = append(all, Traffic{p, Part{Proto: openflow.IPProtoTCP, Index: each}}, flow)
		for _, x := range all {
			k := x.key()
			if got, ok := trafficOf(&openflow.FlowMod{Table: k.Table, Priority: k.Priority, Match: k.Match}); !ok || got != x {
				t.Errorf("the entry of %v is taken for that of %v", x, got)
			}
			if k.Priority >= priorityLocal || k.Match.Len() > 1 && k.Priority%2 != 0 {
				t.Errorf("%v has the priority %d", x, k.Priority)
			}
			if _, missing := k.Match.MissingPrerequisite(); missing {
				t.Errorf("%v: %v lacks something", x, k.Match)
			}
		}
		part, whole := all[0].key().Priority, Traffic{To: p}.key().Priority
		longer := Traffic{To: netip.PrefixFrom(to, p.Bits()+1)}.key().Priority
		if !(whole+1 < part && part+1 < flow.key().Priority && flow.key().Priority+1 < longer) {
			t.Errorf("%v: %d, parts %d, flows %d, a longer prefix %d", p, whole, part, flow.key().Priority, longer)
		}
		for _, ports := range [][2]uint64{{0, 0}, {40001, 53}, {40002, 53}, {40004, 53}, {40006, 53}, {5201, 40000}, {5201, 40006}, {65535, 65535}} {
			in := slices.DeleteFunc(slices.Clone(all[:parts]), func(x Traffic) bool {
				src, _ := x.key().Match.Get(openflow.FieldTCPSrc)
				dst, _ := x.key().Match.Get(openflow.FieldTCPDst)
				return ports[0]&src.Mask.Lo != src.Value.Lo || ports[1]&dst.Mask.Lo != dst.Value.Lo
			})
			if len(in) != 1 {
				t.Fatalf("ports %d are in %v", ports, in)
			}
		}
	}
}

// Proves that a router which is to lead flows listens to what has no entry; that each flow gets one
// of its own by its first packet, and no other packet does; that it forgets one whose entry has
// timed out, stops to listen while it has as many as it may, or too much comes that is no flow, and
// takes all entries back in the end.
func TestHearsFlows(t *testing.T) {
	app, s, sw := single(t)
	to := netip.MustParsePrefix("10.7.0.0/16")
	config := app.config
	config.Routers = slices.Clone(config.Routers)
	config.Routers[0].Static = []StaticRoute{{To: to, Via: netip.MustParseAddr("10.0.2.9")}}
	config.Routers[0].Distances = nil
	if err := app.Configure(config); err != nil {
		t.Fatal(err)
	}
	n := app.node(1)
	entries := func() (flows, listening int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, m := range n.rules.Flows() {
			if m.Priority%2 != 0 {
				continue // a hairpin
			}
			if x, ok := trafficOf(m); ok && x.Part.Flow != (Flow{}) {
				flows++
			}
			if m.Cookie == listenCookie {
				listening++
			}
		}
		return flows, listening
	}
	settle := func(what string, flows, listening int) {
		t.Helper()
		until.Silent(t, time.Minute, func() string {
			// Routes that are just being looked at may put an entry again of which only the hairpin
			// has not timed out yet. In a switch it would time out once more, but not here.
			quiet := app.Quiet()
			if f, l := entries(); !quiet || f != flows || l != listening {
				return fmt.Sprintf("%s: %d entries of flows, want %d; %d listen, want %d", what, f, flows, l, listening)
			}
			return ""
		})
	}
	n.mu.Lock()
	n.learn(n.itf[2], netip.MustParseAddr("10.0.2.9"), openflow.MAC{2, 9, 9, 9, 9, 9}, true)
	n.mu.Unlock()
	app.Refresh("test")
	settle("at first", 0, 0)
	app.Steer(map[Traffic]steer.Ways{{to, Part{Index: each}}: nil}, "test")
	settle("once flows are led", 0, 2) // TCP and UDP

	send := func(proto uint8, port uint16, to string, more ...byte) {
		body := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, port), 80)
		packet := ip4(netip.MustParseAddr("10.0.1.9"), netip.MustParseAddr(to), proto, 64, append(body, more...))
		p := &controller.Packet{PacketIn: &openflow.PacketIn{Cookie: listenCookie, Reason: openflow.ReasonAction,
			Data: frame(router1, host1, openflow.EthTypeIPv4, packet)[:54-20+len(body)]}, InPort: 1, EtherType: openflow.EthTypeIPv4}
		app.PacketIn(sw, p)
	}
	s.take()
	send(openflow.IPProtoTCP, 1, "10.7.1.1")
	send(openflow.IPProtoTCP, 1, "10.7.1.1", make([]byte, 1000)...)
	send(openflow.IPProtoUDP, 1, "10.7.1.1")
	send(openflow.IPProtoICMPv4, 1, "10.7.1.1")
	send(openflow.IPProtoTCP, 1, "10.0.2.77") // to where flows are not led
	settle("after three flows, of which one is none", 2, 2)
	if sent := s.take(); len(sent) > 0 {
		t.Errorf("what has been forwarded already is sent again: %x", sent)
	}
	timeOut := func(port uint16, dst string, hairpin bool) {
		k := Traffic{to, Part{Proto: openflow.IPProtoUDP, Flow: Flow{netip.MustParseAddr("10.0.1.9"), netip.MustParseAddr(dst), port, 80}}}.key()
		if hairpin {
			k.Priority, k.Match = k.Priority+1, k.Match.With(openflow.InPort(2))
		}
		app.FlowRemoved(sw, &openflow.FlowRemoved{Cookie: Cookie, Priority: k.Priority, Reason: openflow.RemovedIdleTimeout, Table: k.Table, Match: k.Match})
	}
	timeOut(1, "10.7.1.1", false)
	settle("after one has timed out", 1, 2)
	timeOut(1, "10.7.1.1", true)
	for i := range uint16(maxFlows + 10) {
		send(openflow.IPProtoUDP, i, "10.7.1.2")
	}
	settle("with as many as there may be", maxFlows, 0)
	app.Refresh("test")
	settle("and when routes are looked at", maxFlows, 0)
	for i := range uint16(maxFlows / 4) {
		settle("as long as it is nearly full", maxFlows-int(i), 0)
		timeOut(i, "10.7.1.2", false)
		timeOut(i, "10.7.1.2", true)
	}
	settle("when there is room again", maxFlows*3/4, 2)
	paused := func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.paused
	}
	for deadline := time.Now().Add(time.Minute); !paused() && time.Now().Before(deadline); { // more may come with time
		send(openflow.IPProtoICMPv4, 1, "10.7.1.1") // fragments, say
	}
	settle("while too many packets come for nothing", maxFlows*3/4, 0)
	n.mu.Lock()
	n.paused = false
	n.listenAgain()
	n.mu.Unlock()
	settle("after that", maxFlows*3/4, 2)
	app.Steer(nil, "test")
	settle("in the end", 0, 0)
}

// Proves that what a switch has removed is not there afterwards, though it was sent again before
// the controller heard of that; but an entry that has no timeout any more is there still, and is
// known.
func TestRemovedWhileSentAgain(t *testing.T) {
	app, s, sw := single(t)
	n := app.node(1)
	p := netip.MustParsePrefix("10.7.0.0/16")
	hops := []Hop{{Port: 2, src: router2, dst: host1}}
	for _, idle := range []uint16{reactiveIdle, 0} {
		w := n.wayTo(p, hops)
		m := w.own()
		m.IdleTimeout = idle
		k := controller.KeyOf(m)
		n.mu.Lock()
		err := n.rules.Set(m)
		n.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if err := sw.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.takeFlows()
		app.FlowRemoved(sw, &openflow.FlowRemoved{Cookie: Cookie, Priority: k.Priority, Reason: openflow.RemovedIdleTimeout, Table: k.Table, Match: k.Match,
			IdleTimeout: reactiveIdle})
		if err := sw.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		deleted := slices.ContainsFunc(s.takeFlows(), func(m *openflow.FlowMod) bool {
			return m.Command == openflow.FlowDeleteStrict && m.Table == k.Table && m.Priority == k.Priority && m.Match == k.Match
		})
		n.mu.Lock()
		known := n.rules.Flow(k) != nil
		n.mu.Unlock()
		if deleted != (idle > 0) || known != (idle == 0) {
			t.Errorf("an entry with a timeout of %d s: deleted %v, known %v", idle, deleted, known)
		}
	}
}

// Proves that no packet goes in a circle at any time while a flow begins or ends to be led another
// way, with the subnet steered or not, and with links that fail meanwhile: a flow has entries at
// some routers only, and elsewhere follows those of all flows. Entries change as install has it,
// round by round, in any order within one; those that end are removed after that.
func TestFlowsNeverCircle(t *testing.T) {
	to := lan(0)
	flow := Traffic{to, Part{Proto: openflow.IPProtoTCP, Flow: Flow{SrcPort: 1, DstPort: 2}}}
	others := Traffic{to, Part{Proto: openflow.IPProtoTCP, Index: each}}
	whole := Traffic{To: to}
	circles, cutOff := 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		w := randomWires(rng, 12, 12)
		first := w.network(t)
		heard := map[int]bool{}
		for i := range w.Routers {
			heard[i] = rng.IntN(3) == 0
		}
		ways := func() map[Traffic]steer.Ways {
			out := map[Traffic]steer.Ways{}
			for _, x := range []Traffic{flow, whole} {
				if rng.IntN(2) == 0 {
					out[x] = randomPath(rng, first, 11, 0)
				}
			}
			return out
		}
		// now is what routers have; has says which traffic they are to have entries for.
		now := map[Traffic]map[int]*Route{flow: {}, others: {}, whole: {}}
		has := func(n *network, x Traffic, router int) bool {
			_, steered := n.balanced[x][router]
			return x != flow || heard[router] || steered
		}
		circled := func() bool {
			follows := maps.Clone(now[whole])
			maps.Copy(follows, now[others])
			maps.Copy(follows, now[flow])
			return circle(follows)
		}
		transit := func(step int, n *network, onlyParts bool) {
			rounds := map[int][]change{}
			byTraffic := map[Traffic][]change{}
			for x, routers := range now {
				for i := range n.routers {
					r := n.wayOf(i, x)
					if r != nil && (has(n, x, i) || routers[i] != nil) && (step == 0 || routers[i] == nil || fmt.Sprint(routers[i].Hops) != fmt.Sprint(r.Hops)) {
						c := change{node: &node{index: i}, traffic: x, route: r, fresh: step == 0}
						byTraffic[c.orderedBy(n, onlyParts)] = append(byTraffic[c.orderedBy(n, onlyParts)], c)
					}
				}
			}
			for x, list := range byTraffic {
				order, _ := layers(n, x, list, nil)
				for i, layer := range order {
					rounds[layer] = append(rounds[layer], list[i])
				}
			}
			for layer := range len(n.routers) + 1 {
				rng.Shuffle(len(rounds[layer]), func(i, j int) { rounds[layer][i], rounds[layer][j] = rounds[layer][j], rounds[layer][i] })
				for _, c := range rounds[layer] {
					if now[c.traffic][c.index] = c.route; step > 0 && circled() {
						circles++
						t.Logf("seed %d, step %d: a circle by the way of %v at r%d", seed, step, c.traffic, c.index+1)
					}
				}
			}
			for _, i := range rng.Perm(len(n.routers)) {
				if !has(n, flow, i) {
					if delete(now[flow], i); circled() {
						circles++
						t.Logf("seed %d, step %d: a circle without the entry of r%d", seed, step, i+1)
					}
				}
			}
		}
		var was map[Traffic]steer.Ways
		for step := range 4 {
			if step == 2 {
				w.cut(rng.IntN(len(w.links) / 2))
				if whole := w.network(t); slices.ContainsFunc(slices.Collect(maps.Keys(heard)), func(i int) bool { return whole.wayOf(i, Traffic{To: to}) == nil }) {
					cutOff++
					break // entries of routers that have no way any more are removed: there is no order among them
				}
			}
			wanted := ways()
			for stage, led := range stages(was, wanted) {
				n := w.network(t)
				n.steer(led)
				transit(step, n, stage > 0)
			}
			was = wanted
		}
	}
	if circles > 0 || cutOff > 100 {
		t.Errorf("%d circles; of 300 networks %d were cut in two", circles, cutOff)
	}
}
